//! `GET /health`: the snapshot as JSON, for monitoring.

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tollgate::error::{Fault, Result};
use tollgate::name::Agent;
use tollgate::vault::figures::Figures;
use tollgate::vault::state::State as TaskState;

use crate::fault_response::FaultResponse;
use crate::ledger_monitor::LedgerCondition;
use crate::notices::delivery::{DeliveryStatus, NoticeQueue};
use crate::site::Site;
use crate::snapshot::{OldestTask, Snapshot, TaskFigures};

/// The query: one agent, or all.
#[derive(Deserialize)]
pub(crate) struct HealthQuery {
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
    tasks: Option<TasksHealth>,
    ledger: LedgerHealth,
    /// Each problem in one sentence.
    problems: Vec<String>,
    /// Whether tollgate is set up in the folder.
    set_up: bool,
    /// Whether pages are live: the kernel reports every change.
    live: bool,
    /// How many notices were delivered. Missing if nobody is to be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    notify: Option<DeliveryStatus>,
    uptime_s: i64,
    version: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    /// Everything can be used, but an agent has stopped claiming tasks.
    Degraded,
    Broken,
}

#[derive(Serialize)]
struct TasksHealth {
    waiting: usize,
    oldest_waiting: Option<OldestHealth>,
    in_progress: usize,
    stale_claims: usize,
    pending_approvals: usize,
    oldest_pending_approval: Option<OldestHealth>,
    approved: usize,
    done: usize,
    rejected: usize,
}

impl TasksHealth {
    fn new(figures: TaskFigures, now: Timestamp) -> Self {
        let count = |state| figures.count(state);
        let oldest = |oldest: Option<OldestTask>| {
            let age_s = |since| now.duration_since(since).as_secs().max(0);
            oldest.map(|OldestTask { task, since }| OldestHealth { task, since, age_s: age_s(since) })
        };
        Self {
            waiting: count(TaskState::NeedsAction),
            in_progress: count(TaskState::InProgress),
            stale_claims: figures.stale_claims,
            pending_approvals: count(TaskState::PendingApproval),
            approved: count(TaskState::Approved),
            done: count(TaskState::Done),
            rejected: count(TaskState::Rejected),
            oldest_waiting: oldest(figures.oldest_waiting),
            oldest_pending_approval: oldest(figures.oldest_pending_approval),
        }
    }
}

#[derive(Serialize)]
struct OldestHealth {
    task: String,
    since: Timestamp,
    age_s: i64,
}

#[derive(Serialize)]
struct LedgerHealth {
    #[serde(flatten)]
    condition: LedgerCondition,
    lines: u64,
}

pub(crate) async fn get(
    State(site): State<Site>,
    Query(query): Query<HealthQuery>,
) -> Result<(StatusCode, Json<serde_json::Value>), FaultResponse> {
    let agent = query.agent.map(|name| name.parse::<Agent>()).transpose()?;
    let health = site.blocking(move |site| Ok(Health::new(site, agent.as_ref()))).await?;
    let code = match health.status {
        Status::Ok | Status::Degraded => StatusCode::OK,
        Status::Broken => StatusCode::SERVICE_UNAVAILABLE,
    };
    let json = serde_json::to_value(health).map_err(|error| Fault::invalid(error.to_string()))?;
    Ok((code, Json(json)))
}

impl Health {
    fn new(site: &Site, agent: Option<&Agent>) -> Self {
        let mut snapshot = Snapshot::take(site);
        if let Some(agent) = agent {
            if snapshot.coordination.is_some() {
                snapshot.coordination = Some(snapshot.of_agent(agent));
            }
            snapshot.agents.retain(|figures| figures.agent_name == agent.as_str());
        }
        let Snapshot { now, set_up, mut problems, ledger, coordination, agents, tasks, .. } = snapshot;
        let degraded: Vec<String> = agents.iter().filter_map(Figures::stopped).collect();
        let status = match (problems.is_empty(), degraded.is_empty()) {
            (true, true) => Status::Ok,
            (true, false) => Status::Degraded,
            (false, _) => Status::Broken,
        };
        problems.extend(degraded);
        Self {
            status,
            coordination,
            agents,
            tasks: tasks.map(|tasks| TasksHealth::new(tasks, now)),
            ledger: LedgerHealth { condition: ledger.condition, lines: ledger.lines },
            problems,
            set_up,
            live: site.is_live(),
            notify: site.delivery().map(NoticeQueue::status),
            uptime_s: now.duration_since(site.started).as_secs().max(0),
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}
