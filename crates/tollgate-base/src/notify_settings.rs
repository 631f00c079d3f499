//! `[notify]`: whom to tell when something needs a person.

use serde::{Deserialize, Serialize};

/// `[notify]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NotifySettings {
    /// A program and its arguments. It gets the notice as JSON on standard input.
    pub command: Vec<String>,
    /// An address that gets the notice by a signed `POST`.
    pub webhook: Option<String>,
    /// What to tell.
    pub on: Vec<NoticeKind>,
    /// The number of refused writes of one agent to one file, within ten minutes, that are worth a notice.
    pub refusals: u32,
}

impl Default for NotifySettings {
    fn default() -> Self {
        // One refusal is normal, and the agent redoes its change. Three in a row mean that it does not get on.
        // Agents that share files overlap all day, and tell each other.
        let on = vec![NoticeKind::Approval, NoticeKind::Breaker, NoticeKind::Refusals];
        Self { command: Vec::new(), webhook: None, on, refusals: 3 }
    }
}

impl NotifySettings {
    /// Whether anybody is told anything.
    pub fn is_set(&self) -> bool {
        !self.command.is_empty() || self.webhook.is_some()
    }
}

/// What a notice is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NoticeKind {
    /// A task waits for approval.
    Approval,
    /// The breaker of a worker is open.
    Breaker,
    /// An agent is refused again and again.
    Refusals,
    /// Several agents have changed the same file, in turns that go on.
    Overlaps,
}
