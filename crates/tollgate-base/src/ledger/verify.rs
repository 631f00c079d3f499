//! Reading the whole ledger and naming the first line that is not as it was written.
//!
//! Each line has the hash of the line before. If that hash is wrong, either of the two lines was edited. The line after
//! both decides: if it has the right hash of the second line, the first one was edited.

use std::path::PathBuf;

use serde::Serialize;

use crate::error::{Fault, Result};

use super::files::Ledger;
use super::line::{Cursor, Link};
use super::read::{OldestFirst, PlacedLine};

/// What [`Ledger::verify`] found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verification {
    /// The number of good lines, up to the end or to the problem.
    pub lines: u64,
    /// The number of the first line.
    pub first_seq: Option<u64>,
    /// The last good line.
    pub head: Option<Cursor>,
    /// The last known head, if one is remembered. Without it a cut end cannot be found.
    pub remembered: Option<Cursor>,
    /// The first problem.
    pub problem: Option<Problem>,
}

/// One line that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file that has the line, or should have it.
    pub file: PathBuf,
    /// The place of the line in that file, from 1. If lines are gone: where they should be.
    pub line: u64,
    /// The number that the line has or should have. If lines are gone: the number of the first.
    pub seq: u64,
    /// The number of lines that are gone.
    pub missing: u64,
    /// What is wrong with it.
    pub wrong: LineDefect,
}

/// What can be wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LineDefect {
    /// Its bytes are not the ones that the next line is chained to.
    Edited,
    /// The line is gone, and there are lines after it.
    Removed,
    /// The line is in the place of another one, which is elsewhere in the ledger.
    Reordered,
    /// These bytes are not JSON with a number and a hash.
    NotALine,
    /// It has no newline: a write was interrupted. The next append moves it away.
    Torn,
    /// The ledger ends before the line that was last known.
    CutTail,
    /// The chain is whole, but this line is not the one that was last known: it, or a line before it, was rewritten.
    Rewritten,
}

impl Ledger {
    /// Reads all lines and reports the first that is not as it was written. Needs memory for two lines, however long the
    /// ledger is.
    pub fn verify(&self) -> Result<Verification> {
        // Locked only until the length is known, so that no unfinished write is read. A reader that may not take the
        // lock may still read: an auditor with a read-only copy.
        let lock = match self.lock() {
            Err(Fault::Io { .. }) => None,
            lock => Some(lock?),
        };
        // Before the files, for readers without the lock: the ledger may grow after its head was remembered.
        let remembered = self.remembered()?;
        let mut lines = OldestFirst::new(self.files()?);
        drop(lock);
        let mut found = Verification { lines: 0, first_seq: None, head: None, remembered, problem: None };
        let mut before: Option<PlacedLine> = None;
        while let Some(line) = lines.next()? {
            let end = found.head.unwrap_or(Cursor::START);
            found.problem = judge(&line, before.as_ref(), end, remembered, &mut lines)?;
            if found.problem.is_some() {
                return Ok(found);
            }
            let seq = end.seq + 1;
            found.first_seq.get_or_insert(seq);
            found.head = Some(Cursor { seq, hash: line.hash });
            found.lines += 1;
            before = Some(line);
        }
        let end = found.head.unwrap_or(Cursor::START);
        if let Some(remembered) = remembered.filter(|remembered| remembered.seq > end.seq) {
            let last = before.filter(|last| *last.file == *self.path);
            found.problem = Some(Problem {
                file: self.path.clone(),
                line: last.map_or(0, |last| last.line) + 1,
                seq: end.seq + 1,
                missing: remembered.seq - end.seq,
                wrong: LineDefect::CutTail,
            });
        }
        Ok(found)
    }
}

impl Ledger {
    /// Whether the ledger still has the line that was last known. Reads that line only, so it is cheap, however long the ledger
    /// is; what is wrong with earlier lines, only [`verify`](Self::verify) finds.
    pub fn check_end(&self) -> Result<Option<LineDefect>> {
        // Before the files: the ledger may grow after its head was remembered.
        let Some(known) = self.remembered()? else { return Ok(None) };
        Ok(match self.newest_before(known.seq.saturating_add(1))?.next().transpose() {
            Ok(Some(line)) if line.cursor() == known => None,
            Ok(Some(line)) if line.seq == known.seq => Some(LineDefect::Rewritten),
            Ok(_) => Some(LineDefect::CutTail),
            Err(Fault::Damaged { .. }) => Some(LineDefect::NotALine),
            Err(fault) => return Err(fault),
        })
    }
}

impl PlacedLine {
    fn link(&self) -> Option<Link> {
        serde_json::from_slice(&self.bytes).ok()
    }

    fn problem(&self, seq: u64, wrong: LineDefect) -> Problem {
        Problem { file: self.file.to_path_buf(), line: self.line, seq, missing: 0, wrong }
    }
}

/// What is wrong with this line, if the ledger is good up to `end`. Reads further lines only if something is.
fn judge(
    line: &PlacedLine,
    before: Option<&PlacedLine>,
    end: Cursor,
    remembered: Option<Cursor>,
    rest: &mut OldestFirst,
) -> Result<Option<Problem>> {
    let expected = end.seq + 1;
    if !line.whole {
        return Ok(Some(line.problem(expected, LineDefect::Torn)));
    }
    let Some(link) = line.link() else { return Ok(Some(line.problem(expected, LineDefect::NotALine))) };
    Ok(match (link.seq == expected, link.prev == end.hash) {
        (true, true) => {
            let known = remembered.filter(|remembered| remembered.seq == expected);
            known
                .filter(|known| known.hash != line.hash)
                .map(|_| line.problem(expected, LineDefect::Rewritten))
        }
        // In its place, with a wrong number.
        (false, true) => Some(line.problem(expected, LineDefect::Edited)),
        (true, false) => match before {
            Some(before) if innocent(line, &link, remembered, rest)? => {
                Some(before.problem(end.seq, LineDefect::Edited))
            }
            _ => Some(line.problem(expected, LineDefect::Edited)),
        },
        (false, false) if link.seq < expected || contain(rest, expected)? => {
            Some(line.problem(link.seq, LineDefect::Reordered))
        }
        (false, false) => {
            Some(Problem { missing: link.seq - expected, ..line.problem(expected, LineDefect::Removed) })
        }
    })
}

/// Whether the line's bytes have the hash that the next line, or else the remembered head, has for it. If neither has
/// one: yes, because more of a line is payload than chain.
fn innocent(
    line: &PlacedLine,
    link: &Link,
    remembered: Option<Cursor>,
    rest: &mut OldestFirst,
) -> Result<bool> {
    if let Some(next) = rest.next()?.and_then(|next| next.link()) {
        return Ok(next.prev == line.hash);
    }
    Ok(remembered.is_none_or(|known| known.seq != link.seq || known.hash == line.hash))
}

/// Whether a later line has this number.
fn contain(rest: &mut OldestFirst, seq: u64) -> Result<bool> {
    while let Some(line) = rest.next()? {
        if line.link().is_some_and(|link| link.seq == seq) {
            return Ok(true);
        }
    }
    Ok(false)
}
