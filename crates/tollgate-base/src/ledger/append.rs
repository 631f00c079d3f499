//! Adding lines at the end, and repairing an end that a power cut has damaged.
//!
//! Everything here happens under the ledger's lock. A crash between any two steps is harmless:
//! - while lines are written: the tail is torn, and the next append moves it to a file of its own;
//! - after the torn tail was kept and before it was cut off: the next append keeps it a second time;
//! - after it was cut off and before the line that records it: the kept file is there, without a line;
//! - after a full file was renamed and before the next one was made: the next append makes it and goes on from the last
//!   line of the newest full file;
//! - before the head is remembered: the witness is one append behind.
//!
//! Only what a power cut can leave is repaired: bytes after the last line that is JSON with a number. A last line that is
//! JSON but does not fit the chain was edited; the next line is chained to its bytes as they are, and `verify` names it.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::PoisonError;

use jiff::Timestamp;
use rustix::fs::{CWD, OFlags, RenameFlags};
use rustix::io::Errno;
use serde::Deserialize;

use crate::digest::Digest;
use crate::error::{At, Fault, Result};
use crate::event::{Event, TailMoved};
use crate::lock::{Lock, open_noatime};

use super::cursor::Cursor;
use super::files::{Flush, LOCK_WAIT, Shared, open_to_read};
use super::head;
use super::line::{Entry, Placed};
use super::read::{BLOCK, Backwards};
use super::writer::{Ended, Growing, Writer};

/// The length of two ordinary lines.
const ORDINARY: usize = 960;

/// The end of the ledger as it is found: the last good line, and how much of the growing file is whole.
struct End {
    head: Cursor,
    whole: u64,
    /// Damaged bytes after that.
    torn: u64,
}

pub(super) fn append(ledger: &Shared, entries: &[Entry], flush: Flush) -> Result<Range<u64>> {
    let Some(first) = entries.first() else { return Ok(0..0) };
    let mut writer = ledger.writer.lock().unwrap_or_else(PoisonError::into_inner);
    let Writer { lock, growing } = &mut *writer;
    let _lock = Lock::borrow(lock, &ledger.lock, LOCK_WAIT)?.ok_or_else(|| ledger.locked())?;
    let last = growing.take();
    let (file, found, known) = ledger.open_growing(last)?;
    let end = ledger.find_end(&file, &found, known)?;
    let before = end.head;

    let mut text = Text { head: before, bytes: Vec::with_capacity(ORDINARY) };
    if end.torn > 0 {
        let healed = ledger.cut_torn_tail(&file, &end, first.time)?;
        text.add(&healed)?;
    }
    let (file, found, size) = ledger.with_room(file, found, end.whole)?;
    let number = text.head.seq;
    entries.iter().try_for_each(|entry| text.add(entry))?;

    write_whole(&file, size, &text.bytes, |bytes| (&file).write(bytes)).at("append to", &ledger.path)?;
    if flush == Flush::Data
        && let Err(error) = file.sync_data()
    {
        // The caller gets an error, so the lines must not stay. Some file systems report a full disk only now.
        let _ = file.set_len(size);
        return Err(error).at("flush", &ledger.path);
    }
    if let Some(path) = &ledger.options.head {
        head::remember(path, before, text.head);
    }
    let ended = Ended { size: size + text.bytes.len() as u64, head: text.head };
    *growing = Some(Growing { file, dev: found.dev(), ino: found.ino(), ended });
    Ok(number + 1..text.head.seq + 1)
}

/// Lines that are chained to each other, as bytes.
struct Text {
    head: Cursor,
    bytes: Vec<u8>,
}

impl Text {
    fn add(&mut self, entry: &Entry) -> Result<()> {
        let Entry { time, agent, turn, event } = entry;
        let next = self.head.seq.checked_add(1);
        let seq = next.ok_or_else(|| Fault::invalid("the ledger's numbers have run out"))?;
        let start = self.bytes.len();
        let (prev, time, agent, turn) = (self.head.hash, *time, agent.as_ref(), turn.as_ref());
        let line = Placed { seq, prev, time, agent, turn, event };
        serde_json::to_writer(&mut self.bytes, &line)
            .map_err(|error| Fault::invalid(format!("a ledger line cannot be written as JSON: {error}")))?;
        self.head = Cursor { seq, hash: Digest::of(&self.bytes[start..]) };
        self.bytes.push(b'\n');
        Ok(())
    }
}

