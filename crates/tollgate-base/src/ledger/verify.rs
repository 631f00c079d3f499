//! Reading the whole ledger and naming the first line that is not as it was written.
//!
//! Each line has the hash of the line before. If that hash is wrong, either of the two lines was edited. The line after
//! both decides: if it has the right hash of the second line, the first one was edited.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Take};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::{At, Fault, Result};

use super::cursor::Cursor;
use super::files::{Shared, open_to_read};
use super::head;

/// What [`super::Ledger::verify`] found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
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
    pub wrong: Wrong,
}

/// What can be wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Wrong {
    /// Its bytes are not the ones that the next line is chained to.
    Edited,
    /// It is gone, and there are lines after it.
    Removed,
    /// It is in the place of another line, which is elsewhere in the ledger.
    Reordered,
    /// It is not JSON with a number and a hash.
    NotALine,
    /// It has no newline: a write was interrupted. The next append moves it away.
    Torn,
    /// The ledger ends before the line that was last known.
    CutTail,
    /// The chain is whole, but this line is not the one that was last known: it, or a line before it, was rewritten.
    Rewritten,
}

/// What ties a line to the one before.
#[derive(Deserialize)]
struct Link {
    seq: u64,
    prev: Digest,
}

/// A line with its place.
struct Seen {
    file: Arc<Path>,
    line: u64,
    whole: bool,
    hash: Digest,
    link: Option<Link>,
}

impl Seen {
    fn problem(&self, seq: u64, wrong: Wrong) -> Problem {
        Problem { file: self.file.to_path_buf(), line: self.line, seq, missing: 0, wrong }
    }
}

pub(super) fn verify(ledger: &Shared) -> Result<Verdict> {
    let (mut lines, remembered) = Lines::of(ledger)?;
    let mut verdict = Verdict { lines: 0, first_seq: None, head: None, remembered, problem: None };
    let mut before: Option<Seen> = None;
    while let Some(line) = lines.next()? {
        let end = verdict.head.unwrap_or(Cursor::START);
        verdict.problem = judge(&line, before.as_ref(), end, remembered, &mut lines)?;
        if verdict.problem.is_some() {
            return Ok(verdict);
        }
        let seq = end.seq + 1;
        verdict.first_seq.get_or_insert(seq);
        verdict.head = Some(Cursor { seq, hash: line.hash });
        verdict.lines += 1;
        before = Some(line);
    }
    let end = verdict.head.unwrap_or(Cursor::START);
    if let Some(remembered) = remembered.filter(|remembered| remembered.seq > end.seq) {
        verdict.problem = Some(Problem {
            file: ledger.path.clone(),
            line: lines.read_of(&ledger.path) + 1,
            seq: end.seq + 1,
            missing: remembered.seq - end.seq,
            wrong: Wrong::CutTail,
        });
    }
    Ok(verdict)
}

/// What is wrong with this line, if the ledger is good up to `end`. Reads further lines only if something is.
fn judge(
    line: &Seen,
    before: Option<&Seen>,
    end: Cursor,
    remembered: Option<Cursor>,
    rest: &mut Lines,
) -> Result<Option<Problem>> {
    let expected = end.seq + 1;
    let link = match &line.link {
        _ if !line.whole => return Ok(Some(line.problem(expected, Wrong::Torn))),
        None => return Ok(Some(line.problem(expected, Wrong::NotALine))),
        Some(link) => link,
    };
    Ok(match (link.seq == expected, link.prev == end.hash) {
        (true, true) => {
            let known = remembered.filter(|remembered| remembered.seq == expected);
            known.filter(|known| known.hash != line.hash).map(|_| line.problem(expected, Wrong::Rewritten))
        }
        // In its place, with a wrong number.
        (false, true) => Some(line.problem(expected, Wrong::Edited)),
        (true, false) => match before {
            Some(before) if innocent(line, link, remembered, rest)? => {
                Some(before.problem(end.seq, Wrong::Edited))
            }
            _ => Some(line.problem(expected, Wrong::Edited)),
        },
        (false, false) if link.seq < expected || rest.contain(expected)? => {
            Some(line.problem(link.seq, Wrong::Reordered))
        }
        (false, false) => {
            Some(Problem { missing: link.seq - expected, ..line.problem(expected, Wrong::Removed) })
        }
    })
}

