//! The small state files of this clone: read as a whole, and freed of what crashes left beside them.
//!
//! They are replaced as a whole by [`Disk::replace_file`](crate::folder::disk::Disk::replace_file).

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use jiff::Timestamp;

use tollgate_base::error::{At, Result};
use tollgate_base::file::{TEMPORARY, names_in};

/// A temporary file gets its name at once. One that is older than this was left by a process that died.
const LEFT_S: i64 = 3600;

/// All bytes of a file; `None` if it does not exist.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error).at("read", path),
    }
}

/// Deletes temporary files in this folder that crashes left.
pub(super) fn sweep(folder: &Path, now: Timestamp) -> Result<()> {
    for name in names_in(folder)? {
        let path = folder.join(&name);
        let is_old = |found: fs::Metadata| now.as_second() - found.ctime() > LEFT_S;
        if name.as_bytes().starts_with(TEMPORARY.as_bytes()) && fs::symlink_metadata(&path).is_ok_and(is_old)
        {
            // Nothing depends on it.
            let _ = fs::remove_file(&path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_temporary_files_are_deleted() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["seen.json", "tmp-1"] {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        let now = Timestamp::now();
        for (now, left) in [(now, 2), (now + std::time::Duration::from_secs(7200), 1)] {
            sweep(folder.path(), now).unwrap();
            assert_eq!(names_in(folder.path()).unwrap().len(), left);
        }
        assert_eq!(read(&folder.path().join("seen.json")).unwrap().unwrap(), b"x");
    }
}
