//! Folders that only tollgate writes: `.tollgate/`, the private folders of a vault, the user's folder for state.
//!
//! A repository can bring files and symbolic links of any name, also below `.tollgate/`. So nothing here follows a link, on
//! no part of a path: each call opens the folder first and then works on a name in it, and a link on the way is an error.
//! Callers pass canonical paths, with names of their own below them.
//!
//! Invariants: state is opened, made, listed, renamed and deleted here and nowhere else, and no other code of the library
//! deletes a tree. A test lists the files that may use the file system in another way.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawMode, RenameFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::sys;

/// The error for a symbolic link where there must be none.
#[derive(Debug)]
struct LinkOnTheWay;

impl fmt::Display for LinkOnTheWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is a symbolic link, or leads through one")
    }
}

impl std::error::Error for LinkOnTheWay {}

/// Whether an error of this module says that a path has a symbolic link.
pub fn is_link_error(error: &io::Error) -> bool {
    matches!(error.get_ref(), Some(source) if source.is::<LinkOnTheWay>())
}

/// A path with no links in the part of it that exists. For the user's own folders, which may be behind links of theirs.
pub fn without_links(path: &Path) -> PathBuf {
    let real = |above: &Path| Some(above.canonicalize().ok()?.join(path.strip_prefix(above).ok()?));
    let found = path.ancestors().find_map(real);
    // Without a slash at the end.
    found.map_or_else(|| path.to_owned(), |found| found.components().collect())
}

/// How a folder is opened to list, flush or change it.
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
    if let Some(opened) = sys::open_without_links(path, flags, mode) {
        return opened.map_err(clear);
    }
    if path == Path::new("/") || path == Path::new(".") {
        // No part of these is a name.
        return Ok(retry_on_intr(|| rustix::fs::openat(CWD, path, flags, mode))?);
    }
    let (folder, name) = walk_to_parent(path)?;
    open_in(&folder, name, flags | OFlags::NOFOLLOW, mode)
}

/// Opens a folder.
pub fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    open_with_mode(path, FOLDER, Mode::empty())
}

/// The whole content of a file. A pipe counts as empty.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path, OFlags::RDONLY | OFlags::NONBLOCK)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The whole content of a file, as text.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Gives a file these bytes, in place. For files on which nothing depends: after a crash it may have only some of them.
pub fn write(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    open(path, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?.write_all(bytes.as_ref())
}

/// Makes a folder, unless it exists. A program that works in it by its path, such as git or the kernel's overlay, then works in a
/// folder: a link of this name is an error.
pub fn create_folder(path: &Path, mode: u32) -> io::Result<()> {
    let (folder, name) = parent(path)?;
    match retry_on_intr(|| rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(mode as RawMode))) {
        Err(Errno::EXIST) if is_link(&folder, name) => Err(clear(Errno::LOOP)),
        Err(Errno::EXIST) => Ok(()),
        made => Ok(made?),
    }
}

/// Makes a folder and those above it.
pub fn create_folders(path: &Path, mode: u32) -> io::Result<()> {
    match (create_folder(path, mode), path.parent()) {
        (Err(error), Some(above)) if error.kind() == io::ErrorKind::NotFound => {
            create_folders(above, mode)?;
            create_folder(path, mode)
        }
        (made, _) => made,
    }
}

/// Makes the names in a folder survive a power cut.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    sys::flush(open_folder(path)?)
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

/// Deletes an empty folder.
pub fn remove_folder(path: &Path) -> io::Result<()> {
    let (folder, name) = parent(path)?;
    Ok(retry_on_intr(|| rustix::fs::unlinkat(&folder, name, AtFlags::REMOVEDIR))?)
}

/// Gives a file another name, in place of what has that name.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    let ((old, from), (new, to)) = (parent(from)?, parent(to)?);
    Ok(retry_on_intr(|| rustix::fs::renameat(&old, from, &new, to))?)
}

/// Gives a file another name, unless that name is taken, or exchanges two files.
pub fn rename_with(from: &Path, to: &Path, flags: RenameFlags) -> io::Result<()> {
    let ((old, from), (new, to)) = (parent(from)?, parent(to)?);
    Ok(retry_on_intr(|| rustix::fs::renameat_with(&old, from, &new, to, flags))?)
}

/// Gives a file a second name, unless that name is taken.
pub fn link(from: &Path, to: &Path) -> io::Result<()> {
    let ((old, from), (new, to)) = (parent(from)?, parent(to)?);
    Ok(retry_on_intr(|| rustix::fs::linkat(&old, from, &new, to, AtFlags::empty()))?)
}

