//! Folders that only tollgate writes: `.tollgate/`, the private folders of a vault, the user's folder for state.
//!
//! A repository can bring files and symbolic links of any name, also below `.tollgate/`. So nothing here follows a link, on
//! no part of a path: each call opens the folder first and then works on a name in it, and a link on the way is an error.
//! Callers pass canonical paths, with names of their own below them.
//!
//! Invariant: no other code of the library deletes a tree.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

/// The error for a symbolic link where there must be none.
#[derive(Debug)]
pub(crate) struct LinkOnTheWay;

impl fmt::Display for LinkOnTheWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is a symbolic link, or leads through one")
    }
}

impl std::error::Error for LinkOnTheWay {}

/// How a folder is opened to work on names in it.
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

/// Opens a file. One that this creates is open to its user and group.
pub fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    Ok(open_with_mode(path, flags, Mode::from_raw_mode(0o660))?.into())
}

/// Opens a file. One that this creates gets this mode.
pub fn open_with_mode(path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    // The kernel accepts a mode only for what it creates.
    let mode = if flags.contains(OFlags::CREATE) { mode } else { Mode::empty() };
    #[cfg(target_os = "linux")]
    match retry_on_intr(|| rustix::fs::openat2(CWD, path, flags, mode, rustix::fs::ResolveFlags::NO_SYMLINKS))
    {
        // An old kernel, or a sandbox that forbids the call.
        Err(Errno::NOSYS | Errno::PERM) => {}
        opened => return opened.map_err(clear),
    }
    let (folder, name) = walk_to_parent(path)?;
    open_in(&folder, name, flags | OFlags::NOFOLLOW, mode)
}

/// Opens a folder.
pub fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    open_with_mode(path, FOLDER, Mode::empty())
}

/// The whole content of a file.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut open(path, OFlags::RDONLY)?, &mut bytes)?;
    Ok(bytes)
}

/// Makes a folder, if there is nothing of this name. What else is there is an error when it is used.
pub fn create_folder(path: &Path, mode: u32) -> io::Result<()> {
    let (folder, name) = parent(path)?;
    match retry_on_intr(|| rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(mode))) {
        Err(Errno::EXIST) => Ok(()),
        made => Ok(made?),
    }
}

/// The names in a folder, in no particular order.
pub fn names(path: &Path) -> io::Result<Vec<OsString>> {
    Ok(entries(&open_folder(path)?)?.into_iter().map(|(name, _)| name).collect())
}

/// Deletes a file. Of a symbolic link, deletes the link.
pub fn remove_file(path: &Path) -> io::Result<()> {
    let (folder, name) = parent(path)?;
    Ok(retry_on_intr(|| rustix::fs::unlinkat(&folder, name, AtFlags::empty()))?)
}

/// Gives a file another name, in place of what has that name.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    let ((old, from), (new, to)) = (parent(from)?, parent(to)?);
    Ok(retry_on_intr(|| rustix::fs::renameat(&old, from, &new, to))?)
}

/// Deletes a folder with everything in it. Links in it are deleted, never followed, and a link in place of the folder is an
/// error. The kernel leaves folders in the layer of a run that nobody may open.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    match parent(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        found => {
            let (folder, name) = found?;
            remove_tree_in(&folder, name)
        }
    }
}

fn remove_tree_in(parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
    let opened = match open_in(parent, name, FOLDER | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty()) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            // It is a folder, not a link, or the error would be another one.
            rustix::fs::chmodat(parent, name, Mode::RWXU, AtFlags::empty())?;
            open_in(parent, name, FOLDER | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())
        }
        opened => opened,
    };
    let folder = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    // Otherwise nothing in it can be deleted.
    rustix::fs::fchmod(&folder, Mode::RWXU)?;
    for (name, kind) in entries(&folder)? {
        match kind {
            FileType::Directory => remove_tree_in(&folder, &name)?,
            _ => match retry_on_intr(|| rustix::fs::unlinkat(&folder, &name, AtFlags::empty())) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            },
        }
    }
    match retry_on_intr(|| rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn entries(folder: &OwnedFd) -> io::Result<Vec<(OsString, FileType)>> {
    let mut found = Vec::new();
    for entry in retry_on_intr(|| Dir::read_from(folder))? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let kind = match entry.file_type() {
            // Some file systems do not say.
            FileType::Unknown => match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                // Deleted in the meantime.
                Err(_) => continue,
            },
            known => known,
        };
        found.push((name.to_owned(), kind));
    }
    Ok(found)
}