/// Whether the line's bytes have the hash that the next line, or else the remembered head, has for it. If neither has
/// one: yes, because more of a line is payload than chain.
fn innocent(line: &Seen, link: &Link, remembered: Option<Cursor>, rest: &mut Lines) -> Result<bool> {
    if let Some(Seen { link: Some(next), .. }) = rest.next()? {
        return Ok(next.prev == line.hash);
    }
    Ok(remembered.is_none_or(|known| known.seq != link.seq || known.hash == line.hash))
}

/// The lines of all files, the oldest first.
struct Lines {
    /// The files that were not read yet, the oldest last. Full files are opened when they are read.
    files: Vec<(PathBuf, Option<Take<File>>)>,
    reading: Option<(Arc<Path>, BufReader<Take<File>>)>,
    /// The number of lines of that file that were read.
    line: u64,
    bytes: Vec<u8>,
}

impl Lines {
    /// The lines as they are at this moment, and the remembered head.
    fn of(ledger: &Shared) -> Result<(Self, Option<Cursor>)> {
        // Locked only until the length is known, so that no unfinished write is read. A reader that may not take the
        // lock may still read: an auditor with a read-only copy.
        let lock = match ledger.lock() {
            Err(Fault::Io { .. }) => None,
            lock => Some(lock?),
        };
        // In this order, for readers without the lock: the ledger may grow after its head was remembered, and the
        // growing file may become a full one after it was opened.
        let remembered = ledger.options.head.as_deref().map(head::remembered).transpose()?.flatten();
        let growing = open_to_read(&ledger.path)?;
        let mut files = Vec::new();
        for (_, path) in ledger.full_files(growing.as_ref())? {
            files.push((path, None));
        }
        if let Some(file) = growing {
            let length = file.metadata().at("look at", &ledger.path)?.len();
            files.push((ledger.path.clone(), Some(file.take(length))));
        }
        drop(lock);
        files.reverse();
        Ok((Self { files, reading: None, line: 0, bytes: Vec::new() }, remembered))
    }

    fn next(&mut self) -> Result<Option<Seen>> {
        loop {
            let Some((path, file)) = &mut self.reading else {
                let Some((path, file)) = self.files.pop() else { return Ok(None) };
                let file = match file {
                    Some(file) => file,
                    None => match open_to_read(&path)? {
                        Some(file) => file.take(u64::MAX),
                        // Deleted since it was listed: its lines will be found missing.
                        None => continue,
                    },
                };
                self.reading = Some((path.into(), BufReader::new(file)));
                self.line = 0;
                continue;
            };
            self.bytes.clear();
            file.read_until(b'\n', &mut self.bytes).at("read", &*path)?;
            if self.bytes.is_empty() {
                if self.files.is_empty() {
                    return Ok(None);
                }
                self.reading = None;
                continue;
            }
            self.line += 1;
            let whole = self.bytes.last() == Some(&b'\n');
            let bytes = self.bytes.strip_suffix(b"\n").unwrap_or(&self.bytes);
            return Ok(Some(Seen {
                file: path.clone(),
                line: self.line,
                whole,
                hash: Digest::of(bytes),
                link: serde_json::from_slice(bytes).ok(),
            }));
        }
    }

    /// The number of lines of this file that were read, if it was the last one.
    fn read_of(&self, path: &Path) -> u64 {
        match &self.reading {
            Some((reading, _)) if **reading == *path => self.line,
            _ => 0,
        }
    }

    /// Whether a later line has this number.
    fn contain(&mut self, seq: u64) -> Result<bool> {
        while let Some(line) = self.next()? {
            if line.link.is_some_and(|link| link.seq == seq) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
