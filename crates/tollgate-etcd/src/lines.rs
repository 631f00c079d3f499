//! The ledger in the engine: one line for each step of any machine, in the order in which the engine took them.
//!
//! Invariants: a line is written by the transaction of its step, once, and never changed. The revision of that transaction is
//! its place, so all readers see the same order and a cursor has no gaps. A cursor is a revision, and how many of the events
//! of that revision were read.

use std::collections::BTreeMap;

use tollgate_base::error::{Fault, Result};
use tollgate_base::name::{Agent, StepId};
use tollgate_vault::event::{Entry, EventPage};
use tollgate_vault::figures::Tally;

use crate::layout::{LineValue, read, write};
use crate::message::{Act, Condition, Range, Txn};
use crate::store::Inside;

/// How many lines are read at once. The engine looks at all of its lines for each page, so pages are large.
const LINES: usize = 5000;

/// A place in the ledger of the engine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Place {
    revision: i64,
    /// How many events of that revision were read.
    events: usize,
}

impl Place {
    fn parse(text: &str) -> Result<Self> {
        let read = || {
            let (revision, events) = text.split_once('.')?;
            Some(Self { revision: revision.parse().ok()?, events: events.parse().ok()? })
        };
        match text {
            "" => Ok(Self::default()),
            _ => read().ok_or_else(|| {
                Fault::invalid(format!("`{}` is not a cursor of this ledger", text.escape_debug()))
            }),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.revision, self.events)
    }
}

/// What all events up to a place add up to.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    place: Place,
    tallies: BTreeMap<Agent, Tally>,
}

impl Inside {
    /// Records events that belong to no step.
    pub(crate) fn record_events(&self, events: &[Entry]) -> Result<()> {
        let line = self.layout.line(&StepId::new()?);
        let value =
            write(&LineValue { machine: self.machine.clone(), landed: None, events: events.to_vec() })?;
        let txn = Txn {
            compare: vec![Condition::absent(&line)],
            success: vec![Act::put(&line, value)],
            failure: Vec::new(),
        };
        // If the condition does not hold, an earlier try was carried out, and its answer was lost.
        self.called(self.client.txn(&txn)).map(drop)
    }

    /// The events after a cursor.
    pub(crate) fn events_after(&self, after: &str, limit: usize) -> Result<EventPage> {
        let mut place = Place::parse(after)?;
        let mut events = Vec::new();
        while events.len() < limit {
            let wanted = (limit - events.len()).clamp(1, LINES);
            // One more: the line of the cursor itself comes again.
            let (lines, more) = self.lines_from(place.revision, wanted + 1)?;
            for (revision, line) in lines {
                let skipped = if revision == place.revision { place.events } else { 0 };
                let new = line.events.into_iter().skip(skipped).take(limit - events.len());
                let count = events.len();
                events.extend(new);
                place = Place { revision, events: skipped + events.len() - count };
                if events.len() == limit {
                    break;
                }
            }
            if !more {
                break;
            }
        }
        Ok((events, place.to_string()))
    }

    /// The first lines from a revision on, each with its revision, and whether there are more.
    pub(crate) fn lines_from(&self, revision: i64, limit: usize) -> Result<(Vec<(i64, LineValue)>, bool)> {
        let range = Range { limit, created_since: Some(revision), ..Range::all(&self.layout.lines()) };
        let answer = self.called(self.client.range(&range))?;
        let lines: Result<Vec<_>> =
            answer.kvs.iter().map(|kv| Ok((kv.create_revision, read(&kv.value)?))).collect();
        Ok((lines?, answer.more))
    }

    /// What each agent's claims add up to. Only what is new since the last time is read.
    pub(crate) fn sum_up(&self) -> Result<BTreeMap<Agent, Tally>> {
        let mut sums = self.sums.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (events, next) = self.events_after(&sums.place.to_string(), usize::MAX)?;
        for entry in &events {
            Tally::add_to(&mut sums.tallies, entry.agent.as_ref(), &entry.event);
        }
        sums.place = Place::parse(&next)?;
        Ok(sums.tallies.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back() {
        assert_eq!(Place::parse("").unwrap(), Place::default());
        let place = Place { revision: 17, events: 2 };
        assert_eq!(Place::parse(&place.to_string()).unwrap(), place);
        for bad in ["17", "x.y", "17.", "-"] {
            assert!(Place::parse(bad).is_err(), "{bad}");
        }
    }
}
