//! The disk: every system call that looks at or changes a guarded file is made here.
//!
//! A [`Spot`] is a name in an open folder, so that nobody can move the folder away between two steps. A [`Target`] is
//! the file found at a spot: it pins the inode, knows its hash, and can be held quiet. Nothing here decides anything.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Access, AtFlags, FileType, Gid, Mode, OFlags, RawMode, RenameFlags, Stat, Uid, XattrFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::digest::{Digest, Hasher};
use crate::error::{At, Result};
use crate::lock::Pauses;
use crate::settings::Durability;
use crate::stage::aside_name;
use crate::sys;

/// A folder that is open, and how it is called in messages.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    fd: Arc<OwnedFd>,
    shown: Arc<Path>,
    device: u64,
    one_journal: bool,
}

impl Folder {
    /// Opens by path, following links: for folders that are trusted, such as the root of the workspace.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd =
            retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty())).at("open the folder", path)?;
        Self::from_fd(fd, path)
    }

    /// Opens a folder below this one. `below` must be canonical: a symbolic link on the way, which can only have
    /// appeared since, is an error and not followed.
    pub(crate) fn open_below(&self, below: &Path) -> Result<Self> {
        let shown = self.shown.join(below);
        let fd = open_below(self.fd.as_fd(), below).at("open the folder", &shown)?;
        Self::from_fd(fd, &shown)
    }

    fn from_fd(fd: OwnedFd, shown: &Path) -> Result<Self> {
        let device = Inode::of(&rustix::fs::fstat(&fd).at("look at", shown)?).0;
        let one_journal = has_one_journal(&fd);
        Ok(Self { fd: Arc::new(fd), shown: shown.into(), device, one_journal })
    }

    pub(crate) fn spot(&self, name: impl Into<OsString>) -> Spot {
        Spot { folder: self.clone(), name: name.into() }
    }

    pub(crate) fn same_device(&self, other: &Self) -> bool {
        self.device == other.device
    }

    pub(crate) fn shown(&self) -> &Path {
        &self.shown
    }

    /// Whether flushing this folder makes everything durable that was done before to any folder of its file system.
    pub(crate) fn flushes_all(&self) -> bool {
        self.one_journal
    }

    /// Makes the names in this folder durable: without it, a power cut may undo renames that were acknowledged.
    pub(crate) fn flush(&self, durability: Durability) -> Result<()> {
        match durability {
            Durability::Fast => Ok(()),
            Durability::Durable => {
                retry_on_intr(|| rustix::fs::fsync(&self.fd)).at("flush the folder", &self.shown)
            }
        }
    }

    /// Whether files made here get something from the folder that files made elsewhere would not: its group, its ACL.
    pub(crate) fn marks_new_files(&self) -> Result<bool> {
        let stat = rustix::fs::fstat(&self.fd).at("look at", &self.shown)?;
        let setgid = Mode::from_raw_mode(stat.st_mode).contains(Mode::SGID);
        let mut nothing: [u8; 0] = [];
        let acl = rustix::fs::fgetxattr(&self.fd, c"system.posix_acl_default", &mut nothing).is_ok();
        Ok(setgid || acl)
    }

    /// The names in the folder, in no order.
    pub(crate) fn names(&self) -> Result<Vec<OsString>> {
        let read = || -> io::Result<Vec<OsString>> {
            let mut names = Vec::new();
            for entry in retry_on_intr(|| rustix::fs::Dir::read_from(&self.fd))? {
                use std::os::unix::ffi::OsStrExt;
                let entry = entry?;
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                if name != "." && name != ".." {
                    names.push(name.to_owned());
                }
            }
            Ok(names)
        };
        read().at("list the folder", &self.shown)
    }
}

/// ext4 and XFS write every change of names to one journal, in order, and a flush waits for the journal up to the last
/// change of what is flushed. Others (btrfs) log folder by folder.
#[cfg(target_os = "linux")]
fn has_one_journal(fd: &OwnedFd) -> bool {
    const EXT4: i64 = 0xEF53;
    const XFS: i64 = 0x5846_5342;
    #[allow(clippy::unnecessary_cast, reason = "its type depends on the architecture")]
    rustix::fs::fstatfs(fd).is_ok_and(|found| [EXT4, XFS].contains(&(found.f_type as i64)))
}

#[cfg(not(target_os = "linux"))]
fn has_one_journal(_: &OwnedFd) -> bool {
    false
}

