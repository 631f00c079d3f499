//! Paths: how a file is called, whatever way it was spelled.
//!
//! A [`FilePath`] is absolute and canonical: no `.`, no `..`, no symbolic link on the way. Two spellings of one file
//! are one `FilePath`, and a path whose file is gone still has one. [`escape`] writes any path as one plain word, for
//! names and journals.

use std::borrow::Borrow;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An absolute, canonical path. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FilePath(Arc<Path>);

impl FilePath {
    /// A path that the caller knows to be canonical.
    pub(crate) fn trusted(path: PathBuf) -> Self {
        Self(path.into())
    }

    /// As a standard path.
    pub fn as_path(&self) -> &Path {
        &self.0
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

impl AsRef<Path> for FilePath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

/// So that a map from `FilePath` can be asked with a `&Path`.
impl Borrow<Path> for FilePath {
    fn borrow(&self) -> &Path {
        &self.0
    }
}

/// Writes any path as one word without `/`, control characters or anything that is not ASCII. [`unescape`] reads it.
pub fn escape(path: &Path) -> String {
    let mut word = String::with_capacity(path.as_os_str().len() + 8);
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            // Common in paths and free in file names, so that most escaped paths can be read at a glance.
            b'/' => word.push('='),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' => word.push(char::from(byte)),
            _ => word.push_str(&format!("%{byte:02x}")),
        }
    }
    word
}

/// Reads what [`escape`] wrote; `None` if it did not.
pub fn unescape(word: &str) -> Option<PathBuf> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'=' => b'/',
            b'%' => {
                let pair = [rest.next()?, rest.next()?];
                u8::from_str_radix(str::from_utf8(&pair).ok()?, 16).ok()?
            }
            _ => byte,
        });
    }
    Some(OsString::from_vec(bytes).into())
}

/// Takes `.` and `..` out of an absolute path by its words alone, for the part of a path that does not exist.
pub(crate) fn normalise(path: &Path) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for part in path.iter() {
        if part == OsStr::new("..") {
            plain.pop();
        } else if part != OsStr::new(".") && part != OsStr::new("/") {
            plain.push(part);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_path_survives_escaping() {
        for bytes in [b"src/a.rs".as_slice(), b"", b"a b/%=\n\0\xff/\xc3\xa9", b"../=x", &[b'/'; 300]] {
            let path = PathBuf::from(OsString::from_vec(bytes.to_vec()));
            let word = escape(&path);
            assert!(word.bytes().all(|b| b.is_ascii_graphic() && b != b'/'), "{word}");
            assert_eq!(unescape(&word), Some(path));
        }
        assert_eq!(escape(Path::new("src/a.rs")), "src=a.rs");
        assert_eq!(unescape("%zz"), None);
        assert_eq!(unescape("%f"), None);
    }

    #[test]
    fn words_alone() {
        assert_eq!(normalise(Path::new("/a/./b/../c")), Path::new("/a/c"));
        assert_eq!(normalise(Path::new("/../..")), Path::new("/"));
    }
}
