//! Programs that know nothing of tollgate, and how they save.
//!
//! Every save that changes the file adds one line with a number to what the program finds there, and only then notes the
//! number in the program's own log. An outsider builds on the disk and not on its memory: a line that somebody made
//! vanish is missing from every later version too, so at the end one look at the file tells which saves were lost. The
//! exception is a save that tollgate kept aside: its line is in recovery.
//!
//! An outsider may undo what agents wrote between its read and its save. That is its own doing and is not counted.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

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
    #[arg(long)]
    saves: u32,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Kind {
    /// Temporary file, then rename, as most editors
    Rename,
    /// Truncate, then write, as shells and formatters
    InPlace,
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

impl Outsider {
    pub(crate) fn run(self) -> Result<Answer> {
        let mut log =
            OpenOptions::new().create(true).append(true).open(&self.log).map_err(at("open", &self.log))?;
        for number in 0..self.saves {
            let line = format!("foreign {number}\n");
            self.save(&line).map_err(at("save", &self.path))?;
            log.write_all(line.as_bytes()).map_err(at("write", &self.log))?;
        }
        Ok(Answer::Done(json!({ "saves": self.saves })))
    }

    fn save(&self, line: &str) -> std::io::Result<()> {
        let grown = || -> std::io::Result<Vec<u8>> {
            let mut bytes = fs::read(&self.path)?;
            bytes.extend_from_slice(line.as_bytes());
            Ok(bytes)
        };
        match self.kind {
            Kind::Rename => self.rename_over(&grown()?),
            Kind::InPlace => fs::write(&self.path, grown()?),
            Kind::Slow => {
                let bytes = grown()?;
                let (first, second) = bytes.split_at(bytes.len() / 2);
                let mut file = File::create(&self.path)?;
                // Not to wait for anything: being slow is what this one is.
                std::thread::sleep(Duration::from_millis(1));
                file.write_all(first)?;
                std::thread::sleep(Duration::from_millis(1));
                file.write_all(second)
            }
            Kind::Append => OpenOptions::new().append(true).open(&self.path)?.write_all(line.as_bytes()),
            Kind::Mmap => self.store(line),
            Kind::Touch => self.touch(),
            Kind::SameRename => self.rename_over_same(),
            Kind::SameInPlace => {
                // What is open for writing cannot be replaced through the gate, so what is read is what is there.
                let mut file = OpenOptions::new().read(true).write(true).open(&self.path)?;
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes)?;
                file.set_len(0)?;
                file.rewind()?;
                file.write_all(&bytes)
            }
        }
    }

    fn rename_over(&self, bytes: &[u8]) -> std::io::Result<()> {
        let temporary = self.path.with_file_name(".outsider.tmp");
        fs::write(&temporary, bytes)?;
        fs::rename(&temporary, &self.path)
    }

    /// The old file is open for writing all the while, so that no guarded write comes between the read and the rename:
    /// that would be undone, which is a change and not the same bytes.
    fn rename_over_same(&self) -> std::io::Result<()> {
        loop {
            let mut file = OpenOptions::new().read(true).write(true).open(&self.path)?;
            let (open, at_path) = (file.metadata()?, fs::metadata(&self.path)?);
            if (open.dev(), open.ino()) != (at_path.dev(), at_path.ino()) {
                continue;
            }
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            return self.rename_over(&bytes);
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
