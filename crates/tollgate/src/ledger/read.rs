//! Reading the ledger from its end, block by block.
//!
//! Readers take no lock, so that a viewer never holds up an agent. What they may meet is a write that is not finished:
//! bytes after the last newline, which are not a line yet and are passed over.

use std::borrow::Borrow;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{At, Fault, Result};

use super::{Line, Shared, open_to_read};

/// How much is read at once: some thirty ordinary lines, and little enough for a hook that only wants the last one.
pub(super) const BLOCK: u64 = 16 * 1024;

/// The whole lines of one file, the last first.
pub(super) struct Backwards<F> {
    file: F,
    /// What follows has been handed out, or is no whole line.
    end: u64,
    /// Bytes of the file, from `start` on.
    block: Vec<u8>,
    start: u64,
    /// How many are read at once.
    much: u64,
}

/// As much of a line as tells its place.
#[derive(serde::Deserialize)]
struct Numbered {
    seq: u64,
}

/// A line without its newline, and where it lies.
pub(super) struct Found {
    pub(super) bytes: Vec<u8>,
    pub(super) start: u64,
    /// After the newline.
    pub(super) end: u64,
}

impl<F: Borrow<File>> Backwards<F> {
    /// Of a file of this length, so much of it at once.
    pub(super) fn new(file: F, length: u64, much: u64) -> io::Result<Self> {
        let mut lines = Self { file, end: 0, block: Vec::new(), start: 0, much };
        lines.end = lines.after_newline_before(length)?;
        Ok(lines)
    }

    pub(super) fn next(&mut self) -> io::Result<Option<Found>> {
        let Some(newline) = self.end.checked_sub(1) else { return Ok(None) };
        let start = self.after_newline_before(newline)?;
        let bytes = self.bytes(start, newline)?;
        let end = std::mem::replace(&mut self.end, start);
        Ok(Some(Found { bytes, start, end }))
    }

    /// Where the lines with a smaller number than `seq` end. The numbers go up; a damaged line has none and counts as
    /// small, so that it is met and not left out.
    fn bisect(&mut self, seq: u64) -> io::Result<u64> {
        // What ends at `low` or before is small, what begins at `high` or after is not.
        let (mut low, mut high) = (0, self.end);
        while low < high {
            let middle = self.after_newline_before(low + (high - low) / 2)?;
            let end = if middle > low { middle } else { high };
            let (block, much) = (Vec::new(), self.much);
            let mut lines = Backwards { file: self.file.borrow(), end, block, start: 0, much };
            let mut large = None;
            while large.is_none()
                && lines.end > low
                && let Some(found) = lines.next()?
            {
                let line = serde_json::from_slice::<Numbered>(&found.bytes).ok();
                large = line.map(|line| line.seq >= seq);
            }
            match large {
                Some(true) => high = lines.end,
                _ => low = end,
            }
        }
        Ok(low)
    }

    /// The place after the last newline before `end`; 0 if there is none. Looks at one block at a time, so that a long
    /// stretch without a newline costs no memory.
    fn after_newline_before(&mut self, mut end: u64) -> io::Result<u64> {
        while end > 0 {
            if !self.holds(end - 1, end) {
                let start = end.saturating_sub(self.much);
                self.block = read(self.file.borrow(), start, end)?;
                self.start = start;
            }
            let before = &self.block[..length(self.start, end)?];
            if let Some(at) = before.iter().rposition(|byte| *byte == b'\n') {
                return Ok(self.start + at as u64 + 1);
            }
            end = self.start;
        }
        Ok(0)
    }

    fn bytes(&self, start: u64, end: u64) -> io::Result<Vec<u8>> {
        if self.holds(start, end) {
            return Ok(self.block[length(self.start, start)?..length(self.start, end)?].to_owned());
        }
        read(self.file.borrow(), start, end)
    }

    fn holds(&self, start: u64, end: u64) -> bool {
        self.start <= start && end <= self.start + self.block.len() as u64
    }
}

