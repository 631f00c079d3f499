//! When a command starts, by the clock of the file system, and what there is.
//!
//! A file that nobody has changed since has an older time of change. Nothing has to be copied or hashed at the start.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, Stat};

use tollgate_base::error::{At, Result};

/// The number of names up to which the workspace is listed and its folders are watched. Beyond, that would take longer than
/// most commands.
const MOST_NAMES: usize = 20_000;

/// The time of change of a file, in nanoseconds since 1970.
pub(super) fn changed(found: &fs::Metadata) -> i128 {
    i128::from(found.ctime()) * 1_000_000_000 + i128::from(found.ctime_nsec())
}

/// The same, of a look from a folder.
pub(super) fn changed_at(found: &Stat) -> i128 {
    i128::from(found.st_ctime) * 1_000_000_000 + i128::from(found.st_ctime_nsec)
}

/// Now, by the clock of the file system. Every change from now on has this time or a later one; every earlier change has an
/// earlier one.
pub(super) fn now_on_disk(folder: &Path) -> Result<i128> {
    let path = folder.join("start");
    let mark = || -> io::Result<i128> {
        let file = File::create(&path)?;
        let first = changed(&file.metadata()?);
        let mut mode = 0o600;
        // Kernels before 6.13 advance the clock every few milliseconds only. Later ones give a new time to a file whose last
        // one was looked at.
        loop {
            mode ^= 0o040;
            file.set_permissions(fs::Permissions::from_mode(mode))?;
            let now = changed(&file.metadata()?);
            if now != first {
                return Ok(now);
            }
        }
    };
    mark().at("take the time of", &path)
}

/// The names in the workspace, without those in git directories, in tollgate's state and in folders that are not guarded.
#[derive(Default)]
pub(super) struct Names {
    folders: Vec<ListedFolder>,
    /// The names of everything but folders, each with a zero at its end.
    names: Vec<u8>,
    /// The number of each folder, from the first question about a path on: most runs ask nothing.
    numbers: OnceCell<HashMap<PathBuf, usize>>,
}

struct ListedFolder {
    /// Relative to the workspace.
    path: PathBuf,
    /// The part of all names that is in this folder.
    names: std::ops::Range<usize>,
    /// The same names, from the first question about one of them on.
    set: OnceCell<HashSet<Box<[u8]>>>,
}

impl Names {
    /// Lists the workspace. `None` if it has too many names.
    pub(super) fn list(root: &Path, left_out: &[PathBuf]) -> Result<Option<Self>> {
        let mut found = Self::default();
        let mut count = 0;
        let mut buffer = vec![MaybeUninit::uninit(); 32 * 1024];
        let mut next = vec![PathBuf::new()];
        while let Some(folder) = next.pop() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let path = root.join(&folder);
            // Otherwise it is gone, or closed to us and so to the command.
            let Ok(fd) = rustix::fs::openat(CWD, &path, flags, Mode::empty()) else { continue };
            let first = found.names.len();
            let mut entries = RawDir::new(&fd, &mut buffer);
            while let Some(entry) = entries.next() {
                let entry = entry.at("list the folder", &path)?;
                let name = entry.file_name().to_bytes();
                if matches!(name, b"." | b".." | b".git" | b".tollgate") {
                    continue;
                }
                count += 1;
                let kind = match entry.file_type() {
                    FileType::Unknown => kind_of(&path.join(OsStr::from_bytes(name))),
                    known => known,
                };
                if kind == FileType::Directory {
                    let below = folder.join(OsStr::from_bytes(name));
                    if !left_out.contains(&below) {
                        next.push(below);
                    }
                } else {
                    found.names.extend_from_slice(name);
                    found.names.push(0);
                }
            }
            if count > MOST_NAMES {
                return Ok(None);
            }
            let names = first..found.names.len();
            found.folders.push(ListedFolder { path: folder, names, set: OnceCell::new() });
        }
        Ok(Some(found))
    }

    /// All folders, relative to the workspace, in the order of their numbers.
    pub(super) fn folders(&self) -> impl Iterator<Item = &Path> {
        self.folders.iter().map(|folder| folder.path.as_path())
    }

    /// The folder with this number.
    pub(super) fn folder(&self, number: usize) -> Option<&Path> {
        self.folders.get(number).map(|folder| folder.path.as_path())
    }

    /// The number of the folder of this path, and its name there.
    pub(super) fn place<'a>(&self, path: &'a Path) -> Option<(usize, &'a OsStr)> {
        let number_all = || self.folders().map(Path::to_owned).zip(0..).collect();
        let numbers = self.numbers.get_or_init(number_all);
        let number = numbers.get(path.parent().unwrap_or(Path::new("")))?;
        Some((*number, path.file_name()?))
    }

    /// Whether there was something other than a folder at this path. `None` if nobody looked there.
    pub(super) fn has(&self, path: &Path) -> Option<bool> {
        let is_open = |part: &OsStr| part == ".git" || part == ".tollgate";
        if path.iter().any(is_open) {
            return None;
        }
        Some(self.place(path).is_some_and(|(folder, name)| self.has_in(folder, name)))
    }

    /// Whether there was something other than a folder with this name in the folder with this number.
    pub(super) fn has_in(&self, folder: usize, name: &OsStr) -> bool {
        let folder = &self.folders[folder];
        let names = || self.names[folder.names.clone()].split(|&byte| byte == 0);
        folder.set.get_or_init(|| names().map(Box::from).collect()).contains(name.as_bytes())
    }
}

fn kind_of(path: &Path) -> FileType {
    rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)
        .map_or(FileType::Unknown, |found| FileType::from_raw_mode(found.st_mode))
}