/// Writes all bytes at the end of a file that is `size` long, or leaves it as it was.
fn write_whole(
    file: &File,
    size: u64,
    bytes: &[u8],
    mut write: impl FnMut(&[u8]) -> io::Result<usize>,
) -> io::Result<()> {
    let mut rest = bytes;
    // One write, as a rule. A disk that becomes full takes a part of the bytes and gives the error at the next write.
    while !rest.is_empty() {
        let error = match write(rest) {
            Ok(written @ 1..) => {
                rest = rest.get(written..).unwrap_or_default();
                continue;
            }
            Ok(0) => io::Error::from(io::ErrorKind::WriteZero),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => error,
        };
        // If this fails too, the tail stays torn until the next append.
        let _ = file.set_len(size);
        return Err(error);
    }
    Ok(())
}

impl Shared {
    /// The file that grows. If it is the one that is open already, also what is known about its end.
    fn open_growing(&self, last: Option<Growing>) -> Result<(File, Metadata, Option<Ended>)> {
        if let Some(last) = last
            && let Ok(found) = self.path.symlink_metadata()
            && last.is(&found)
        {
            return Ok((last.file, found, Some(last.ended)));
        }
        self.open_to_append().map(|(file, found)| (file, found, None))
    }

    fn open_to_append(&self) -> Result<(File, Metadata)> {
        let open =
            |more| open_noatime(CWD, &self.path, OFlags::RDWR | OFlags::APPEND | OFlags::NONBLOCK | more);
        let file = match open(OFlags::empty()) {
            Err(Errno::NOENT) => {
                let file = open(OFlags::CREATE | OFlags::EXCL).at("create", &self.path)?;
                // Without this, a power cut could take a new file with all its flushed lines. Once per file, so also
                // for callers that do not ask for flushing.
                self.flush_folder()?;
                file
            }
            opened => opened.at("open", &self.path)?,
        };
        let found = file.metadata().at("look at", &self.path)?;
        if !found.is_file() {
            return Err(Fault::damaged(&self.path, "it is not a regular file"));
        }
        Ok((file, found))
    }

    fn flush_folder(&self) -> Result<()> {
        File::open(&self.folder).and_then(|folder| folder.sync_all()).at("flush", &self.folder)
    }

    fn find_end(&self, file: &File, found: &Metadata, known: Option<Ended>) -> Result<End> {
        let (mut block, mut number): (_, Number) = (BLOCK, seq_of);
        if let Some(Ended { size, head }) = known {
            if size == found.len() {
                // Not read again: the next line is chained to the line as we wrote it, which reveals a later edit.
                return Ok(End { head, whole: size, torn: 0 });
            }
            // Other processes have added lines. Enough for one ordinary line.
            block = ORDINARY as u64 / 2;
            // The machine has run since then, so every line is whole.
            number = first_number;
        }
        if let Some((head, whole)) = last_line(file, found.len(), block, number).at("read", &self.path)? {
            return Ok(End { head, whole, torn: found.len() - whole });
        }
        // The file has no good line: it is new, or damaged from its first line on. The chain goes on from the file before.
        let mut head = Cursor::START;
        if let Some((_, path)) = self.full_files(None)?.pop()
            && let Some(full) = open_to_read(&path)?
        {
            let length = full.metadata().at("look at", &path)?.len();
            if let Some((last, _)) = last_line(&full, length, BLOCK, seq_of).at("read", &path)? {
                head = last;
            }
        }
        Ok(End { head, whole: 0, torn: found.len() })
    }

