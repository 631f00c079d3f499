//! Old lines of the ledger move from the engine to files, because etcd is made for some gigabytes.
//!
//! One machine archives: the first that needed to. If it stops, another one takes over, and the archive has one more piece. The files of a machine are a ledger of their own, with its chain of hashes, so they can be verified like any
//! other. The key `P/archived` says how far the archive goes, who has which piece, and what its lines add up to.
//!
//! Invariants: a line is deleted only after it is on the disk and `P/archived` says so. No line is archived twice: the order of
//! lines never changes, so what the files have after the last line of the statement is the beginning of the next lines to
//! archive, however many of them the next batch has. These are not appended again. A line that a reader has not read to its end
//! stays, unless too many lines wait for readers: see `readers`.

use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::ledger::{Entry, Ledger};
use tollgate_base::lock::Lock;
use tollgate_base::private;
use tollgate_vault::figures::Tally;

use crate::archive_files::{end_of, files_in, newest_time, put_into_files};
use crate::archived::Archived;
use crate::inside::Inside;
use crate::layout::write;
use crate::lines::LineAt;
use crate::message::{Act, Condition, Range, Txn};

/// How many lines the engine keeps: some days of a busy team, in some ten megabytes.
pub(crate) const KEEP: usize = if cfg!(test) { 20 } else { 20_000 };

/// When a process archives old lines for the first time, and how often. Commands that end at once have other things to do.
pub(crate) const FIRST_ARCHIVE: Duration = Duration::from_secs(if cfg!(test) { 3600 } else { 60 });
const NEXT_ARCHIVE: Duration = Duration::from_secs(600);

/// The file in the archive that says why it could not be continued, until it could.
pub(crate) const LAST_FAULT: &str = "fault.txt";

/// How long a look at the oldest lines may take: nobody waits for it, and without it there would be more lines each time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Readers hold back at most this many times the lines that the engine keeps anyway. With many more, it could no longer answer
/// in time, and would be full before a reader that nobody needs is forgotten.
pub(crate) const HELD_BACK: usize = 5;

/// How many lines move at once, and how many batches at most before other work goes on.
const BATCH: usize = 5000;
const BATCHES: usize = 10;

/// etcd takes 128 acts in one transaction.
const ACTS: usize = 100;

impl Inside {
    /// Starts a thread that moves the oldest lines to the archive of this machine, if it is time to. If it fails, the next one
    /// tries again, and `tollgate doctor` shows why.
    pub(crate) fn archive_when_due(self: &Arc<Self>) {
        let mut at = self.archive_at.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(folder) = self.archive.clone().filter(|_| *at <= Instant::now()) {
            *at = Instant::now() + NEXT_ARCHIVE;
            let inside = Arc::clone(self);
            let archive = move || {
                let fault = inside.archive(&folder, KEEP).err();
                // If this fails, too, there will be too many lines, and `doctor` reports that.
                let _ = match fault {
                    Some(fault) => private::write(&folder.join(LAST_FAULT), fault.to_string()),
                    None => private::remove_file(&folder.join(LAST_FAULT)),
                };
            };
            // Without a thread now, there may be one next time.
            let _ = thread::Builder::new().name("tollgate-archive".to_owned()).spawn(archive);
        }
    }