#[cfg(target_os = "linux")]
fn open_below(root: BorrowedFd<'_>, below: &Path) -> io::Result<OwnedFd> {
    use rustix::fs::ResolveFlags;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let path = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    match retry_on_intr(|| rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)) {
        // Old kernels do not have it, some sandboxes forbid it.
        Err(Errno::NOSYS | Errno::PERM) => walk_below(root, below),
        answer => Ok(answer?),
    }
}

#[cfg(not(target_os = "linux"))]
fn open_below(root: BorrowedFd<'_>, below: &Path) -> io::Result<OwnedFd> {
    walk_below(root, below)
}

/// Opens each folder on the way without following links: the same as `openat2` with `RESOLVE_NO_SYMLINKS`, in steps.
fn walk_below(root: BorrowedFd<'_>, below: &Path) -> io::Result<OwnedFd> {
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

/// A name in an open folder. There may be a file of that name or not.
#[derive(Debug, Clone)]
pub(crate) struct Spot {
    folder: Folder,
    name: OsString,
}

/// Which file it is. Valid only while a descriptor pins it: some file systems give a freed number away at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inode(u64, u64);

impl Inode {
    #[allow(clippy::unnecessary_cast, reason = "their types depend on the system")]
    fn of(stat: &Stat) -> Self {
        Self(stat.st_dev as u64, stat.st_ino as u64)
    }
}

/// What a replacement takes after: the file, its mode and its owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Model(Inode, RawMode, u32, u32);

/// What stands at a spot.
#[derive(Debug)]
pub(crate) enum Found {
    Nothing,
    File(Target),
    /// A file that may not be read.
    Unreadable,
    /// Anything but a regular file.
    NotAFile,
}

/// What stands at a spot once nobody is writing it.
#[derive(Debug)]
pub(crate) enum Steady {
    Nothing,
    /// Held quiet, or quiet cannot be told here.
    File(Target),
    /// Somebody had it open for writing all the time.
    Busy(Target),
    Unreadable,
    NotAFile,
}

/// How a replacement was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Swap {
    /// In one step of the kernel.
    Exchanged,
    /// In two steps, where the file system cannot exchange: what is saved in between is lost.
    Renamed,
}

/// What came of giving a file a second name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Linked {
    Done,
    /// The name is taken.
    Taken,
    /// Files cannot have two names here.
    Impossible,
}

impl Spot {
    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    pub(crate) fn name(&self) -> &OsStr {
        &self.name
    }

    pub(crate) fn beside(&self, name: impl Into<OsString>) -> Self {
        self.folder.spot(name)
    }

    pub(crate) fn shown(&self) -> PathBuf {
        self.folder.shown.join(&self.name)
    }

