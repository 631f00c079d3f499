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

use std::fs::{File, Metadata};
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::PoisonError;

use rustix::fs::{OFlags, RenameFlags};
use rustix::io::Errno;

use crate::digest::Digest;
use crate::error::{At, Fault, Result};
use crate::event::{Event, TailMoved};
use crate::lock::open_noatime;
use crate::private;
use crate::settings::Durability;
use crate::sys;

use super::files::{GrowingFile, Ledger, is_same_file, open_to_read};
use super::line::{Cursor, Entry, seq_of};
use super::read::{LinesBackwards, first_line};

impl Ledger {
    /// Adds a line for each entry, all or none. The answer is the lines' numbers, in the order of the entries. If they are
    /// to be durable, they and all lines before them are on the disk when the call returns.
    ///
    /// If the ledger's tail was damaged, a line of type `LEDGER_HEALED` comes before them; it is not in the answer. The
    /// cost does not depend on the length of the ledger.
    pub fn append(&self, entries: &[Entry], durability: Durability) -> Result<Range<u64>> {
        let Some(first) = entries.first() else { return Ok(0..0) };
        let lines = entries.iter().map(Entry::without_place).collect::<Result<Vec<_>>>()?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (_lock, growing) = self.lock_kept(&mut kept)?;
        let (file, length) = self.open_to_append(growing)?;
        let (before, whole) = self.find_end(file, length)?;

        // Most lines are shorter than this.
        let (mut head, mut text) = (before, Vec::with_capacity(512 * entries.len()));
        if whole < length {
            let kept_in = self.cut_torn_tail(file, whole, before.seq.saturating_add(1))?;
            let event = Event::LedgerHealed(TailMoved { bytes_dropped: length - whole, kept_in });
            let healed = Entry { time: first.time, agent: None, turn: None, event };
            head = healed.without_place()?.write(&mut text, head)?;
        }
        let is_full = whole >= self.max_size.max(1);
        let (file, size) =
            if is_full && self.retire(file)? { self.open_to_append(growing)? } else { (file, whole) };
        let last = head.seq;
        for line in &lines {
            head = line.write(&mut text, head)?;
        }

        write_whole(file, size, &text, file).at("append to", &self.path)?;
        if durability == Durability::Durable
            && let Err(error) = sys::flush_data(file)
        {
            // The caller gets an error, so the lines must not stay. Some file systems report a full disk only now.
            let _ = file.set_len(size);
            return Err(error).at("flush", &self.path);
        }
        self.remember(before, head, durability);
        Ok(last + 1..head.seq + 1)
    }

    /// Makes every line that was appended until now survive a power cut.
    pub fn sync(&self) -> Result<()> {
        // The current file is enough: the others were flushed before they got their names.
        match open_to_read(&self.path)? {
            Some(file) => sys::flush_data(&file).at("flush", &self.path),
            None => Ok(()),
        }
    }

