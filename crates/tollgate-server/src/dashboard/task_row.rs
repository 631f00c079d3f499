//! One task as a row of a list.

use jiff::Timestamp;
use maud::{Markup, html};
use tollgate::error::Fault;
use tollgate::vault::brief::Priority;
use tollgate::vault::state::{Slot, State};
use tollgate::vault::store::TaskSummary;
use tollgate::vault::{TaskName, Vault};

use super::text::{SafeText, age, encode, exact, plain};

/// One task as a row of a list.
pub(super) struct TaskRow {
    task: String,
    title: String,
    slot: Slot,
    priority: Priority,
    action: Option<String>,
    broken: Option<String>,
    attempts: u32,
    reason: Option<String>,
    has_expired: bool,
    due: Option<Timestamp>,
    /// The tasks that it waits for.
    blocked_by: Vec<TaskName>,
    since: Timestamp,
}

/// What people call a task: its title, else its name.
pub(super) fn title(listed: &TaskSummary) -> &str {
    let brief = listed.brief.as_ref().ok();
    brief.and_then(|brief| brief.title.as_deref()).unwrap_or(listed.name.stem())
}

/// Reads the details of these tasks.
pub(super) fn rows(vault: &Vault, listed: &[TaskSummary], now: Timestamp) -> Vec<TaskRow> {
    let mut rows = Vec::with_capacity(listed.len());
    for listed in listed {
        let mut row = TaskRow {
            task: listed.name.to_string(),
            title: title(listed).to_owned(),
            slot: listed.slot.clone(),
            priority: listed.brief.as_ref().map(|brief| brief.priority).unwrap_or_default(),
            action: listed.brief.as_ref().ok().and_then(|brief| brief.action.as_deref().map(str::to_owned)),
            broken: listed.brief.as_ref().err().map(ToString::to_string),
            attempts: 0,
            reason: None,
            has_expired: false,
            due: listed.brief.as_ref().ok().and_then(|brief| brief.due),
            blocked_by: blocked_by(vault, listed, now),
            since: listed.modified,
        };
        // A task in a final state has no claim record. If the task has moved since it was listed, the next read shows it.
        let stored = match listed.slot.state() {
            state if state.is_final() => None,
            _ => vault.store().get(&listed.name, None, now).unwrap_or_else(|fault| {
                // If the store does not answer, the task is not broken.
                if !matches!(fault, Fault::Unreachable { .. } | Fault::RemoteRefused { .. }) {
                    row.broken.get_or_insert_with(|| fault.to_string());
                }
                None
            }),
        };
        if let Some(stored) = stored.filter(|stored| stored.slot == listed.slot) {
            row.attempts = stored.record.attempts;
            row.reason.clone_from(&stored.record.reason);
            if let Some(claim) = &stored.record.claim {
                row.since = claim.at;
                row.has_expired = vault.has_expired(claim, now).unwrap_or(false);
            }
            if let Some(approval) = &stored.record.approval {
                row.since = approval.at;
            }
        }
        rows.push(row);
    }
    rows
}

/// The tasks that must be done before this one can be claimed, and are not.
fn blocked_by(vault: &Vault, listed: &TaskSummary, now: Timestamp) -> Vec<TaskName> {
    let Ok(brief) = &listed.brief else { return Vec::new() };
    let is_done = |task: &TaskName| matches!(vault.store().get(task, Some(State::Done), now), Ok(Some(_)));
    let before = brief.after.iter().filter(|_| listed.slot.state().is_claimable());
    before.filter(|task| !is_done(task)).cloned().collect()
}

impl TaskRow {
    /// Its file name.
    pub(super) fn name(&self) -> &str {
        &self.task
    }

    pub(super) fn state(&self) -> State {
        self.slot.state()
    }

    /// The agent that works on it; empty if none does.
    pub(super) fn agent(&self) -> &str {
        self.slot.agent().map_or("", |agent| agent.as_str())
    }

    /// What identifies it in a list, so that an update keeps its element.
    pub(super) fn key(&self) -> String {
        plain(&self.task)
    }

    pub(super) fn show(&self, now: Timestamp) -> Markup {
        let address = format!("/tasks/{}", encode(&self.task));
        html! {
            a.task href=(address) title=(plain(&self.task)) { (SafeText(&self.title)) }
            div.about {
                @if self.priority < Priority::default() {
                    span.priority data-level=(self.priority.0) { (self.priority.as_str()) }
                }
                @if let Some(agent) = self.slot.agent() { span.agent { (agent) } }
                @if let Some(action) = &self.action { span.action { (SafeText(action)) } }
                @if self.attempts > 1 { span { "attempt " (self.attempts) } }
                @if self.has_expired { span.bad { "lease expired" } }
                @if let Some(due) = self.due.filter(|_| !self.slot.state().is_final()) {
                    span.due.bad[due < now] { "due " (exact(due).get(..10).unwrap_or_default()) }
                }
                @for before in &self.blocked_by {
                    span.blocked { "blocked by " (SafeText(before.stem())) }
                }
                @if let Some(broken) = &self.broken { span.bad { "unreadable: " (SafeText(broken)) } }
                @if let Some(reason) = &self.reason { span.reason { (SafeText(reason)) } }
                (age(self.since, now))
            }
        }
    }
}

/// The name of a state, and the text for an empty list of it.
pub(super) fn state_words(state: State) -> (&'static str, &'static str) {
    match state {
        State::NeedsAction => ("Needs action", "No task is waiting."),
        State::InProgress => ("In progress", "No agent is working on a task."),
        State::PendingApproval => ("Pending approval", "Nothing is waiting for you."),
        State::Approved => ("Approved", "Nothing is waiting to be executed."),
        State::Done => ("Done", "No task is done yet."),
        State::Rejected => ("Rejected", "No task was rejected."),
    }
}
