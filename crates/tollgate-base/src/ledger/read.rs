//! Reading the lines of a ledger: from the end, block by block, and from the oldest line on.

use std::borrow::Borrow;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Take};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::digest::Digest;
use crate::error::{At, Fault, Result};

use super::files::{Ledger, LedgerFile};
use super::line::{Line, seq_of};

/// How much is read at once: about thirty ordinary lines, and little enough for a hook that needs only the last one.
pub(super) const BLOCK: u64 = 4 * 1024;

/// The number of lines that are read for one page, wanted or not: some tens of milliseconds.
const LOOK: usize = 5_000;

/// The whole lines of one file, the last first.
#[derive(Debug)]
pub(super) struct LinesBackwards<F> {
    pub(super) file: F,
    /// The bytes from here on were handed out already, or are not a whole line.
    pub(super) end: u64,
    /// Bytes of the file, from `start` on.
    block: Vec<u8>,
    start: u64,
}

/// A line without its newline, and where it lies.
pub(super) struct FoundLine {
    pub(super) bytes: Vec<u8>,
    pub(super) start: u64,
    /// After the newline.
    pub(super) end: u64,
}

impl<F: Borrow<File>> LinesBackwards<F> {
    /// The lines of a file of this length.
    pub(super) fn new(file: F, length: u64) -> io::Result<Self> {
        let mut lines = Self { file, end: 0, block: Vec::new(), start: 0 };
        lines.end = lines.after_newline_before(length)?;
        Ok(lines)
    }

    pub(super) fn next(&mut self) -> io::Result<Option<FoundLine>> {
        let Some(newline) = self.end.checked_sub(1) else { return Ok(None) };
        let start = self.after_newline_before(newline)?;
        let bytes = if self.holds(start, newline) {
            self.block[(start - self.start) as usize..(newline - self.start) as usize].to_owned()
        } else {
            read(self.file.borrow(), start, newline)?
        };
        let end = std::mem::replace(&mut self.end, start);
        Ok(Some(FoundLine { bytes, start, end }))
    }

    /// The next line that has a number, with its number. Damaged lines have none and are passed over.
    pub(super) fn next_numbered(&mut self) -> io::Result<Option<(u64, FoundLine)>> {
        while let Some(found) = self.next()? {
            if let Some(seq) = seq_of(&found.bytes) {
                return Ok(Some((seq, found)));
            }
        }
        Ok(None)
    }

    /// Leaves out the lines from the number `seq` on, by bisection. A damaged line has no number and counts as smaller,
    /// so that it is not left out.
    pub(super) fn leave_out_from(&mut self, seq: u64) -> io::Result<()> {
        // Lines that end at `low` or before are smaller, lines that begin at `high` or after are not.
        let (mut low, mut high) = (0, self.end);
        while low < high {
            let middle = self.after_newline_before(low + (high - low) / 2)?;
            let end = if middle > low { middle } else { high };
            self.end = end;
            let mut is_smaller = None;
            while is_smaller.is_none()
                && self.end > low
                && let Some(found) = self.next()?
            {
                is_smaller = seq_of(&found.bytes).map(|found| found < seq);
            }
            match is_smaller {
                Some(false) => high = self.end,
                _ => low = end,
            }
        }
        self.end = low;
        Ok(())
    }

    /// The place after the last newline before `end`; 0 if there is none. Keeps one block, so that a long stretch without
    /// a newline costs no memory.
    fn after_newline_before(&mut self, mut end: u64) -> io::Result<u64> {
        while end > 0 {
            if !self.holds(end - 1, end) {
                let start = end.saturating_sub(BLOCK);
                self.block = read(self.file.borrow(), start, end)?;
                self.start = start;
            }
            let before = &self.block[..(end - self.start) as usize];
            if let Some(at) = before.iter().rposition(|byte| *byte == b'\n') {
                return Ok(self.start + at as u64 + 1);
            }
            end = self.start;
        }
        Ok(0)
    }

    fn holds(&self, start: u64, end: u64) -> bool {
        self.start <= start && end <= self.start + self.block.len() as u64
    }
}

fn read(file: &File, start: u64, end: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(end - start).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, start)?;
    Ok(bytes)
}

pub(super) fn first_line(mut file: &File) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    BufReader::new(file).read_until(b'\n', &mut line)?;
    Ok(line)
}

/// The lines of a ledger, the newest first. See [`Ledger::newest_first`].
#[derive(Debug)]
pub struct NewestFirst {
    /// The files that were not read yet, the oldest first.
    files: Vec<LedgerFile>,
    reading: Option<(Arc<Path>, LinesBackwards<File>)>,
    /// Lines from this number on are left out.
    before: u64,
}

