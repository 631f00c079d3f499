//! The process that makes a call: what its arguments point to, and where its paths lead.
//!
//! A path means what it means to that process: from its working folder, below its root, in its mount namespace. What cannot
//! be read is an error, and the call is refused.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, StatxFlags, openat, readlinkat, statx};
use rustix::io::Errno;

use crate::mounts::mounts_of;

/// The kernel's limit, including the final zero.
const PATH_MAX: usize = 4096;

/// The kernel's limit.
const MAX_LINKS: usize = 40;

/// The kernel's page size is a multiple of this, and no read goes beyond a page that may be missing.
const PAGE: u64 = 4096;

/// A thread that waits in a call.
pub(super) struct Tracee {
    folder: PathBuf,
}

/// Whether a symbolic link at the end of a path is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FinalLink {
    Follow,
    Keep,
}

impl FinalLink {
    pub(super) fn followed_if(follows: bool) -> Self {
        if follows { Self::Follow } else { Self::Keep }
    }
}

/// Where a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lead {
    /// To nothing in the workspace, but to this path, if that means the same to the supervisor.
    Outside(Option<PathBuf>),
    /// Into the workspace.
    Inside {
        /// The path as the supervisor would give it.
        given: PathBuf,
        /// The canonical path.
        path: PathBuf,
    },
}

/// What the supervisor compares a tracee with.
pub(super) struct OwnView {
    /// The canonical path of the workspace.
    workspace: PathBuf,
    /// The supervisor's own mount namespace.
    namespace: OsString,
    /// The supervisor's own root.
    root: (u64, u64),
    /// The program that supervises, as an inode.
    program: (u64, u64),
    /// The supervisor's own rights.
    rights: Vec<String>,
}

impl OwnView {
    pub(super) fn workspace(&self) -> &Path {
        &self.workspace
    }

    pub(super) fn new(workspace: &Path) -> io::Result<Self> {
        Ok(Self {
            workspace: workspace.to_owned(),
            namespace: link_text(Path::new("/proc/self/ns/mnt"))?,
            root: inode(&rustix::fs::stat("/proc/self/root")?),
            program: inode(&rustix::fs::stat("/proc/self/exe")?),
            rights: rights(Path::new("/proc/self"))?,
        })
    }
}

impl Tracee {
    pub(super) fn new(thread: u32) -> Self {
        Self { folder: PathBuf::from(format!("/proc/{thread}")) }
    }

    /// Which thread it is.
    pub(super) fn thread(&self) -> &Path {
        &self.folder
    }

    /// The text at an address, up to its final zero.
    pub(super) fn text(&self, address: u64) -> io::Result<OsString> {
        let memory = File::open(self.folder.join("mem"))?;
        let mut text = Vec::new();
        while text.len() < PATH_MAX {
            let at = address.wrapping_add(text.len() as u64);
            let mut chunk = [0; PAGE as usize];
            let want = (PAGE - at % PAGE) as usize;
            let count = memory.read_at(&mut chunk[..want], at)?;
            if count == 0 {
                return Err(Errno::FAULT.into());
            }
            if let Some(end) = chunk[..count].iter().position(|byte| *byte == 0) {
                text.extend_from_slice(&chunk[..end]);
                return Ok(OsString::from_vec(text));
            }
            text.extend_from_slice(&chunk[..count]);
        }
        Err(Errno::NAMETOOLONG.into())
    }

