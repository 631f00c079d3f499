//! The ledger: what happened in a workspace, one JSON object per line, never changed afterwards.
//!
//! Invariants:
//! - lines are only added at the end, under one lock, all lines of one call or none;
//! - `seq` starts at 1 and goes up by one; `prev` is the SHA-256 of the line before, without its newline, and the chain
//!   goes on from file to file;
//! - `ledger.jsonl` is the file that grows; when it is long, it is flushed, renamed to `ledger-<first seq>.jsonl`, and
//!   never written again;
//! - no byte is lost: a tail that a power cut damaged is moved to `ledger.torn-<seq>`, and a line records that.
//!
//! `append` writes; `read` and `page` read from the end; `follow` reads forward from a cursor, which `place` finds again;
//! `verify` reads everything; `head` remembers the end elsewhere. `line` is one line, written and
//! read; `tally` adds the lines up.
//!
//! Limit: the chain reveals a changed line unless all lines after it were recomputed too. A recomputed chain, or an end
//! that was cut off, is revealed only by the remembered head, which a process of the same user can change as well.

mod append;
mod cursor;
mod files;
mod follow;
mod head;
mod line;
mod page;
mod place;
mod read;
mod tally;
#[cfg(test)]
mod tests;
mod verify;
mod writer;

use std::ops::Range;

use crate::error::{At, Fault, Result};

use files::open_to_read;

pub use crate::event::ActionType;
pub use cursor::Cursor;
pub use files::{Flush, Ledger, LedgerOptions};
pub use follow::{Followed, Follower, Resumed};
pub use line::{Entry, Line};
pub use page::Page;
pub use place::Lost;
pub use read::NewestFirst;
pub use tally::Tally;
pub use verify::{Problem, Verdict, Wrong};

impl Ledger {
    /// Adds a line for each entry, all or none. The answer is the lines' numbers, in the order of the entries.
    ///
    /// If the ledger's tail was damaged, a line of type [`ActionType::LedgerHealed`] comes before them; it is not in the
    /// answer. The cost does not depend on the length of the ledger.
    pub fn append(&self, entries: &[Entry], flush: Flush) -> Result<Range<u64>> {
        append::append(&self.0, entries, flush)
    }

    /// Makes every line that was appended until now survive a power cut.
    pub fn sync(&self) -> Result<()> {
        // The current file is enough: the others were flushed before they got their names.
        match open_to_read(&self.0.path)? {
            Some(file) => file.sync_data().at("flush", &self.0.path),
            None => Ok(()),
        }
    }

    /// All lines of all files, the newest first. Each line is read when it is asked for, and no lock is taken. A damaged
    /// line is an `Err` in its place; the lines before it still follow.
    pub fn newest_first(&self) -> Result<NewestFirst> {
        NewestFirst::new(&self.0)
    }

    /// The lines with a smaller number than `seq`, the newest first. Finds its place by bisection, so that the middle of a
    /// long ledger costs no more than its end.
    pub fn newest_before(&self, seq: u64) -> Result<NewestFirst> {
        NewestFirst::before(&self.0, seq)
    }

    /// The lines with a greater number than `seq`, the oldest first. Reads from the end back to `seq` and keeps all of
    /// them in memory: [`Ledger::follow_from`] does not. Damaged lines are left out; [`Ledger::verify`] names them.
    pub fn lines_after(&self, seq: u64) -> Result<Vec<Line>> {
        let mut lines = Vec::new();
        for line in self.newest_first()? {
            match line {
                Ok(line) if line.seq <= seq => break,
                Ok(line) => lines.push(line),
                Err(Fault::Damaged { .. }) => {}
                Err(fault) => return Err(fault),
            }
        }
        lines.reverse();
        Ok(lines)
    }

    /// Reads all lines and reports the first that is not as it was written. Needs memory for two lines, however long the
    /// ledger is.
    pub fn verify(&self) -> Result<Verdict> {
        verify::verify(&self.0)
    }
}
