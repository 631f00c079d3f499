//! The files of the archive: appending to them, and reading the events that the statement says are there.
//!
//! The files are a ledger of their own, with its chain of hashes. Invariant: what is read is what is stated. A line that is
//! missing, or does not fit the one before it, is an error.

use std::path::Path;

use jiff::Timestamp;
use tollgate_base::error::{Fault, Result};
use tollgate_base::event::Event;
use tollgate_base::ledger::{Cursor, Entry, Followed, Ledger, Line};
use tollgate_base::settings::Durability;

use crate::archived::ArchivePiece;

/// The archive continues in a new file at this size.
const FILE_SIZE: u64 = 64 << 20;

/// The files of the archive in this folder.
pub(crate) fn files_in(folder: &Path) -> Ledger {
    Ledger::new(folder, &folder.join("lock"), FILE_SIZE, None)
}

/// Appends the entries that the files do not have yet. The pieces of the archive, with these entries.
pub(crate) fn put_into_files(
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
            "it ends with line {end}, although {seq} lines were archived: restore the files that are missing; if they are lost, \
             stop tollgate here and delete `.tollgate/engine/machine`, and the archive continues under another name"
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
pub(crate) fn end_of(ledger: &Ledger) -> Result<u64> {
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

/// The latest time of all lines.
pub(crate) fn newest_time(ledger: &Ledger) -> Result<Option<Timestamp>> {
    let mut newest = None;
    for line in ledger.newest_first()? {
        match line {
            Ok(line) => newest = newest.max(Some(line.time)),
            Err(Fault::Damaged { .. }) => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(newest)
}

/// Whether these files have the last line of a piece.
pub(crate) fn has_end_of(ledger: &Ledger, piece: &ArchivePiece) -> Result<bool> {
    Ok(place_after(ledger, piece.last)?.is_some())
}

/// The place after this line, if the files have it.
fn place_after(ledger: &Ledger, seq: u64) -> Result<Option<Cursor>> {
    if seq == 0 {
        return Ok(Some(Cursor::START));
    }
    let line = ledger.newest_before(seq.saturating_add(1))?.next().transpose()?;
    Ok(line.filter(|line| line.seq == seq).map(|line| line.cursor()))
}

/// At most this many events of a piece after a line, and the number of the line after which the next ones come.
pub(crate) fn read_piece(
    ledger: &Ledger,
    piece: &ArchivePiece,
    after: u64,
    most: usize,
) -> Result<(Vec<Entry>, u64)> {
    let unfit = |seq: u64| {
        Fault::damaged(
            ledger.path(),
            format!("the archived line {seq} is missing, or not the one that was archived"),
        )
    };
    let mut place = place_after(ledger, after)?.ok_or_else(|| unfit(after))?;
    let (mut follower, mut entries, mut fits) = (ledger.follow_from(place), Vec::new(), true);
    while entries.len() < most && place.seq < piece.last {
        let followed = follower.advance(most - entries.len(), |line| {
            if line.seq > piece.last {
                return;
            }
            fits &= line.seq == place.seq + 1 && line.prev == place.hash;
            if !fits {
                return;
            }
            place = line.cursor();
            if !matches!(line.event, Event::LedgerHealed(_)) {
                let Line { time, agent, turn, event, .. } = line;
                entries.push(Entry { time, agent, turn, event });
            }
        })?;
        if !fits || followed != Followed::Further && place.seq < piece.last {
            return Err(unfit(place.seq + 1));
        }
    }
    Ok((entries, place.seq))
}
