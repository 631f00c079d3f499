//! Canonical paths.
//!
//! A [`FilePath`] is absolute and canonical: it has no `.`, no `..` and no symbolic link. All spellings of a file's path
//! give the same `FilePath`, and a file that does not exist has one too. [`escape`] writes any path as one word of ASCII,
//! for file names and journals.

use std::ffi::OsString;
use std::fmt;
use std::ops::Deref;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

use tollgate_base::error::{Fault, MissingKind};

/// An absolute, canonical path. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FilePath(Arc<Path>);

impl FilePath {
    /// A path that the caller knows to be canonical.
    pub(crate) fn trusted(path: PathBuf) -> Self {
        Self(path.into())
    }

    /// The fault that there is no such file.
    pub(crate) fn missing(&self) -> Fault {
        Fault::missing(MissingKind::Path, format!("`{self}`"))
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

impl Serialize for FilePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A path that JSON holds as one word, because paths need not be UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct EscapedPath(pub(crate) PathBuf);

impl Deref for EscapedPath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl From<EscapedPath> for String {
    fn from(path: EscapedPath) -> Self {
        escape(&path)
    }
}

impl TryFrom<String> for EscapedPath {
    type Error = &'static str;

    fn try_from(word: String) -> Result<Self, Self::Error> {
        unescape(&word).map(Self).ok_or("not a path")
    }
}

/// Writes any path as one ASCII word without `/` and control characters. [`unescape`] reverses it.
pub fn escape(path: &Path) -> String {
    let mut word = String::with_capacity(path.as_os_str().len() + 8);
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            // `=` is rare in paths, so most escaped paths stay easy to read.
            b'/' => word.push('='),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' => word.push(char::from(byte)),
            _ => word.push_str(&format!("%{byte:02x}")),
        }
    }
    word
}

/// Reverses [`escape`]. `None` if the word is not an escaped path.
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
}
