//! Small files that processes share: replacing one whole, and listing a folder.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, RawMode, renameat, unlinkat};
use rustix::io::retry_on_intr;

use crate::error::{At, Result};
use crate::name::random_id;
use crate::private;
use crate::settings::Durability;
use crate::sys;

/// The prefix of temporary files. A file with this name was left by a crash and may be deleted.
pub const TEMPORARY: &str = "tmp-";

/// Gives a file these bytes: writes a temporary file in the same folder and renames it.
///
/// Readers see the old bytes or the new ones, never a part. With [`Durability::Durable`] that also holds after a power
/// failure, and the new bytes survive it.
pub fn replace_file(path: &Path, bytes: &[u8], durability: Durability) -> Result<()> {
    replace_file_with_mode(path, bytes, durability, None)
}

/// Replaces a file as a whole, with these permissions. Without them, the umask decides.
pub fn replace_file_with_mode(
    path: &Path,
    bytes: &[u8],
    durability: Durability,
    mode: Option<u32>,
) -> Result<()> {
    let temporary_name = OsString::from(format!("{TEMPORARY}{}", random_id()?));
    let temporary = path.with_file_name(&temporary_name);
    let is_durable = durability == Durability::Durable;
    let (folder, name) = private::parent(path).at("create", &temporary)?;
    let replace = || {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // From the start, so that the bytes of a private file are never public.
        let first_mode = Mode::from_raw_mode(mode.unwrap_or(0o666) as RawMode);
        let opened = private::open_in(&folder, &temporary_name, flags, first_mode);
        let mut file = File::from(opened.at("create", &temporary)?);
        if let Some(mode) = mode {
            // The umask may have removed some permissions.
            let permissions = fs::Permissions::from_mode(mode);
            file.set_permissions(permissions).at("change the permissions of", &temporary)?;
        }
        file.write_all(bytes).at("write", &temporary)?;
        if is_durable {
            // Otherwise a power failure could leave an empty file under the final name.
            sys::flush(&file).at("flush", &temporary)?;
        }
        retry_on_intr(|| renameat(&folder, &temporary_name, &folder, name)).at("rename", &temporary)
    };
    replace().inspect_err(|_| {
        // If this fails too, the name says that the file may be deleted.
        let _ = unlinkat(&folder, &temporary_name, AtFlags::empty());
    })?;
    match path.parent() {
        // Otherwise a power failure could bring the old bytes back.
        Some(folder) if is_durable => private::sync_folder(folder).at("flush the folder", folder),
        _ => Ok(()),
    }
}

/// Whether a flush of one folder also flushes the renames in all others. ext4 and XFS write all changes of names to one
/// journal, in order, and a flush waits for the journal. Others (btrfs) log each folder separately.
pub fn has_one_journal(folder: impl AsFd) -> bool {
    const EXT4: i64 = 0xEF53;
    const XFS: i64 = 0x5846_5342;
    #[allow(clippy::unnecessary_cast, reason = "its type depends on the architecture")]
    rustix::fs::fstatfs(folder).is_ok_and(|found| [EXT4, XFS].contains(&(found.f_type as i64)))
}

/// The names in a folder, in no particular order. Empty if the folder does not exist.
pub fn names_in(folder: &Path) -> Result<Vec<OsString>> {
    match private::names(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        names => names.at("list the folder", folder),
    }
}

/// The version that a state file in JSON has, whatever else a later version may have put into it.
pub(crate) fn version_in(json: &[u8]) -> Option<u32> {
    #[derive(serde::Deserialize)]
    struct OnlyVersion {
        version: u32,
    }
    serde_json::from_slice::<OnlyVersion>(json).ok().map(|found| found.version)
}

/// Repeats a call that a signal interrupted. The standard library does so for reads and writes only.
pub fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_can_be_replaced_with_other_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        for mode in [0o600, 0o755, 0o666] {
            replace_file_with_mode(&path, b"x", Durability::Fast, Some(mode)).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
        }
    }

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        for (bytes, durability) in [("one", Durability::Durable), ("two", Durability::Fast)] {
            replace_file(&path, bytes.as_bytes(), durability).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), bytes);
        }
        fs::create_dir(folder.path().join("taken")).unwrap();
        assert!(replace_file(&folder.path().join("taken"), b"x", Durability::Fast).is_err());
        let mut names = names_in(folder.path()).unwrap();
        names.sort();
        assert_eq!(names, ["a", "taken"], "no temporary file is left");
        assert_eq!(names_in(&folder.path().join("missing")).unwrap(), [""; 0]);
    }
}
