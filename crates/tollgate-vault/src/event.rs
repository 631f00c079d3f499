//! What happened to tasks: the events of a step, and the journal in which a store records them.
//!
//! The events themselves are defined in [`tollgate_base::event`], for the vault, the guard and the ledger alike.
//!
//! Invariant: the events of a step are recorded after the step's effect and before its answer. If the process dies in
//! between, the next one finishes the step; [`Journal::has`] keeps its events from being recorded twice.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

use crate::figures::Tally;
use tollgate_base::error::{Fault, Result};
use tollgate_base::name::{Agent, StepId};

pub use tollgate_base::event::Event;
pub use tollgate_base::ledger::Entry;

/// How many events are read at once: little memory, however long the history is.
pub(crate) const PAGE: usize = 1000;

/// Some events in a row, the oldest first, and the cursor after the last of them: a text that only the store understands.
/// The empty text is the cursor before the first event.
pub type EventPage = (Vec<Entry>, String);

/// Where a store records events, if it does not keep them itself.
pub trait Journal: Send + Sync {
    /// Which journal this is: the same for all processes that write to it, different for different journals.
    fn id(&self) -> &str;

    /// Appends the events, in order, all or none, as durably as the vault is.
    fn append(&self, events: &[Entry]) -> Result<()>;

    /// Whether an event of this step, which began at `since`, is recorded. Asked only after a crash.
    fn has(&self, step: &StepId, since: Timestamp) -> Result<bool>;

    /// The events after a cursor; see [`crate::store::Store::events`].
    fn events(&self, after: &str, limit: usize) -> Result<EventPage>;

    /// What each agent's claims add up to since the beginning. The default reads all events.
    fn tallies(&self) -> Result<BTreeMap<Agent, Tally>> {
        tallies(|after| self.events(after, PAGE))
    }
}

/// A journal in memory, for tests.
#[derive(Debug, Default)]
pub struct MemoryJournal(Mutex<Vec<Entry>>);

impl MemoryJournal {
    /// All events so far.
    pub fn all(&self) -> Vec<Entry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Journal for MemoryJournal {
    fn id(&self) -> &str {
        "memory"
    }

    fn append(&self, events: &[Entry]) -> Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(events);
        Ok(())
    }

    fn has(&self, step: &StepId, _since: Timestamp) -> Result<bool> {
        Ok(self.all().iter().any(|entry| entry.event.keys().step == Some(step.as_str())))
    }

    fn events(&self, after: &str, limit: usize) -> Result<EventPage> {
        page(&self.all(), after, limit)
    }
}

/// A page of events that are all in memory; the cursor is their number.
pub fn page(all: &[Entry], after: &str, limit: usize) -> Result<EventPage> {
    let foreign = || Fault::invalid(format!("`{}` is not a cursor of this journal", after.escape_debug()));
    let read = if after.is_empty() { Some(0) } else { after.parse().ok() };
    let read = read.filter(|read| *read <= all.len()).ok_or_else(foreign)?;
    let end = all.len().min(read.saturating_add(limit));
    Ok((all[read..end].to_vec(), end.to_string()))
}

/// What all events add up to, read page by page.
pub(crate) fn tallies(page: impl Fn(&str) -> Result<EventPage>) -> Result<BTreeMap<Agent, Tally>> {
    let (mut tallies, mut cursor) = (BTreeMap::new(), String::new());
    loop {
        let (events, next) = page(&cursor)?;
        for entry in &events {
            Tally::add_to(&mut tallies, entry.agent.as_ref(), &entry.event);
        }
        if events.len() < PAGE {
            return Ok(tallies);
        }
        cursor = next;
    }
}
