//! A spot: a name in an open folder, and every system call on that name.

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::{Errno, retry_on_intr};

use super::folder::{Folder, gone_is_none};
use super::target::{Inode, Quiet, Target};
use crate::stage::aside_name;
use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Result};
use tollgate_base::lock::Pauses;
use tollgate_base::sys;

/// A name in an open folder. The file may exist or not.
#[derive(Debug, Clone)]
pub(crate) struct Spot {
    folder: Folder,
    name: OsString,
}

/// What is at a spot.
#[derive(Debug)]
pub(crate) enum Found {
    Nothing,
    File(Target),
    /// A file that this process may not read.
    Unreadable,
    /// Anything but a regular file.
    NotAFile,
}

/// How a file was replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Swap {
    /// In one atomic step.
    Exchanged,
    /// In two steps, because the file system cannot exchange names. A save in between is lost.
    Renamed,
}

/// The result of giving a file a second name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Linked {
    Done,
    Taken,
    /// Files cannot have two names here.
    Impossible,
}

impl Spot {
    pub(crate) fn new(folder: &Folder, name: impl Into<OsString>) -> Self {
        Self { folder: folder.clone(), name: name.into() }
    }

    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    pub(crate) fn name(&self) -> &OsStr {
        &self.name
    }

    pub(crate) fn beside(&self, name: impl Into<OsString>) -> Self {
        Self::new(&self.folder, name)
    }

    pub(crate) fn shown(&self) -> PathBuf {
        self.folder.shown().join(&self.name)
    }

