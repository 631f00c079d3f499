//! `GET /health`: how the coordination goes, for monitoring.
//!
//! The five figures are counted by whoever makes a claim and kept as sums, so asking costs the same after a year as after
//! a minute.

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tollgate::error::{Fault, Result};
use tollgate::name::Agent;
use tollgate::vault::figures::{Figures, Tally};
use tollgate::vault::state::State as TaskState;

use crate::accounts::Condition;
use crate::board::Column;
use crate::site::{Broken, Open, OpenVault, Site};

/// One agent, if only that is asked for.
#[derive(Deserialize)]
pub(crate) struct Asked {
    agent: Option<String>,
}

/// The answer.
#[derive(Serialize)]
struct Health {
    status: Status,
    /// Null if the vault cannot be read.
    coordination: Option<Figures>,
    agents: Vec<Figures>,
    /// Null without a vault.
    tasks: Option<Tasks>,
    ledger: Ledger,
    /// What is broken, in sentences.
    problems: Vec<String>,
    /// Whether the folder is set up for tollgate.
    set_up: bool,
    /// Whether pages are live: the kernel tells what happens.
    live: bool,
    uptime_s: i64,
    version: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    Broken,
}

#[derive(Serialize)]
struct Tasks {
    waiting: usize,
    oldest_waiting: Option<Oldest>,
    in_progress: usize,
    /// Their owners are gone; the next worker takes them back.
    stale_claims: usize,
    pending_approvals: usize,
    oldest_pending_approval: Option<Oldest>,
    approved: usize,
    done: usize,
    rejected: usize,
}

#[derive(Serialize)]
struct Oldest {
    task: String,
    since: Timestamp,
    age_s: i64,
}

impl Oldest {
    fn of(column: &Column, now: Timestamp) -> Option<Self> {
        let (task, since) = column.oldest()?;
        let age_s = now.duration_since(since).as_secs().max(0);
        Some(Self { task: task.as_str().to_owned(), since, age_s })
    }
}

#[derive(Serialize)]
struct Ledger {
    #[serde(flatten)]
    condition: Condition,
    lines: u64,
}

pub(crate) async fn get(
    State(site): State<Site>,
    Query(asked): Query<Asked>,
) -> Result<(StatusCode, Json<serde_json::Value>), Broken> {
    let agent = asked.agent.map(|name| name.parse::<Agent>()).transpose()?;
    let health = site.blocking(move |site| Ok(look(site, agent.as_ref()))).await?;
    let code = match health.status {
        Status::Ok => StatusCode::OK,
        Status::Broken => StatusCode::SERVICE_UNAVAILABLE,
    };
    let json = serde_json::to_value(health).map_err(|error| Fault::Invalid { what: error.to_string() })?;
    Ok((code, Json(json)))
}

fn look(site: &Site, agent: Option<&Agent>) -> Health {
    let now = Timestamp::now();
    let account = site.ledger();
    let mut health = Health {
        status: Status::Ok,
        coordination: Some(Figures::new(agent.map_or("all", Agent::as_str), 0, &Tally::default())),
        agents: Vec::new(),
        tasks: None,
        ledger: Ledger { condition: account.condition, lines: account.lines },
        problems: Vec::new(),
        set_up: true,
        live: !site.feed.is_blind(),
        uptime_s: now.duration_since(site.started).as_secs().max(0),
        version: env!("CARGO_PKG_VERSION"),
    };
    match site.open() {
        Ok(Some(open)) => {
            health.problems.extend(site.broken_folders(&open));
            if let Condition::Broken { problem } = &health.ledger.condition {
                health.problems.push(format!("the ledger is not as it was written: {problem}"));
            }
            if let Err(fault) = health.look_at_tasks(site, &open, agent, now) {
                health.coordination = None;
                health.problems.push(fault.to_string());
            }
        }
        Ok(None) => health.set_up = false,
        Err(fault) => {
            health.coordination = None;
            health.problems.push(fault.to_string());
        }
    }
    if !health.problems.is_empty() {
        health.status = Status::Broken;
    }
    health
}

impl Health {
    fn look_at_tasks(
        &mut self,
        site: &Site,
        open: &Open,
        agent: Option<&Agent>,
        now: Timestamp,
    ) -> Result<()> {
        let Some(OpenVault { vault, .. }) = &open.vault else { return Ok(()) };
        let (all, mut each) = vault.figures()?;
        match agent {
            None => self.coordination = Some(all),
            Some(agent) => {
                each.retain(|figures| figures.agent_name == agent.as_str());
                self.coordination = each.first().cloned().or(self.coordination.take());
            }
        }
        self.agents = each;
        let Some(board) = site.board()? else { return Ok(()) };
        let column = |state| board.column(state);
        self.tasks = Some(Tasks {
            waiting: column(TaskState::NeedsAction).len(),
            oldest_waiting: Oldest::of(column(TaskState::NeedsAction), now),
            in_progress: column(TaskState::InProgress).len(),
            stale_claims: site.stale_claims(vault)?,
            pending_approvals: column(TaskState::PendingApproval).len(),
            oldest_pending_approval: Oldest::of(column(TaskState::PendingApproval), now),
            approved: column(TaskState::Approved).len(),
            done: column(TaskState::Done).len(),
            rejected: column(TaskState::Rejected).len(),
        });
        Ok(())
    }
}
