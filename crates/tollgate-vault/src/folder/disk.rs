//! The only code that changes files of the vault. Small acts, each of which either happens or does not.
//!
//! Invariant: before every act stands [`Disk::point`] or [`Disk::write`]. Tests stop there, at the Nth act for every N, or
//! let a write be cut in half; so "killed before every file-changing operation" is a loop in a unit test and not a hope.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use rustix::fs::{OFlags, RenameFlags};
use rustix::io::Errno;

use crate::state::Slot;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::file::{has_one_journal, replace_file};
use tollgate_base::lock::{Pauses, open_noatime};
use tollgate_base::private;
use tollgate_base::settings::Durability;
use tollgate_base::sys;
use tollgate_base::task::TaskName;

/// The longest that a lease on a task is waited for. Ours last for microseconds; a file server's may last longer.
const LEASED: Duration = Duration::from_secs(5);

/// How files are changed.
#[derive(Clone)]
pub(crate) struct Disk {
    pub(crate) durability: Durability,
    #[cfg(test)]
    pub(crate) fates: Option<super::tests::Fates>,
}

/// What came of an exchange of two files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExchangeResult {
    Done,
    /// One of them is not there.
    Missing,
    /// This file system cannot.
    Unsupported,
}

/// What came of a move that replaces nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moved {
    Done,
    /// The name is taken there.
    Taken,
    /// The file to move is not there.
    Missing,
}

impl Disk {
    pub(crate) fn new(durability: Durability) -> Self {
        Self {
            durability,
            #[cfg(test)]
            fates: None,
        }
    }

    fn point(&self, act: &'static str) -> io::Result<()> {
        self.write(act, &[], |_| Ok(()))
    }

