//! What happened to tasks, for the ledger, and the small door through which the ledger is reached.
//!
//! Invariant: the events of a step are written after the step's effect and before its answer. A step that was cut
//! short is finished by whoever comes next; `has` keeps its events from being written twice.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::block::Verdict;
use super::claim::{ClaimId, Mode, StepId, Tenure};
use super::name::TaskName;
use super::state::State;
use crate::digest::Digest;
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
    /// When.
    #[serde(with = "jiff::fmt::serde::timestamp::nanosecond::required")]
    pub time: Timestamp,
    /// Whose doing.
    pub agent: Option<Agent>,
    /// What.
    pub kind: Kind,
    /// About what.
    pub payload: Payload,
    /// With which result.
    pub result: Status,
}

/// What an event is about. Each kind has some of these; the order of the fields is the order of the keys in the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Payload {
    /// The task.
    pub task: TaskName,
    /// The claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_id: Option<ClaimId>,
    /// Its fencing number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// What the owner is to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Where the task was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<State>,
    /// The number of the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// How long the task had waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_ms: Option<i64>,
    /// How long the claim lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenure: Option<Tenure>,
    /// How the attempt ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Verdict>,
    /// How long it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<u64>,
    /// What a person decided: `approve`, `reject`; `void` if that is void.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Cow<'static, str>>,
    /// Who decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The bytes that were approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Digest>,
    /// Those that a person has made them of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited_from: Option<Digest>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The step it tells of.
    pub step: StepId,
}

impl Payload {
    /// A step of a task, and nothing else yet.
    pub fn new(task: &TaskName, step: &StepId) -> Self {
        Self {
            task: task.clone(),
            claim_id: None,
            epoch: None,
            mode: None,
            from: None,
            attempt: None,
            waited_ms: None,
            tenure: None,
            result: None,
            duration_s: None,
            decision: None,
            by: None,
            sha256: None,
            edited_from: None,
            reason: None,
            step: step.clone(),
        }
    }
}

/// What came of it: `CLAIMED`, or the state the task is in now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// As a word.
    pub status: Cow<'static, str>,
}

impl From<&'static str> for Status {
    fn from(status: &'static str) -> Self {
        Self { status: Cow::Borrowed(status) }
    }
}

impl From<State> for Status {
    fn from(state: State) -> Self {
        state.as_str().into()
    }
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
        Ok(events.iter().any(|event| event.payload.step == *step))
    }
}
