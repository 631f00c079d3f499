//! What happened to tasks, for the ledger, and the small door through which the ledger is reached.
//!
//! Invariant: the events of a step are written after the step's effect and before its answer. A step that was cut
//! short is finished by whoever comes next; `has` keeps its events from being written twice.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::claim::StepId;
use crate::error::Result;
use crate::name::Agent;

/// The kinds of ledger lines that the vault writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Kind {
    /// A task was taken.
    Claim,
    /// Another was quicker.
    ClaimLost,
    /// A lease was extended.
    Renew,
    /// An owner let a task go.
    Release,
    /// A person decided.
    Approval,
    /// A task was taken from an owner who is gone.
    Reclaim,
}

/// One line for the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The step it tells of. Also in the payload, under `step`.
    pub step: StepId,
    /// When.
    pub time: Timestamp,
    /// Whose doing.
    pub agent: Option<Agent>,
    /// What.
    pub kind: Kind,
    /// About what.
    pub payload: Value,
    /// With which result.
    pub result: Value,
}

/// Where events are written down.
pub trait Journal: Send + Sync {
    /// Which journal this is: the same for all processes that write to it, different for different ones.
    fn id(&self) -> &str;

    /// Writes the events, in order, all or none, as durable as the vault is.
    fn append(&self, events: &[Event]) -> Result<()>;

    /// Whether an event of this step, which was begun at `since`, is written. Asked only after a crash.
    fn has(&self, step: &StepId, since: Timestamp) -> Result<bool>;
}

/// A journal in memory, for tests and for stores that keep their own.
#[derive(Debug, Default)]
pub struct MemoryJournal {
    events: std::sync::Mutex<Vec<Event>>,
}

impl MemoryJournal {
    /// All events so far.
    pub fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

impl Journal for MemoryJournal {
    fn id(&self) -> &str {
        "memory"
    }

    fn append(&self, events: &[Event]) -> Result<()> {
        self.events.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend_from_slice(events);
        Ok(())
    }

    fn has(&self, step: &StepId, _since: Timestamp) -> Result<bool> {
        let events = self.events.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Ok(events.iter().any(|event| event.step == *step))
    }
}
