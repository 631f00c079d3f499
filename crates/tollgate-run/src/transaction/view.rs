//! The private view of a command: an overlay on the workspace, which only the command and its children see.
//!
//! [`CommandView::enter`] runs in the child, before it executes its program. It changes nothing outside of the child.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, WatchFlags};
use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change, mount_remount,
};
use rustix::process::{Gid, Signal, Uid, chdir, set_parent_process_death_signal};
use rustix::thread::UnshareFlags;

use super::composite::{ROOT, escaped};
use crate::door::INNER;
use crate::sys::seccomp::Filter;
use crate::sys::{self, SignalMask};

/// What the child reports: how far it came.
pub(super) const ENTERED: u8 = b'e';
pub(super) const WATCHED: u8 = b'w';

/// What is watched in each folder: what tells a read from a write, and which of the two came first.
///
/// A read of an open file is reported by `ACCESS`, before the command can write what it read. A program that maps a file does
/// not read it in this way, and is reported when it closes the file.
pub(super) fn watched() -> WatchFlags {
    watched_in_search() | WatchFlags::ACCESS
}

/// What is watched during a search, which writes nothing: each file is reported once, when it is closed.
pub(super) fn watched_in_search() -> WatchFlags {
    WatchFlags::CLOSE_NOWRITE
        | WatchFlags::CLOSE_WRITE
        | WatchFlags::MODIFY
        | WatchFlags::CREATE
        | WatchFlags::DELETE
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::ONLYDIR
        | WatchFlags::DONT_FOLLOW
}

/// How to make the view. Everything is prepared before the child exists.
pub(super) struct CommandView {
    /// The workspace, absolute.
    pub(super) root: PathBuf,
    /// The folder of this run, relative to the workspace.
    pub(super) run: PathBuf,
    /// The folder in which the command runs, absolute.
    pub(super) folder: PathBuf,
    /// Folders and files of the workspace that are in the view as they are, relative to it.
    pub(super) passed: Vec<PathBuf>,
    /// What the command cannot change, absolute. Everything in the workspace is also passed.
    pub(super) closed: Vec<PathBuf>,
    /// Folders in these that the command can change, absolute.
    pub(super) open: Vec<PathBuf>,
    /// The folders to watch, relative to the workspace.
    pub(super) watched: Vec<PathBuf>,
    /// The folders in the root that are covered one by one. `None` if the workspace is covered as a whole.
    pub(super) composite: Option<Vec<PathBuf>>,
    /// Where reads are reported.
    pub(super) watcher: Option<OwnedFd>,
    /// Where the child reports.
    pub(super) report: File,
    pub(super) user: (Uid, Gid),
    /// The signals that the command blocks.
    pub(super) mask: Option<SignalMask>,
    /// Tells every process of the command that it is in a run.
    pub(super) mark: Filter,
}

impl CommandView {
    pub(super) fn enter(&self) -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        self.own_namespaces()?;
        mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
        // From now on, relative paths are those of the workspace itself, and absolute ones those of the view.
        chdir(&self.root)?;
        // A mount of its own stays writable in a folder that is closed.
        for open in self.open.iter().chain([&self.root.join(&self.run).join(INNER)]) {
            let here = self.here(open);
            mount_bind_recursive(here, here)?;
        }
        let covered = match &self.composite {
            None => {
                self.mount_overlay(Path::new(""), &self.root)?;
                self.root.clone()
            }
            Some(folders) => {
                let parts = self.root.join(&self.run).join(ROOT);
                folders.iter().try_for_each(|folder| self.mount_overlay(folder, &parts.join(folder)))?;
                parts
            }
        };
        for passed in &self.passed {
            mount_bind_recursive(passed, covered.join(passed))?;
        }
        if self.composite.is_some() {
            mount_bind_recursive(&covered, &self.root)?;
        }
        self.closed.iter().try_for_each(|path| self.close(path))?;
        self.mark.install_alone()?;
        (&self.report).write_all(&[ENTERED])?;
        if self.watch().is_ok() {
            (&self.report).write_all(&[WATCHED])?;
        }
        chdir(&self.folder)?;
        if let Some(mask) = &self.mask {
            mask.set()?;
        }
        Ok(())
    }

    /// Root needs no other user namespace, and without one it keeps all its rights. Others get one in which they are
    /// themselves.
    fn own_namespaces(&self) -> io::Result<()> {
        if sys::unshare(UnshareFlags::NEWNS).is_ok() {
            return Ok(());
        }
        sys::unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)?;
        let (uid, gid) = (self.user.0.as_raw(), self.user.1.as_raw());
        std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
        std::fs::write("/proc/self/setgroups", "deny")?;
        std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
    }

    /// A path as it is without the view.
    fn here<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.root).unwrap_or(path)
    }

    /// The command cannot change this.
    fn close(&self, path: &Path) -> io::Result<()> {
        if !path.starts_with(&self.root) {
            mount_bind_recursive(path, path)?;
        }
        // Without the flags that it has, the kernel refuses: it takes them for an attempt to get rid of them.
        let found = statvfs(path)?.f_flag;
        let kept = [
            (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
            (StatVfsMountFlags::NODEV, MountFlags::NODEV),
            (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
            (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
            (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
            (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
        ];
        let flags = kept.into_iter().filter(|(found_as, _)| found.contains(*found_as));
        let flags = flags.fold(MountFlags::BIND | MountFlags::RDONLY, |all, (_, flag)| all | flag);
        Ok(mount_remount(path, flags, c"")?)
    }

    /// Covers a folder of the workspace, at this path.
    fn mount_overlay(&self, folder: &Path, at: &Path) -> io::Result<()> {
        let mut options = b"userxattr,volatile".to_vec();
        for (option, path) in [
            (",lowerdir=", Path::new(".").join(folder)),
            (",upperdir=", self.run.join("upper").join(folder)),
            (",workdir=", self.run.join("work").join(folder)),
        ] {
            options.extend_from_slice(option.as_bytes());
            options.extend_from_slice(&escaped(&path));
        }
        let options = CString::new(options)?;
        mount("tollgate", at, "overlay", MountFlags::empty(), Some(options.as_c_str()))?;
        Ok(())
    }

    /// Watches the folders in the order of their numbers. The kernel numbers watches from 1.
    fn watch(&self) -> io::Result<()> {
        let Some(watcher) = &self.watcher else { return Err(io::ErrorKind::Unsupported.into()) };
        for (number, folder) in self.watched.iter().enumerate() {
            let watch = inotify::add_watch(watcher, self.root.join(folder), watched())?;
            if usize::try_from(watch).ok() != Some(number + 1) {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        Ok(())
    }
}

/// The folders of a run: two that the kernel needs for the layer, and one for the state of `tollgate` in the view.
pub(super) fn layer_folders(run: &Path) -> [PathBuf; 3] {
    [run.join("upper"), run.join("work"), run.join(INNER)]
}
