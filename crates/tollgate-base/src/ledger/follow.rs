//! Following the ledger: every line once, in order, from a cursor to the end and then as lines are added.
//!
//! Each line is compared with the one before. What does not fit is reported, and [`super::Ledger::verify`] can name it.
//! Invariants: only what was added is read, one line at a time; no lock is taken; a line that is half written is not a
//! line yet; a follower that cannot find its place again says so and does not start over.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::digest::Digest;
use crate::error::{At, Result};

use super::cursor::Cursor;
use super::files::{Ledger, Shared, identity, open_to_read};
use super::head;
use super::line::Line;
use super::place::{self, Lost, Place};

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

/// The answer to [`Ledger::follow_from`].
#[derive(Debug)]
pub enum Resumed {
    /// The next line is the one after the cursor.
    Following(Follower),
    /// The line of the cursor is not in the ledger.
    Lost(Lost),
}

/// A reader that remembers how far it has come.
#[derive(Debug)]
pub struct Follower {
    ledger: Arc<Shared>,
    standing: Standing,
    cursor: Cursor,
    doubt: bool,
}

/// Where a follower stands.
#[derive(Debug)]
enum Standing {
    In(Reading),
    /// Before the first file, or between two.
    Between,
    /// What was read is not where it was.
    Astray,
}

#[derive(Debug)]
struct Reading {
    path: PathBuf,
    file: BufReader<File>,
    /// After the last whole line.
    offset: u64,
    /// When the file was last changed, as far as that was read.
    seen: Dates,
}

/// What the next look for a line gave.
enum Next {
    Line,
    End,
    Lost(Lost),
}

impl Ledger {
    /// A follower that begins with the oldest line.
    pub fn follow(&self) -> Follower {
        let (ledger, cursor) = (self.0.clone(), Cursor::START);
        Follower { ledger, standing: Standing::Between, cursor, doubt: false }
    }

    /// A follower that begins with the line after a cursor. Finds its place by bisection, so that the cost does not
    /// depend on the length of the ledger. [`Cursor::START`] is before the oldest line.
    pub fn follow_from(&self, cursor: Cursor) -> Result<Resumed> {
        let mut follower = self.follow();
        if cursor == Cursor::START {
            return Ok(Resumed::Following(follower));
        }
        Ok(match place::find(&self.0, cursor)? {
            Ok(place) => {
                follower.standing = Standing::In(Reading::at(place)?);
                Resumed::Following(Follower { cursor, ..follower })
            }
            Err(lost) => Resumed::Lost(lost),
        })
    }
}

impl Reading {
    fn at(Place { path, file, offset }: Place) -> Result<Self> {
        let seen = Dates::of(&file, &path)?;
        let mut file = BufReader::new(file);
        file.seek(SeekFrom::Start(offset)).at("read", &path)?;
        Ok(Self { path, file, offset, seen })
    }

    fn dates(&self) -> Result<Dates> {
        Dates::of(self.file.get_ref(), &self.path)
    }

    fn identity(&self) -> Result<(u64, u64)> {
        identity(self.file.get_ref()).at("look at", &self.path)
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
        let mut bytes = Vec::new();
        for _ in 0..most {
            match self.next(&mut bytes)? {
                Next::Line => {}
                Next::Lost(lost) => return Ok(Followed::Lost(lost)),
                Next::End => {
                    let cut = self.misses_the_known_end()?;
                    return Ok(if self.doubt || cut { Followed::Doubtful } else { Followed::ToTheEnd });
                }
            }
            match Line::parse(&bytes) {
                Ok(line) => {
                    self.doubt |= line.seq != self.cursor.seq + 1 || line.prev != self.cursor.hash;
                    self.cursor = Cursor { seq: line.seq, hash: Digest::of(&bytes) };
                    each(line);
                }
                Err(_) => self.doubt = true,
            }
        }
        Ok(Followed::Further)
    }

    /// The bytes of the next whole line.
    fn next(&mut self, bytes: &mut Vec<u8>) -> Result<Next> {
        loop {
            match &mut self.standing {
                Standing::Between => {
                    if !self.open_next()? {
                        return Ok(Next::End);
                    }
                }
                Standing::Astray => match place::find(&self.ledger, self.cursor)? {
                    Ok(place) => self.standing = Standing::In(Reading::at(place)?),
                    Err(lost) => return Ok(Next::Lost(lost)),
                },
                Standing::In(reading) => {
                    bytes.clear();
                    let read = reading.file.read_until(b'\n', bytes).at("read", &reading.path)?;
                    if bytes.pop_if(|last| *last == b'\n').is_some() {
                        reading.offset += read as u64;
                        return Ok(Next::Line);
                    }
                    // The end, or half a line. What comes next is read from its beginning.
                    let offset = reading.offset;
                    reading.file.seek(SeekFrom::Start(offset)).at("read", &reading.path)?;
                    if !self.move_on()? {
                        return Ok(Next::End);
                    }
                }
            }
        }
    }

