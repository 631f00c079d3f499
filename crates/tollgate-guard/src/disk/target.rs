//! A regular file that is open: its bytes, its metadata, and whether others write it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::fs::{Gid, Mode, RawMode, Stat, Uid, XattrFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::turn::Stamp;
use tollgate_base::digest::{Digest, Hasher};
use tollgate_base::error::{At, Result};
use tollgate_base::settings::Durability;
use tollgate_base::sys;

/// The identity of a file. Valid only while the file is open: some file systems reuse the number of a deleted file at
/// once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inode(u64, u64);

impl Inode {
    #[allow(clippy::unnecessary_cast, reason = "their types depend on the system")]
    pub(super) fn of(stat: &Stat) -> Self {
        Self(stat.st_dev as u64, stat.st_ino as u64)
    }
}

/// What a replacement copies: the file, its mode and its owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Model(Inode, RawMode, u32, u32);

impl Model {
    #[allow(clippy::unnecessary_cast, reason = "its type depends on the system")]
    pub(crate) fn mode(&self) -> u32 {
        self.1 as u32 & 0o7777
    }

    fn of(stat: &Stat) -> Self {
        Self(Inode::of(stat), stat.st_mode, stat.st_uid, stat.st_gid)
    }
}

/// The answer to a request for quiet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quiet {
    /// Nobody has the file open for writing, and nobody can open it for writing until we release it.
    Held,
    /// Another process has the file open for writing.
    Busy,
    /// The kernel grants no lease: another user's file, a network file system, another kernel.
    Unavailable,
}

/// An open regular file, or a symbolic link itself. It stays the same file, even if its names change.
#[derive(Debug)]
pub(crate) struct Target {
    file: File,
    stat: Stat,
    shown: PathBuf,
    leased: bool,
    /// The path in it, if it is a symbolic link.
    link: Option<Vec<u8>>,
}

/// Fits into the first-level cache, where the hash finds it. The fastest of 16 KiB to 1 MiB, as measured.
const CHUNK: usize = 32 * 1024;

impl Target {
    pub(super) fn new(file: File, stat: Stat, shown: PathBuf) -> Self {
        Self { file, stat, shown, leased: false, link: None }
    }

    pub(super) fn of_link(file: File, stat: Stat, shown: PathBuf, path: Vec<u8>) -> Self {
        Self { file, stat, shown, leased: false, link: Some(path) }
    }

    pub(crate) fn is_link(&self) -> bool {
        self.link.is_some()
    }

    pub(crate) fn inode(&self) -> Inode {
        Inode::of(&self.stat)
    }

    pub(crate) fn as_model(&self) -> Model {
        Model::of(&self.stat)
    }

    /// The length when the file was opened or refreshed.
    pub(crate) fn len(&self) -> u64 {
        u64::try_from(self.stat.st_size).unwrap_or(0)
    }

    /// Whether the file takes less space than its length: it has holes.
    #[allow(clippy::useless_conversion, reason = "its type depends on the system")]
    pub(crate) fn has_holes(&self) -> bool {
        // The unit is the same on all systems, whatever the size of a block.
        i128::from(self.stat.st_blocks) * 512 < i128::from(self.len())
    }

