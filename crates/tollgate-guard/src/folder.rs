//! Listing folders and looking at what is in them.
//!
//! A folder has no bytes to lose, so nothing here is compared with a baseline. But the border of the workspace holds: every
//! path is resolved first, and then opened below the root with links forbidden.

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType};

use crate::disk::Folder;
use crate::outcome::{Outcome, Refused};
use crate::path::FilePath;
use crate::place::{Located, Place};
use crate::refusal::{Reason, Refusal};
use crate::root::Root;
use crate::state_folder::STATE_FOLDER;
use tollgate_base::error::{At, Fault, Result};

/// The old names.
pub use {EntryKind as Kind, FolderEntry as Named};

/// What kind of thing a name in a folder is. Links are not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A FIFO, a socket, a device.
    Other,
}

/// A name in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderEntry {
    /// The name.
    pub name: OsString,
    /// What it is.
    pub kind: EntryKind,
}

/// The content of a folder, sorted by name. The state of tollgate itself is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The folder.
    pub path: FilePath,
    /// The names in it.
    pub entries: Vec<FolderEntry>,
}

/// A file or folder and its metadata.
#[derive(Debug, Clone)]
pub struct PathInfo {
    /// The canonical path.
    pub path: FilePath,
    /// The metadata.
    pub metadata: Metadata,
}

/// Lists a folder.
pub(crate) fn list(root: &Root, path: &Path) -> Result<Outcome<Listing>> {
    let (path, below) = match root.locate(path)? {
        Located::Inside(place) => (place.path, place.relative),
        Located::Root(path) => (path, PathBuf::new()),
        Located::Outside(path) => return Ok(outside(path)),
    };
    let entries = entries(root, &below)?;
    Ok(Outcome::Done(Listing { path, entries }))
}

/// The metadata of a file or folder. Follows a link that stays in the workspace.
pub(crate) fn look_at(root: &Root, path: &Path) -> Result<Outcome<PathInfo>> {
    let place = match root.locate(path)? {
        Located::Inside(place) => place,
        Located::Root(path) => {
            let metadata = std::fs::metadata(&path).at("look at", &path)?;
            return Ok(Outcome::Done(PathInfo { path, metadata }));
        }
        Located::Outside(path) => return Ok(outside(path)),
    };
    let missing = || Fault::Missing { what: format!("`{}`", place.path) };
    if !place.missing.is_empty() {
        return Err(missing());
    }
    let folder = root.folder().open_below(place.relative.parent().unwrap_or(Path::new("")))?;
    match metadata_in(&folder, &place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(missing()),
        answer => {
            let metadata = answer.at("look at", &place.path)?;
            Ok(Outcome::Done(PathInfo { path: place.path, metadata }))
        }
    }
}

/// All files below a folder, relative to the workspace. Includes everything that is not a folder.
pub(crate) fn files_below(root: &Root, folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for FolderEntry { name, kind } in entries(root, &folder)? {
            let path = folder.join(name);
            if kind == EntryKind::Folder { folders.push(path) } else { found.push(path) }
        }
    }
    Ok(found)
}

fn entries(root: &Root, below: &Path) -> Result<Vec<FolderEntry>> {
    let folder = root.folder().open_below(below)?;
    let read = || -> io::Result<Vec<FolderEntry>> {
        let mut entries = Vec::new();
        for entry in Dir::read_from(folder.as_fd())? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." || (name == STATE_FOLDER && below.as_os_str().is_empty()) {
                continue;
            }
            let kind = match entry.file_type() {
                // Some file systems do not say.
                FileType::Unknown => {
                    match rustix::fs::statat(folder.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
                        Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                        // Deleted in the meantime.
                        Err(_) => continue,
                    }
                }
                known => known,
            };
            let kind = match kind {
                FileType::RegularFile => EntryKind::File,
                FileType::Directory => EntryKind::Folder,
                FileType::Symlink => EntryKind::Link,
                _ => EntryKind::Other,
            };
            entries.push(FolderEntry { name: name.to_owned(), kind });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    };
    read().at("list the folder", folder.shown())
}

fn outside<T>(path: FilePath) -> Outcome<T> {
    Outcome::Refused(Refused::unrecorded(Refusal::new(path, Reason::Outside)))
}

#[cfg(target_os = "linux")]
fn metadata_in(folder: &Folder, place: &Place) -> io::Result<Metadata> {
    use rustix::fs::{Mode, OFlags};
    // A handle that cannot read: it needs no permission on the file and does not wait for a FIFO.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(folder.as_fd(), &place.name, flags, Mode::empty())?;
    std::fs::File::from(fd).metadata()
}

#[cfg(not(target_os = "linux"))]
fn metadata_in(_: &Folder, place: &Place) -> io::Result<Metadata> {
    std::fs::symlink_metadata(place.path.as_path())
}
