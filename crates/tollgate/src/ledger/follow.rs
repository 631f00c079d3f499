//! Following the ledger: every line once, from the first to the last and then as they are added, whoever adds them.
//!
//! Each line is held against the one before. What does not fit is told, and [`super::Ledger::verify`] can name it.
//! Invariant: only what was added is read. Takes no lock; a line that is half written is not a line yet.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::digest::Digest;
use crate::error::{At, Result};

use super::{Head, Ledger, Line, Shared, head, identity, open_to_read};

/// How far a look has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Followed {
    /// To the end, and everything fits.
    ToTheEnd,
    /// There is more.
    Further,
    /// To the end, but something does not fit: a line to the one before, the file to what was read of it, or the end to
    /// the last known head. Whether that is harm or a mere touch, [`Ledger::verify`] tells.
    Doubtful,
}

/// A reader that remembers how far it has come.
#[derive(Debug)]
pub struct Follower {
    ledger: Arc<Shared>,
    reading: Option<Reading>,
    head: Head,
    doubt: bool,
}

#[derive(Debug)]
struct Reading {
    path: PathBuf,
    file: BufReader<File>,
    /// After the last whole line.
    offset: u64,
    /// When the file was last changed, as far as that was read.
    seen: (u64, i64, i64),
}

impl Ledger {
    /// A follower that has read nothing yet.
    pub fn follow(&self) -> Follower {
        Follower { ledger: self.0.clone(), reading: None, head: Head::start(), doubt: false }
    }
}

impl Follower {
    /// The last line that was read.
    pub fn head(&self) -> Head {
        self.head
    }

    /// Reads what was added, at most so many lines, the oldest first. A damaged line is told by [`Followed::Doubtful`] only.
    pub fn advance(&mut self, most: usize, mut each: impl FnMut(Line)) -> Result<Followed> {
        let mut bytes = Vec::new();
        for _ in 0..most {
            if !self.next(&mut bytes)? {
                let cut = self.misses_the_known_end()?;
                return Ok(if self.doubt || cut { Followed::Doubtful } else { Followed::ToTheEnd });
            }
            let hash = Digest::of(&bytes);
            match serde_json::from_slice::<Line>(&bytes) {
                Ok(line) => {
                    self.doubt |= line.seq != self.head.seq + 1 || line.prev != self.head.hash;
                    self.head = Head { seq: line.seq, hash };
                    each(line);
                }
                Err(_) => self.doubt = true,
            }
        }
        Ok(Followed::Further)
    }

    /// The bytes of the next whole line; whether there is one.
    fn next(&mut self, bytes: &mut Vec<u8>) -> Result<bool> {
        loop {
            let Some(reading) = &mut self.reading else {
                if !self.open_next()? {
                    return Ok(false);
                }
                continue;
            };
            bytes.clear();
            let read = reading.file.read_until(b'\n', bytes).at("read", &reading.path)?;
            if bytes.pop_if(|last| *last == b'\n').is_some() {
                reading.offset += read as u64;
                return Ok(true);
            }
            // The end, or half a line. What comes next is read from its beginning.
            let offset = reading.offset;
            reading.file.seek(SeekFrom::Start(offset)).at("read", &reading.path)?;
            if !self.move_on()? {
                return Ok(false);
            }
        }
    }

    /// The oldest file, or the one after the last line.
    fn open_next(&mut self) -> Result<bool> {
        let full = self.ledger.full_files(None)?;
        let next = full.into_iter().find(|(first, _)| *first > self.head.seq);
        let path = next.map_or_else(|| self.ledger.path.clone(), |(_, path)| path);
        let Some(file) = open_to_read(&path)? else { return Ok(false) };
        let seen = dates(&file, &path)?;
        self.reading = Some(Reading { path, file: BufReader::new(file), offset: 0, seen });
        Ok(true)
    }

    /// At the end of a file: whether there is more to read, here or in the next.
    fn move_on(&mut self) -> Result<bool> {
        let Some(reading) = &mut self.reading else { return Ok(true) };
        let now = dates(reading.file.get_ref(), &reading.path)?;
        let (size, is_growing) = (now.0, reading.path == self.ledger.path);
        if size < reading.offset || (size == reading.seen.0 && now != reading.seen && is_growing) {
            // It was cut, or changed in place.
            self.doubt = true;
        }
        let grew = size > reading.seen.0;
        reading.seen = now;
        if grew && size > reading.offset {
            return Ok(true);
        }
        let at_path = open_to_read(&self.ledger.path)?;
        let ours = identity(reading.file.get_ref()).at("look at", &reading.path)?;
        let theirs = at_path.as_ref().map(identity).transpose().at("look at", &self.ledger.path)?;
        if is_growing {
            if theirs.is_some_and(|theirs| theirs == ours) {
                return Ok(false);
            }
            let full = self.ledger.full_files(None)?;
            let kept = full.iter().any(|(_, path)| {
                path.symlink_metadata().is_ok_and(|found| (found.dev(), found.ino()) == ours)
            });
            // Not a full file by now, but gone or replaced.
            self.doubt |= !kept;
            if theirs.is_none() {
                // The next one is just being made.
                return Ok(false);
            }
            // What was added to it before it was full.
            if dates(reading.file.get_ref(), &reading.path)?.0 > reading.offset && kept {
                return Ok(true);
            }
        }
        self.reading = None;
        Ok(true)
    }

    /// Whether the last known head is not what was read.
    fn misses_the_known_end(&self) -> Result<bool> {
        // Read last, because whoever adds a line remembers it afterwards.
        let remembered = self.ledger.options.head.as_deref().map(head::remembered).transpose()?.flatten();
        let Some(known) = remembered else { return Ok(false) };
        if known.seq < self.head.seq || known == self.head {
            return Ok(false);
        }
        // Unless it is because lines were added since the end was seen.
        let Some(reading) = &self.reading else { return Ok(true) };
        let grew = dates(reading.file.get_ref(), &reading.path)?.0 > reading.offset;
        let at_path = open_to_read(&self.ledger.path)?;
        let theirs = at_path.as_ref().map(identity).transpose().at("look at", &self.ledger.path)?;
        let ours = identity(reading.file.get_ref()).at("look at", &reading.path)?;
        Ok(!grew && theirs == Some(ours))
    }

    /// What does not fit was looked into. From here on only what is new makes doubtful.
    pub fn trust(&mut self) {
        self.doubt = false;
    }
}

/// Size and time of the last change.
fn dates(file: &File, path: &std::path::Path) -> Result<(u64, i64, i64)> {
    let found = file.metadata().at("look at", path)?;
    Ok((found.len(), found.mtime(), found.mtime_nsec()))
}
