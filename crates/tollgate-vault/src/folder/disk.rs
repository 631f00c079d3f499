//! The only code that changes files of the vault. Small acts, each of which either happens or does not.
//!
//! Invariant: before every act stands [`Disk::point`]. Tests stop there, at the Nth act for every N, or let a write be
//! cut in half; so "killed before every file-changing operation" is a loop in a unit test and not a hope.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, OFlags, RenameFlags};

use crate::state::Slot;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::file::replace_file;
use tollgate_base::lock::{Pauses, open_noatime};
use tollgate_base::settings::Durability;
use tollgate_base::task::TaskName;

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
pub(crate) type Fates = Arc<dyn Fn(&'static str) -> Fate + Send + Sync>;

/// What a file is known by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) ino: u64,
    pub(crate) len: u64,
    /// When its bytes last changed, in seconds and nanoseconds.
    pub(crate) modified: (i64, i64),
    /// When anything about it last changed.
    pub(crate) changed: (i64, i64),
    pub(crate) is_file: bool,
}

impl Seen {
    /// All that changes when the file does.
    pub(crate) fn numbers(&self) -> [u64; 4] {
        let nanos = |(seconds, nanos): (i64, i64)| seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos);
        let (modified, changed) = (nanos(self.modified), nanos(self.changed));
        [self.ino, self.len, modified.cast_unsigned(), changed.cast_unsigned()]
    }
}

impl From<&fs::Metadata> for Seen {
    fn from(found: &fs::Metadata) -> Self {
        Self {
            ino: found.ino(),
            len: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
            is_file: found.is_file(),
        }
    }
}

impl From<&rustix::fs::Stat> for Seen {
    #[allow(clippy::cast_possible_wrap, clippy::cast_sign_loss, reason = "a file has no negative size")]
    #[allow(clippy::unnecessary_cast, reason = "other types on other systems")]
    fn from(found: &rustix::fs::Stat) -> Self {
        Self {
            ino: found.st_ino as u64,
            len: found.st_size as u64,
            modified: (found.st_mtime as i64, found.st_mtime_nsec as i64),
            changed: (found.st_ctime as i64, found.st_ctime_nsec as i64),
            is_file: rustix::fs::FileType::from_raw_mode(found.st_mode).is_file(),
        }
    }
}

/// How files are changed.
#[derive(Clone)]
pub(crate) struct Disk {
    pub(crate) durability: Durability,
    /// The vault's folder, from which the way to a task is short.
    pub(crate) root: Arc<(PathBuf, File)>,
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
    pub(crate) fn new(durability: Durability, vault: PathBuf, root: File) -> Self {
        Self {
            durability,
            root: Arc::new((vault, root)),
            #[cfg(test)]
            fates: None,
        }
    }

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

    /// From where, and which way, to a path.
    fn way<'a>(&'a self, path: &'a Path) -> (BorrowedFd<'a>, &'a Path) {
        let (vault, root) = &*self.root;
        let below = path.as_os_str().as_bytes().strip_prefix(vault.as_os_str().as_bytes());
        match below.and_then(|below| below.strip_prefix(b"/")) {
            Some(way) if !way.starts_with(b"/") => (root.as_fd(), Path::new(OsStr::from_bytes(way))),
            _ => (CWD, path),
        }
    }

    /// What lies at a path, if something does; a link is a link.
    pub(crate) fn look(&self, path: &Path) -> Result<Option<Seen>> {
        let (from, way) = self.way(path);
        match rustix::fs::statat(from, way, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(Seen::from(&found))),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(error).at("look at", path),
        }
    }

    /// Whether this very file lies there.
    pub(crate) fn is_at(&self, path: &Path, ino: u64) -> bool {
        matches!(self.look(path), Ok(Some(found)) if found.ino == ino)
    }

    /// Opens a task's file: never through a link, never waiting for the other end of a pipe. `None` if it is not there.
    pub(crate) fn open_task(&self, path: &Path, write: bool) -> Result<Option<(File, Seen)>> {
        let (from, way) = self.way(path);
        let mode = if write { OFlags::RDWR } else { OFlags::RDONLY };
        let mut pauses = Pauses::lasting(LEASED);
        let opened = loop {
            match open_noatime(from, way, mode | OFlags::NONBLOCK) {
                // Somebody is finding out whether it is complete.
                Err(rustix::io::Errno::WOULDBLOCK) if pauses.pause() => {}
                opened => break opened,
            }
        };
        let file = match opened {
            Ok(file) => file,
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(rustix::io::Errno::LOOP) => return Err(not_a_file(path)),
            Err(error) => return Err(error).at("open", path),
        };
        let seen = Seen::from(&rustix::fs::fstat(&file).at("look at", path)?);
        if seen.is_file { Ok(Some((file, seen))) } else { Err(not_a_file(path)) }
    }

    /// A new file with these bytes.
    pub(crate) fn create(&self, path: &Path, bytes: &[u8]) -> Result<File> {
        self.point("create").at("create", path)?;
        let mut options = OpenOptions::new();
        options.create_new(true).read(true).write(true).mode(0o660).custom_flags(libc::O_NOFOLLOW);
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

    /// Replaces a private file as a whole.
    pub(crate) fn replace_file(&self, path: &Path, bytes: &[u8], durability: Durability) -> Result<()> {
        self.point("replace a file").at("replace", path)?;
        replace_file(path, bytes, durability)
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
            let ((old, from_way), (new, to_way)) = (self.way(from), self.way(to));
            match rustix::fs::renameat_with(old, from_way, new, to_way, RenameFlags::NOREPLACE) {
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

/// The names in a folder.
pub(crate) fn names_in(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).at("read", folder)? {
        names.extend(entry.at("read", folder)?.file_name().into_string());
    }
    Ok(names)
}

/// What is there cannot be a task.
pub(crate) fn not_a_file(path: &Path) -> Fault {
    Fault::invalid(format!(
        "`{}` is not a plain file, so it cannot be a task",
        path.display().to_string().escape_debug()
    ))
}

/// It can have neither its own name nor the one beside it there.
pub(crate) fn no_name_left(task: &TaskName, to: &Slot) -> Fault {
    Fault::invalid(format!(
        "`{task}` cannot go to `{to}`: both of its names are taken there, move one of the files away"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_base::sys;

    #[test]
    fn whoever_looks_whether_a_task_is_complete_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (path, root) = (folder.path().join("x"), File::open(folder.path()).unwrap());
        fs::write(&path, "x").unwrap();
        let root = Arc::new((folder.path().to_owned(), root));
        let disk = Disk { durability: Durability::Fast, root, fates: None };
        let looked_at = File::open(&path).unwrap();
        sys::take_read_lease(&looked_at).unwrap();
        std::thread::scope(|scope| {
            let opened = scope.spawn(|| disk.open_task(&path, true).unwrap().is_some());
            // Asked to let go.
            while sys::has_read_lease(&looked_at).unwrap() {
                std::thread::yield_now();
            }
            sys::drop_lease(&looked_at).unwrap();
            assert!(opened.join().unwrap());
        });
    }
}