    /// The file with the line after the cursor, or the next one that is there.
    fn open_next(&mut self) -> Result<bool> {
        // Opened before the full files are listed: should it become full in between, it is in the list, and is the
        // next if no other is. In the other order its lines would be left out.
        let growing = open_to_read(&self.ledger.path)?;
        let full = self.ledger.full_files(None)?;
        let (path, file) = match full.into_iter().find(|(first, _)| *first > self.cursor.seq) {
            Some((_, path)) => (path.clone(), open_to_read(&path)?),
            None => (self.ledger.path.clone(), growing),
        };
        let Some(file) = file else { return Ok(false) };
        self.standing = Standing::In(Reading::at(Place { path, file, offset: 0 })?);
        Ok(true)
    }

    /// At the end of a file: whether there is more to read, here or elsewhere.
    fn move_on(&mut self) -> Result<bool> {
        let Standing::In(reading) = &mut self.standing else { return Ok(true) };
        let now = reading.dates()?;
        let is_growing = reading.path == self.ledger.path;
        if now.size < reading.offset {
            (self.doubt, self.standing) = (true, Standing::Astray);
            return Ok(true);
        }
        // Changed in place.
        self.doubt |= now != reading.seen && now.size == reading.seen.size && is_growing;
        reading.seen = now;
        if is_growing {
            let at_path = open_to_read(&self.ledger.path)?;
            let theirs = at_path.as_ref().map(identity).transpose().at("look at", &self.ledger.path)?;
            let ours = reading.identity()?;
            if theirs == Some(ours) {
                return Ok(false);
            }
            let is_kept =
                |path: &Path| path.symlink_metadata().is_ok_and(|found| (found.dev(), found.ino()) == ours);
            if !self.ledger.full_files(None)?.iter().any(|(_, path)| is_kept(path)) {
                // It is not a full file by now, but was deleted or replaced.
                (self.doubt, self.standing) = (true, Standing::Astray);
                return Ok(true);
            }
            // What was added to it after the look at its end and before it was full.
            if reading.dates()?.size > reading.offset {
                return Ok(true);
            }
            if theirs.is_none() {
                // The next file is about to be made.
                return Ok(false);
            }
        }
        self.standing = Standing::Between;
        Ok(true)
    }

    /// Whether the last known head is not what was read.
    fn misses_the_known_end(&self) -> Result<bool> {
        // Read last, because a line is remembered after it was added.
        let remembered = self.ledger.options.head.as_deref().map(head::remembered).transpose()?.flatten();
        let Some(known) = remembered else { return Ok(false) };
        if known.seq < self.cursor.seq || known == self.cursor {
            return Ok(false);
        }
        // Unless it is because lines were added since the end was seen.
        let Standing::In(reading) = &self.standing else { return Ok(true) };
        let grew = reading.dates()?.size > reading.offset;
        let at_path = open_to_read(&self.ledger.path)?;
        let theirs = at_path.as_ref().map(identity).transpose().at("look at", &self.ledger.path)?;
        Ok(!grew && theirs == Some(reading.identity()?))
    }

    /// The doubt was looked into. From now on only what is new makes the answer doubtful.
    pub fn trust(&mut self) {
        self.doubt = false;
    }
}

/// The size of a file, and when it was last changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Dates {
    size: u64,
    changed: (i64, i64),
}

impl Dates {
    fn of(file: &File, path: &Path) -> Result<Self> {
        let found = file.metadata().at("look at", path)?;
        Ok(Self { size: found.len(), changed: (found.mtime(), found.mtime_nsec()) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Entry, Flush, LedgerOptions};
    use super::*;
    use crate::event::{Event, TurnMark};

    /// The order of events that a reader and two writers meet once in a million lines.
    #[test]
    fn a_line_added_after_the_look_at_the_end_and_before_the_file_is_full_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = |max_size| {
            let options = LedgerOptions { max_size, head: None };
            Ledger::new(folder.path(), &folder.path().join("lock"), options)
        };
        let append = |max_size| {
            let (time, event) = (jiff::Timestamp::now(), Event::TurnStarted(TurnMark {}));
            let entry = Entry { time, agent: None, turn: None, event };
            ledger(max_size).append(&[entry], Flush::No).unwrap();
        };
        append(1 << 20);
        let mut follower = ledger(1).follow();
        let mut seqs = Vec::new();
        follower.advance(9, |line| seqs.push(line.seq)).unwrap();
        // The follower has just seen the end. Now a line is added, and the next one makes the file a full one.
        append(1 << 20);
        append(1);
        assert!(follower.move_on().unwrap());
        assert_eq!(follower.advance(9, |line| seqs.push(line.seq)).unwrap(), Followed::ToTheEnd);
        assert_eq!(seqs, [1, 2, 3]);
    }
}