fn read(file: &File, start: u64, end: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length(start, end)?];
    file.read_exact_at(&mut bytes, start)?;
    Ok(bytes)
}

fn length(start: u64, end: u64) -> io::Result<usize> {
    usize::try_from(end - start).map_err(io::Error::other)
}

/// Where [`NewestFirst`] is.
enum Place {
    In(PathBuf, Backwards<File>),
    /// Before the next older file, if there is one.
    Between,
    Done,
}

/// The lines of a ledger, the newest first. See [`super::Ledger::newest_first`].
pub struct NewestFirst {
    ledger: Arc<Shared>,
    place: Place,
    /// The full files not yet read, the oldest first. Listed only when the growing file has been read: most callers
    /// stop before.
    older: Option<Vec<(u64, PathBuf)>>,
}

impl NewestFirst {
    pub(super) fn new(ledger: &Arc<Shared>) -> Result<Self> {
        let mut lines = Self { ledger: ledger.clone(), place: Place::Between, older: None };
        lines.enter(ledger.path.clone())?;
        Ok(lines)
    }

    /// From the line before this number on.
    pub(super) fn before(ledger: &Arc<Shared>, seq: u64) -> Result<Self> {
        let mut lines = Self::new(ledger)?;
        loop {
            if let Place::In(path, found) = &mut lines.place {
                let end = found.bisect(seq).at("read", &*path)?;
                if end > 0 {
                    found.end = end;
                    return Ok(lines);
                }
                if lines.older.is_none() {
                    lines.older = Some(ledger.full_files(Some(&found.file))?);
                }
            }
            // All of them come later. The full files are named by their first line: most need not be opened.
            let older = match &mut lines.older {
                Some(older) => older,
                none => none.insert(ledger.full_files(None)?),
            };
            while older.last().is_some_and(|(first, _)| *first >= seq) {
                older.pop();
            }
            lines.place = Place::Between;
            match older.pop() {
                Some((_, path)) => lines.enter(path)?,
                None => {
                    lines.place = Place::Done;
                    return Ok(lines);
                }
            }
        }
    }

    /// Goes to the end of this file, if it is there.
    fn enter(&mut self, path: PathBuf) -> Result<()> {
        if let Some(file) = open_to_read(&path)? {
            let length = file.metadata().at("look at", &path)?.len();
            let lines = Backwards::new(file, length, BLOCK).at("read", &path)?;
            self.place = Place::In(path, lines);
        }
        Ok(())
    }

    fn step(&mut self) -> Result<Option<Line>> {
        loop {
            match &mut self.place {
                Place::Done => return Ok(None),
                Place::In(path, lines) => {
                    if let Some(found) = lines.next().at("read", &*path)? {
                        return serde_json::from_slice(&found.bytes).map(Some).map_err(|error| {
                            Fault::damaged(
                                path,
                                format!("what is at byte {} is no ledger line: {error}", found.start),
                            )
                        });
                    }
                    if self.older.is_none() {
                        // By identity: the file may have become a full one while it was read.
                        self.older = Some(self.ledger.full_files(Some(&lines.file))?);
                    }
                    self.place = Place::Between;
                }
                Place::Between => {
                    let older = match &mut self.older {
                        Some(older) => older,
                        none => none.insert(self.ledger.full_files(None)?),
                    };
                    match older.pop() {
                        Some((_, path)) => self.enter(path)?,
                        None => self.place = Place::Done,
                    }
                }
            }
        }
    }
}

impl Iterator for NewestFirst {
    type Item = Result<Line>;

    fn next(&mut self) -> Option<Result<Line>> {
        let step = self.step();
        // After a damaged line the next can be read; after a disk that does not answer, nothing can.
        if matches!(&step, Err(fault) if !matches!(fault, Fault::Damaged { .. })) {
            self.place = Place::Done;
        }
        step.transpose()
    }
}

impl fmt::Debug for NewestFirst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewestFirst").field("path", &self.ledger.path).finish_non_exhaustive()
    }
}
