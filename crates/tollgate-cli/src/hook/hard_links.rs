//! Hard links: a file may have another name, and under that name it may be protected.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tollgate::error::Fault;
use tollgate::workspace::Workspace;

/// The largest number of protected files that are looked at. A hook has a deadline.
const MOST: usize = 10_000;

/// The protected name of a file in this workspace, if it has one. Files with several names are rare, and only for these the
/// protected folders are searched.
pub(super) fn protected_name(workspace: &Workspace, file: &Path) -> Result<Option<PathBuf>, Fault> {
    let Some(found) = fs::symlink_metadata(file).ok().filter(|found| found.is_file() && found.nlink() > 1)
    else {
        return Ok(None);
    };
    let is_same = |other: &Metadata| (other.dev(), other.ino()) == (found.dev(), found.ino());
    let mut open = workspace.protected_within(&workspace.canonical(workspace.path())?);
    let mut looked_at = 0;
    while let Some(path) = open.pop() {
        let Ok(there) = fs::symlink_metadata(&path) else { continue };
        if is_same(&there) && path != file {
            return Ok(Some(path));
        }
        looked_at += 1;
        // Nobody runs what is among the objects of git.
        if there.is_dir() && !path.ends_with("objects") && looked_at < MOST {
            open.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
    }
    Ok(None)
}
