//! The only code that changes files of the vault. Small acts, each of which either happens or does not.
//!
//! Invariant: before every act stands [`Disk::point`]. Tests stop there, at the Nth act for every N, or let a write be
//! cut in half; so "killed before every file-changing operation" is a loop in a unit test and not a hope.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags};

use crate::error::{At, Fault, Result};
use crate::lock::{Pauses, open_unnoticed};
use crate::settings::Durability;

/// The longest that a lease on a task is waited for. Ours last for microseconds; a file server's may last longer.
const LEASED: Duration = Duration::from_secs(5);

/// What a test wants to happen at an act.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Go,
    Die,
    DieHalf,
    Fail(i32),
}

/// What a test is thrown with.
#[cfg(test)]
pub(crate) struct Died;

#[cfg(test)]
pub(crate) type Fates = std::sync::Arc<dyn Fn(&'static str) -> Fate + Send + Sync>;

/// How files are changed.
#[derive(Clone)]
pub(crate) struct Disk {
    pub(crate) durability: Durability,
    #[cfg(test)]
    pub(crate) fates: Option<Fates>,
}

/// What came of a move that replaces nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moved {
    Done,
    /// The name is taken there.
    Taken,
    /// It is not here.
    Missing,
}

/// How much of a write is to be made.
#[derive(PartialEq, Eq)]
enum Much {
    All,
    #[cfg(test)]
    Half,
}

impl Disk {
    #[cfg(not(test))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "the tests' twin needs both")]
    fn point(&self, _act: &'static str) -> io::Result<Much> {
        Ok(Much::All)
    }

    #[cfg(test)]
    fn point(&self, act: &'static str) -> io::Result<Much> {
        match self.fates.as_ref().map_or(Fate::Go, |fates| fates(act)) {
            Fate::Go => Ok(Much::All),
            Fate::DieHalf => Ok(Much::Half),
            Fate::Die => std::panic::resume_unwind(Box::new(Died)),
            Fate::Fail(code) => Err(io::Error::from_raw_os_error(code)),
        }
    }

    /// All of it; or, in a test, half of it and then death.
    fn write(
        &self,
        act: &'static str,
        bytes: &[u8],
        write: impl Fn(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        match self.point(act)? {
            Much::All => write(bytes),
            #[cfg(test)]
            Much::Half => {
                write(&bytes[..bytes.len() / 2])?;
                std::panic::resume_unwind(Box::new(Died))
            }
        }
    }

    /// A new file with these bytes.
    pub(crate) fn create(&self, path: &Path, bytes: &[u8]) -> Result<File> {
        self.point("create").at("create", path)?;
        let mut options = OpenOptions::new();
        options.create_new(true).write(true).mode(0o660).custom_flags(libc::O_NOFOLLOW);
        let file = options.open(path).at("create", path)?;
        let written = self.write("write", bytes, |bytes| (&file).write_all(bytes));
        if let Err(error) = written {
            // What is half written is of no use to anyone.
            let _ = fs::remove_file(path);
            return Err(error).at("write", path);
        }
        // Without it a power cut could leave the name without the bytes.
        self.sync(&file, path)?;
        Ok(file)
    }

    /// Renames a private file over another.
    pub(crate) fn replace(&self, from: &Path, to: &Path) -> Result<()> {
        self.point("replace").at("rename", from)?;
        fs::rename(from, to).at("rename", from)
    }

    /// Moves a task. Never replaces anything. Makes the folder it goes to if need be.
    pub(crate) fn transfer(&self, from: &Path, to: &Path, ino: u64) -> Result<Moved> {
        self.point("move").at("move", from)?;
        let mut made = false;
        loop {
            match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
                Ok(()) => return Ok(Moved::Done),
                Err(rustix::io::Errno::EXIST) => return Ok(Moved::Taken),
                Err(rustix::io::Errno::NOENT) if fs::symlink_metadata(from).is_err() => {
                    // On a network file system a move can succeed and its answer be lost.
                    let there = fs::symlink_metadata(to).is_ok_and(|found| found.ino() == ino);
                    return Ok(if there { Moved::Done } else { Moved::Missing });
                }
                Err(rustix::io::Errno::NOENT) if !made => {
                    self.make_folder(to.parent().unwrap_or(to))?;
                    made = true;
                }
                Err(error) => return Err(error).at("move", from),
            }
        }
    }

    /// A folder, and those above it.
    pub(crate) fn make_folder(&self, path: &Path) -> Result<()> {
        self.point("make a folder").at("make the folder", path)?;
        fs::create_dir_all(path).at("make the folder", path)
    }

