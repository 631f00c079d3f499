//! `GET /metrics`: figures in the text format of Prometheus.
//!
//! Counters are what the ledger's lines add up to, whichever process wrote them, so they go on where they were when the
//! server is started again. They are left out until all lines were read once: a counter that climbs from zero would be
//! taken for a storm.

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use jiff::Timestamp;
use tollgate::error::Result;
use tollgate::vault::state::State as TaskState;

use crate::accounts::Condition;
use crate::exposition::{self, Exposition};
use crate::site::{Broken, Open, Site};
use crate::sums::Sums;

pub(crate) async fn get(State(site): State<Site>) -> Result<impl IntoResponse, Broken> {
    let page = site.blocking(|site| Ok(write(site))).await?;
    Ok(([(CONTENT_TYPE, exposition::CONTENT_TYPE)], page))
}

#[expect(clippy::cast_precision_loss, reason = "nothing happens 2^53 times")]
fn write(site: &Site) -> String {
    let mut page = Exposition::default();
    let version = env!("CARGO_PKG_VERSION");
    page.family("tollgate_build_info", "gauge", "The version of the server.");
    page.sample("tollgate_build_info", &[("version", version)], 1.0);
    let started = site.started.as_millisecond() as f64 / 1e3;
    page.one("tollgate_start_time_seconds", "gauge", "When the server was started.", started);
    let account = site.ledger();
    let open = site.open();
    let mut works = matches!(open, Ok(Some(_))) && !matches!(account.condition, Condition::Broken { .. });
    if let Ok(Some(open)) = &open {
        works &= site.broken_folders(open).is_empty() && now(&mut page, site, open).is_ok();
    }
    page.one(
        "tollgate_up",
        "gauge",
        "1 if the workspace is set up and nothing in it is broken.",
        f64::from(u8::from(works)),
    );
    let whole = match account.condition {
        Condition::Checking => None,
        Condition::Whole => Some(1.0),
        Condition::Broken { .. } => Some(0.0),
    };
    if let Some(whole) = whole {
        let help = "1 if every line of the ledger fits to the one before.";
        page.one("tollgate_ledger_whole", "gauge", help, whole);
    }
    if let Some(sums) = &account.sums {
        page.one(
            "tollgate_ledger_last_seq",
            "gauge",
            "The number of the last ledger line.",
            account.lines as f64,
        );
        ever(&mut page, sums);
    }
    page.finish()
}

/// What is the case now.
#[expect(clippy::cast_precision_loss, reason = "nobody has 2^53 tasks")]
fn now(page: &mut Exposition, site: &Site, open: &Open) -> Result<()> {
    let turns: usize = open.turns.iter().map(|turns| turns.list().map_or(0, |turns| turns.len())).sum();
    page.one(
        "tollgate_turns_open",
        "gauge",
        "Turns that commands and hooks share and that have not ended.",
        turns as f64,
    );
    let Some(vault) = &open.vault else { return Ok(()) };
    let (_, each) = vault.vault.figures()?;
    page.family("tollgate_claims_active", "gauge", "Tasks in the hands of each agent.");
    for figures in &each {
        page.sample(
            "tollgate_claims_active",
            &[("agent", &figures.agent_name)],
            figures.active_claims as f64,
        );
    }
    page.family(
        "tollgate_claim_success_ratio",
        "gauge",
        "Claims, as a share of claims and of claims that ended in an error.",
    );
    for figures in &each {
        page.sample(
            "tollgate_claim_success_ratio",
            &[("agent", &figures.agent_name)],
            figures.claim_success_rate,
        );
    }
    let stale = site.stale_claims(&vault.vault)?;
    page.one("tollgate_claims_stale", "gauge", "Claims whose owner is gone.", stale as f64);
    let Some(board) = site.board()? else { return Ok(()) };
    page.family("tollgate_tasks", "gauge", "Tasks in each state.");
    for state in TaskState::ALL {
        page.sample("tollgate_tasks", &[("state", state.as_str())], board.column(state).len() as f64);
    }
    let time = Timestamp::now();
    let age = |state| {
        let since = board.column(state).oldest().map(|(_, since)| time.duration_since(since));
        since.map_or(0.0, |age| age.as_secs_f64().max(0.0))
    };
    let help = "Tasks that wait for a person.";
    page.one(
        "tollgate_approvals_pending",
        "gauge",
        help,
        board.column(TaskState::PendingApproval).len() as f64,
    );
    let help = "Age of the task that has waited for a person longest; 0 if none does.";
    page.one("tollgate_approval_oldest_age_seconds", "gauge", help, age(TaskState::PendingApproval));
    let help = "Age of the task that has waited for an agent longest; 0 if none does.";
    page.one("tollgate_task_oldest_age_seconds", "gauge", help, age(TaskState::NeedsAction));
    Ok(())
}

/// What has happened.
#[expect(clippy::cast_precision_loss, reason = "nothing happens 2^53 times")]
fn ever(page: &mut Exposition, sums: &Sums) {
    let counter = "counter";
    let name = "tollgate_ledger_lines_total";
    page.family(name, counter, "Lines in the ledger, by kind.");
    for (kind, count) in &sums.lines {
        page.sample(name, &[("action_type", kind)], *count as f64);
    }
    let by_agent = [
        ("tollgate_mutations_total", "Files changed through the gate.", &sums.mutations),
        ("tollgate_claims_total", "Tasks claimed.", &sums.claims),
        (
            "tollgate_claim_conflicts_avoided_total",
            "Races for a task that another agent won.",
            &sums.claims_lost,
        ),
        ("tollgate_turns_total", "Turns begun.", &sums.turns),
    ];
    for (name, help, counts) in by_agent {
        page.family(name, counter, help);
        for (agent, count) in counts {
            page.sample(name, &[("agent", agent)], *count as f64);
        }
    }
    let by_agent_and = [
        ("tollgate_refusals_total", "Writes that were refused.", "error_type", &sums.refusals),
        (
            "tollgate_releases_total",
            "Tasks let go by their owner, by the state they went to.",
            "state",
            &sums.releases,
        ),
    ];
    for (name, help, label, counts) in by_agent_and {
        page.family(name, counter, help);
        for ((agent, word), count) in counts {
            page.sample(name, &[("agent", agent), (label, word)], *count as f64);
        }
    }
    page.family(
        "tollgate_decisions_total",
        counter,
        "What was decided about tasks that waited for a person.",
    );
    for (decision, count) in &sums.decisions {
        page.sample("tollgate_decisions_total", &[("decision", decision)], *count as f64);
    }
    let help = "Tasks taken back from owners who were gone.";
    page.one("tollgate_reclaims_total", counter, help, sums.reclaims as f64);
    let help = "Saves of other programs found in what a guarded write had replaced, and kept.";
    page.one("tollgate_late_external_writes_total", counter, help, sums.late_writes as f64);
    let help = "Time of a guarded commit, from the locks to its ledger line.";
    page.histogram("tollgate_commit_duration_seconds", help, &sums.commit);
    let help = "Time that a task waited before it was claimed.";
    page.histogram("tollgate_task_pick_up_seconds", help, &sums.pick_up);
}