    /// Moves the damaged bytes to a file of their own. Returns the entry that records it.
    fn cut_torn_tail(&self, file: &File, end: &End, time: Timestamp) -> Result<Entry> {
        let seq = end.head.seq.saturating_add(1);
        let (mut name, mut copy) = (format!("ledger.torn-{seq}"), 1);
        let kept = loop {
            let path = self.folder.join(&name);
            match OpenOptions::new().write(true).create_new(true).mode(0o660).open(&path) {
                Ok(kept) => {
                    // On the disk, with its name, before the only other copy is cut off.
                    if let Err(error) = keep(file, end.whole, &kept) {
                        let _ = std::fs::remove_file(&path);
                        return Err(error).at("keep the damaged end of the ledger in", path);
                    }
                    break name;
                }
                // Left by a crash after it was kept, or the same number was torn twice.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    copy += 1;
                    name = format!("ledger.torn-{seq}.{copy}");
                }
                Err(error) => return Err(error).at("keep the damaged end of the ledger in", path),
            }
        };
        self.flush_folder()?;
        file.set_len(end.whole).at("cut the damaged end of", &self.path)?;
        Ok(Entry {
            time,
            agent: None,
            turn: None,
            event: Event::LedgerHealed(TailMoved { bytes_dropped: end.torn, kept_in: kept }),
        })
    }

    /// The file to append to, and its size. A full one gets its final name, and a new one is made. If that fails, the ledger
    /// goes on in the full file and the next append tries again: an append must not fail because a file is too long.
    fn with_room(&self, file: File, found: Metadata, size: u64) -> Result<(File, Metadata, u64)> {
        if size == 0 || size < self.options.max_size {
            return Ok((file, found, size));
        }
        let Some(first) = first_seq(&file).at("read", &self.path)? else { return Ok((file, found, size)) };
        // From now on only the new file is flushed. Without this, a power cut could remove lines from the middle of the
        // ledger.
        file.sync_data().at("flush", &self.path)?;
        if rename_to_new_name(&self.path, &self.full_file(first)).is_err() {
            return Ok((file, found, size));
        }
        let (file, found) = self.open_to_append()?;
        Ok((file, found, 0))
    }
}

/// How the number of a line is found.
type Number = fn(&[u8]) -> Option<u64>;

/// The last line that is JSON with a number, and where it ends.
fn last_line(file: &File, length: u64, block: u64, number: Number) -> io::Result<Option<(Cursor, u64)>> {
    let mut lines = Backwards::new(file, length, block)?;
    while let Some(found) = lines.next()? {
        if let Some(seq) = number(&found.bytes) {
            return Ok(Some((Cursor { seq, hash: Digest::of(&found.bytes) }, found.end)));
        }
    }
    Ok(None)
}

fn first_seq(mut file: &File) -> io::Result<Option<u64>> {
    file.seek(SeekFrom::Start(0))?;
    let mut line = Vec::new();
    BufReader::new(file).read_until(b'\n', &mut line)?;
    Ok(seq_of(&line))
}

/// Only the number. Whether the rest is right, `verify` says.
fn seq_of(line: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct OnlySeq {
        seq: u64,
    }
    serde_json::from_slice::<OnlySeq>(line).ok().map(|line| line.seq)
}

/// The number, without parsing the rest of the line.
fn first_number(line: &[u8]) -> Option<u64> {
    let rest = line.strip_prefix(br#"{"seq":"#)?;
    let digits = rest.iter().position(|byte| !byte.is_ascii_digit())?;
    str::from_utf8(&rest[..digits]).ok()?.parse().ok()
}

fn keep(mut file: &File, from: u64, mut kept: &File) -> io::Result<()> {
    file.seek(SeekFrom::Start(from))?;
    io::copy(&mut file, &mut kept)?;
    kept.sync_all()
}

fn rename_to_new_name(from: &Path, to: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some network and user-space file systems do not know the flag. The caller holds the lock, so no other append
        // can make the name between the look and the rename.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => match to.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => std::fs::rename(from, to),
            Err(error) => Err(error),
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        },
        done => Ok(done?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_fails_leaves_the_file_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        for takes_first in 0..10 {
            std::fs::write(&path, "old\n").unwrap();
            let file = OpenOptions::new().append(true).open(&path).unwrap();
            let mut answers =
                [Err(libc::EINTR), Ok(takes_first), Err(libc::EINTR), Err(libc::ENOSPC)].into_iter();
            let error = write_whole(&file, 4, b"0123456789\n", |bytes| match answers.next().unwrap() {
                Ok(0) => Ok(0),
                Ok(some) => (&file).write(&bytes[..some]),
                Err(error) => Err(io::Error::from_raw_os_error(error)),
            })
            .unwrap_err();
            let full = if takes_first == 0 { io::ErrorKind::WriteZero } else { io::ErrorKind::StorageFull };
            assert_eq!(error.kind(), full);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "old\n", "after {takes_first} bytes");
        }
    }

    #[test]
    fn a_write_in_parts_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let file = OpenOptions::new().append(true).create(true).open(&path).unwrap();
        write_whole(&file, 0, b"0123456789\n", |bytes| (&file).write(&bytes[..bytes.len().min(3)])).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "0123456789\n");
    }
}
