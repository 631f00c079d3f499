//! One event on its way out.

use jiff::Timestamp;
use tollgate_base::digest::Digest;
use tollgate_base::event::Event;
use tollgate_base::name::{Agent, TurnId};

/// One event on its way out.
#[derive(Debug, Clone)]
pub struct ExportRecord {
    /// The SHA-256 of `text`: the same whenever and however often the event is exported.
    pub id: Digest,
    /// Its number, if its ledger has numbers.
    pub seq: Option<u64>,
    /// When it happened.
    pub time: Timestamp,
    /// The agent that did it, if one did.
    pub agent: Option<Agent>,
    /// The turn in which it happened, if it was one.
    pub turn: Option<TurnId>,
    /// What happened.
    pub event: Event,
    /// The event as a line of JSON, with everything that a later version may have added to it.
    pub text: Box<str>,
}

impl ExportRecord {
    /// The type of the event in words of monitoring systems, such as `tollgate.mutation_conflict`.
    pub(crate) fn event_name(&self) -> String {
        format!("tollgate.{}", self.event.action_type().to_ascii_lowercase())
    }
}