    /// The number at an address.
    pub(super) fn number(&self, address: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        File::open(self.folder.join("mem"))?.read_exact_at(&mut bytes, address)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Whether it is the program that supervises. Then it guards itself.
    pub(super) fn is_tollgate(&self, view: &OwnView) -> bool {
        rustix::fs::stat(self.folder.join("exe")).is_ok_and(|stat| inode(&stat) == view.program)
    }

    /// Whether the tracee has the rights of the supervisor: then the supervisor may act for it.
    pub(super) fn has_rights_of(&self, view: &OwnView) -> bool {
        self.shares(view).unwrap_or(false) && rights(&self.folder).is_ok_and(|rights| rights == view.rights)
    }

    /// Where a path leads that the tracee gives relative to an open folder, or to its working folder.
    pub(super) fn lead(&self, view: &OwnView, at: i32, text: &OsStr, last: FinalLink) -> io::Result<Lead> {
        let open = match Path::new(text).is_absolute() {
            true => None,
            false if at == libc::AT_FDCWD => Some(self.folder.join("cwd")),
            false => Some(self.folder.join("fd").join(at.to_string())),
        };
        let start = open.as_deref().map_or(Ok(OsString::from("/")), link_text).map(PathBuf::from)?;
        if !start.is_absolute() {
            // An open pipe or socket: the kernel will say that it is no folder.
            return Ok(Lead::Outside(None));
        }
        let below = if self.shares(view)? { PathBuf::new() } else { self.folder.join("root") };
        // In a mount that was taken away, an open folder has another path, or none.
        if let Some(open) = open.filter(|_| !below.as_os_str().is_empty())
            && place(&open, OFlags::empty())? != place(&joined(&below, &start), OFlags::empty())?
        {
            return if self.stays_in_proc(&open, text)? {
                Ok(Lead::Outside(None))
            } else {
                Err(Errno::ACCESS.into())
            };
        }
        let given = start.join(text);
        let Some(path) = self.walk(&below, start, Path::new(text), last)? else {
            return Ok(Lead::Outside(None));
        };
        if below.as_os_str().is_empty() {
            return Ok(match path.starts_with(&view.workspace) {
                // The supervisor's own path would lead to its own open files.
                true if given.starts_with("/proc") => Lead::Inside { given: path.clone(), path },
                true => Lead::Inside { given, path },
                false => Lead::Outside(Some(path)),
            });
        }
        Ok(match self.seen_from(view, &below, &path)? {
            Some(path) if path.starts_with(&view.workspace) => Lead::Inside { given: path.clone(), path },
            path => Lead::Outside(path),
        })
    }

    /// Whether this is the path of a file below an open folder of `/proc`, such as `self/mountinfo`, without a link out of it.
    /// Sandboxes open them through folders of mounts that they have left behind.
    fn stays_in_proc(&self, open: &Path, text: &OsStr) -> io::Result<bool> {
        const PROC: i64 = 0x9fa0;
        let opened = |at: BorrowedFd<'_>, path: &Path| {
            openat(at, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
        };
        let mut folder = openat(CWD, open, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        #[allow(clippy::unnecessary_cast, reason = "its type depends on the system")]
        if rustix::fs::fstatfs(&folder)?.f_type as i64 != PROC {
            return Ok(false);
        }
        let mut kind = FileType::Directory;
        for (number, part) in Path::new(text).components().enumerate() {
            let Component::Normal(name) = part else { return Ok(false) };
            folder = match number == 0 && (name == "self" || name == "thread-self") {
                true => opened(CWD, &self.folder)?,
                false => opened(folder.as_fd(), Path::new(name))?,
            };
            kind = FileType::from_raw_mode(rustix::fs::fstat(&folder)?.st_mode);
            if !matches!(kind, FileType::Directory | FileType::RegularFile) {
                return Ok(false);
            }
        }
        Ok(kind == FileType::RegularFile)
    }

    /// Whether it mounts for the supervisor, too, or nobody knows for whom.
    pub(super) fn is_in_namespace_of(&self, view: &OwnView) -> bool {
        link_text(&self.folder.join("ns/mnt")).map_or(true, |namespace| namespace == view.namespace)
    }

    /// Whether paths mean the same to the tracee as to the supervisor.
    fn shares(&self, view: &OwnView) -> io::Result<bool> {
        Ok(link_text(&self.folder.join("ns/mnt"))? == view.namespace
            && inode(&rustix::fs::stat(self.folder.join("root"))?) == view.root)
    }

    /// The supervisor's own path for a path of the tracee, whose mounts are others: the same place in the same file system. `None` if
    /// the supervisor sees no such place.
    fn seen_from(&self, view: &OwnView, below: &Path, path: &Path) -> io::Result<Option<PathBuf>> {
        if self.is_in_namespace_of(view) {
            // It has another root, and the same mounts.
            return Ok(Some(pushed(Path::new(&link_text(&self.folder.join("root"))?), path)));
        }
        let mounts = mounts_of(&self.folder)?;
        // What is mounted on the file itself shows another one.
        let own = match mounts.iter().any(|mount| mount.at == path) {
            true => place(&joined(below, path), OFlags::NOFOLLOW)?,
            false => None,
        };
        let (known, rest) = match (own, path.parent(), path.file_name()) {
            (Some(own), ..) => (Some((own, path)), Path::new("")),
            (None, Some(parent), Some(name)) => (
                place(&joined(below, parent), OFlags::DIRECTORY)?.map(|found| (found, parent)),
                Path::new(name),
            ),
            (None, ..) => return Ok(None),
        };
        // Otherwise the call fails.
        let Some(((inode, mount), known)) = known else { return Ok(None) };
        // Below a root of its own, a process cannot reach the mount in which that is, and the kernel does not list it.
        let mount = mounts.iter().find(|other| other.id == mount).ok_or(Errno::ACCESS)?;
        let in_mount = known.strip_prefix(&mount.at).map_err(|_| Errno::ACCESS)?;
        let place_in_system = mount.shown.join(in_mount);
        let mut seen = None;
        for ours in mounts_of(Path::new("/proc/self"))?.iter().filter(|ours| ours.device == mount.device) {
            let Ok(below) = place_in_system.strip_prefix(&ours.shown) else { continue };
            let path = pushed(&ours.at, below);
            // Otherwise something else is mounted there.
            if matches!(place(&path, OFlags::NOFOLLOW), Ok(Some((found, _))) if found == inode) {
                let path = pushed(&path, rest);
                if path.starts_with(&view.workspace) {
                    return Ok(Some(path));
                }
                seen.get_or_insert(path);
            }
        }
        Ok(seen)
    }

    /// Follows all links. The part of the path that does not exist is kept as written. `None` if the links have no end.
    fn walk(
        &self,
        below: &Path,
        start: PathBuf,
        text: &Path,
        last: FinalLink,
    ) -> io::Result<Option<PathBuf>> {
        let mut end = start;
        let mut rest: Vec<OsString> = Vec::new();
        push_parts(&mut rest, text);
        let mut links = 0;
        while let Some(part) = rest.pop() {
            if part == ".." {
                end.pop();
                continue;
            }
            end.push(&part);
            if last == FinalLink::Keep && rest.is_empty() {
                break;
            }
            let target = match self.own_name(&end) {
                Some(target) => target,
                None => match link_text(&joined(below, &end)) {
                    Ok(target) => PathBuf::from(target),
                    Err(_) => continue,
                },
            };
            links += 1;
            if links > MAX_LINKS {
                return Ok(None);
            }
            end.pop();
            if target.is_absolute() {
                end = PathBuf::from("/");
            }
            push_parts(&mut rest, &target);
        }
        Ok(Some(end))
    }

    /// What the kernel's names for "this process" mean for the tracee.
    fn own_name(&self, path: &Path) -> Option<PathBuf> {
        let own = path == Path::new("/proc/self") || path == Path::new("/proc/thread-self");
        own.then(|| self.folder.clone())
    }
}

/// A path with another one below it, which may be empty.
fn pushed(path: &Path, below: &Path) -> PathBuf {
    let below = below.components().filter(|part| *part != Component::RootDir);
    path.components().chain(below).collect()
}

/// What the kernel knows of the rights of a process: its users, its capabilities, and its profile.
fn rights(process: &Path) -> io::Result<Vec<String>> {
    let status = fs::read_to_string(process.join("status"))?;
    let kept = ["Uid:", "Gid:", "Groups:", "CapEff:"];
    let lines = status.lines().filter(|line| kept.iter().any(|name| line.starts_with(name)));
    let profile = fs::read_to_string(process.join("attr/current")).unwrap_or_default();
    Ok(lines.map(str::to_owned).chain([profile]).collect())
}

/// A path of the tracee, for the supervisor.
fn joined(below: &Path, path: &Path) -> PathBuf {
    match below.as_os_str().is_empty() {
        true => path.to_owned(),
        false => below.join(path.strip_prefix("/").unwrap_or(path)),
    }
}

/// A file or folder as an inode, and the mount through which this path leads to it. `None` if there is none.
fn place(path: &Path, last: OFlags) -> io::Result<Option<((u64, u64), u64)>> {
    let file = match openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC | last, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        file => file?,
    };
    let mount = statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    if mount.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
        return Err(Errno::NOSYS.into());
    }
    Ok(Some((inode(&rustix::fs::fstat(&file)?), mount.stx_mnt_id)))
}

fn inode(stat: &Stat) -> (u64, u64) {
    #[allow(clippy::unnecessary_cast, reason = "their types depend on the system")]
    (stat.st_dev as u64, stat.st_ino as u64)
}

fn link_text(path: &Path) -> io::Result<OsString> {
    Ok(OsString::from_vec(readlinkat(CWD, path, Vec::new())?.into_bytes()))
}

fn push_parts(rest: &mut Vec<OsString>, path: &Path) {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    let first = rest.len();
    rest.extend(parts);
    rest[first..].reverse();
}

/// Whether there is something at a path, and what.
pub(super) fn kind_at(path: &Path) -> Option<fs::FileType> {
    fs::symlink_metadata(path).ok().map(|found| found.file_type())
}