    fn stat(&self) -> Result<Option<Stat>> {
        match retry_on_intr(|| rustix::fs::statat(&self.folder.fd, &self.name, AtFlags::SYMLINK_NOFOLLOW)) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error).at("look at", self.shown()),
        }
    }

    /// The inode that has this name now.
    pub(crate) fn inode(&self) -> Result<Option<Inode>> {
        Ok(self.stat()?.as_ref().map(Inode::of))
    }

    /// Opens the file for reading, without ever waiting on a FIFO or waking a device.
    pub(crate) fn open(&self) -> Result<Found> {
        match self.stat()? {
            None => return Ok(Found::Nothing),
            Some(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile => {
                return Ok(Found::NotAFile);
            }
            Some(_) => {}
        }
        // It may have become anything since the look: hence NONBLOCK and NOFOLLOW, and the second look below.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = match retry_on_intr(|| rustix::fs::openat(&self.folder.fd, &self.name, flags, Mode::empty()))
        {
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
        Ok(Found::File(Target { file: fd.into(), stat, shown: self.shown(), leased: false }))
    }

    /// Opens the file and makes it quiet.
    pub(crate) fn steady(&self, wait: Duration) -> Result<Steady> {
        let mut pauses = Pauses::lasting(wait);
        loop {
            let mut target = match self.open()? {
                Found::File(target) => target,
                Found::Nothing => return Ok(Steady::Nothing),
                Found::Unreadable => return Ok(Steady::Unreadable),
                Found::NotAFile => return Ok(Steady::NotAFile),
            };
            let quiet = target.quiet();
            // Only now does its length stand still.
            target.refresh()?;
            match quiet {
                Quiet::Held | Quiet::Unavailable => return Ok(Steady::File(target)),
                Quiet::Busy if !pauses.pause() => return Ok(Steady::Busy(target)),
                Quiet::Busy => {}
            }
        }
    }

    /// Makes a new file here.
    pub(crate) fn create(&self, mode: Mode) -> Result<Target> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = retry_on_intr(|| rustix::fs::openat(&self.folder.fd, &self.name, flags, mode))
            .at("create", self.shown())?;
        let stat = rustix::fs::fstat(&fd).at("look at", self.shown())?;
        Ok(Target { file: fd.into(), stat, shown: self.shown(), leased: false })
    }

    /// Trades the files of two names. Both must exist.
    pub(crate) fn swap(&self, other: &Self) -> Result<Swap> {
        match self.renameat(other, RenameFlags::EXCHANGE) {
            Ok(()) => Ok(Swap::Exchanged),
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => self.swap_in_steps(other),
            Err(error) => Err(error).at("exchange", other.shown()),
        }
    }

    /// For file systems without exchange: the file of `other` gets a second name, then ours takes its place.
    fn swap_in_steps(&self, other: &Self) -> Result<Swap> {
        let aside = self.beside(aside_name(&self.name));
        other.link_to(&aside).at("keep a link of", other.shown())?;
        match self.renameat(other, RenameFlags::empty()) {
            Ok(()) => {
                aside.renameat(self, RenameFlags::empty()).at("rename", aside.shown())?;
                Ok(Swap::Renamed)
            }
            Err(error) => {
                aside.remove()?;
                Err(error).at("replace", other.shown())
            }
        }
    }

    fn renameat(&self, to: &Self, flags: RenameFlags) -> rustix::io::Result<()> {
        retry_on_intr(|| {
            if flags.is_empty() {
                rustix::fs::renameat(&self.folder.fd, &self.name, &to.folder.fd, &to.name)
            } else {
                rustix::fs::renameat_with(&self.folder.fd, &self.name, &to.folder.fd, &to.name, flags)
            }
        })
    }

    /// Renames over whatever has the other name: only for names that tollgate itself made up.
    pub(crate) fn rename(&self, to: &Self) -> Result<()> {
        self.renameat(to, RenameFlags::empty()).at("rename", self.shown())
    }

    /// Renames, unless the other name is taken. Says whether it did; an error if there is nothing to rename.
    pub(crate) fn rename_new(&self, to: &Self) -> Result<bool> {
        match self.renameat(to, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => self.finish_rename(to),
            // A link fails if the name is taken, too; between the two steps the file has both names.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => match self.link_to(to) {
                Ok(()) => self.remove().map(|()| true),
                Err(Errno::EXIST) => self.finish_rename(to),
                Err(error) => Err(error).at("rename", self.shown()),
            },
            Err(error) => Err(error).at("rename", self.shown()),
        }
    }

    /// The other name is taken. If it is by the same file, a crash has fallen between the two steps of a renaming. Says
    /// whether it was so.
    fn finish_rename(&self, to: &Self) -> Result<bool> {
        let same = self.is_same_file(to)?;
        if same {
            self.remove()?;
        }
        Ok(same)
    }

    /// Whether both are names of one file.
    pub(crate) fn is_same_file(&self, other: &Self) -> Result<bool> {
        let inode = self.inode()?;
        Ok(inode.is_some() && inode == other.inode()?)
    }

    /// Gives the file a second name, unless that name is taken.
    pub(crate) fn link_new(&self, to: &Self) -> Result<Linked> {
        match self.link_to(to) {
            Ok(()) => Ok(Linked::Done),
            Err(Errno::EXIST) => Ok(Linked::Taken),
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Linked::Impossible),
            Err(error) => Err(error).at("create", to.shown()),
        }
    }

    fn link_to(&self, to: &Self) -> rustix::io::Result<()> {
        retry_on_intr(|| {
            rustix::fs::linkat(&self.folder.fd, &self.name, &to.folder.fd, &to.name, AtFlags::empty())
        })
    }

    /// Takes the name away. Nothing happens if there is none.
    pub(crate) fn remove(&self) -> Result<()> {
        match retry_on_intr(|| rustix::fs::unlinkat(&self.folder.fd, &self.name, AtFlags::empty())) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error).at("remove", self.shown()),
        }
    }

    /// Makes a folder of this name. Says whether it was new.
    pub(crate) fn make_folder(&self) -> Result<bool> {
        let mode = Mode::RWXU | Mode::RWXG | Mode::RWXO;
        match retry_on_intr(|| rustix::fs::mkdirat(&self.folder.fd, &self.name, mode)) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(error).at("make the folder", self.shown()),
        }
    }

    /// Takes a folder away if it is empty.
    pub(crate) fn remove_empty_folder(&self) -> Result<()> {
        match retry_on_intr(|| rustix::fs::unlinkat(&self.folder.fd, &self.name, AtFlags::REMOVEDIR)) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => Ok(()),
            Err(error) => Err(error).at("remove the folder", self.shown()),
        }
    }

    /// Whether this process may write the file, by its permissions and by who we are.
    pub(crate) fn may_write(&self) -> bool {
        rustix::fs::accessat(&self.folder.fd, &self.name, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
    }
}