    #[cfg_attr(
        not(test),
        expect(clippy::unused_self, unused_variables, reason = "a test decides here what happens")
    )]
    fn write(
        &self,
        act: &'static str,
        bytes: &[u8],
        write: impl Fn(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        #[cfg(test)]
        super::tests::meet(self.fates.as_ref(), act, bytes, &write)?;
        write(bytes)
    }

    /// A new file with these bytes.
    pub(crate) fn create(&self, path: &Path, bytes: &[u8]) -> Result<File> {
        self.point("create").at("create", path)?;
        let file = open_noatime(path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL);
        let file = in_vault(file, "create", [path])?;
        let written = self.write("write", bytes, |bytes| file.write_all_at(bytes, 0));
        if written.is_err() {
            // What is half written is of no use to anyone.
            let _ = private::remove_file(path);
        }
        written.at("write", path)?;
        // Without it a power cut could leave the name without the bytes.
        self.sync(&file, path)?;
        Ok(file)
    }

    /// Replaces a private file as a whole.
    pub(crate) fn replace_file(&self, path: &Path, bytes: &[u8], durability: Durability) -> Result<()> {
        self.point("replace a file").at("replace", path)?;
        replace_file(path, bytes, durability)
    }

    /// Replaces a private file by way of the file `stage`, so that a crash leaves no file that nobody looks for.
    pub(super) fn replace_via(&self, stage: &Path, path: &Path, bytes: &[u8]) -> Result<()> {
        let _ = private::remove_file(stage);
        self.create(stage, bytes)?;
        self.replace(stage, path)
    }

    /// Renames a private file over another.
    pub(crate) fn replace(&self, from: &Path, to: &Path) -> Result<()> {
        self.point("replace").at("rename", from)?;
        in_vault(private::rename(from, to), "rename", [from, to])
    }

    /// Moves a task. Never replaces anything. Makes the folder it goes to if need be.
    pub(crate) fn transfer(&self, from: &Path, to: &Path, ino: u64) -> Result<Moved> {
        self.point("move").at("move", from)?;
        let mut made = false;
        loop {
            let moved = private::rename_with(from, to, RenameFlags::NOREPLACE);
            let Err(error) = moved else { return Ok(Moved::Done) };
            match Errno::from_io_error(&error) {
                // A power cut can leave a moved file under both names.
                Some(Errno::EXIST) if is_at(to, ino) && is_at(from, ino) => {
                    self.remove(from)?;
                    return Ok(Moved::Done);
                }
                Some(Errno::EXIST) => return Ok(Moved::Taken),
                Some(Errno::NOENT) if fs::symlink_metadata(from).is_err() => {
                    // On a network file system a move can succeed and its answer be lost.
                    return Ok(if is_at(to, ino) { Moved::Done } else { Moved::Missing });
                }
                Some(Errno::NOENT) if !made => {
                    self.make_folder(to.parent().unwrap_or(to))?;
                    made = true;
                }
                _ => return in_vault(Err(error), "move", [from, to]),
            }
        }
    }

    /// Exchanges two files in one act.
    pub(crate) fn exchange(&self, one: &Path, other: &Path) -> Result<ExchangeResult> {
        self.point("exchange").at("exchange", one)?;
        let exchanged = private::rename_with(one, other, RenameFlags::EXCHANGE);
        let Err(error) = exchanged else { return Ok(ExchangeResult::Done) };
        match Errno::from_io_error(&error) {
            Some(Errno::NOENT) => Ok(ExchangeResult::Missing),
            Some(error) if sys::lacks_rename_flag(error) => Ok(ExchangeResult::Unsupported),
            _ => in_vault(Err(error), "exchange", [one, other]),
        }
    }

    /// Editors warn before they write to this file.
    pub(crate) fn make_read_only(&self, file: &File, path: &Path) -> Result<()> {
        self.point("make read-only").at("change the permissions of", path)?;
        file.set_permissions(fs::Permissions::from_mode(0o440)).at("change the permissions of", path)
    }

    /// A folder, and those above it.
    pub(crate) fn make_folder(&self, path: &Path) -> Result<()> {
        self.point("make a folder").at("make the folder", path)?;
        make_folders(path)
    }

    /// Writes these bytes at this place of a private file.
    pub(crate) fn write_at(&self, file: &File, path: &Path, at: u64, bytes: &[u8]) -> Result<()> {
        self.write("note", bytes, |bytes| file.write_all_at(bytes, at)).at("write to", path)
    }

    /// Makes everything from `at` these bytes, in a file of this length. The inode stays.
    pub(super) fn replace_tail(
        &self,
        file: &File,
        path: &Path,
        at: u64,
        bytes: &[u8],
        len: u64,
    ) -> Result<()> {
        self.write("write", bytes, |bytes| file.write_all_at(bytes, at)).at("write to", path)?;
        let end = at + bytes.len() as u64;
        if len > end { self.cut(file, path, end) } else { Ok(()) }
    }

    /// Takes away everything from `len`.
    pub(super) fn cut(&self, file: &File, path: &Path, len: u64) -> Result<()> {
        self.point("cut").at("shorten", path)?;
        file.set_len(len).at("shorten", path)
    }

    /// Removes a private file; that it is gone already is fine.
    pub(crate) fn remove(&self, path: &Path) -> Result<()> {
        self.point("remove").at("remove", path)?;
        match private::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => in_vault(Err(error), "remove", [path]),
            _ => Ok(()),
        }
    }

    /// A file's bytes survive a power cut from here on.
    pub(crate) fn sync(&self, file: &File, path: &Path) -> Result<()> {
        match self.durability {
            Durability::Durable => {
                self.point("flush").at("flush", path)?;
                sys::flush_data(file).at("flush", path)
            }
            Durability::Fast => Ok(()),
        }
    }

    /// A move from one folder to another survives a power cut from here on. Without the first folder's flush, the file could
    /// afterwards be in both.
    pub(super) fn sync_move(&self, from: &Path, to: &Path) -> Result<()> {
        if self.durability == Durability::Durable {
            let folder = File::from(private::open_folder(to).at("flush", to)?);
            if !has_one_journal(&folder) {
                self.sync_folder(from)?;
            }
            sys::flush(&folder).at("flush", to)?;
        }
        Ok(())
    }

    /// The names in a folder survive a power cut from here on.
    pub(crate) fn sync_folder(&self, path: &Path) -> Result<()> {
        match self.durability {
            Durability::Durable => private::sync_folder(path).at("flush", path),
            Durability::Fast => Ok(()),
        }
    }
}