impl NewestFirst {
    fn step(&mut self) -> Result<Option<Line>> {
        loop {
            if let Some((path, lines)) = &mut self.reading
                && let Some(found) = lines.next().at("read", &**path)?
            {
                // All lines of older files have smaller numbers.
                self.before = u64::MAX;
                return Line::parse(&found.bytes).map(Some).map_err(|error| {
                    let at = found.start;
                    Fault::damaged(path, format!("what is at byte {at} is not a ledger line: {error}"))
                });
            }
            let Some(mut file) = self.files.pop() else { return Ok(None) };
            // Full files are named by their first line: most need not be opened.
            if file.first.is_some_and(|first| first >= self.before) {
                continue;
            }
            if let Some((open, found)) = file.take()? {
                let mut lines = LinesBackwards::new(open, found.len()).at("read", &*file.path)?;
                if self.before < u64::MAX {
                    lines.leave_out_from(self.before).at("read", &*file.path)?;
                }
                self.reading = Some((file.path, lines));
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
            (self.files, self.reading) = (Vec::new(), None);
        }
        step.transpose()
    }
}

/// Some lines of the ledger.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LedgerPage {
    /// The lines, the newest first.
    pub lines: Vec<Line>,
    /// There are older lines, wanted or not: ask for those before this number.
    pub older: Option<u64>,
    /// The number of damaged lines that were left out.
    pub damaged: usize,
}

impl Ledger {
    /// All lines of all files, the newest first. Each line is read when it is asked for, and no lock is taken. A damaged
    /// line is an `Err` in its place; the lines before it still follow.
    pub fn newest_first(&self) -> Result<NewestFirst> {
        self.newest_before(u64::MAX)
    }

    /// The lines with a smaller number than `seq`, the newest first. Finds its place by bisection, so that the middle of a
    /// long ledger costs no more than its end.
    pub fn newest_before(&self, seq: u64) -> Result<NewestFirst> {
        Ok(NewestFirst { files: self.files()?, reading: None, before: seq })
    }

    /// The newest wanted lines, at most `count`; with `before`, of those before that number.
    ///
    /// The cost does not grow with the ledger: a page that finds too few wanted lines ends after a bounded number of
    /// lines and says where the next page goes on.
    pub fn page(
        &self,
        count: usize,
        before: Option<u64>,
        mut wanted: impl FnMut(&Line) -> bool,
    ) -> Result<LedgerPage> {
        let mut page = LedgerPage::default();
        let mut last = None;
        for (looked, line) in self.newest_before(before.unwrap_or(u64::MAX))?.enumerate() {
            if looked == LOOK || page.lines.len() == count {
                page.older = last;
                break;
            }
            match line {
                Ok(line) => {
                    last = Some(line.seq);
                    if wanted(&line) {
                        page.lines.push(line);
                    }
                }
                Err(Fault::Damaged { .. }) => page.damaged += 1,
                Err(fault) => return Err(fault),
            }
        }
        Ok(page)
    }
}

/// The lines of some files, the oldest first, damaged or not.
pub(super) struct OldestFirst {
    /// The files that were not read yet, the oldest last.
    files: Vec<LedgerFile>,
    reading: Option<(Arc<Path>, BufReader<Take<File>>)>,
    /// The number of lines of that file that were read.
    line: u64,
}

/// A line without its newline, and its place.
pub(super) struct PlacedLine {
    pub(super) file: Arc<Path>,
    /// From 1, where reading this file began.
    pub(super) line: u64,
    /// Whether it has a newline.
    pub(super) whole: bool,
    pub(super) bytes: Vec<u8>,
    pub(super) hash: Digest,
}

impl OldestFirst {
    pub(super) fn new(files: Vec<LedgerFile>) -> Self {
        Self { files: files.into_iter().rev().collect(), reading: None, line: 0 }
    }

    pub(super) fn next(&mut self) -> Result<Option<PlacedLine>> {
        loop {
            if let Some((path, reader)) = &mut self.reading {
                let mut bytes = Vec::new();
                reader.read_until(b'\n', &mut bytes).at("read", &**path)?;
                if !bytes.is_empty() {
                    self.line += 1;
                    let whole = bytes.pop_if(|last| *last == b'\n').is_some();
                    let (file, hash) = (path.clone(), Digest::of(&bytes));
                    return Ok(Some(PlacedLine { file, line: self.line, whole, bytes, hash }));
                }
            }
            let Some(mut next) = self.files.pop() else { return Ok(None) };
            // A file that was deleted since it was listed is passed over: its lines will be found missing.
            if let Some((mut file, found)) = next.take()? {
                file.seek(SeekFrom::Start(next.from)).at("read", &*next.path)?;
                let rest = file.take(found.len().saturating_sub(next.from));
                (self.reading, self.line) = (Some((next.path, BufReader::new(rest))), 0);
            }
        }
    }
}
