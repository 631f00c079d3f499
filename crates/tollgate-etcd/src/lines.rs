//! The ledger in the engine: one line for each step of any machine, in the order in which the engine took them.
//!
//! Invariants: a line is written by the transaction of its step, once, and never changed. The revision of that transaction is
//! its place, so all readers see the same order and a cursor has no gaps. A cursor is a revision, and how many of the events
//! of that revision were read. A reader whose next events were removed is told so.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Duration;

use jiff::Timestamp;
use tollgate_base::error::{Fault, Result};
use tollgate_base::name::{Agent, StepId};
use tollgate_base::visible::plain;
use tollgate_vault::event::{Entry, EventPage};
use tollgate_vault::figures::Tally;

use crate::layout::{LineValue, read, write};
use crate::line_place::{LinePlace, LineSums};
use crate::message::{Condition, KeyValue, Range, Txn, TxnOperation};
use crate::shared_store::SharedStore;

/// How many lines the engine keeps: some days of a busy team, in some ten megabytes.
pub(crate) const KEEP: usize = if cfg!(test) { 20 } else { 20_000 };

/// How many lines are read at once. The engine looks at all of its lines for each page, so pages are large.
const LINES: usize = 5000;

/// How many events a line has that belongs to no step. A copy of a vault records many at once, and readers ask for a number of
/// lines, not of bytes.
const EVENTS: usize = 8;

/// One line of the ledger, where it is.
#[derive(Debug)]
pub(crate) struct LedgerLine {
    pub(crate) revision: i64,
    pub(crate) key: Vec<u8>,
    pub(crate) value: LineValue,
}

impl LedgerLine {
    /// The place after it.
    pub(crate) fn end(&self) -> LinePlace {
        LinePlace { revision: self.revision, events: self.value.events.len() }
    }
}

impl SharedStore {
    /// The events after a cursor.
    pub(crate) fn events_after(&self, after: &str, limit: usize) -> Result<EventPage> {
        let place = LinePlace::parse(after)?;
        let (events, next) = self.read_on(place, limit)?;
        // After they were read: what was removed before that may be missing.
        self.check_kept(place)?;
        Ok((events, next.to_string()))
    }

    /// What the removed lines add up to, and the revision of that statement.
    pub(crate) fn tally(&self) -> Result<(i64, LineSums)> {
        let found = self.act(vec![TxnOperation::get(self.layout.tally())])?;
        match found.found().flatten().next() {
            Some(kv) => Ok((kv.mod_revision, read(&kv.value)?)),
            None => Ok((0, LineSums::default())),
        }
    }

    /// A cursor before the oldest event that the engine has; empty if it has all of them.
    pub(crate) fn oldest_cursor(&self) -> Result<String> {
        let (_, LineSums { place, .. }) = self.tally()?;
        Ok(if place == LinePlace::default() { String::new() } else { place.to_string() })
    }

    /// A cursor before all events of this time or later.
    pub(crate) fn cursor_before(&self, time: Timestamp) -> Result<String> {
        let (_, tally) = self.tally()?;
        let are_older = tally.time.is_some_and(|newest| newest < time);
        Ok(if are_older { tally.place.to_string() } else { String::new() })
    }

    /// All events after this place must be in the engine.
    pub(crate) fn check_kept(&self, place: LinePlace) -> Result<()> {
        let (_, tally) = self.tally()?;
        if !tally.is_ahead_of(place) {
            return Ok(());
        }
        let which = match place == LinePlace::default() {
            true => "its oldest events".to_owned(),
            false => format!("events after the place `{place}`, before they were read"),
        };
        let time = tally.time.map_or_else(String::new, |time| time.to_string());
        Err(Fault::invalid(format!(
            "`{}` keeps the latest {KEEP} lines of the ledger, and has removed {which}: only events after {time} can be read. \
             To go on with those, run the export once with `--since` and a later time; what it had not sent before is missing in it",
            self.client.shown
        )))
    }

    /// Records events that belong to no step.
    pub(crate) fn record_events(&self, events: &[Entry]) -> Result<()> {
        for events in events.chunks(EVENTS) {
            let line = self.layout.line(&StepId::new()?);
            let value =
                write(&LineValue { machine: self.machine.clone(), landed: None, events: events.to_vec() })?;
            let txn = Txn {
                compare: vec![Condition::absent(&line)],
                success: vec![TxnOperation::put(&line, value)],
                failure: Vec::new(),
            };
            // If the condition does not hold, an earlier try was carried out, and its answer was lost.
            self.called(self.client.txn(&txn))?;
        }
        Ok(())
    }

    /// At most this many events after a place, and the place after them. If lines after that place were removed by now, some may
    /// be missing.
    pub(crate) fn read_on(&self, mut place: LinePlace, limit: usize) -> Result<(Vec<Entry>, LinePlace)> {
        let mut events = Vec::new();
        while events.len() < limit {
            let wanted = (limit - events.len()).clamp(1, LINES);
            // One more: the line of the cursor itself comes again.
            let (lines, more) = self.lines_from(place.revision, wanted + 1)?;
            for LedgerLine { revision, value, .. } in lines {
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
    pub(crate) fn lines_from(&self, revision: i64, limit: usize) -> Result<(Vec<LedgerLine>, bool)> {
        self.lines_within(revision, limit, self.client.deadline)
    }

    /// The first lines from a revision on, before this deadline, and whether there are more.
    pub(crate) fn lines_within(
        &self,
        revision: i64,
        limit: usize,
        deadline: Duration,
    ) -> Result<(Vec<LedgerLine>, bool)> {
        let range = Range { limit, created_since: Some(revision), ..Range::all(&self.layout.lines()) };
        let answer = self.called(self.client.range_within(&range, deadline))?;
        let line = |kv: KeyValue| match read(&kv.value) {
            Ok(value) => Ok(LedgerLine { revision: kv.create_revision, value, key: kv.key }),
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
            // This process has read nothing yet.
            self.skip_removed(&mut sums)?;
        }
        let (events, next) = loop {
            let read = self.read_on(sums.place, usize::MAX)?;
            // What was removed in the meantime may be missing in what we read.
            if !self.skip_removed(&mut sums)? {
                break read;
            }
        };
        sums.add(next, &events);
        sums.place = next;
        Ok(sums.tallies.clone())
    }

    /// If lines after these sums were removed, they become the tally of all removed lines: whether they did.
    fn skip_removed(&self, sums: &mut LineSums) -> Result<bool> {
        let (_, tally) = self.tally()?;
        let is_ahead = tally.is_ahead_of(sums.place);
        if is_ahead {
            *sums = tally;
        }
        Ok(is_ahead)
    }
}
