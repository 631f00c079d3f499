//! The ledger in the engine: one line for each step of any machine, in the order in which the engine took them.
//!
//! Invariants: a line is written by the transaction of its step, once, and never changed. The revision of that transaction is
//! its place, so all readers see the same order and a cursor has no gaps. A cursor is a revision, and how many of the events
//! of that revision were read.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Duration;

use tollgate_base::error::{Fault, Result};
use tollgate_base::name::{Agent, StepId};
use tollgate_base::visible::plain;
use tollgate_vault::event::Entry;
use tollgate_vault::figures::Tally;

use crate::archived::Archived;
use crate::inside::Inside;
use crate::layout::{LineValue, read, write};
use crate::line_place::{LinePlace, LineSums};
use crate::message::{Act, Condition, KeyValue, Range, Txn};

/// How many lines are read at once. The engine looks at all of its lines for each page, so pages are large.
const LINES: usize = 5000;

/// How many events a line has that belongs to no step. A copy of a vault records many at once, and readers ask for a number of
/// lines, not of bytes.
const EVENTS: usize = 8;

/// One line of the ledger, where it is.
#[derive(Debug)]
pub(crate) struct LineAt {
    pub(crate) revision: i64,
    pub(crate) key: Vec<u8>,
    pub(crate) value: LineValue,
}

impl LineAt {
    /// The place after it.
    pub(crate) fn end(&self) -> LinePlace {
        LinePlace { revision: self.revision, events: self.value.events.len() }
    }
}

impl Inside {
    /// How far the ledger is archived, and the revision of that statement.
    pub(crate) fn archived(&self) -> Result<(i64, Archived)> {
        let found = self.act(vec![Act::get(self.layout.archived())])?;
        match found.found().flatten().next() {
            Some(kv) => Ok((kv.mod_revision, Archived::known(read(&kv.value)?))),
            None => Ok((0, Archived::default())),
        }
    }

    /// Records events that belong to no step.
    pub(crate) fn record_events(&self, events: &[Entry]) -> Result<()> {
        for events in events.chunks(EVENTS) {
            let line = self.layout.line(&StepId::new()?);
            let value =
                write(&LineValue { machine: self.machine.clone(), landed: None, events: events.to_vec() })?;
            let txn = Txn {
                compare: vec![Condition::absent(&line)],
                success: vec![Act::put(&line, value)],
                failure: Vec::new(),
            };
            // If the condition does not hold, an earlier try was carried out, and its answer was lost.
            self.called(self.client.txn(&txn))?;
        }
        Ok(())
    }

    /// At most this many events after a place, and the place after them. If the archive is ahead of that place by now, some may
    /// be missing.
    pub(crate) fn read_on(&self, mut place: LinePlace, limit: usize) -> Result<(Vec<Entry>, LinePlace)> {
        let mut events = Vec::new();
        while events.len() < limit {
            let wanted = (limit - events.len()).clamp(1, LINES);
            // One more: the line of the cursor itself comes again.
            let (lines, more) = self.lines_from(place.revision, wanted + 1)?;
            for LineAt { revision, value, .. } in lines {
                let skipped = if revision == place.revision { place.events } else { 0 };
                let new = value.events.into_iter().skip(skipped).take(limit - events.len());
                let count = events.len();
                events.extend(new);
                place = LinePlace { revision, events: skipped.saturating_add(events.len() - count) };
                if events.len() == limit {
                    break;
                }
            }
            if !more {
                break;
            }
        }
        Ok((events, place))
    }

    /// The first lines from a revision on, and whether there are more.
    pub(crate) fn lines_from(&self, revision: i64, limit: usize) -> Result<(Vec<LineAt>, bool)> {
        self.lines_within(revision, limit, self.client.deadline)
    }

    /// The same, with a deadline of its own.
    pub(crate) fn lines_within(
        &self,
        revision: i64,
        limit: usize,
        deadline: Duration,
    ) -> Result<(Vec<LineAt>, bool)> {
        let range = Range { limit, created_since: Some(revision), ..Range::all(&self.layout.lines()) };
        let answer = self.called(self.client.range_within(&range, deadline))?;
        let line = |kv: KeyValue| match read(&kv.value) {
            Ok(value) => Ok(LineAt { revision: kv.create_revision, value, key: kv.key }),
            Err(fault) => {
                let key = String::from_utf8_lossy(&kv.key);
                Err(Fault::invalid(format!(
                    "the key `{}` is not a line of the ledger, delete it with `etcdctl del`: {fault}",
                    plain(&key)
                )))
            }
        };
        Ok((answer.kvs.into_iter().map(line).collect::<Result<_>>()?, answer.more))
    }

    /// What each agent's claims add up to. Only what is new since the last time is read.
    pub(crate) fn sum_up(&self) -> Result<BTreeMap<Agent, Tally>> {
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        if sums.place == LinePlace::default() {
            // What is archived need not be read, and this process has read nothing yet.
            self.skip_archived(&mut sums)?;
        }
        let (events, next) = loop {
            let read = self.read_on(sums.place, usize::MAX)?;
            // What was archived in the meantime may be missing in what we read.
            if !self.skip_archived(&mut sums)? {
                break read;
            }
        };
        for entry in &events {
            Tally::add_to(&mut sums.tallies, entry.agent.as_ref(), &entry.event);
        }
        sums.place = next;
        Ok(sums.tallies.clone())
    }

    /// If the archive is ahead of these sums, they become its own, which are stated: whether it was.
    fn skip_archived(&self, sums: &mut LineSums) -> Result<bool> {
        let (_, archived) = self.archived()?;
        let is_ahead = archived.is_ahead_of(sums.place);
        if is_ahead {
            *sums = LineSums { place: archived.place(), tallies: archived.tallies };
        }
        Ok(is_ahead)
    }
}
