//! `GET /metrics`: the snapshot, and the sums of the ledger's lines, in the Prometheus text format.
//!
//! Counters come from ledger lines that any process wrote, so they continue when the server restarts. They are left out
//! until all lines were read once: a counter that climbs from zero would look like a burst of activity.

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use tollgate::error::Result;
use tollgate::vault::state::State as TaskState;

use crate::exposition::{self, Exposition};
use crate::fault_response::FaultResponse;
use crate::ledger_monitor::LedgerCondition;
use crate::site::Site;
use crate::snapshot::{OldestTask, Snapshot, TaskFigures};
use crate::sums::Sums;

pub(crate) async fn get(State(site): State<Site>) -> Result<impl IntoResponse, FaultResponse> {
    let page = site.blocking(|site| Ok(write(site))).await?;
    Ok(([(CONTENT_TYPE, exposition::CONTENT_TYPE)], page))
}

#[expect(clippy::cast_precision_loss, reason = "no count reaches 2^53")]
fn write(site: &Site) -> String {
    let mut page = Exposition::default();
    let version = env!("CARGO_PKG_VERSION");
    page.family("tollgate_build_info", "gauge", "Version of the server.");
    page.sample("tollgate_build_info", &[("version", version)], 1.0);
    let started = site.started.as_millisecond() as f64 / 1e3;
    page.one("tollgate_start_time_seconds", "gauge", "Start time of the server.", started);
    let snapshot = Snapshot::take(site);
    if let Some(turns) = snapshot.open_turns {
        let help = "Turns that commands and hooks share and that have not ended.";
        page.one("tollgate_turns_open", "gauge", help, turns as f64);
    }
    if let Some(overlaps) = snapshot.overlaps {
        let help = "Files on which several agents work in turns that have not ended.";
        page.one("tollgate_overlapping_files", "gauge", help, overlaps as f64);
    }
    if let Some(tasks) = &snapshot.tasks {
        gauges(&mut page, &snapshot, tasks);
    }
    let up = snapshot.set_up && snapshot.problems.is_empty();
    let help = "1 if the workspace is set up and has no problems.";
    page.one("tollgate_up", "gauge", help, f64::from(u8::from(up)));
    let whole = match snapshot.ledger.condition {
        LedgerCondition::Checking => None,
        LedgerCondition::Whole => Some(1.0),
        LedgerCondition::Broken { .. } => Some(0.0),
    };
    if let Some(whole) = whole {
        let help = "1 if every ledger line carries the hash of the line before it.";
        page.one("tollgate_ledger_whole", "gauge", help, whole);
    }
    if let Some(sums) = &snapshot.ledger.sums {
        let help = "Number of the last ledger line.";
        page.one("tollgate_ledger_last_seq", "gauge", help, snapshot.ledger.lines as f64);
        counters(&mut page, sums);
    }
    page.finish()
}

/// The state of the tasks now.
#[expect(clippy::cast_precision_loss, reason = "no count reaches 2^53")]
fn gauges(page: &mut Exposition, snapshot: &Snapshot, tasks: &TaskFigures) {
    page.family("tollgate_claims_active", "gauge", "Tasks that each agent is working on.");
    for figures in &snapshot.agents {
        let labels = [("agent", figures.agent_name.as_str())];
        page.sample("tollgate_claims_active", &labels, figures.active_claims as f64);
    }
    let help = "Claims divided by the sum of claims and claims that ended in an error.";
    page.family("tollgate_claim_success_ratio", "gauge", help);
    for figures in &snapshot.agents {
        let labels = [("agent", figures.agent_name.as_str())];
        page.sample("tollgate_claim_success_ratio", &labels, figures.claim_success_rate);
    }
    let help = "Claims whose owner is gone.";
    page.one("tollgate_claims_stale", "gauge", help, tasks.stale_claims as f64);
    page.family("tollgate_tasks", "gauge", "Tasks in each state.");
    for (state, count) in tasks.counts {
        page.sample("tollgate_tasks", &[("state", state.as_str())], count as f64);
    }
    let help = "Tasks that wait for a person's approval.";
    let pending = tasks.count(TaskState::PendingApproval);
    page.one("tollgate_approvals_pending", "gauge", help, pending as f64);
    let age = |oldest: &Option<OldestTask>| {
        let age = oldest.as_ref().map(|oldest| snapshot.now.duration_since(oldest.since));
        age.map_or(0.0, |age| age.as_secs_f64().max(0.0))
    };
    let help = "Age of the task that has waited longest for approval; 0 if none waits.";
    page.one("tollgate_approval_oldest_age_seconds", "gauge", help, age(&tasks.oldest_pending_approval));
    let help = "Age of the task that has waited longest for an agent; 0 if none waits.";
    page.one("tollgate_task_oldest_age_seconds", "gauge", help, age(&tasks.oldest_waiting));
}

/// What has happened since the ledger began.
#[expect(clippy::cast_precision_loss, reason = "no count reaches 2^53")]
fn counters(page: &mut Exposition, sums: &Sums) {
    let counter = "counter";
    let name = "tollgate_ledger_lines_total";
    page.family(name, counter, "Ledger lines, by action type.");
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
        ("tollgate_refusals_total", "Refused writes.", "error_type", &sums.refusals),
        ("tollgate_releases_total", "Tasks released by their owner, by new state.", "state", &sums.releases),
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
        "Decisions by people about tasks that waited for approval.",
    );
    for (decision, count) in &sums.decisions {
        page.sample("tollgate_decisions_total", &[("decision", decision)], *count as f64);
    }
    let help = "Tasks reclaimed from dead owners.";
    page.one("tollgate_reclaims_total", counter, help, sums.reclaims as f64);
    let help = "Late saves by other programs that the late-write check found and kept.";
    page.one("tollgate_late_external_writes_total", counter, help, sums.late_writes as f64);
    let help = "Duration of a guarded commit, from taking the locks to its ledger line.";
    page.histogram("tollgate_commit_duration_seconds", help, &sums.commit);
    let help = "Time that a task waited before it was claimed.";
    page.histogram("tollgate_task_pick_up_seconds", help, &sums.pick_up);
}
