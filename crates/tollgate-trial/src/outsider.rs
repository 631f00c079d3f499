//! Programs that know nothing of tollgate, and how they save.
//!
//! Every save that changes the file adds one line with a number to what the program finds there, and only then notes the
//! number in the program's own log. The newest line of a save is in no other file, so a save that somebody destroyed shows
//! by its number, which is then neither at the path nor in recovery.
//!
//! No outsider destroys a save of its own unseen, or it could not be told who did. What is written in place was read
//! through the same descriptor. A save by rename is an exchange of two names, and what came out goes on a pile: to
//! everybody else it is the same as a rename over the old file.
//!
//! The blind ones do rename over the file or truncate it, whatever is in it. They wait after each save until an agent has
//! built on it, and note it only if that does not happen.
//!
//! An outsider may undo what agents wrote between its read and its save. That is its own doing and is not counted.

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
    /// Where finished saves are noted
    #[arg(long)]
    log: PathBuf,
    /// How many saves to make
    #[arg(long, default_value_t = u32::MAX)]
    saves: u32,
    /// Stop when this file exists
    #[arg(long)]
    until: Option<PathBuf>,
    /// Where replaced files go, on the same file system
    #[arg(long)]
    pile: PathBuf,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Kind {
    /// Temporary file, then rename, as most editors
    Rename,
    /// The same without a look at the old file
    BlindRename,
    /// Read, then write over it
    InPlace,
    /// Truncate, then write, as shells and formatters
    BlindInPlace,
    /// The same with a pause in the middle
    Slow,
    /// `>>`
    Append,
    /// A shared mapping, closed before the store
    Mmap,
    /// Only the time stamps
    Touch,
    /// Temporary file with the same bytes, then rename
    SameRename,
    /// The same bytes once more
    SameInPlace,
}

impl Kind {
    fn is_blind(self) -> bool {
        matches!(self, Self::BlindRename | Self::BlindInPlace)
    }
}

/// How long a save may stay unnoticed by agents that do nothing but read and write.
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
            // Nobody saves as fast as this loop. Let the others have a turn.
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
            // Not to wait for anything: being slow is what this one is.
            Kind::Slow => self.write_in_place(line, || std::thread::sleep(Duration::from_millis(1))),
            Kind::Append => OpenOptions::new().append(true).open(&self.path)?.write_all(line.as_bytes()),
            Kind::Mmap => self.store(line),
            Kind::Touch => self.touch(),
            Kind::SameRename => self.replace_by_same(number),
            Kind::SameInPlace => self.write_in_place("", || ()),
        }
    }

    /// Waits until an agent has added its line to ours.
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

    /// The bytes that are there, and a line more, written over them.
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

    /// The old file is open for writing all the while, so that no guarded write comes between the read and the rename:
    /// that would be undone, which is a change and not the same bytes.
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

    /// As the program `touch` does it.
    fn touch(&self) -> std::io::Result<()> {
        use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW};
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        match OpenOptions::new().write(true).custom_flags(flags).open(&self.path) {
            Ok(file) => file.set_modified(SystemTime::now()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW.into() };
                let times = Timestamps { last_access: now, last_modification: now };
                Ok(rustix::fs::utimensat(CWD, &self.path, &times, AtFlags::empty())?)
            }
            Err(error) => Err(error),
        }
    }

    #[allow(unsafe_code, reason = "a shared mapping is what this outsider is")]
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