/// Adds the verb and the first path to an error. If a folder of a path is a link, the fault names that one.
fn in_vault<T, const N: usize>(answer: io::Result<T>, doing: &'static str, paths: [&Path; N]) -> Result<T> {
    match answer {
        Err(error) if private::is_link_error(&error) => {
            let link = paths.iter().filter_map(|path| path.parent()).find_map(linked);
            Err(link.unwrap_or_else(|| Fault::Io { doing, path: paths[0].to_owned(), source: error }))
        }
        answer => answer.at(doing, paths[0]),
    }
}

/// The fault of a folder that is a link, if it or one above it is.
pub(crate) fn linked(folder: &Path) -> Option<Fault> {
    let is_link = |path: &&Path| fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    let link = folder.ancestors().find(is_link)?;
    let source = io::Error::other("it is a symbolic link, and tasks would leave the vault through it");
    Some(Fault::Io { doing: "use the folder", path: link.to_owned(), source })
}

/// Makes a folder, and those above it. None of them may be a link.
pub(crate) fn make_folders(path: &Path) -> Result<()> {
    match private::create_folders(path, 0o777) {
        Err(error) if private::is_link_error(&error) => Err(linked(path).unwrap_or(Fault::Io {
            doing: "make the folder",
            path: path.to_owned(),
            source: error,
        })),
        made => made.at("make the folder", path),
    }
}

/// Opens a task's file: never through a link, never waiting for the other end of a pipe. `None` if it is not there.
pub(crate) fn open_task(path: &Path, flags: OFlags) -> Result<Option<(File, Metadata)>> {
    let mut pauses = Pauses::lasting(LEASED);
    let file = loop {
        match open_noatime(path, flags | OFlags::NONBLOCK) {
            // Somebody is finding out whether it is complete.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && pauses.pause() => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if private::is_link_error(&error) => {
                return Err(path.parent().and_then(linked).unwrap_or_else(|| not_a_file(path)));
            }
            opened => break opened.at("open", path)?,
        }
    };
    let found = file.metadata().at("look at", path)?;
    if found.is_file() { Ok(Some((file, found))) } else { Err(not_a_file(path)) }
}

/// The bytes of a file from `start` to `end`, or to its end.
pub(crate) fn read(file: &File, start: u64, end: u64) -> io::Result<Vec<u8>> {
    read_range(file, start, file.metadata()?.len().min(end))
}

/// The bytes from `start` to `end` of a file that is known to be at least as long.
pub(super) fn read_range(file: &File, start: u64, end: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(end.saturating_sub(start)).unwrap_or(0)];
    match file.read_exact_at(&mut bytes, start) {
        // It was shortened at this moment.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => read(file, start, end),
        read => read.map(|()| bytes),
    }
}

/// Whether this very file lies there.
pub(super) fn is_at(path: &Path, ino: u64) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.ino() == ino)
}

/// Changes with everything that can happen to a file: its inode, its length and both dates. The ctime cannot be set back.
pub(crate) fn fingerprint(found: &Metadata) -> [u8; 32] {
    let nanos = |seconds: i64, nanos: i64| seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos);
    let modified = nanos(found.mtime(), found.mtime_nsec());
    let changed = nanos(found.ctime(), found.ctime_nsec());
    let mut bytes = [0; 32];
    let numbers = [found.ino(), found.len(), modified.cast_unsigned(), changed.cast_unsigned()];
    for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

