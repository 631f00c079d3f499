//! Following the ledger: every line once, in order, from a cursor to the end and then as lines are added.
//!
//! A follower keeps no file open. Each time it finds the place after its cursor again, in whichever file that is by now,
//! by bisection: a few blocks of at most two files are read, however long the ledger is. So it does not matter which
//! files became full in the meantime.
//!
//! Each line is compared with the one before. What does not fit is reported, and [`Ledger::verify`] can name it.
//! Invariants: no lock is taken; a line that is half written is not a line yet; a follower that cannot find its place
//! again says so and does not start over.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use crate::digest::Digest;
use crate::error::{At, Result};

use super::files::{Ledger, LedgerFile, is_same_file};
use super::line::{Cursor, Line, Link};
use super::read::{LinesBackwards, OldestFirst, first_line};

/// How far a follower has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Followed {
    /// To the end, and everything fits.
    ToTheEnd,
    /// There is more.
    Further,
    /// To the end, but something does not fit: a line to the one before, the file to what was read of it, or the end to
    /// the last known head. Whether that is damage, [`Ledger::verify`] tells.
    Doubtful,
    /// The last line that was read is not in the ledger any more. Nothing more is read until it is.
    Lost(Lost),
}

/// Why the place of a cursor is not in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// Files with older lines were deleted, among them that of this cursor.
    Deleted,
    /// The ledger has another line in this place: the line was edited, or the cursor is from another ledger.
    Changed,
    /// The ledger ends before this place.
    Cut,
}

/// A reader that remembers how far it has come.
#[derive(Debug)]
pub struct Follower {
    ledger: Ledger,
    cursor: Cursor,
    /// The file that grew at the last look.
    growing: Option<Metadata>,
    doubt: bool,
}

impl Ledger {
    /// A follower that begins with the oldest line.
    pub fn follow(&self) -> Follower {
        self.follow_from(Cursor::START)
    }

    /// A follower that begins with the line after a cursor. [`Cursor::START`] is before the oldest line.
    pub fn follow_from(&self, cursor: Cursor) -> Follower {
        Follower { ledger: self.clone(), cursor, growing: None, doubt: false }
    }
}

impl Follower {
    /// The place after the last line that was read.
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// Reads what was added, at most this many lines, the oldest first. A damaged line is not given to `each`; it makes
    /// the answer [`Followed::Doubtful`].
    pub fn advance(&mut self, most: usize, mut each: impl FnMut(Line)) -> Result<Followed> {
        // Before the files: a line is remembered after it was added, so a ledger that was not cut has it.
        let known = self.ledger.remembered()?;
        let files = self.ledger.files()?;
        self.doubt |= self.was_meddled_with(&files);
        self.growing = files.last().and_then(|last| last.open.as_ref()).map(|(_, found)| found.clone());
        let files = match files_after(self.cursor, files)? {
            Ok(files) => files,
            Err(lost) => {
                self.doubt = true;
                return Ok(Followed::Lost(lost));
            }
        };
        let (mut lines, mut given) = (OldestFirst::new(files), 0);
        while given < most {
            let Some(seen) = lines.next()? else {
                let is_cut = known.is_some_and(|known| {
                    known.seq > self.cursor.seq || known.seq == self.cursor.seq && known != self.cursor
                });
                let doubtful = self.doubt || is_cut;
                return Ok(if doubtful { Followed::Doubtful } else { Followed::ToTheEnd });
            };
            match Line::parse(&seen.bytes) {
                _ if !seen.whole => {}
                Ok(line) => {
                    let is_next = self.cursor.seq.checked_add(1) == Some(line.seq);
                    self.doubt |= !is_next || line.prev != self.cursor.hash;
                    self.cursor = Cursor { seq: line.seq, hash: seen.hash };
                    given += 1;
                    each(line);
                }
                Err(_) => self.doubt = true,
            }
        }
        Ok(Followed::Further)
    }

    /// Whether the file that grew at the last look was changed in another way than by appending: in place, or it is
    /// neither the growing file nor a full one.
    fn was_meddled_with(&self, files: &[LedgerFile]) -> bool {
        let Some(seen) = &self.growing else { return false };
        let dates = |found: &Metadata| (found.mtime(), found.mtime_nsec());
        match files.last().and_then(|last| last.open.as_ref()) {
            Some((_, now)) if is_same_file(seen, now) => {
                now.len() < seen.len() || now.len() == seen.len() && dates(now) != dates(seen)
            }
            _ => !files.iter().any(|file| file.is_now(seen)),
        }
    }

    /// The doubt was looked into. From now on only what is new makes the answer doubtful.
    pub fn trust(&mut self) {
        self.doubt = false;
    }
}

/// Those of the files that have lines after this cursor.
fn files_after(cursor: Cursor, mut files: Vec<LedgerFile>) -> Result<Result<Vec<LedgerFile>, Lost>> {
    if cursor == Cursor::START {
        return Ok(Ok(files));
    }
    let (mut after, mut later) = (Vec::new(), false);
    while let Some(mut file) = files.pop() {
        // Full files are named by their first line: most need not be opened.
        if file.first.is_some_and(|first| first > cursor.seq.saturating_add(1)) {
            later = true;
            after.push(file);
            continue;
        }
        let Some((open, found)) = file.take()? else { continue };
        let mut lines = LinesBackwards::new(open, found.len()).at("read", &*file.path)?;
        let whole = lines.end;
        lines.leave_out_from(cursor.seq.saturating_add(1)).at("read", &*file.path)?;
        let is_found = match lines.next_numbered().at("read", &*file.path)? {
            Some((seq, line)) if seq == cursor.seq && Digest::of(&line.bytes) == cursor.hash => {
                file.from = line.end;
                true
            }
            Some((seq, line)) if seq == cursor.seq || later || line.end < whole => {
                return Ok(Err(Lost::Changed));
            }
            Some(_) => return Ok(Err(Lost::Cut)),
            // Its first line tells what the line before it was, even if the file of that one is not there any more.
            None => match serde_json::from_slice(&first_line(&lines.file).at("read", &*file.path)?) {
                Ok(Link { seq, prev }) if seq == cursor.seq.saturating_add(1) && prev != cursor.hash => {
                    return Ok(Err(Lost::Changed));
                }
                Ok(Link { seq, .. }) => {
                    later = true;
                    seq == cursor.seq.saturating_add(1)
                }
                Err(_) => false,
            },
        };
        file.open = Some((lines.file, found));
        after.push(file);
        if is_found {
            after.reverse();
            return Ok(Ok(after));
        }
    }
    Ok(Err(if later { Lost::Deleted } else { Lost::Cut }))
}