/// Makes a symbolic link, for other programs to follow.
pub fn make_symlink(target: &Path, path: &Path) -> io::Result<()> {
    let (folder, name) = parent(path)?;
    Ok(retry_on_intr(|| rustix::fs::symlinkat(target, &folder, name))?)
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

/// What is in a folder that nobody has listed by this descriptor.
fn entries(folder: &OwnedFd) -> io::Result<Vec<(OsString, FileType)>> {
    let mut found = Vec::new();
    sys::each_entry(folder, |name, kind| {
        let name = OsStr::from_bytes(name);
        let kind = match kind {
            _ if name == "." || name == ".." => return,
            // Some file systems do not say.
            FileType::Unknown => match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                // Deleted in the meantime.
                Err(_) => return,
            },
            known => known,
        };
        found.push((name.to_owned(), kind));
    })?;
    Ok(found)
}

/// The folder of a path, open for calls that take a name in it, and that name.
pub(crate) fn parent(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    let (folder, name) = split(path)?;
    Ok((open_with_mode(folder, sys::WAY, Mode::empty())?, name))
}

fn split(path: &Path) -> io::Result<(&Path, &OsStr)> {
    match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) if folder.as_os_str().is_empty() => Ok((Path::new("."), name)),
        (Some(folder), Some(name)) => Ok((folder, name)),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "it has no name")),
    }
}

/// Opens the folders of a path one after the other.
fn walk_to_parent(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    let (folders, name) = split(path)?;
    let flags = sys::WAY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let start = if path.is_absolute() { "/" } else { "." };
    let mut fd = rustix::fs::openat(CWD, start, flags, Mode::empty())?;
    for part in folders.components() {
        match part {
            Component::Normal(part) => fd = open_in(&fd, part, flags, Mode::empty())?,
            // No part before it is a link, so this is the folder above.
            Component::ParentDir => fd = open_in(&fd, OsStr::new(".."), flags, Mode::empty())?,
            Component::RootDir | Component::CurDir => {}
            _ => return Err(Errno::XDEV.into()),
        }
    }
    Ok((fd, name))
}

pub(crate) fn open_in(folder: impl AsFd, name: &OsStr, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
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
            assert!(is_link_error(&error), "{path}: {error}");
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
            assert!(is_link_error(&error), "{what}: {error}");
        };
        for path in ["alias/sub/file", "alias/sub/new", "real/sub/second"] {
            let path = top.join(path);
            looped(open(&path, OFlags::RDWR | OFlags::CREATE).map(drop), "open");
            looped(open(&path, OFlags::RDONLY).map(drop), "open to read");
        }
        let inside = top.join("alias/sub/file");
        looped(create_folder(&top.join("alias/sub/folder"), 0o700), "create");
        looped(create_folder(&top.join("alias"), 0o700), "a link in place of a folder");
        looped(create_folders(&top.join("alias/deep/er"), 0o700), "create all");
        looped(write(&inside, "y"), "write");
        looped(write(&top.join("real/sub/second"), "y"), "write to a link");
        looped(names(&top.join("alias/sub")).map(drop), "list");
        looped(names(&top.join("alias")).map(drop), "list a link");
        looped(sync_folder(&top.join("alias/sub")), "flush");
        looped(remove_folder(&top.join("alias/sub")), "remove a folder");
        looped(link(&inside, &top.join("stolen")), "link");
        looped(make_symlink(&top, &top.join("alias/sub/more")), "make a link");
        looped(rename_with(&inside, &top.join("stolen"), RenameFlags::NOREPLACE), "rename to a new name");
        looped(remove_file(&inside), "remove");
        looped(rename(&inside, &top.join("stolen")), "rename from");
        fs::write(top.join("mine"), "y").unwrap();
        looped(rename(&top.join("mine"), &inside), "rename to");
        // The fallback for kernels without `openat2` gives the same answers.
        looped(walk_to_parent(&inside).map(drop), "walk");
        assert!(open_folder(Path::new("/")).is_ok() && open_folder(Path::new(".")).is_ok());
        assert!(walk_to_parent(&top.join("real/sub/file")).is_ok());
        assert!(walk_to_parent(&top.join("real/../real/sub/file")).is_ok());
        looped(walk_to_parent(&top.join("alias/../real/sub/file")).map(drop), "walk back");
        assert!(walk_to_parent(&top.join("real/../mine/x")).is_err());
        assert_eq!(fs::read(top.join("real/sub/file")).unwrap(), b"x");
        assert_eq!(names(&top.join("real/sub")).unwrap().len(), 2);
    }

    #[test]
    fn the_users_folders_may_be_behind_links() {
        let keep = tempfile::tempdir().unwrap();
        let top = keep.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("real/state")).unwrap();
        symlink(top.join("real"), top.join("home")).unwrap();
        for (path, expected) in [
            ("home/state", "real/state"),
            ("home/missing/deep", "real/missing/deep"),
            ("real/state", "real/state"),
            ("none/x", "none/x"),
        ] {
            assert_eq!(without_links(&top.join(path)).as_os_str(), top.join(expected).as_os_str());
        }
    }
}
