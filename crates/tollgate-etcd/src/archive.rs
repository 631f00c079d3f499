//! Old lines of the ledger move from the engine to files, because etcd is made for some gigabytes.
//!
//! One machine keeps the archive: the first that needed one. The archive is a ledger of its own, with its chain of hashes, so
//! it can be verified like any other. The key `P/archived` says how far it goes, who has it, and what its lines add up to.
//!
//! Invariants: a line is deleted only after it is on the disk and `P/archived` says so. No line is archived twice: the order of
//! lines never changes, so what the files have after the last line of the statement is the beginning of the next lines to
//! archive, however many of them the next batch has. These are not appended again. A line that a reader has not read to its end stays: see `readers`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tollgate_base::error::{At, Fault, Result};
use tollgate_base::event::Event;
use tollgate_base::ledger::{Entry, Ledger, Line};
use tollgate_base::lock::Lock;
use tollgate_base::settings::Durability;
use tollgate_vault::figures::Tally;

use crate::archived::{ArchivePiece, Archived};
use crate::inside::Inside;
use crate::layout::write;
use crate::lines::LineAt;
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
        let (_, archived) = self.archived()?;
        if !archived.machine.is_empty() && archived.machine != self.machine {
            return Ok(0);
        }
        fs::create_dir_all(folder).at("make the folder", folder)?;
        let Some(_alone) = Lock::acquire(&folder.join("archiving"), Duration::ZERO)? else { return Ok(0) };
        let ledger = Ledger::new(folder, &folder.join("lock"), FILE_SIZE, None);
        if archived.machine.is_empty() {
            // Before anything is in our archive, everybody must know that it is here, and where it begins.
            let (statement, mut archived) = self.archived()?;
            archived.begin_after(&self.machine, end_of(&ledger)?);
            self.state(statement, &archived)?;
        }
        let (statement, mut archived) = self.archived()?;
        if archived.machine != self.machine {
            return Ok(0);
        }
        let (oldest, _) = self.lines_from(0, (count - keep).min(BATCH))?;
        // What was archived before, and not deleted because of a crash.
        let (left, oldest): (Vec<_>, Vec<_>) =
            oldest.into_iter().partition(|line| line.revision <= archived.revision);
        self.delete_lines(&left)?;
        let floor = self.readers(&archived)?.iter().map(|reader| reader.place).min();
        let was_read = |line: &LineAt| floor.is_none_or(|floor| line.end() <= floor);
        let oldest: Vec<LineAt> = oldest.into_iter().take_while(was_read).collect();
        let Some(last) = oldest.last() else { return Ok(0) };
        let entries: Vec<Entry> = oldest.iter().flat_map(|line| line.value.events.clone()).collect();
        archived.pieces = put_into_files(&ledger, archived.pieces, &self.machine, &entries)?;
        for entry in &entries {
            Tally::add_to(&mut archived.tallies, entry.agent.as_ref(), &entry.event);
        }
        (archived.revision, archived.events) = (last.revision, last.value.events.len());
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
}

/// Appends the entries that the files do not have yet. The pieces of the archive, with these entries.
fn put_into_files(
    ledger: &Ledger,
    mut pieces: Vec<ArchivePiece>,
    machine: &str,
    entries: &[Entry],
) -> Result<Vec<ArchivePiece>> {
    let Some(piece) = pieces.last_mut() else {
        // An earlier version of tollgate has archived here, and did not say up to which line.
        let known = already_there(ledger, entries)?;
        ledger.append(&entries[known..], Durability::Durable)?;
        return Ok(vec![ArchivePiece { machine: machine.to_owned(), first: 1, last: end_of(ledger)? }]);
    };
    let unstated = lines_after(ledger, piece.last)?;
    let known = unstated.iter().zip(entries).take_while(|(line, entry)| is_of(line, entry)).count();
    if let Some(line) = unstated[..known].last() {
        piece.last = line.seq;
        // The process that wrote them may have died before they were on the disk.
        ledger.sync()?;
    }
    if known == entries.len() {
        return Ok(pieces);
    }
    let appended = ledger.append(&entries[known..], Durability::Durable)?;
    if known == unstated.len() {
        piece.last = appended.end - 1;
    } else {
        // Other lines follow what we know: the workspace used another vault in the meantime.
        pieces.retain(|piece| piece.first <= piece.last);
        pieces.push(ArchivePiece {
            machine: machine.to_owned(),
            first: appended.start,
            last: appended.end - 1,
        });
    }
    Ok(pieces)
}

/// The lines of the files after this one. Those that a person damaged, or that say that a tail was repaired, are left out.
fn lines_after(ledger: &Ledger, seq: u64) -> Result<Vec<Line>> {
    let end = end_of(ledger)?;
    if end < seq {
        let what = format!(
            "it ends with line {end}, although {seq} lines were archived: restore the files that are missing"
        );
        return Err(Fault::damaged(ledger.path(), what));
    }
    let mut lines = Vec::new();
    for line in ledger.newest_first()? {
        match line {
            Ok(line) if line.seq <= seq => break,
            Ok(Line { event: Event::LedgerHealed(_), .. }) | Err(Fault::Damaged { .. }) => {}
            Ok(line) => lines.push(line),
            Err(fault) => return Err(fault),
        }
    }
    lines.reverse();
    Ok(lines)
}

/// The number of the last line of the files; 0 if they have none.
fn end_of(ledger: &Ledger) -> Result<u64> {
    for line in ledger.newest_first()? {
        match line {
            Ok(line) => return Ok(line.seq),
            Err(Fault::Damaged { .. }) => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(0)
}

fn is_of(line: &Line, entry: &Entry) -> bool {
    entry.time == line.time && entry.agent == line.agent && entry.event == line.event
}

/// How many of the entries the archive has already, because a process died before it could say so. It appends a batch as a
/// whole, so its last line tells, if this batch is at least as long.
fn already_there(ledger: &Ledger, entries: &[Entry]) -> Result<usize> {
    for line in ledger.newest_first()? {
        let line = line?;
        if !matches!(line.event, Event::LedgerHealed(_)) {
            return Ok(entries.iter().rposition(|entry| is_of(&line, entry)).map_or(0, |at| at + 1));
        }
    }
    Ok(0)
}
