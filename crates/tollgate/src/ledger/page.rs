//! One page of the ledger: the newest lines that are wanted, or those before a known one.
//!
//! The cost does not grow with the ledger. Where a page begins is found by halving, because numbers only go up; a page
//! that finds too little of what is wanted ends after a bounded look, and says where the next one goes on.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;

use crate::error::{Fault, Result};

use super::append::seq_of;
use super::read::BLOCK;
use super::{Ledger, Line};

/// So many lines are looked at for one page, wanted or not: some tens of milliseconds.
const LOOK: usize = 5_000;

/// Some lines of the ledger.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    /// The lines, the newest first.
    pub lines: Vec<Line>,
    /// There are older ones: ask for those before this number. They need not be wanted ones.
    pub older: Option<u64>,
    /// How many lines on the way were damaged and are left out.
    pub damaged: usize,
}

impl Ledger {
    /// The newest lines that are wanted, at most `count`; of those before a number, if one is given.
    pub fn page(
        &self,
        count: usize,
        before: Option<u64>,
        mut wanted: impl FnMut(&Line) -> bool,
    ) -> Result<Page> {
        let mut page = Page::default();
        let mut looked = 0;
        let mut last = None;
        for line in self.newest_before(before.unwrap_or(u64::MAX))? {
            if looked == LOOK || page.lines.len() == count {
                page.older = last;
                break;
            }
            looked += 1;
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

    /// All lines with smaller numbers, the newest first. Finding the first of them costs little, wherever it is.
    pub fn newest_before(&self, seq: u64) -> Result<impl Iterator<Item = Result<Line>>> {
        let lines = super::NewestFirst::before(&self.0, seq)?;
        Ok(lines.skip_while(move |line| match line {
            Ok(line) => line.seq >= seq,
            // It lies among those that come after, if there are such.
            Err(Fault::Damaged { .. }) => seq != u64::MAX,
            Err(_) => false,
        }))
    }
}

/// A place in the file after which no line has a smaller number, and before which few have not.
pub(super) fn end_before(file: &File, length: u64, seq: u64) -> io::Result<u64> {
    let (mut low, mut high) = (0, length);
    while high - low > BLOCK {
        let middle = low + (high - low) / 2;
        // If there is no line with a number in this half, what is left is gone through.
        let Some((start, found)) = numbered_line(file, middle, high)? else { break };
        if found < seq {
            low = start;
        } else if start < high {
            high = start;
        } else {
            break;
        }
    }
    Ok(high)
}

/// The first line with a number that starts after `from` and before `until`: where, and which number.
fn numbered_line(file: &File, from: u64, until: u64) -> io::Result<Option<(u64, u64)>> {
    let mut reader = BufReader::new(From { file, at: from });
    let mut bytes = Vec::new();
    let mut start = from + reader.read_until(b'\n', &mut bytes)? as u64;
    while start < until {
        bytes.clear();
        let length = reader.read_until(b'\n', &mut bytes)? as u64;
        if length == 0 {
            break;
        }
        if let Some(seq) = seq_of(&bytes) {
            return Ok(Some((start, seq)));
        }
        start += length;
    }
    Ok(None)
}

/// A file from a place on, whatever others do with it.
struct From<'a> {
    file: &'a File,
    at: u64,
}

impl Read for From<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(bytes, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
