//! Reading the ledger from its end, block by block.
//!
//! Readers take no lock, so that a viewer never delays an agent. They may meet a write that is not finished: bytes after
//! the last newline. Those are not a line yet and are passed over.

use std::borrow::Borrow;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{At, Fault, Result};

use super::files::{Shared, open_to_read};
use super::line::Line;

/// How much is read at once: about thirty ordinary lines, and little enough for a hook that needs only the last one.
pub(super) const BLOCK: u64 = 16 * 1024;

/// The whole lines of one file, the last first.
pub(super) struct Backwards<F> {
    file: F,
    /// The bytes from here on were handed out already, or are not a whole line.
    end: u64,
    /// Bytes of the file, from `start` on.
    block: Vec<u8>,
    start: u64,
    /// The number of bytes that are read at once.
    much: u64,
}

/// The part of a line that bisection needs.
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
    /// The lines of a file of this length, reading `much` bytes at once.
    pub(super) fn new(file: F, length: u64, much: u64) -> io::Result<Self> {
        let mut lines = Self { file, end: 0, block: Vec::new(), start: 0, much };
        lines.end = lines.after_newline_before(length)?;
        Ok(lines)
    }

    /// Where the lines that were not yet handed out end.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn next(&mut self) -> io::Result<Option<Found>> {
        let Some(newline) = self.end.checked_sub(1) else { return Ok(None) };
        let start = self.after_newline_before(newline)?;
        let bytes = self.bytes(start, newline)?;
        let end = std::mem::replace(&mut self.end, start);
        Ok(Some(Found { bytes, start, end }))
    }

    /// The last line whose number is at most `seq`, with its number. Damaged lines have none and are passed over.
    pub(super) fn last_up_to(&mut self, seq: u64) -> io::Result<Option<(u64, Found)>> {
        self.end = self.bisect(seq.saturating_add(1))?;
        while let Some(found) = self.next()? {
            if let Ok(Numbered { seq }) = serde_json::from_slice(&found.bytes) {
                return Ok(Some((seq, found)));
            }
        }
        Ok(None)
    }

    /// Where the lines with a smaller number than `seq` end. A damaged line has no number and counts as smaller, so that
    /// it is not left out.
    fn bisect(&mut self, seq: u64) -> io::Result<u64> {
        // Lines that end at `low` or before are smaller, lines that begin at `high` or after are not.
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

    /// The place after the last newline before `end`; 0 if there is none. Keeps one block, so that a long stretch without
    /// a newline costs no memory.
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
    /// The full files that were not read yet, the oldest first. Listed after the growing file was read: most callers stop
    /// before that.
    older: Option<Vec<(u64, PathBuf)>>,
}

impl NewestFirst {
    pub(super) fn new(ledger: &Arc<Shared>) -> Result<Self> {
        let mut lines = Self { ledger: ledger.clone(), place: Place::Between, older: None };
        lines.enter(ledger.path.clone())?;
        Ok(lines)
    }

    /// Begins with the line before this number.
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
            // All lines of this file come later. Full files are named by their first line: most need not be opened.
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

    /// Goes to the end of this file, if it exists.
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
                        return Line::parse(&found.bytes).map(Some).map_err(|error| {
                            Fault::damaged(
                                path,
                                format!("what is at byte {} is not a ledger line: {error}", found.start),
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
        // After a damaged line the next can be read. After an error of the disk nothing can.
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
