//! What happened to tasks: the events of a step, and the journal in which a store records them.
//!
//! The events themselves are defined in [`tollgate_base::event`], for the vault, the guard and the ledger alike.
//!
//! Invariant: the events of a step are recorded after the step's effect and before its answer. If the process dies in
//! between, the next one finishes the step; [`Journal::has`] keeps its events from being recorded twice.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::figures::Tally;
use tollgate_base::error::{Fault, Result};
use tollgate_base::name::{Agent, StepId};

pub use tollgate_base::event::Event;
pub use tollgate_base::ledger::Entry;

/// A place in a store's history: after the last event that was read. Only the store that made it knows what it means.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor(String);

impl Cursor {
    /// Before the first event.
    pub const START: Self = Self(String::new());

    /// A place that the store describes by this text. Empty is the start.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text it was made of.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Some events in a row.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EventPage {
    /// The events, the oldest first.
    pub events: Vec<Entry>,
    /// Where the next page begins.
    pub next: Cursor,
    /// Whether there are more events at this moment.
    pub more: bool,
}

/// Where a store records events, if it does not keep them itself.
pub trait Journal: Send + Sync {
    /// Which journal this is: the same for all processes that write to it, different for different journals.
    fn id(&self) -> &str;

    /// Appends the events, in order, all or none, as durably as the vault is.
    fn append(&self, events: &[Entry]) -> Result<()>;

    /// Whether an event of this step, which began at `since`, is recorded. Asked only after a crash.
    fn has(&self, step: &StepId, since: Timestamp) -> Result<bool>;

    /// The events after a cursor; see [`crate::store::Store::events`].
    fn events(&self, after: &Cursor, limit: usize) -> Result<EventPage>;

    /// What each agent's claims add up to; see [`crate::store::Store::tallies`].
    fn tallies(&self) -> Result<BTreeMap<Agent, Tally>>;
}

/// A journal in memory, for tests.
#[derive(Debug, Default)]
pub struct MemoryJournal {
    events: std::sync::Mutex<Vec<Entry>>,
}

impl MemoryJournal {
    /// All events so far.
    pub fn all(&self) -> Vec<Entry> {
        self.events.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

impl Journal for MemoryJournal {
    fn id(&self) -> &str {
        "memory"
    }

    fn append(&self, events: &[Entry]) -> Result<()> {
        self.events.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend_from_slice(events);
        Ok(())
    }

    fn has(&self, step: &StepId, _since: Timestamp) -> Result<bool> {
        Ok(self.all().iter().any(|entry| entry.event.keys().step == Some(step.as_str())))
    }

    fn events(&self, after: &Cursor, limit: usize) -> Result<EventPage> {
        page(&self.all(), after, limit)
    }

    fn tallies(&self) -> Result<BTreeMap<Agent, Tally>> {
        let mut tallies = BTreeMap::new();
        for entry in self.all() {
            Tally::add_to(&mut tallies, entry.agent.as_ref(), &entry.event);
        }
        Ok(tallies)
    }
}

/// A page of events that are all in memory; the cursor is their number.
pub fn page(all: &[Entry], after: &Cursor, limit: usize) -> Result<EventPage> {
    let read = match after.as_str() {
        "" => 0,
        text => text.parse().ok().filter(|read| *read <= all.len()).ok_or_else(|| {
            Fault::invalid(format!("`{}` is not a cursor of this journal", text.escape_debug()))
        })?,
    };
    let end = all.len().min(read.saturating_add(limit));
    Ok(EventPage {
        events: all[read..end].to_vec(),
        next: Cursor::new(end.to_string()),
        more: end < all.len(),
    })
}