    /// The file, and its length. It stays open while it is the one at its path.
    fn open_to_append<'a>(&self, growing: &'a mut GrowingFile) -> Result<(&'a File, u64)> {
        let now = self.path.symlink_metadata().ok();
        let is_now =
            |(_, opened): &(File, Metadata)| now.as_ref().is_some_and(|now| is_same_file(opened, now));
        if let Some(kept) = growing.take().filter(is_now) {
            let (file, _) = growing.insert(kept);
            return Ok((file, now.map_or(0, |now| now.len())));
        }
        let open = |more| open_noatime(&self.path, OFlags::RDWR | OFlags::APPEND | OFlags::NONBLOCK | more);
        let file = match open(OFlags::empty()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
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
        let length = found.len();
        let (file, _) = growing.insert((file, found));
        Ok((file, length))
    }

    fn flush_folder(&self) -> Result<()> {
        private::sync_folder(&self.folder).at("flush", &self.folder)
    }

    /// The last line that is JSON with a number, and how much of the growing file is whole.
    fn find_end(&self, growing: &File, length: u64) -> Result<(Cursor, u64)> {
        if let Some(found) = last_line(growing, length).at("read", &self.path)? {
            return Ok(found);
        }
        // The file has no good line: it is new, or damaged from its first line on. The chain goes on from the file before.
        for mut file in self.files()?.into_iter().rev() {
            if let Some((open, found)) = file.take()?
                && let Some((head, _)) = last_line(&open, found.len()).at("read", &*file.path)?
            {
                return Ok((head, 0));
            }
        }
        Ok((Cursor::START, 0))
    }

    /// Moves the bytes from here on to a file of their own, and returns its name.
    fn cut_torn_tail(&self, file: &File, from: u64, seq: u64) -> Result<String> {
        let (mut name, mut copy) = (format!("ledger.torn-{seq}"), 1);
        let kept = loop {
            let path = self.folder.join(&name);
            match private::open(&path, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL) {
                Ok(kept) => {
                    // On the disk, with its name, before the only other copy is cut off.
                    if let Err(error) = keep(file, from, &kept) {
                        let _ = private::remove_file(&path);
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
        file.set_len(from).at("cut the damaged end of", &self.path)?;
        Ok(kept)
    }

    /// Gives a full file its final name, so that the ledger goes on in a new one. If that fails, it goes on in the full file
    /// and the next append tries again: an append must not fail because a file is too long.
    fn retire(&self, file: &File) -> Result<bool> {
        let first = first_line(file).at("read", &self.path)?;
        let Some(first) = seq_of(&first) else { return Ok(false) };
        // From now on only the new file is flushed. Without this, a power cut could remove lines from the middle of the
        // ledger.
        sys::flush_data(file).at("flush", &self.path)?;
        Ok(rename_to_new_name(&self.path, &self.folder.join(format!("ledger-{first}.jsonl"))).is_ok())
    }
}

/// Writes all bytes at the end of a file that is `size` long, or leaves it as it was.
fn write_whole(file: &File, size: u64, bytes: &[u8], mut to: impl Write) -> io::Result<()> {
    // One write, as a rule. A disk that becomes full takes a part of the bytes and gives the error at the next write.
    to.write_all(bytes).inspect_err(|_| {
        // If this fails too, the tail stays torn until the next append.
        let _ = file.set_len(size);
    })
}

/// The place after the last line that is JSON with a number, and where that line ends.
fn last_line(file: &File, length: u64) -> io::Result<Option<(Cursor, u64)>> {
    let last = LinesBackwards::new(file, length)?.next_numbered()?;
    Ok(last.map(|(seq, found)| (Cursor { seq, hash: Digest::of(&found.bytes) }, found.end)))
}

fn keep(mut file: &File, from: u64, mut kept: &File) -> io::Result<()> {
    file.seek(SeekFrom::Start(from))?;
    io::copy(&mut file, &mut kept)?;
    sys::flush(kept)
}

fn rename_to_new_name(from: &Path, to: &Path) -> io::Result<()> {
    let renamed = private::rename_with(from, to, RenameFlags::NOREPLACE);
    match renamed.as_ref().err().and_then(Errno::from_io_error) {
        // Some network and user-space file systems do not know the flag. The caller holds the lock, so no other append
        // can make the name between the look and the rename.
        Some(error) if sys::lacks_rename_flag(error) => match to.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => private::rename(from, to),
            Err(error) => Err(error),
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        },
        _ => renamed,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    /// A file that takes as many bytes as these answers say, or fails.
    struct Answers<'a, I>(&'a File, I);

    impl<I: Iterator<Item = Result<usize, i32>>> Write for Answers<'_, I> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match self.1.next().unwrap() {
                Ok(0) => Ok(0),
                Ok(most) => self.0.write(&bytes[..bytes.len().min(most)]),
                Err(error) => Err(io::Error::from_raw_os_error(error)),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_write_that_fails_leaves_the_file_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        for takes_first in 0..10 {
            std::fs::write(&path, "old\n").unwrap();
            let file = OpenOptions::new().append(true).open(&path).unwrap();
            let answers = [Err(libc::EINTR), Ok(takes_first), Err(libc::EINTR), Err(libc::ENOSPC)];
            let to = Answers(&file, answers.into_iter());
            let error = write_whole(&file, 4, b"0123456789\n", to).unwrap_err();
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
        let to = Answers(&file, std::iter::repeat(Ok(3)));
        write_whole(&file, 0, b"0123456789\n", to).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "0123456789\n");
    }
}
