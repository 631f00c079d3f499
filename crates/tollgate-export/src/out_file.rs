//! A file to which events are appended, one line each.
//!
//! Invariant: every line is whole. A line that a dead process began is deleted before the next one: its event was not
//! counted as exported, so it comes again.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tollgate_base::error::{At, Result};
use tollgate_base::sys;

/// How much is read at once when the end of the last whole line is looked for.
const BLOCK: u64 = 64 * 1024;

/// A file to which events are appended.
#[derive(Debug)]
pub struct OutFile {
    path: PathBuf,
    file: File,
}

impl OutFile {
    /// Opens the file, or makes it.
    pub fn open(path: &Path) -> Result<Self> {
        Ok(Self { path: path.to_owned(), file: open(path)? })
    }

    /// Deletes what is after the last newline. Only for a file that an earlier export has written.
    pub(crate) fn delete_torn_line(&mut self) -> Result<()> {
        let found = self.file.metadata().at("look at", &self.path)?;
        if !found.is_file() {
            return Ok(());
        }
        let whole = self.end_of_last_line(found.len()).at("read", &self.path)?;
        if whole < found.len() {
            self.file.set_len(whole).at("truncate", &self.path)?;
        }
        Ok(())
    }

    /// Ends a last line that somebody else left without a newline.
    pub(crate) fn end_last_line(&mut self) -> Result<()> {
        let found = self.file.metadata().at("look at", &self.path)?;
        if found.is_file() && self.end_of_last_line(found.len()).at("read", &self.path)? < found.len() {
            self.append(b"\n")?;
        }
        Ok(())
    }

    fn end_of_last_line(&mut self, length: u64) -> std::io::Result<u64> {
        let mut end = length;
        while end > 0 {
            let start = end.saturating_sub(BLOCK);
            let mut block = Vec::new();
            self.file.seek(SeekFrom::Start(start))?;
            (&self.file).take(end - start).read_to_end(&mut block)?;
            if let Some(at) = block.iter().rposition(|byte| *byte == b'\n') {
                return Ok(start + at as u64 + 1);
            }
            end = start;
        }
        Ok(0)
    }

    /// Adds whole lines. If the file was renamed or deleted in the meantime, they go to a new one at its path.
    pub(crate) fn append(&mut self, lines: &[u8]) -> Result<()> {
        let is_same = |a: &Metadata, b: &Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
        let ours = self.file.metadata().at("look at", &self.path)?;
        if !self.path.metadata().is_ok_and(|now| is_same(&ours, &now)) {
            // The old file first, because it is not flushed with the new one.
            self.sync()?;
            self.file = open(&self.path)?;
        }
        self.file.write_all(lines).at("write", &self.path)
    }

    /// Flushes the lines, so that they survive a power cut.
    pub(crate) fn sync(&self) -> Result<()> {
        match sys::flush_data(&self.file) {
            // A pipe or a terminal has nothing to flush.
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => Ok(()),
            synced => synced.at("flush", &self.path),
        }
    }
}

fn open(path: &Path) -> Result<File> {
    let options = || OpenOptions::new().read(true).append(true).create(true).clone();
    match options().open(path) {
        // A pipe that somebody reads can only be written.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            OpenOptions::new().append(true).open(path).at("open", path)
        }
        opened => opened.at("open", path),
    }
}