/// The folder of a path, open, and the name in it.
fn parent(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    let (folder, name) = split(path)?;
    Ok((open_folder(folder)?, name))
}

fn split(path: &Path) -> io::Result<(&Path, &OsStr)> {
    let both = path.parent().zip(path.file_name());
    both.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "it has no name"))
}

/// Opens the folders of a path one after the other.
fn walk_to_parent(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    let (folders, name) = split(path)?;
    let flags = FOLDER | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let start = if path.is_absolute() { "/" } else { "." };
    let mut fd = rustix::fs::openat(CWD, start, flags, Mode::empty())?;
    for part in folders.components() {
        match part {
            Component::Normal(part) => fd = open_in(&fd, part, flags, Mode::empty())?,
            Component::RootDir | Component::CurDir => {}
            _ => return Err(Errno::XDEV.into()),
        }
    }
    Ok((fd, name))
}

fn open_in(folder: impl AsFd, name: &OsStr, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    let folder = folder.as_fd();
    match retry_on_intr(|| rustix::fs::openat(folder, name, flags, mode)) {
        // The kernel's error for a link where a folder should be.
        Err(Errno::NOTDIR) if is_link(folder, name) => Err(clear(Errno::LOOP)),
        opened => opened.map_err(clear),
    }
}

fn clear(error: Errno) -> io::Error {
    match error {
        Errno::LOOP => io::Error::other(LinkOnTheWay),
        error => error.into(),
    }
}

fn is_link(folder: impl AsFd, name: &OsStr) -> bool {
    let found = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn is_refused_link(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|source| source.is::<LinkOnTheWay>())
    }

    #[test]
    fn a_tree_is_deleted_without_following_a_link() {
        let keep = tempfile::tempdir().unwrap();
        let top = keep.path().canonicalize().unwrap();
        let others = top.join("others");
        fs::create_dir_all(others.join("sub")).unwrap();
        fs::write(others.join("sub/precious"), "x").unwrap();
        fs::create_dir_all(top.join("tree/deep/closed")).unwrap();
        fs::write(top.join("tree/deep/closed/file"), "x").unwrap();
        symlink(&others, top.join("tree/deep/link")).unwrap();
        symlink(&others, top.join("tree/link")).unwrap();
        fs::set_permissions(top.join("tree/deep/closed"), fs::Permissions::from_mode(0o000)).unwrap();
        remove_tree(&top.join("tree")).unwrap();
        assert!(!top.join("tree").exists());
        assert!(others.join("sub/precious").exists());

        symlink(&others, top.join("alias")).unwrap();
        for path in ["alias", "alias/sub"] {
            let error = remove_tree(&top.join(path)).unwrap_err();
            assert!(is_refused_link(&error), "{path}: {error}");
        }
        assert!(others.join("sub/precious").exists());
        remove_tree(&top.join("missing/deeper")).unwrap();
    }

    #[test]
    fn no_call_follows_a_link_on_any_part_of_a_path() {
        let keep = tempfile::tempdir().unwrap();
        let top = keep.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("real/sub")).unwrap();
        fs::write(top.join("real/sub/file"), "x").unwrap();
        symlink(top.join("real"), top.join("alias")).unwrap();
        symlink(top.join("real/sub/file"), top.join("real/sub/second")).unwrap();
        let looped = |answer: io::Result<()>, what: &str| {
            let error = answer.unwrap_err();
            assert!(is_refused_link(&error), "{what}: {error}");
        };
        for path in ["alias/sub/file", "alias/sub/new", "real/sub/second"] {
            let path = top.join(path);
            looped(open(&path, OFlags::RDWR | OFlags::CREATE).map(drop), "open");
            looped(open(&path, OFlags::RDONLY).map(drop), "open to read");
        }
        let inside = top.join("alias/sub/file");
        looped(create_folder(&top.join("alias/sub/folder"), 0o700), "create");
        looped(names(&top.join("alias/sub")).map(drop), "list");
        looped(names(&top.join("alias")).map(drop), "list a link");
        looped(remove_file(&inside), "remove");
        looped(rename(&inside, &top.join("stolen")), "rename from");
        fs::write(top.join("mine"), "y").unwrap();
        looped(rename(&top.join("mine"), &inside), "rename to");
        // The fallback for kernels without `openat2` gives the same answers.
        looped(walk_to_parent(&inside).map(drop), "walk");
        assert!(walk_to_parent(&top.join("real/sub/file")).is_ok());
        assert!(walk_to_parent(&top.join("real/../mine/x")).is_err());
        assert_eq!(fs::read(top.join("real/sub/file")).unwrap(), b"x");
    }
}