/// What came of asking for quiet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quiet {
    /// Nobody has the file open for writing, and nobody gets it until we let go.
    Held,
    /// Somebody has it open for writing.
    Busy,
    /// The kernel gives no lease here: another user's file, a network file system, another kernel.
    Unavailable,
}

/// A regular file that is open. Its inode stays what it is, whatever happens to its names.
#[derive(Debug)]
pub(crate) struct Target {
    file: File,
    stat: Stat,
    shown: PathBuf,
    leased: bool,
}

/// Fits into the second-level cache together with what the hash needs.
const CHUNK: usize = 128 * 1024;

impl Target {
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn inode(&self) -> Inode {
        Inode::of(&self.stat)
    }

    pub(crate) fn as_model(&self) -> Model {
        Model(self.inode(), self.stat.st_mode, self.stat.st_uid, self.stat.st_gid)
    }

    pub(crate) fn is_at(&self, spot: &Spot) -> Result<bool> {
        Ok(spot.inode()? == Some(self.inode()))
    }

    /// The length at the time of opening.
    pub(crate) fn len(&self) -> u64 {
        u64::try_from(self.stat.st_size).unwrap_or(0)
    }

    /// How many names the file has now.
    #[allow(clippy::useless_conversion, reason = "its type depends on the architecture")]
    pub(crate) fn links(&self) -> Result<u64> {
        Ok(u64::from(rustix::fs::fstat(&self.file).at("look at", &self.shown)?.st_nlink))
    }

    /// Whether nobody at all may write it, by its mode. Root can write anything, so asking what one may is not enough.
    pub(crate) fn has_no_write_bit(&self) -> bool {
        !Mode::from_raw_mode(self.stat.st_mode).intersects(Mode::WUSR | Mode::WGRP | Mode::WOTH)
    }

    /// Asks once for quiet.
    pub(crate) fn quiet(&mut self) -> Quiet {
        match sys::take_read_lease(&self.file) {
            Ok(()) => {
                self.leased = true;
                Quiet::Held
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Quiet::Busy,
            Err(_) => Quiet::Unavailable,
        }
    }

    /// Whether nobody has asked to write since quiet was granted. Where it never was, this cannot be told: true.
    pub(crate) fn undisturbed(&self) -> bool {
        !self.leased || sys::has_read_lease(&self.file).unwrap_or(false)
    }

    /// Lets writers in again.
    pub(crate) fn let_go(&mut self) {
        if std::mem::take(&mut self.leased) {
            // Closing the file would do it too; an error here has no other remedy.
            let _ = sys::drop_lease(&self.file);
        }
    }

    /// Reads the bytes that the file had when it was opened, in order, whether or not it grows meanwhile.
    pub(crate) fn stream(&self, mut sink: impl FnMut(&[u8]) -> Result<()>) -> Result<Digest> {
        let mut hasher = Hasher::new();
        let mut buffer = vec![0; CHUNK.min(usize::try_from(self.len()).unwrap_or(CHUNK)).max(1)];
        let mut at = 0;
        while at < self.len() {
            let want = buffer.len().min(usize::try_from(self.len() - at).unwrap_or(CHUNK));
            match self.file.read_at(&mut buffer[..want], at) {
                Ok(0) => break,
                Ok(count) => {
                    hasher.update(&buffer[..count]);
                    sink(&buffer[..count])?;
                    at += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).at("read", &self.shown),
            }
        }
        Ok(hasher.finish())
    }

    pub(crate) fn hash(&self) -> Result<Digest> {
        self.stream(|_| Ok(()))
    }

    pub(crate) fn read(&self) -> Result<(Vec<u8>, Digest)> {
        let mut bytes = Vec::with_capacity(usize::try_from(self.len()).unwrap_or(0));
        let digest = self.stream(|chunk| {
            bytes.extend_from_slice(chunk);
            Ok(())
        })?;
        Ok((bytes, digest))
    }

    /// Looks at the length again: the file has been written to on purpose.
    pub(crate) fn refresh(&mut self) -> Result<()> {
        self.stat = rustix::fs::fstat(&self.file).at("look at", &self.shown)?;
        Ok(())
    }

    pub(crate) fn write(&self, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, 0).at("write", &self.shown)
    }

