//! Reading the whole ledger and naming the first line that is not as it was written.
//!
//! Each line tells the hash of the one before, so a break in the chain accuses two lines: the one that tells and the one
//! that is told about. The line after both decides: if the teller's own bytes are as that line says, it is innocent.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Take};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::{At, Fault, Result};

use super::{Head, Shared, head, open_to_read};

/// What [`super::Ledger::verify`] found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// How many lines were read and fit to the one before, up to the end or to the problem.
    pub lines: u64,
    /// The number of the first line.
    pub first_seq: Option<u64>,
    /// The last of these lines.
    pub head: Option<Head>,
    /// The last known head, if one is remembered: without it a cut end cannot be found.
    pub remembered: Option<Head>,
    /// The first thing that is wrong.
    pub problem: Option<Problem>,
}

/// One line that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file it is in, or should be in.
    pub file: PathBuf,
    /// Its place in that file, from 1; of lines that are gone, where they should be.
    pub line: u64,
    /// Its number, or the one it should have; of lines that are gone, the first.
    pub seq: u64,
    /// How many lines are gone.
    pub missing: u64,
    /// What is wrong with it.
    pub wrong: Wrong,
}

/// What can be wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Wrong {
    /// Its bytes are not those that the next line was chained to.
    Edited,
    /// It is gone, and lines after it are there.
    Removed,
    /// It stands where another should, and that one comes later or came before.
    Reordered,
    /// It is not JSON with a number and a hash.
    NotALine,
    /// It has no newline: a write was interrupted. The next append moves it away.
    Torn,
    /// The ledger ends before the line that was last known.
    CutTail,
    /// The chain is whole, but this line is not the one that was last known: it, or one before it, was written anew.
    Rewritten,
}

/// What ties a line to the one before.
#[derive(Deserialize)]
struct Link {
    seq: u64,
    prev: Digest,
}

/// A line, where it stands, and what it says.
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
        let end = verdict.head.unwrap_or(Head::start());
        verdict.problem = judge(&line, before.as_ref(), end, remembered, &mut lines)?;
        if verdict.problem.is_some() {
            return Ok(verdict);
        }
        let seq = end.seq + 1;
        verdict.first_seq.get_or_insert(seq);
        verdict.head = Some(Head { seq, hash: line.hash });
        verdict.lines += 1;
        before = Some(line);
    }
    let end = verdict.head.unwrap_or(Head::start());
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

/// What is wrong with this line, if the ledger was good up to `end`. May read on: then something is.
fn judge(
    line: &Seen,
    before: Option<&Seen>,
    end: Head,
    remembered: Option<Head>,
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
        // In its place, under a false number.
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

/// Whether the line's bytes are as the next line, or else the remembered head, says. If neither says anything: yes,
/// because more of a line is payload than chain.
fn innocent(line: &Seen, link: &Link, remembered: Option<Head>, rest: &mut Lines) -> Result<bool> {
    if let Some(Seen { link: Some(next), .. }) = rest.next()? {
        return Ok(next.prev == line.hash);
    }
    Ok(remembered.is_none_or(|known| known.seq != link.seq || known.hash == line.hash))
}

/// The lines of all files, the oldest first.
struct Lines {
    /// Still to be read, the oldest last. Full files are opened when their turn comes.
    files: Vec<(PathBuf, Option<Take<File>>)>,
    reading: Option<(Arc<Path>, BufReader<Take<File>>)>,
    /// How many lines of that file have been read.
    line: u64,
    bytes: Vec<u8>,
}

impl Lines {
    /// As they are at this moment, and what is remembered of them.
    fn of(ledger: &Shared) -> Result<(Self, Option<Head>)> {
        // Locked only until it is known what there is to read, so that no write is seen half done. Who may not take the
        // lock may still read: an auditor with a read-only copy.
        let lock = match ledger.lock() {
            Err(Fault::Io { .. }) => None,
            lock => Some(lock?),
        };
        // In this order, for those without the lock: the ledger may grow after its head was remembered, and the growing
        // file may become a full one after it was opened.
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
                        // Taken away since it was listed: the gap will tell.
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

    /// How many lines of this file have been read, if it is the last that was read.
    fn read_of(&self, path: &Path) -> u64 {
        match &self.reading {
            Some((reading, _)) if **reading == *path => self.line,
            _ => 0,
        }
    }

    /// Whether a line with this number comes later.
    fn contain(&mut self, seq: u64) -> Result<bool> {
        while let Some(line) = self.next()? {
            if line.link.is_some_and(|link| link.seq == seq) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
