//! Folders that are open, so that no other process can replace them between two steps.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::file_state::Stamp;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::file::has_one_journal;
use tollgate_base::private;
use tollgate_base::settings::Durability;
use tollgate_base::sys;

/// An open folder, with its path for messages.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    fd: Arc<OwnedFd>,
    shown: Arc<Path>,
    device: u64,
    /// Whether a flush of this folder makes all earlier changes durable, to any folder of its file system.
    pub(crate) flushes_all: bool,
}

impl Folder {
    /// Opens a folder by its path and follows links: for trusted paths, such as the root of the workspace.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd =
            retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty())).at("open the folder", path)?;
        Self::from_fd(fd, path)
    }

    /// Opens a folder of the state. A link on its path is an error that says so.
    pub(crate) fn of_state(path: &Path) -> Result<Self> {
        Self::from_fd(private::open_folder(path).at("open the folder", path)?, path)
    }

    /// Opens a folder below this one. `below` must be canonical. A symbolic link in it can only have been created since,
    /// and is an error.
    pub(crate) fn open_below(&self, below: &Path) -> Result<Self> {
        let shown = self.shown.join(below);
        let fd = open_below(self.fd.as_fd(), below).at("open the folder", &shown)?;
        Self::from_fd(fd, &shown)
    }

    fn from_fd(fd: OwnedFd, shown: &Path) -> Result<Self> {
        #[allow(clippy::unnecessary_cast, reason = "its type depends on the system")]
        let device = rustix::fs::fstat(&fd).at("look at", shown)?.st_dev as u64;
        let flushes_all = has_one_journal(&fd);
        Ok(Self { fd: Arc::new(fd), shown: shown.into(), device, flushes_all })
    }

    pub(crate) fn same_device(&self, other: &Self) -> bool {
        self.device == other.device
    }

    pub(crate) fn shown(&self) -> &Path {
        &self.shown
    }

    /// Makes the names in this folder durable. Without it, a power failure may undo renames that were acknowledged.
    pub(crate) fn flush(&self, durability: Durability) -> Result<()> {
        match durability {
            Durability::Fast => Ok(()),
            Durability::Durable => sys::flush(&self.fd).at("flush the folder", &self.shown),
        }
    }

    /// Whether new files inherit something from this folder: its group or its ACL.
    pub(crate) fn marks_new_files(&self) -> Result<bool> {
        let stat = rustix::fs::fstat(&self.fd).at("look at", &self.shown)?;
        let setgid = Mode::from_raw_mode(stat.st_mode).contains(Mode::SGID);
        let mut nothing: [u8; 0] = [];
        let acl = rustix::fs::fgetxattr(&self.fd, c"system.posix_acl_default", &mut nothing).is_ok();
        Ok(setgid || acl)
    }

    /// The names in the folder, in no particular order.
    pub(crate) fn names(&self) -> Result<Vec<OsString>> {
        Ok(self.entries()?.into_iter().map(|(name, _)| name).collect())
    }

    /// The names in the folder, and what they are, in no particular order. Links are not followed.
    pub(crate) fn entries(&self) -> Result<Vec<(OsString, FileType)>> {
        let read = || -> io::Result<Vec<(OsString, FileType)>> {
            let mut entries = Vec::new();
            for entry in retry_on_intr(|| rustix::fs::Dir::read_from(&self.fd))? {
                let entry = entry?;
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                let kind = match entry.file_type() {
                    _ if name == "." || name == ".." => continue,
                    // Some file systems do not say.
                    FileType::Unknown => {
                        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
                            Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                            // Deleted in the meantime.
                            Err(_) => continue,
                        }
                    }
                    known => known,
                };
                entries.push((name.to_owned(), kind));
            }
            Ok(entries)
        };
        read().at("list the folder", &self.shown)
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Opens one folder after the other without following links. `openat2` would do it in one step, but old kernels and other
/// systems lack it, and some sandboxes forbid it.
fn open_below(root: BorrowedFd<'_>, below: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut fd = rustix::fs::openat(root, ".", flags, Mode::empty())?;
    for part in below {
        if part == ".." {
            return Err(Errno::XDEV.into());
        }
        fd = retry_on_intr(|| rustix::fs::openat(&fd, part, flags, Mode::empty()))?;
    }
    Ok(fd)
}

/// Turns "not found" into `None`.
pub(crate) fn gone_is_none<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(Fault::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// Turns "not found" and "not a folder" into `None`.
pub(crate) fn no_folder_is_none<T>(answer: Result<T>) -> Result<Option<T>> {
    match gone_is_none(answer) {
        Err(Fault::Io { source, .. }) if source.kind() == io::ErrorKind::NotADirectory => Ok(None),
        answer => answer,
    }
}

/// When a file was last written.
pub(crate) fn modified(path: &Path) -> Option<Timestamp> {
    std::fs::symlink_metadata(path).and_then(|found| found.modified()).ok()?.try_into().ok()
}

/// When the metadata of a file last changed, by the clock of the file system, in nanoseconds since 1970.
pub(crate) fn changed_at(found: &std::fs::Metadata) -> i128 {
    i128::from(found.ctime()) * 1_000_000_000 + i128::from(found.ctime_nsec())
}

/// The stamp of a file, by its path and without opening it. `None` if there is no regular file.
pub(crate) fn stamp_at(path: &Path) -> Option<Stamp> {
    let found = std::fs::symlink_metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    let modified = i128::from(found.mtime()) * 1_000_000_000 + i128::from(found.mtime_nsec());
    Some(Stamp {
        device: found.dev(),
        inode: found.ino(),
        size: found.size(),
        modified,
        changed: changed_at(&found),
    })
}
