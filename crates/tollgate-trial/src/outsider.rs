//! Programs unaware of tollgate, and how they save.
//!
//! Every save that changes the file adds one numbered line to the text that the program finds there. Only then does the
//! program write the number to its own log. No other file has that line, so the number of a lost save is neither at the
//! path nor in recovery.
//!
//! An outsider never destroys its own saves, or nobody could tell who did. It writes in place only after it has read through
//! the same descriptor. It saves by rename with an exchange of two names, and keeps the file that comes out: for all other
//! programs that is the same as a rename over the old file.
//!
//! Blind outsiders do rename over the file or truncate it without a read. After each save they wait until an agent has built
//! on it, and log the save only if no agent does.
//!
//! An outsider may undo what agents wrote between its read and its save. That does not count as a loss.

use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use serde_json::json;
use tollgate::error::Result;

use crate::{Answer, at};

#[derive(clap::Args)]
pub(crate) struct Outsider {
    #[arg(long, value_enum)]
    kind: Kind,
    #[arg(long)]
    path: PathBuf,
    /// The log of finished saves
    #[arg(long)]
    log: PathBuf,
    /// The number of saves to make
    #[arg(long, default_value_t = u32::MAX)]
    saves: u32,
    /// Stop when this file exists
    #[arg(long)]
    until: Option<PathBuf>,
    /// The folder for replaced files, on the same file system
    #[arg(long)]
    pile: PathBuf,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Kind {
    /// Temporary file, then rename, like most editors
    Rename,
    /// Temporary file, then rename, without a read of the old file
    BlindRename,
    /// Read, then write over the old bytes
    InPlace,
    /// Truncate, then write, like shells and formatters
    BlindInPlace,
    /// Truncate, pause, then write
    Slow,
    /// `>>`
    Append,
    /// A shared mapping, closed before the store
    Mmap,
    /// Only the time stamps
    Touch,
    /// Temporary file with the same bytes, then rename
    SameRename,
    /// Write the same bytes again
    SameInPlace,
}

impl Kind {
    fn is_blind(self) -> bool {
        matches!(self, Self::BlindRename | Self::BlindInPlace)
    }
}

/// The longest time until agents, which read and write all the time, notice a save.
const PATIENCE: Duration = Duration::from_secs(2);

impl Outsider {
    pub(crate) fn run(self) -> Result<Answer> {
        let mut log =
            OpenOptions::new().create(true).append(true).open(&self.log).map_err(at("open", &self.log))?;
        let mut number = 0;
        while number < self.saves && !self.until.as_ref().is_some_and(|file| file.exists()) {
            let line = format!("foreign {number}\n");
            self.save(&line, number).map_err(at("save", &self.path))?;
            if !self.kind.is_blind() || !self.is_built_on(&line).map_err(at("read", &self.path))? {
                log.write_all(line.as_bytes()).map_err(at("write", &self.log))?;
            }
            number += 1;
            // No real program saves as fast as this loop. Give the others some time.
            std::thread::yield_now();
        }
        Ok(Answer::Done(json!({ "saves": number })))
    }

    fn save(&self, line: &str, number: u32) -> std::io::Result<()> {
        match self.kind {
            Kind::Rename => {
                let mut bytes = fs::read(&self.path)?;
                bytes.extend_from_slice(line.as_bytes());
                self.replace(&bytes, number)
            }
            Kind::BlindRename => {
                let temporary = self.pile.join("temporary");
                fs::write(&temporary, line)?;
                fs::rename(&temporary, &self.path)
            }
            Kind::BlindInPlace => fs::write(&self.path, line),
            Kind::InPlace => self.write_in_place(line, || ()),
            // This does not wait for anything: slowness is the point of this outsider.
            Kind::Slow => self.write_in_place(line, || std::thread::sleep(Duration::from_millis(1))),
            Kind::Append => OpenOptions::new().append(true).open(&self.path)?.write_all(line.as_bytes()),
            Kind::Mmap => self.store(line),
            Kind::Touch => self.touch(),
            Kind::SameRename => self.replace_by_same(number),
            Kind::SameInPlace => self.write_in_place("", || ()),
        }
    }

    /// Waits until an agent has added its line after ours.
    fn is_built_on(&self, line: &str) -> std::io::Result<bool> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            let text = fs::read_to_string(&self.path)?;
            if text.contains(line) && text.contains("agent ") {
                return Ok(true);
            }
            std::thread::yield_now();
        }
        Ok(false)
    }

    /// Writes the current bytes and one more line over the current bytes.
    fn write_in_place(&self, line: &str, pause: impl Fn()) -> std::io::Result<()> {
        let mut file = OpenOptions::new().read(true).write(true).open(&self.path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        bytes.extend_from_slice(line.as_bytes());
        file.set_len(0)?;
        file.rewind()?;
        let (first, second) = bytes.split_at(bytes.len() / 2);
        pause();
        file.write_all(first)?;
        pause();
        file.write_all(second)
    }

    fn replace(&self, bytes: &[u8], number: u32) -> std::io::Result<()> {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        let temporary = self.pile.join(number.to_string());
        fs::write(&temporary, bytes)?;
        Ok(renameat_with(CWD, &temporary, CWD, &self.path, RenameFlags::EXCHANGE)?)
    }

    /// Keeps the old file open for writing, so that no guarded write happens between the read and the rename. The rename
    /// would undo that write, and that is a change.
    fn replace_by_same(&self, number: u32) -> std::io::Result<()> {
        loop {
            let mut file = OpenOptions::new().read(true).write(true).open(&self.path)?;
            let (open, at_path) = (file.metadata()?, fs::metadata(&self.path)?);
            if (open.dev(), open.ino()) != (at_path.dev(), at_path.ino()) {
                continue;
            }
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            return self.replace(&bytes, number);
        }
    }

    /// Like the program `touch`.
    fn touch(&self) -> std::io::Result<()> {
        use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW};
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        match OpenOptions::new().write(true).custom_flags(flags).open(&self.path) {
            Ok(file) => file.set_modified(SystemTime::now()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
                let times = Timestamps { last_access: now, last_modification: now };
                Ok(rustix::fs::utimensat(CWD, &self.path, &times, AtFlags::empty())?)
            }
            Err(error) => Err(error),
        }
    }

    #[allow(unsafe_code, reason = "this outsider writes through a shared mapping")]
    fn store(&self, line: &str) -> std::io::Result<()> {
        let file = OpenOptions::new().read(true).write(true).open(&self.path)?;
        let end = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        file.set_len((end + line.len()) as u64)?;
        // SAFETY: nobody shortens the file while it is mapped: agents replace it and never write into it, and there is
        // one outsider a file. Others may read the bytes while they are stored; they are plain bytes.
        let mut map = unsafe { memmap2::MmapMut::map_mut(&file)? };
        drop(file);
        map[end..].copy_from_slice(line.as_bytes());
        Ok(())
    }
}
