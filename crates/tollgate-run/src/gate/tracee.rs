//! The process that makes a call: what its arguments point to, and where its paths lead.
//!
//! A path means what it means to that process: from its working folder, below its root, in its mount namespace. What cannot
//! be read is an error, and the call is refused.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, Stat, openat, readlinkat};
use rustix::io::Errno;

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
    /// The workspace as an inode.
    inode: (u64, u64),
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
            inode: inode(&rustix::fs::stat(workspace)?),
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
        let start = match Path::new(text).is_absolute() {
            true => PathBuf::from("/"),
            false if at == libc::AT_FDCWD => PathBuf::from(link_text(&self.folder.join("cwd"))?),
            false => PathBuf::from(link_text(&self.folder.join("fd").join(at.to_string()))?),
        };
        if !start.is_absolute() {
            // An open pipe or socket: the kernel will say that it is no folder.
            return Ok(Lead::Outside(None));
        }
        let below = if self.shares(view)? { PathBuf::new() } else { self.folder.join("root") };
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
        Ok(match inside(view, &below, &path)? {
            Some(path) => Lead::Inside { given: path.clone(), path },
            None => Lead::Outside(None),
        })
    }

    /// Whether paths mean the same to the tracee as to the supervisor.
    fn shares(&self, view: &OwnView) -> io::Result<bool> {
        Ok(link_text(&self.folder.join("ns/mnt"))? == view.namespace
            && inode(&rustix::fs::stat(self.folder.join("root"))?) == view.root)
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

/// The path in the workspace that a tracee in another mount namespace means, if it means one. Its names for the folders
/// above may differ, so the workspace is recognised as an inode.
fn inside(view: &OwnView, below: &Path, path: &Path) -> io::Result<Option<PathBuf>> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |at: std::os::fd::BorrowedFd<'_>, path: &Path| openat(at, path, flags, Mode::empty());
    let mut folder = match open(CWD, &joined(below, parent)) {
        Ok(folder) => folder,
        // Then the call fails too.
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let here = inode(&rustix::fs::fstat(&folder)?);
    let mut names: Vec<&OsStr> = vec![name];
    let mut above = parent.components().rev();
    while inode(&rustix::fs::fstat(&folder)?) != view.inode {
        match above.next() {
            Some(Component::Normal(name)) => names.push(name),
            _ => return Ok(None),
        }
        folder = open(folder.as_fd(), Path::new(".."))?;
    }
    let path: PathBuf = view.workspace.iter().chain(names.into_iter().rev()).collect();
    // Something else may be mounted on a folder of the workspace there.
    let ours = path.parent().and_then(|parent| rustix::fs::stat(parent).ok());
    Ok((ours.as_ref().map(inode) == Some(here)).then_some(path))
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