    /// Writes a few bytes at the start of a private file: within one page, which a kill does not cut in half.
    pub(crate) fn write_few(&self, file: &File, path: &Path, bytes: &[u8]) -> Result<()> {
        self.point("count").and_then(|_| file.write_all_at(bytes, 0)).at("write to", path)
    }

    /// Writes these bytes at this place of a private file.
    pub(crate) fn write_at(&self, file: &File, path: &Path, at: u64, bytes: &[u8]) -> Result<()> {
        self.write("note", bytes, |bytes| file.write_all_at(bytes, at)).at("write to", path)
    }

    /// Makes everything from `at` these bytes, which are no fewer than there are. The inode stays.
    pub(crate) fn write_tail(&self, file: &File, path: &Path, at: u64, bytes: &[u8]) -> Result<()> {
        self.write("write", bytes, |bytes| file.write_all_at(bytes, at)).at("write to", path)
    }

    /// The same, where there may be more bytes than these.
    pub(crate) fn replace_tail(&self, file: &File, path: &Path, at: u64, bytes: &[u8]) -> Result<()> {
        self.write_tail(file, path, at, bytes)?;
        let end = at + bytes.len() as u64;
        if file.metadata().at("look at", path)?.len() > end {
            self.cut(file, path, end)?;
        }
        Ok(())
    }

    /// Takes away everything from `len`.
    pub(crate) fn cut(&self, file: &File, path: &Path, len: u64) -> Result<()> {
        self.point("cut").at("shorten", path)?;
        file.set_len(len).at("shorten", path)
    }

    /// Removes a private file; that it is gone already is fine.
    pub(crate) fn remove(&self, path: &Path) -> Result<()> {
        self.point("remove").at("remove", path)?;
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).at("remove", path),
            _ => Ok(()),
        }
    }

    /// A file's bytes survive a power cut from here on.
    pub(crate) fn sync(&self, file: &File, path: &Path) -> Result<()> {
        match self.durability {
            Durability::Durable => file.sync_data().at("flush", path),
            Durability::Fast => Ok(()),
        }
    }

    /// The names in a folder survive a power cut from here on.
    pub(crate) fn sync_folder(&self, path: &Path) -> Result<()> {
        match self.durability {
            Durability::Durable => File::open(path).and_then(|folder| folder.sync_all()).at("flush", path),
            Durability::Fast => Ok(()),
        }
    }
}

/// A nanosecond older than the move that follows: that is how one sees that it was complete when it came. Without this
/// the two have one date if they fall into one tick of the clock of files.
pub(crate) fn date_back(file: &File) -> io::Result<()> {
    date_back_by(file, 1)
}

/// The same by so many nanoseconds, less than a second.
pub(crate) fn date_back_by(file: &File, nanos: i64) -> io::Result<()> {
    let meta = file.metadata()?;
    let nanos = meta.mtime_nsec() - nanos;
    let written = rustix::fs::Timespec {
        tv_sec: meta.mtime() - i64::from(nanos < 0),
        tv_nsec: nanos.rem_euclid(1_000_000_000),
    };
    let times = rustix::fs::Timestamps { last_access: written, last_modification: written };
    Ok(rustix::fs::futimens(file, &times)?)
}

/// Opens a task's file: never through a link, never waiting for the other end of a pipe. `None` if it is not there.
pub(crate) fn open_task(path: &Path, write: bool) -> Result<Option<(File, fs::Metadata)>> {
    let mut options = OpenOptions::new();
    options.read(true).write(write);
    let mut pauses = Pauses::lasting(LEASED);
    let opened = loop {
        match open_unnoticed(&mut options, libc::O_NOFOLLOW | libc::O_NONBLOCK, path) {
            // Somebody is finding out whether it is complete.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && pauses.pause() => {}
            opened => break opened,
        }
    };
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => return Err(not_a_file(path)),
        Err(error) => return Err(error).at("open", path),
    };
    let meta = file.metadata().at("look at", path)?;
    if meta.is_file() { Ok(Some((file, meta))) } else { Err(not_a_file(path)) }
}

/// What lies there cannot be a task.
pub(crate) fn not_a_file(path: &Path) -> Fault {
    Fault::invalid(format!(
        "`{}` is not a plain file, so it cannot be a task",
        path.display().to_string().escape_debug()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;

    #[test]
    fn whoever_looks_whether_a_task_is_complete_is_waited_for() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let looked_at = File::open(&path).unwrap();
        sys::take_read_lease(&looked_at).unwrap();
        std::thread::scope(|scope| {
            let opened = scope.spawn(|| open_task(&path, true).unwrap().is_some());
            // Asked to let go.
            while sys::has_read_lease(&looked_at).unwrap() {
                std::thread::yield_now();
            }
            sys::drop_lease(&looked_at).unwrap();
            assert!(opened.join().unwrap());
        });
    }
}
