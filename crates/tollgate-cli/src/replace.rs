//! Replacing a small file in a folder that may not exist yet: readers see the old bytes or the new ones, never a part.
//!
//! A private file is not flushed: after a power failure it may be the old one or empty, and counts as missing. Other files are
//! the user's own, so they are flushed.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tollgate::error::{At, Fault};
use tollgate::settings::Durability;
use tollgate_base::file::replace_file_with_mode;
use tollgate_base::private;

/// The permissions of a replaced file, and of the folders that are created for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileAccess {
    /// For this user alone.
    Private,
    /// As the umask says; an existing file keeps its permissions.
    Normal,
    /// For everybody to read and run.
    Executable,
}

/// Replaces a file. Creates missing folders.
///
/// A private file is tollgate's own, so its path has no links. A file of the user may be in a folder behind one: some people
/// keep their configuration in a repository and link to it.
pub(crate) fn replace_file(path: &Path, bytes: &[u8], access: FileAccess) -> Result<(), Fault> {
    let mode = match access {
        FileAccess::Private => Some(0o600),
        FileAccess::Normal => fs::metadata(path).ok().map(|old| old.permissions().mode() & 0o7777),
        FileAccess::Executable => Some(0o755),
    };
    let durability = if access == FileAccess::Private { Durability::Fast } else { Durability::Durable };
    let replace = || match (access, path.parent(), path.file_name()) {
        (FileAccess::Normal | FileAccess::Executable, Some(folder), Some(name)) => {
            let folder = fs::canonicalize(folder).at("open the folder", folder)?;
            replace_file_with_mode(&folder.join(name), bytes, durability, mode)
        }
        _ => replace_file_with_mode(path, bytes, durability, mode),
    };
    match (replace(), path.parent()) {
        (Err(Fault::Io { source, .. }), Some(folder)) if source.kind() == io::ErrorKind::NotFound => {
            make_folder(folder, access)?;
            replace()
        }
        (replaced, _) => replaced,
    }
}

/// Creates a folder and the missing folders above it.
pub(crate) fn make_folder(folder: &Path, access: FileAccess) -> Result<(), Fault> {
    match access {
        FileAccess::Private => private::create_folders(folder, 0o700),
        FileAccess::Normal | FileAccess::Executable => fs::create_dir_all(folder),
    }
    .at("create the folder", folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_with_its_folders_and_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a").join("b.json");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        replace_file(&path, b"one", FileAccess::Private).unwrap();
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"one".to_vec(), 0o600));
        assert_eq!(mode(&folder.path().join("a")), 0o700);
        replace_file(&path, b"two", FileAccess::Normal).unwrap();
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"two".to_vec(), 0o600));
        replace_file(&path, b"three", FileAccess::Executable).unwrap();
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"three".to_vec(), 0o755));
    }

    #[test]
    fn a_file_of_the_user_may_be_behind_a_link_and_a_private_one_may_not() {
        let folder = tempfile::tempdir().unwrap();
        let (top, real) = (folder.path().canonicalize().unwrap(), folder.path().join("dotfiles"));
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, top.join("link")).unwrap();
        for path in ["link/settings.json", "link/new/settings.json"] {
            replace_file(&top.join(path), b"one", FileAccess::Normal).unwrap();
            assert_eq!(fs::read(top.join(path)).unwrap(), b"one");
            let fault = replace_file(&top.join(path), b"two", FileAccess::Private).unwrap_err();
            assert!(fault.to_string().contains("symbolic link"), "{fault}");
        }
    }
}
