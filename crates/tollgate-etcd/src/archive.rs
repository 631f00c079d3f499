//! Old lines of the ledger move from the engine to files, because etcd is made for some gigabytes.
//!
//! One machine keeps the archive: the first that needed one. The archive is a ledger of its own, with its chain of hashes, so
//! it can be verified like any other. The key `P/archived` says how far it goes, who has it, and what its lines add up to.
//!
//! Invariants: a line is deleted only after it is on the disk and `P/archived` says so. No line is archived twice: after a crash,
//! what the archive has already is skipped. A line that a reader has not read yet stays: readers leave their place in
//! `P/reader/MACHINE` for an hour.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tollgate_base::error::{At, Fault, Result};
use tollgate_base::event::Event;
use tollgate_base::ledger::{Entry, Ledger};
use tollgate_base::lock::Lock;
use tollgate_base::settings::Durability;
use tollgate_vault::figures::Tally;

use crate::inside::Inside;
use crate::layout::write;
use crate::lines::{Archived, LineAt};
use crate::message::{Act, Condition, Range, Txn};

/// How many lines the engine keeps: some days of a busy team, in some ten megabytes.
pub(crate) const KEEP: usize = 20_000;

/// How many lines move at once.
const BATCH: usize = 5000;

/// etcd takes 128 acts in one transaction.
const ACTS: usize = 100;

/// The archive continues in a new file at this size.
const FILE_SIZE: u64 = 64 << 20;

impl Inside {
    /// Moves the oldest lines to the archive in this folder, if there are more than `keep`. Returns how many.
    pub(crate) fn archive(&self, folder: &Path, keep: usize) -> Result<usize> {
        let lines = Range { count_only: true, ..Range::all(&self.layout.lines()) };
        let count = usize::try_from(self.called(self.client.range(&lines))?.count).unwrap_or(0);
        if count <= keep {
            return Ok(0);
        }
        let (statement, mut archived) = self.archived()?;
        if archived.machine.is_empty() {
            // Before anything is in our archive, everybody must know that it is here.
            archived.machine.clone_from(&self.machine);
            self.state(statement, &archived)?;
        }
        fs::create_dir_all(folder).at("make the folder", folder)?;
        let Some(_alone) = Lock::acquire(&folder.join("archiving"), Duration::ZERO)? else { return Ok(0) };
        let (statement, mut archived) = self.archived()?;
        if archived.machine != self.machine {
            return Ok(0);
        }
        let (oldest, _) = self.lines_from(0, (count - keep).min(BATCH))?;
        // What was archived before, and not deleted because of a crash.
        let (left, oldest): (Vec<_>, Vec<_>) =
            oldest.into_iter().partition(|line| line.revision <= archived.revision);
        self.delete_lines(&left)?;
        let floor = self.slowest_reader()?;
        let oldest: Vec<LineAt> = oldest.into_iter().filter(|line| line.revision <= floor).collect();
        let Some(last) = oldest.last().map(|line| line.revision) else { return Ok(0) };
        let entries: Vec<Entry> = oldest.iter().flat_map(|line| line.value.events.clone()).collect();
        let ledger = Ledger::new(folder, &folder.join("lock"), FILE_SIZE, None);
        let known = already_there(&ledger, &entries)?;
        ledger.append(&entries[known..], Durability::Durable)?;
        for entry in &entries {
            Tally::add_to(&mut archived.tallies, entry.agent.as_ref(), &entry.event);
        }
        archived.revision = last;
        if !self.state(statement, &archived)? {
            return Err(Fault::invalid(
                "another process archives the ledger, although this one has its lock",
            ));
        }
        self.delete_lines(&oldest)?;
        Ok(oldest.len())
    }

    /// States how far the ledger is archived, if the last statement is this one.
    pub(crate) fn state(&self, statement: i64, archived: &Archived) -> Result<bool> {
        let key = self.layout.archived();
        let value = write(archived)?;
        let txn = Txn {
            compare: vec![Condition::at(&key, statement)],
            success: vec![Act::put(&key, &value)],
            failure: vec![Act::get(&key)],
        };
        let answer = self.called(self.client.txn(&txn))?;
        // An earlier try whose answer was lost may have been carried out.
        Ok(answer.succeeded || answer.found().flatten().next().is_some_and(|kv| kv.value == value))
    }

    fn delete_lines(&self, lines: &[LineAt]) -> Result<()> {
        for some in lines.chunks(ACTS) {
            let success = some.iter().map(|line| Act::delete(&line.key)).collect();
            self.called(self.client.txn(&Txn { success, ..Txn::default() }))?;
        }
        Ok(())
    }

    /// The revision up to which every reader has read.
    fn slowest_reader(&self) -> Result<i64> {
        let readers = self.called(self.client.range(&Range::all(&self.layout.readers())))?;
        let place = |value: &[u8]| str::from_utf8(value).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        Ok(readers.kvs.iter().map(|kv| place(&kv.value)).min().unwrap_or(i64::MAX))
    }
}

/// How many of the entries the archive has already, because a process died before it could say so. It appends a batch as a
/// whole, so its last line tells.
fn already_there(ledger: &Ledger, entries: &[Entry]) -> Result<usize> {
    for line in ledger.newest_first()? {
        let line = line?;
        if !matches!(line.event, Event::LedgerHealed(_)) {
            let is_it = |entry: &Entry| {
                entry.time == line.time && entry.agent == line.agent && entry.event == line.event
            };
            return Ok(entries.iter().rposition(is_it).map_or(0, |at| at + 1));
        }
    }
    Ok(0)
}