    /// Moves the oldest lines to the archive in this folder, if there are more than `keep`. Returns how many.
    pub(crate) fn archive(&self, folder: &Path, keep: usize) -> Result<usize> {
        let lines = Range { count_only: true, ..Range::all(&self.layout.lines()) };
        let count = usize::try_from(self.called(self.client.range(&lines))?.count).unwrap_or(0);
        if count <= keep {
            return Ok(0);
        }
        let (statement, archived) = self.archived()?;
        let is_needed = archived.machine.is_empty()
            || archived.machine == self.machine
            || self.is_abandoned(statement, &archived, count, keep)?;
        if !is_needed {
            return Ok(0);
        }
        private::create_folders(folder, 0o777).at("make the folder", folder)?;
        let Some(_alone) = Lock::acquire(&folder.join("archiving"), Duration::ZERO)? else { return Ok(0) };
        let ledger = files_in(folder);
        if archived.machine != self.machine {
            // Before anything is in our archive, everybody must know that it is here, and where it begins. If another machine
            // is faster, this statement is not made.
            let mut ours = archived;
            ours.begin_after(&self.machine, end_of(&ledger)?, Timestamp::now());
            self.state(statement, &ours)?;
        }
        let mut moved = 0;
        for _ in 0..BATCHES {
            let stated = self.archived()?;
            if stated.1.machine != self.machine {
                break;
            }
            let (most, waits) = ((count - keep - moved).min(BATCH), count - moved <= HELD_BACK * keep);
            let batch = self.archive_batch(&ledger, stated, most, waits)?;
            moved += batch;
            if batch < BATCH || moved + keep >= count {
                break;
            }
        }
        Ok(moved)
    }

    /// Whether the machine that archives does not do so any more: there are twice as many lines as there should be, readers need
    /// less than half of them, and it has archived none since this process last looked, which was some minutes ago.
    fn is_abandoned(&self, statement: i64, archived: &Archived, count: usize, keep: usize) -> Result<bool> {
        if count <= 2 * keep {
            return Ok(false);
        }
        let readers = if count <= HELD_BACK * keep { self.readers(archived)? } else { Vec::new() };
        let mut seen = self.archive_seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slowest) = readers.iter().map(|reader| reader.place.revision).min() {
            let oldest = Range {
                limit: keep,
                created_since: Some(0),
                keys_only: true,
                ..Range::all(&self.layout.lines())
            };
            let oldest = self.called(self.client.range(&oldest))?.kvs;
            if oldest.last().is_none_or(|line| line.create_revision >= slowest) {
                // It has had nothing to do.
                *seen = None;
                return Ok(false);
            }
        }
        Ok(seen.replace(statement) == Some(statement))
    }

    /// Moves at most this many of the oldest lines, if this is still the last statement. It may wait for readers.
    pub(crate) fn archive_batch(
        &self,
        ledger: &Ledger,
        (statement, mut archived): (i64, Archived),
        most: usize,
        waits_for_readers: bool,
    ) -> Result<usize> {
        let (oldest, _) = self.lines_within(0, most, PATIENCE)?;
        // What was archived before, and not deleted because of a crash.
        let (left, oldest): (Vec<_>, Vec<_>) =
            oldest.into_iter().partition(|line| line.revision <= archived.revision);
        self.delete_lines(&left)?;
        let readers = if waits_for_readers { self.readers(&archived)? } else { Vec::new() };
        let floor = readers.iter().map(|reader| reader.place).min();
        let was_read = |line: &LineAt| floor.is_none_or(|floor| line.end() <= floor);
        let oldest: Vec<LineAt> = oldest.into_iter().take_while(was_read).collect();
        let Some(last) = oldest.last() else { return Ok(0) };
        let entries: Vec<Entry> = oldest.iter().flat_map(|line| line.value.events.clone()).collect();
        if archived.pieces.is_empty() && archived.revision > 0 {
            // An earlier version of tollgate did not say it.
            archived.time = newest_time(ledger)?;
        }
        archived.time = entries.iter().map(|entry| entry.time).chain(archived.time).max();
        archived.pieces = put_into_files(ledger, archived.pieces, &self.machine, &entries)?;
        for entry in &entries {
            Tally::add_to(&mut archived.tallies, entry.agent.as_ref(), &entry.event);
        }
        (archived.revision, archived.events) = (last.revision, last.value.events.len());
        if !self.state(statement, &archived)? {
            if self.archived()?.1.machine != self.machine {
                // Another machine has taken over. Nobody reads what we have appended: it is not stated.
                return Ok(0);
            }
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
            self.act(some.iter().map(|line| Act::delete(&line.key)).collect())?;
        }
        Ok(())
    }
}