/// Makes a file some nanoseconds, less than a second, older than the move that follows: that is how one sees that it was
/// complete when it came. Without this the two have one date if they fall into one tick of the clock of files.
pub(crate) fn date_back(file: &File, nanos: u64) -> io::Result<()> {
    file.set_modified(file.metadata()?.modified()? - Duration::from_nanos(nanos))
}

/// Dates the file of a new task, which is as old as it is said to be: its age is its place in the queue.
pub(crate) fn date_new(file: &File, since: Timestamp) -> io::Result<()> {
    let latest = file.metadata()?.modified()? - Duration::from_nanos(1);
    file.set_modified(SystemTime::from(since).max(SystemTime::UNIX_EPOCH).min(latest))
}

/// What is there cannot be a task.
fn not_a_file(path: &Path) -> Fault {
    let path = path.display().to_string();
    Fault::invalid(format!("`{}` is not a plain file, so it cannot be a task", path.escape_debug()))
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

    #[test]
    fn nothing_is_done_through_a_linked_folder() {
        let keep = tempfile::tempdir().unwrap();
        let top = keep.path().canonicalize().unwrap();
        let (vault, away) = (top.join("vault"), top.join("away"));
        fs::create_dir_all(vault.join("in")).unwrap();
        fs::create_dir_all(away.join("agent")).unwrap();
        fs::write(vault.join("in/x"), "x").unwrap();
        fs::write(away.join("y"), "y").unwrap();
        fs::write(away.join("agent/y"), "y").unwrap();
        std::os::unix::fs::symlink(&away, vault.join("link")).unwrap();
        std::os::unix::fs::symlink("nowhere", vault.join("dangling")).unwrap();
        let disk = Disk::new(Durability::Fast);
        let x = vault.join("in/x");
        for folder in ["link", "link/agent"] {
            let (there, y) = (vault.join(folder).join("x"), vault.join(folder).join("y"));
            let refused = [
                disk.create(&there, b"x").map(drop),
                disk.replace(&x, &there),
                disk.replace(&y, &x),
                disk.transfer(&x, &there, 0).map(drop),
                disk.transfer(&y, &vault.join("in/y"), 0).map(drop),
                disk.exchange(&x, &y).map(drop),
                disk.exchange(&y, &x).map(drop),
                disk.remove(&y),
                disk.make_folder(&vault.join(folder).join("new")),
                disk.make_folder(&vault.join(folder)),
                open_task(&y, OFlags::RDWR).map(drop),
            ];
            for (act, refused) in refused.into_iter().enumerate() {
                let said = refused.unwrap_err().to_string();
                let link = format!("`{}`: it is a symbolic link", vault.join("link").display());
                assert!(said.contains(&link), "{folder}, act {act}: {said}");
            }
        }
        let refused = disk.make_folder(&vault.join("dangling")).unwrap_err().to_string();
        assert!(refused.contains("dangling`: it is a symbolic link"), "{refused}");
        let names = |folder: &Path| {
            let mut names: Vec<_> =
                fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(&away), ["agent", "y"]);
        assert_eq!(
            (names(&away.join("agent")), names(&vault.join("in"))),
            (vec!["y".into()], vec!["x".into()])
        );
        assert_eq!(fs::read_to_string(away.join("y")).unwrap(), "y");
    }

    #[test]
    fn whoever_looks_whether_a_task_is_complete_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, "x").unwrap();
        let looked_at = File::open(&path).unwrap();
        if !sys::HAS_LEASES {
            // Nobody can be made to wait.
            assert!(open_task(&path, OFlags::RDWR).unwrap().is_some());
            return;
        }
        sys::take_read_lease(&looked_at).unwrap();
        std::thread::scope(|scope| {
            let opened = scope.spawn(|| open_task(&path, OFlags::RDWR).unwrap().is_some());
            // Asked to let go.
            while sys::has_read_lease(&looked_at).unwrap() {
                std::thread::yield_now();
            }
            sys::drop_lease(&looked_at).unwrap();
            assert!(opened.join().unwrap());
        });
    }
}