    /// Makes the bytes durable. Before an exchange this is a must: it gets no flush of its own from the file system, and
    /// a power cut would leave an empty file under the old name.
    pub(crate) fn flush(&self, durability: Durability) -> Result<()> {
        match durability {
            Durability::Fast => Ok(()),
            Durability::Durable => retry_on_intr(|| rustix::fs::fsync(&self.file)).at("flush", &self.shown),
        }
    }

    /// Gives this file the owner, mode and extended attributes of another. Says what could not be kept.
    pub(crate) fn take_after(&mut self, model: &Self) -> Result<Kept> {
        let model_stat = rustix::fs::fstat(&model.file).at("look at", &model.shown)?;
        let mut kept = Kept::All;
        // Owner before mode, because a change of owner clears the set-id bits.
        let (uid, gid) = (model_stat.st_uid, model_stat.st_gid);
        if (self.stat.st_uid, self.stat.st_gid) != (uid, gid) {
            let (owner, group) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
            let both = retry_on_intr(|| rustix::fs::fchown(&self.file, owner, group));
            if both.is_err() {
                // Only root may give files away. The group alone can often be kept.
                kept = Kept::NotOwner;
                let _ = retry_on_intr(|| rustix::fs::fchown(&self.file, None, group));
            }
        }
        let mode = Mode::from_raw_mode(model_stat.st_mode) & Mode::from_raw_mode(0o7777);
        retry_on_intr(|| rustix::fs::fchmod(&self.file, mode)).at("set the mode of", &self.shown)?;
        copy_attributes(&model.file, &self.file).at("copy the extended attributes to", &self.shown)?;
        self.refresh()?;
        Ok(kept)
    }

    /// Whether owner, mode and attributes' time stamp are still what they were when it was opened.
    pub(crate) fn same_owner_and_mode(&self, now: &Stat) -> bool {
        (self.stat.st_mode, self.stat.st_uid, self.stat.st_gid) == (now.st_mode, now.st_uid, now.st_gid)
    }

    pub(crate) fn stat_now(&self) -> Result<Stat> {
        rustix::fs::fstat(&self.file).at("look at", &self.shown)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// What of a file's metadata a replacement has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    All,
    /// The owner could not be kept, because only root may give files away.
    NotOwner,
}

/// Copies what belongs to the file rather than to its bytes: `user.*`, ACLs, SELinux labels. Not capabilities, which the
/// kernel itself takes away from a file that is written to.
fn copy_attributes(from: &File, to: &File) -> rustix::io::Result<()> {
    let list = |file: &File| -> rustix::io::Result<Vec<u8>> {
        let mut names = vec![0; 4096];
        loop {
            match rustix::fs::flistxattr(file, &mut names) {
                Ok(length) => {
                    names.truncate(length);
                    return Ok(names);
                }
                Err(Errno::RANGE) => names.resize(names.len() * 4, 0),
                // No attributes on this file system.
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Vec::new()),
                Err(error) => return Err(error),
            }
        }
    };
    let names = list(from)?;
    let split = |names: &[u8]| -> Vec<Vec<u8>> {
        names.split(|&byte| byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
    };
    let theirs = split(&names);
    for name in &theirs {
        if name == b"security.capability" {
            continue;
        }
        let mut value = vec![0; 64 * 1024];
        let length = match rustix::fs::fgetxattr(from, name.as_slice(), &mut value) {
            Ok(length) => length,
            Err(Errno::NODATA) => continue,
            Err(error) => return Err(error),
        };
        let copied = retry_on_intr(|| {
            rustix::fs::fsetxattr(to, name.as_slice(), &value[..length], XattrFlags::empty())
        });
        match copied {
            // Labels of the security modules and of root are theirs to set.
            Err(_) if !name.starts_with(b"user.") && !name.starts_with(b"system.posix_acl") => {}
            answer => answer?,
        }
    }
    for extra in split(&list(to)?) {
        if extra.starts_with(b"user.") && !theirs.contains(&extra) {
            rustix::fs::fremovexattr(to, extra.as_slice())?;
        }
    }
    Ok(())
}
