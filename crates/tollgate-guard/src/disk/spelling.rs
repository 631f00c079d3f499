//! How a folder spells a name.
//!
//! Some file systems find `App.conf` by the name `APP.CONF`, or `é` by its other form in Unicode: those of macOS and Windows, and on
//! Linux NTFS, exFAT, shared folders, and ext4 where a folder is set so. There, a file has one path for tollgate: the one that its
//! folder lists. Only the file system knows where this is so, and for which letters, and it may differ from folder to folder, so it
//! is asked each time.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use unicode_normalization::UnicodeNormalization;

/// The name that the folder lists for a file, if the file exists and that is not the name in its path.
pub(crate) fn listed_name(path: &Path) -> io::Result<Option<OsString>> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
    // The folder is listed only if the file system seems to take another name for this one.
    if !other_spellings(name).iter().any(|other| folder.join(other).symlink_metadata().is_ok()) {
        return Ok(None);
    }
    let inode = |path: &Path| path.symlink_metadata().map(|found| (found.dev(), found.ino()));
    let file = inode(path)?;
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let listed = entry?.file_name();
        if listed == name {
            return Ok(None);
        }
        names.push(listed);
    }
    let wanted = folded(name);
    if let Some(same) = names.iter().position(|listed| folded(listed) == wanted) {
        return Ok(Some(names.swap_remove(same)));
    }
    // The file system compares names in a way of its own.
    Ok(names.into_iter().find(|listed| inode(&folder.join(listed)).is_ok_and(|found| found == file)))
}

/// The name with small letters for capital ones and the reverse, and in the other forms of Unicode.
fn other_spellings(name: &OsStr) -> Vec<OsString> {
    let Some(text) = name.to_str() else { return Vec::new() };
    let mut others: Vec<String> = vec![text.chars().map(swap_case).collect()];
    if !text.is_ascii() {
        others.extend([text.nfc().collect(), text.nfd().collect()]);
    }
    others.into_iter().filter(|other| other != text).map(OsString::from).collect()
}

/// The other case of a letter that has exactly one.
fn swap_case(letter: char) -> char {
    fn only(mut letters: impl Iterator<Item = char>) -> Option<char> {
        letters.next().filter(|_| letters.next().is_none())
    }
    let other = if letter.is_lowercase() { only(letter.to_uppercase()) } else { only(letter.to_lowercase()) };
    other.unwrap_or(letter)
}

/// The name as file systems that ignore case compare it, nearly.
fn folded(name: &OsStr) -> String {
    name.to_string_lossy().nfd().flat_map(char::to_lowercase).nfc().collect()
}
