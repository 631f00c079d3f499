//! A view for a workspace that cannot be covered as a whole, because a sandbox has mounted something in it and the kernel does
//! not let an overlay hide that.
//!
//! Each folder in the root of the workspace gets an overlay of its own. Files in the root are copied. A folder with a mount in
//! it is passed through. All of that is put together in a folder of the run, which then covers the workspace.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Result};

use super::hash::hash;
use crate::mounts::mounts_of;

/// The parts of a view that is put together.
#[derive(Debug, Default)]
pub(super) struct Composite {
    /// The folders that get an overlay.
    pub(super) covered: Vec<PathBuf>,
    /// What was copied, with the hashes of files.
    pub(super) copied: HashMap<PathBuf, Option<Digest>>,
}

/// Where the parts are put together, in the folder of the run.
pub(super) const ROOT: &str = "root";

impl Composite {
    /// Makes the folders for the parts, and copies the files. Folders with a mount in them are added to `passed`.
    pub(super) fn prepare(root: &Path, run: &Path, passed: &mut Vec<PathBuf>) -> Result<Self> {
        let mut parts = Self::default();
        let put_together = run.join(ROOT);
        fs::create_dir(&put_together).at("make the folder", &put_together)?;
        let mounts = mounts_below(root);
        for entry in fs::read_dir(root).at("list the folder", root)? {
            let entry = entry.at("list the folder", root)?;
            let (name, real) = (PathBuf::from(entry.file_name()), entry.path());
            let part = put_together.join(&name);
            let kind = entry.file_type().at("look at", &real)?;
            if kind.is_dir() {
                make_like(&real, &part)?;
                if mounts.iter().any(|mount| mount.starts_with(&name)) && !passed.contains(&name) {
                    passed.push(name);
                } else if !passed.contains(&name) {
                    make_like(&real, &run.join("upper").join(&name))?;
                    make_like(&real, &run.join("work").join(&name))?;
                    parts.covered.push(name);
                }
            } else if mounts.contains(&name) {
                File::create(&part).at("create", &part)?;
                passed.push(name);
            } else if kind.is_symlink() {
                let target = fs::read_link(&real).at("read", &real)?;
                symlink(target, &part).at("create", &part)?;
                parts.copied.insert(name, None);
            } else if kind.is_file() {
                match copy(&real, &part) {
                    // The command may not read it either.
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => continue,
                    copied => copied.at("copy", &real)?,
                }
                parts.copied.insert(name, Some(hash(&part)?));
            }
        }
        // A parent of what is passed is covered or passed itself, so nothing is passed twice.
        passed.retain(|path| {
            path.iter().count() == 1 || parts.covered.iter().any(|name| path.starts_with(name))
        });
        Ok(parts)
    }

    /// Brings what the command changed in the root to its layer. Returns what it deleted there.
    pub(super) fn collect(&self, run: &Path, passed: &[PathBuf]) -> Result<Vec<PathBuf>> {
        let (from, upper) = (run.join(ROOT), run.join("upper"));
        for entry in fs::read_dir(&from).at("list the folder", &from)? {
            let name = PathBuf::from(entry.at("list the folder", &from)?.file_name());
            if !self.covered.contains(&name) && !passed.contains(&name) {
                let to = upper.join(&name);
                link_tree(&from.join(&name), &to).at("collect", &to)?;
            }
        }
        let is_gone = |name: &&PathBuf| fs::symlink_metadata(from.join(name)).is_err();
        Ok(self.copied.keys().filter(is_gone).cloned().collect())
    }
}

/// Makes a folder with the mode of another.
fn make_like(real: &Path, folder: &Path) -> Result<()> {
    fs::create_dir(folder).at("make the folder", folder)?;
    let mode = fs::metadata(real).at("look at", real)?.permissions();
    fs::set_permissions(folder, mode).at("set the mode of", folder)
}

/// Copies a file with its mode and its times.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to)?;
    let found = fs::metadata(from)?;
    let times = fs::FileTimes::new().set_accessed(found.accessed()?).set_modified(found.modified()?);
    File::open(to)?.set_times(times)
}

/// Gives the files of a tree second names in another one, so that processes can go on with the first.
fn link_tree(from: &Path, to: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(from)?;
    if !found.is_dir() {
        match fs::remove_file(to) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => return fs::hard_link(from, to),
        }
    }
    match fs::create_dir(to) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => fs::set_permissions(to, found.permissions())?,
    }
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        link_tree(&from.join(&name), &to.join(&name))?;
    }
    Ok(())
}

/// The mounts in this folder, relative to it, outermost first.
pub(super) fn mounts_below(root: &Path) -> Vec<PathBuf> {
    let all = mounts_of(Path::new("/proc/self")).unwrap_or_default();
    let below = all.iter().filter_map(|mount| mount.at.strip_prefix(root).ok());
    let mut mounts: Vec<PathBuf> =
        below.filter(|below| !below.as_os_str().is_empty()).map(Path::to_owned).collect();
    mounts.sort();
    mounts.dedup_by(|later, earlier| later.starts_with(&*earlier));
    mounts
}

/// A path in the options of an overlay.
pub(super) fn escaped(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &byte in path.as_os_str().as_bytes() {
        if b"\\,:".contains(&byte) {
            bytes.push(b'\\');
        }
        bytes.push(byte);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_the_options_of_an_overlay_are_escaped() {
        assert_eq!(escaped(Path::new(r"a,b:c\d")), br"a\,b\:c\\d");
    }
}