    /// Gives the file this length. What is added is a hole.
    pub(crate) fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len).at("write", &self.shown)
    }

    /// The number of names that the file has now.
    #[allow(clippy::useless_conversion, reason = "its type depends on the architecture")]
    pub(crate) fn links(&self) -> Result<u64> {
        Ok(u64::from(self.stat_now()?.st_nlink))
    }

    /// Whether the mode forbids everybody to write. Root may write anything, so `may_write` is not enough.
    pub(crate) fn has_no_write_bit(&self) -> bool {
        !Mode::from_raw_mode(self.stat.st_mode).intersects(Mode::WUSR | Mode::WGRP | Mode::WOTH)
    }

    pub(crate) fn quiet(&mut self) -> Quiet {
        if self.is_link() {
            // Nobody can write into a link.
            return Quiet::Held;
        }
        match sys::take_read_lease(&self.file) {
            Ok(()) => {
                self.leased = true;
                Quiet::Held
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Quiet::Busy,
            Err(_) => Quiet::Unavailable,
        }
    }

    /// Whether no process has tried to open the file for writing since quiet was granted. True if quiet was never granted.
    pub(crate) fn undisturbed(&self) -> bool {
        !self.leased || sys::has_read_lease(&self.file).unwrap_or(false)
    }

    /// Ends the quiet: writers may open the file again.
    pub(crate) fn let_go(&mut self) {
        if std::mem::take(&mut self.leased) {
            // If this fails, closing the file returns the lease.
            let _ = sys::drop_lease(&self.file);
        }
    }

    /// Reads the file up to the length that it had when it was opened, even if it grows in the meantime.
    pub(crate) fn stream(&self, mut sink: impl FnMut(&[u8]) -> Result<()>) -> Result<Digest> {
        let mut hasher = Hasher::default();
        self.copy(|chunk| {
            hasher.update(chunk);
            sink(chunk)
        })?;
        Ok(hasher.finish())
    }

    /// Reads the file like [`Self::stream`], without hashing it.
    pub(crate) fn copy(&self, mut sink: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        if let Some(path) = &self.link {
            return sink(path);
        }
        let mut buffer = vec![0; CHUNK.min(usize::try_from(self.len()).unwrap_or(CHUNK)).max(1)];
        let mut at = 0;
        while at < self.len() {
            let want = buffer.len().min(usize::try_from(self.len() - at).unwrap_or(CHUNK));
            match self.file.read_at(&mut buffer[..want], at) {
                Ok(0) => break,
                Ok(count) => {
                    sink(&buffer[..count])?;
                    at += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).at("read", &self.shown),
            }
        }
        Ok(())
    }

    /// What identifies the bytes of the file. `None` where a write may leave the time stamps as they are: only the usual
    /// file systems of local disks also update them for memory that is mapped.
    #[allow(clippy::unnecessary_cast, reason = "their types depend on the system")]
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        const EXT4: i64 = 0xEF53;
        const XFS: i64 = 0x5846_5342;
        const BTRFS: i64 = 0x9123_683E;
        let kind = rustix::fs::fstatfs(&self.file).ok()?.f_type as i64;
        let time =
            |seconds: i64, nanoseconds: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
        [EXT4, XFS, BTRFS].contains(&kind).then(|| Stamp {
            device: self.stat.st_dev as u64,
            inode: self.stat.st_ino as u64,
            size: self.len(),
            modified: time(self.stat.st_mtime as i64, self.stat.st_mtime_nsec as i64),
            changed: time(self.stat.st_ctime as i64, self.stat.st_ctime_nsec as i64),
        })
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

    /// Updates the length and the other metadata.
    pub(crate) fn refresh(&mut self) -> Result<()> {
        self.stat = self.stat_now()?;
        Ok(())
    }

    pub(crate) fn write(&self, bytes: &[u8], at: u64) -> Result<()> {
        self.file.write_all_at(bytes, at).at("write", &self.shown)
    }

    /// Makes the bytes durable. Mandatory before an exchange: the file system does not flush for it, so a power failure
    /// could leave an empty file under the old name.
    pub(crate) fn flush(&self, durability: Durability) -> Result<()> {
        match durability {
            Durability::Fast => Ok(()),
            Durability::Durable => sys::flush(&self.file).at("flush", &self.shown),
        }
    }

    /// Gives this file the owner, mode and extended attributes of another.
    pub(crate) fn take_after(&mut self, model: &Self) -> Result<Ownership> {
        let model_stat = model.stat_now()?;
        let mut ownership = Ownership::Kept;
        // Owner before mode, because a new owner clears the set-id bits.
        let (uid, gid) = (model_stat.st_uid, model_stat.st_gid);
        if (self.stat.st_uid, self.stat.st_gid) != (uid, gid) {
            let (owner, group) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
            let both = retry_on_intr(|| rustix::fs::fchown(&self.file, owner, group));
            if both.is_err() {
                // Only root may change the owner. The group can often be kept.
                ownership = Ownership::Lost;
                let _ = retry_on_intr(|| rustix::fs::fchown(&self.file, None, group));
            }
        }
        let mode = Mode::from_raw_mode(model_stat.st_mode) & Mode::from_raw_mode(0o7777);
        retry_on_intr(|| rustix::fs::fchmod(&self.file, mode)).at("set the mode of", &self.shown)?;
        copy_attributes(&model.file, &self.file).at("copy the extended attributes to", &self.shown)?;
        self.refresh()?;
        Ok(ownership)
    }

    /// Gives this file the times of another.
    pub(crate) fn take_times(&mut self, model: &Self) -> Result<()> {
        let stat = model.stat_now()?;
        let time = |tv_sec, tv_nsec| rustix::fs::Timespec { tv_sec, tv_nsec };
        let times = rustix::fs::Timestamps {
            last_access: time(stat.st_atime, stat.st_atime_nsec as _),
            last_modification: time(stat.st_mtime, stat.st_mtime_nsec as _),
        };
        retry_on_intr(|| rustix::fs::futimens(&self.file, &times)).at("set the times of", &self.shown)?;
        self.refresh()
    }

    /// When the file or its metadata last changed, in nanoseconds since 1970.
    #[allow(clippy::unnecessary_cast, reason = "their types depend on the system")]
    pub(crate) fn changed(&self) -> i128 {
        i128::from(self.stat.st_ctime as i64) * 1_000_000_000 + i128::from(self.stat.st_ctime_nsec as i64)
    }

    /// What a replacement of the file must copy now.
    pub(crate) fn model_now(&self) -> Result<Model> {
        Ok(Model::of(&self.stat_now()?))
    }

    fn stat_now(&self) -> Result<Stat> {
        rustix::fs::fstat(&self.file).at("look at", &self.shown)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// Whether a replacement has the owner of the file that it replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ownership {
    Kept,
    /// Only root may change the owner of a file.
    Lost,
}

/// Copies the extended attributes of one file to another (`user.*`, ACLs, SELinux labels), and removes `user.*` attributes
/// that the first one lacks. Capabilities are not copied, because the kernel itself removes them from a file that is
/// written.
fn copy_attributes(from: &File, to: &File) -> rustix::io::Result<()> {
    let list = |file: &File| -> rustix::io::Result<Vec<Vec<u8>>> {
        let mut names = vec![0; 4096];
        let length = loop {
            match rustix::fs::flistxattr(file, &mut names) {
                Err(Errno::RANGE) => names.resize(names.len() * 4, 0),
                // The file system has no attributes.
                Err(error) if sys::is_unsupported(error) => return Ok(Vec::new()),
                length => break length?,
            }
        };
        let names = names[..length].split(|&byte| byte == 0);
        Ok(names.filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
    };
    let theirs = list(from)?;
    for name in &theirs {
        // The marks of an overlay say where a copy came from.
        if name == b"security.capability" || name.starts_with(b"user.overlay.") {
            continue;
        }
        let mut value = vec![0; 64 * 1024];
        let length = match rustix::fs::fgetxattr(from, name.as_slice(), &mut value) {
            Ok(length) => length,
            Err(error) if error == sys::NO_ATTRIBUTE => continue,
            Err(error) => return Err(error),
        };
        let copied = retry_on_intr(|| {
            rustix::fs::fsetxattr(to, name.as_slice(), &value[..length], XattrFlags::empty())
        });
        match copied {
            // Only root or the security module may set the other attributes.
            Err(_) if !name.starts_with(b"user.") && !name.starts_with(b"system.posix_acl") => {}
            answer => answer?,
        }
    }
    for extra in list(to)? {
        if extra.starts_with(b"user.") && !theirs.contains(&extra) {
            rustix::fs::fremovexattr(to, extra.as_slice())?;
        }
    }
    Ok(())
}