    fn stat(&self) -> Result<Option<Stat>> {
        let stat = retry_on_intr(|| rustix::fs::statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW));
        gone_is_none(stat.at("look at", self.shown()))
    }

    /// The inode that has this name now.
    pub(crate) fn inode(&self) -> Result<Option<Inode>> {
        Ok(self.stat()?.as_ref().map(Inode::of))
    }

    /// Whether this name belongs to that file now.
    pub(crate) fn holds(&self, file: &Target) -> Result<bool> {
        Ok(self.inode()? == Some(file.inode()))
    }

    /// Opens the file for reading. Never waits for a FIFO or wakes a device.
    pub(crate) fn open(&self) -> Result<Found> {
        match self.stat()? {
            None => return Ok(Found::Nothing),
            Some(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile => {
                return Ok(Found::NotAFile);
            }
            Some(_) => {}
        }
        // The file may have been replaced since: hence NONBLOCK, NOFOLLOW, and another check of the type below.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = match retry_on_intr(|| rustix::fs::openat(&self.folder, &self.name, flags, Mode::empty())) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(Found::Nothing),
            Err(Errno::ACCESS | Errno::PERM) => return Ok(Found::Unreadable),
            Err(Errno::LOOP | Errno::NXIO | Errno::NODEV) => return Ok(Found::NotAFile),
            Err(error) => return Err(error).at("open", self.shown()),
        };
        let stat = rustix::fs::fstat(&fd).at("look at", self.shown())?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(Found::NotAFile);
        }
        Ok(Found::File(Target::new(fd.into(), stat, self.shown())))
    }

    /// Like [`Self::open`], but a symbolic link counts as a file too: its bytes are the path in it.
    pub(crate) fn open_itself(&self) -> Result<Found> {
        let is_link = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        if !self.stat()?.as_ref().is_some_and(is_link) {
            return self.open();
        }
        let opened = sys::open_link(&self.folder, &self.name);
        let Some(fd) = gone_is_none(opened.at("open", self.shown()))? else { return Ok(Found::Nothing) };
        let stat = rustix::fs::fstat(&fd).at("look at", self.shown())?;
        if !is_link(&stat) {
            // Replaced since.
            return self.open();
        }
        let text = sys::link_text(&fd, &self.folder, &self.name).at("read", self.shown());
        match gone_is_none(text)? {
            Some(Some(text)) => Ok(Found::File(Target::of_link(fd.into(), stat, self.shown(), text))),
            // Replaced since.
            Some(None) => self.open_itself(),
            None => Ok(Found::Nothing),
        }
    }

    /// Opens the file and makes it quiet. The answer `Busy`: another process had it open for writing the whole time.
    pub(crate) fn steady(&self, wait: Duration) -> Result<(Found, Quiet)> {
        let mut pauses = Pauses::lasting(wait);
        loop {
            let mut found = self.open()?;
            let Found::File(target) = &mut found else { return Ok((found, Quiet::Held)) };
            let quiet = target.quiet();
            // Only from now on is the length final.
            target.refresh()?;
            if quiet != Quiet::Busy || !pauses.pause() {
                return Ok((found, quiet));
            }
        }
    }

    /// The hash of the file, or of the path in a symbolic link. `None` if there is no file that can be read.
    pub(crate) fn hash(&self) -> Result<Option<Digest>> {
        match self.open_itself()? {
            Found::File(file) => file.hash().map(Some),
            Found::Nothing | Found::Unreadable | Found::NotAFile => Ok(None),
        }
    }

    pub(crate) fn create(&self, mode: Mode) -> Result<Target> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = retry_on_intr(|| rustix::fs::openat(&self.folder, &self.name, flags, mode))
            .at("create", self.shown())?;
        let stat = rustix::fs::fstat(&fd).at("look at", self.shown())?;
        Ok(Target::new(fd.into(), stat, self.shown()))
    }

    /// Creates a symbolic link with this path in it.
    pub(crate) fn create_link(&self, path: &[u8]) -> Result<Target> {
        retry_on_intr(|| rustix::fs::symlinkat(OsStr::from_bytes(path), &self.folder, &self.name))
            .at("create", self.shown())?;
        match self.open_itself()? {
            Found::File(link) => Ok(link),
            _ => Err(Errno::NOENT).at("open", self.shown()),
        }
    }

    /// Changes the mode of the file or folder. A symbolic link has none.
    pub(crate) fn set_mode(&self, mode: u32) -> Result<()> {
        sys::set_mode(&self.folder, &self.name, mode).at("set the mode of", self.shown())
    }

    /// The metadata of what has this name. Links are not followed.
    pub(crate) fn metadata(&self) -> Result<Metadata> {
        sys::metadata(&self.folder, &self.name, &self.shown()).at("look at", self.shown())
    }

    /// The mode of the file or folder that has this name.
    #[allow(clippy::useless_conversion, reason = "its type depends on the system")]
    pub(crate) fn mode(&self) -> Result<Option<u32>> {
        Ok(self.stat()?.map(|stat| u32::from(stat.st_mode) & 0o7777))
    }

    /// Exchanges the files of two names. Both must exist.
    pub(crate) fn swap(&self, other: &Self) -> Result<Swap> {
        match self.renameat(other, RenameFlags::EXCHANGE) {
            Ok(()) => Ok(Swap::Exchanged),
            Err(error) if sys::lacks_rename_flag(error) => self.swap_in_steps(other),
            Err(error) => Err(error).at("exchange", other.shown()),
        }
    }

    /// Exchanges the files of two names in one step. False if that is not possible.
    pub(crate) fn exchange(&self, other: &Self) -> bool {
        self.renameat(other, RenameFlags::EXCHANGE).is_ok()
    }

    /// For file systems without exchange: gives the file of `other` a second name, then renames ours over it.
    fn swap_in_steps(&self, other: &Self) -> Result<Swap> {
        let aside = self.beside(aside_name(&self.name));
        other.link_to(&aside).at("keep a link of", other.shown())?;
        if let Err(error) = self.renameat(other, RenameFlags::empty()) {
            aside.remove()?;
            return Err(error).at("replace", other.shown());
        }
        aside.rename(self)?;
        Ok(Swap::Renamed)
    }

    fn renameat(&self, to: &Self, flags: RenameFlags) -> rustix::io::Result<()> {
        retry_on_intr(|| {
            if flags.is_empty() {
                rustix::fs::renameat(&self.folder, &self.name, &to.folder, &to.name)
            } else {
                rustix::fs::renameat_with(&self.folder, &self.name, &to.folder, &to.name, flags)
            }
        })
    }

    /// Renames and replaces a file that has the other name. Only for names that tollgate itself chooses.
    pub(crate) fn rename(&self, to: &Self) -> Result<()> {
        self.renameat(to, RenameFlags::empty()).at("rename", self.shown())
    }

    /// Renames, unless the other name is taken. Returns whether it did. An error if there is nothing to rename.
    pub(crate) fn rename_new(&self, to: &Self) -> Result<bool> {
        let renamed = match self.renameat(to, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(true),
            // A link fails, too, if the name is taken. Between the two steps, the file has both names.
            Err(error) if sys::lacks_rename_flag(error) => self.link_to(to),
            Err(error) => Err(error),
        };
        match renamed {
            // If the same file has the other name, a crash interrupted the two steps: completes them.
            Err(Errno::EXIST) if !self.is_same_file(to)? => Ok(false),
            Ok(()) | Err(Errno::EXIST) => self.remove().map(|()| true),
            Err(error) => Err(error).at("rename", self.shown()),
        }
    }

    pub(crate) fn is_same_file(&self, other: &Self) -> Result<bool> {
        let inode = self.inode()?;
        Ok(inode.is_some() && inode == other.inode()?)
    }

    /// Gives the file a second name, unless that name is taken.
    pub(crate) fn link_new(&self, to: &Self) -> Result<Linked> {
        match self.link_to(to) {
            Ok(()) => Ok(Linked::Done),
            Err(Errno::EXIST) => Ok(Linked::Taken),
            Err(error) if error == Errno::PERM || sys::is_unsupported(error) => Ok(Linked::Impossible),
            Err(error) => Err(error).at("create", to.shown()),
        }
    }

    fn link_to(&self, to: &Self) -> rustix::io::Result<()> {
        retry_on_intr(|| rustix::fs::linkat(&self.folder, &self.name, &to.folder, &to.name, AtFlags::empty()))
    }

    pub(crate) fn remove(&self) -> Result<()> {
        let removed = retry_on_intr(|| rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::empty()));
        gone_is_none(removed.at("remove", self.shown())).map(drop)
    }

    /// Creates a folder of this name. Returns false if the name existed.
    pub(crate) fn make_folder(&self) -> Result<bool> {
        let mode = Mode::RWXU | Mode::RWXG | Mode::RWXO;
        match retry_on_intr(|| rustix::fs::mkdirat(&self.folder, &self.name, mode)) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(error).at("make the folder", self.shown()),
        }
    }

    pub(crate) fn remove_empty_folder(&self) -> Result<()> {
        match retry_on_intr(|| rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::REMOVEDIR)) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => Ok(()),
            Err(error) => Err(error).at("remove the folder", self.shown()),
        }
    }

    pub(crate) fn may_write(&self) -> bool {
        rustix::fs::accessat(&self.folder, &self.name, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
    }
}
