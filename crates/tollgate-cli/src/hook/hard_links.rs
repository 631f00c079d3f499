//! Hard links: a file may have another name, and under that name it may be protected.

use std::collections::VecDeque;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tollgate::error::Fault;
use tollgate::workspace::Workspace;

/// The largest number of protected files that are looked at. A hook has a deadline.
const MOST: usize = 10_000;

/// The device and the number of a file.
type FileNumber = (u64, u64);

/// The protected files with several names, for one call. They are searched for once, and only if the call changes a file
/// with several names, which is rare.
#[derive(Debug, Default)]
pub(super) struct ProtectedLinks {
    protected: Option<Vec<(PathBuf, FileNumber)>>,
}

impl ProtectedLinks {
    /// The protected name of a file in this workspace, if it has one.
    pub(super) fn protected_name(
        &mut self,
        workspace: &Workspace,
        file: &Path,
    ) -> Result<Option<PathBuf>, Fault> {
        let Some(inode) = fs::symlink_metadata(file).ok().and_then(|found| linked(&found)) else {
            return Ok(None);
        };
        let protected = match &mut self.protected {
            Some(protected) => protected,
            none => {
                let folders = workspace.protected_within(&workspace.canonical(workspace.path())?);
                none.insert(search(folders, MOST))
            }
        };
        let other = protected.iter().find(|(path, there)| *there == inode && path != file);
        Ok(other.map(|(path, _)| path.clone()))
    }
}

/// The files with several names at these paths and below. Looks at this many files at most, at the given paths first.
fn search(paths: Vec<PathBuf>, most: usize) -> Vec<(PathBuf, FileNumber)> {
    let (mut open, mut found) = (VecDeque::from(paths), Vec::new());
    let mut left = most;
    while let Some(path) = open.pop_front().filter(|_| left > 0) {
        left -= 1;
        let Ok(there) = fs::symlink_metadata(&path) else { continue };
        // Nobody runs what is among the objects of git.
        if there.is_dir() && !path.ends_with("objects") {
            let inside = fs::read_dir(&path).into_iter().flatten().flatten();
            open.extend(inside.take(left).map(|entry| entry.path()));
        } else if let Some(inode) = linked(&there) {
            found.push((path, inode));
        }
    }
    found
}

/// The number of a file with several names.
fn linked(found: &Metadata) -> Option<FileNumber> {
    (found.is_file() && found.nlink() > 1).then(|| (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_looks_at_a_limited_number_of_files() {
        let keep = tempfile::tempdir().unwrap();
        let file = keep.path().join("file");
        fs::write(&file, "").unwrap();
        let folder = keep.path().join("folder");
        fs::create_dir(&folder).unwrap();
        (0..20).for_each(|name| fs::hard_link(&file, folder.join(name.to_string())).unwrap());
        // The folder is one of the ten.
        assert_eq!(search(vec![folder.clone()], 10).len(), 9);
        assert_eq!(search(vec![folder, file], 1_000).len(), 21);
    }
}
