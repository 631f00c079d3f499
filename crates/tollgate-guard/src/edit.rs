//! Edits: old text to new text, several as one.
//!
//! This file does no I/O: bytes in, bytes out. The old text must occur exactly once, unless all occurrences are to be
//! replaced. All other bytes stay as they are, so a byte order mark and the line endings survive.

use std::io::{self, Write};
use std::path::Path;

use bstr::ByteSlice as _;

use crate::refusal::Reason;
use tollgate_base::error::{Fault, Result};

/// One replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The old text.
    pub old: String,
    /// The new text.
    pub new: String,
    /// How many times the old text may occur.
    pub occurrence: Occurrence,
}

/// How many times the old text of an edit may occur.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Occurrence {
    /// Exactly once.
    #[default]
    Once,
    /// At least once. All occurrences are replaced.
    All,
}

impl Edit {
    /// Replaces text that occurs exactly once.
    pub fn once(old: impl Into<String>, new: impl Into<String>) -> Self {
        Self { old: old.into(), new: new.into(), occurrence: Occurrence::Once }
    }

    /// Replaces all occurrences of a text.
    pub fn all(old: impl Into<String>, new: impl Into<String>) -> Self {
        Self { old: old.into(), new: new.into(), occurrence: Occurrence::All }
    }
}

/// The largest file that can be edited, in bytes, before and after the edit. An edit holds the file in memory several times. A larger file can still be
/// written whole.
pub const LARGEST_EDIT: u64 = 16 << 20;

/// The fault for a larger file.
pub(crate) fn too_large(path: &Path) -> Fault {
    let most = LARGEST_EDIT >> 20;
    let what = format!("`{}` is larger than {most} MiB, and larger files cannot be edited", path.display());
    Fault::invalid_with_hint(what, "write the whole file with `tollgate write`")
}

/// The number of characters that a refusal quotes from a text that was not found.
const QUOTED: usize = 80;

/// Makes the edits one after the other, each on the result of the previous one. The inner error is the reason for a
/// refusal.
pub(crate) fn apply(mut bytes: Vec<u8>, edits: &[Edit]) -> Result<std::result::Result<Vec<u8>, Reason>> {
    if edits.is_empty() {
        return Err(Fault::invalid("the list of edits is empty"));
    }
    for edit in edits {
        if edit.old.is_empty() {
            return Err(Fault::invalid("the old text of an edit is empty; to fill an empty file, write it"));
        }
        let (mut old, mut new) = (edit.old.clone(), edit.new.clone());
        let mut found = occurrences(&bytes, &old);
        if found == 0 && old.contains('\n') && !old.contains('\r') {
            // Tools show text with LF line endings, even if the file has CRLF.
            old = old.replace('\n', "\r\n");
            found = occurrences(&bytes, &old);
        }
        if uses_crlf(&bytes) && !new.contains('\r') {
            new = new.replace('\n', "\r\n");
        }
        if found == 0 || found > 1 && edit.occurrence == Occurrence::Once {
            let text = edit.old.chars().take(QUOTED).collect();
            return Ok(Err(Reason::TextNotFound { found, text }));
        }
        if new.len() > old.len() && (bytes.len() + found * new.len()) as u64 > LARGEST_EDIT {
            let most = LARGEST_EDIT >> 20;
            return Err(Fault::invalid(format!("the result of the edit would be larger than {most} MiB")));
        }
        bytes = bytes.replace(old, new);
    }
    Ok(Ok(bytes))
}

/// The number of places where the text occurs, not counting those that overlap. But a second one that overlaps the only
/// other one counts: nobody could tell which of the two is meant.
fn occurrences(bytes: &[u8], text: &str) -> usize {
    match (bytes.find_iter(text).count(), bytes.find(text)) {
        (1, Some(at)) if bytes[at + 1..].contains_str(text) => 2,
        (count, _) => count,
    }
}

fn uses_crlf(bytes: &[u8]) -> bool {
    let crlf = bytes.find_iter("\r\n").count();
    crlf > 0 && crlf == bytes.find_iter("\n").count()
}

/// The bytes of a file that can be edited. Takes no more than that.
#[derive(Default)]
pub(crate) struct EditBuffer(pub(crate) Vec<u8>);

impl Write for EditBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if (self.0.len() + bytes.len()) as u64 > LARGEST_EDIT {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(text: &[u8], edits: &[Edit]) -> std::result::Result<Vec<u8>, usize> {
        apply(text.to_vec(), edits).unwrap().map_err(|reason| match reason {
            Reason::TextNotFound { found, .. } => found,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn each_edit_works_on_the_result_of_the_previous_one() {
        let edits = [Edit::once("one", "two"), Edit::once("two three", "four")];
        assert_eq!(edited(b"one three", &edits), Ok(b"four".to_vec()));
        assert_eq!(edited(b"a-a-a", &[Edit::all("a", "aa")]), Ok(b"aa-aa-aa".to_vec()));
        assert_eq!(edited(b"aaa", &[Edit::all("aa", "b")]), Ok(b"ba".to_vec()));
    }

    #[test]
    fn the_old_text_must_occur_once() {
        assert_eq!(edited(b"x", &[Edit::once("y", "z")]), Err(0));
        assert_eq!(edited(b"x x", &[Edit::once("x", "z")]), Err(2));
        assert_eq!(edited(b"aaa", &[Edit::once("aa", "b")]), Err(2), "they overlap");
        assert_eq!(edited(b"a\r\na\r\na", &[Edit::once("a\na", "b")]), Err(2));
        assert_eq!(edited(b"x", &[Edit::all("y", "z")]), Err(0));
        assert_eq!(edited(b"a b", &[Edit::once("a", "c"), Edit::once("a", "d")]), Err(0));
    }

    #[test]
    fn line_endings_and_byte_order_mark_survive() {
        let text = b"\xef\xbb\xbfone\r\ntwo\r\n";
        let edits = [Edit::once("one\ntwo", "1\n2\n3")];
        assert_eq!(edited(text, &edits), Ok(b"\xef\xbb\xbf1\r\n2\r\n3\r\n".to_vec()));
        assert_eq!(edited(b"a\r\nb\nc", &[Edit::once("b", "x\ny")]), Ok(b"a\r\nx\ny\nc".to_vec()));
    }

    #[test]
    fn the_result_has_a_limited_size() {
        let text = vec![b'a'; 1 << 16];
        let all = |new: &str| apply(text.clone(), &[Edit::all("a", new)]);
        assert_eq!(all(&"b".repeat(200)).unwrap().unwrap().len(), 200 << 16);
        assert!(all(&"b".repeat(1000)).is_err());
    }

    #[test]
    fn bytes_that_are_not_text_stay() {
        assert_eq!(edited(b"\xff one \xfe", &[Edit::once("one", "two")]), Ok(b"\xff two \xfe".to_vec()));
    }

    #[test]
    fn an_empty_list_or_an_empty_old_text_is_a_fault() {
        assert!(apply(b"x".to_vec(), &[]).is_err());
        assert!(apply(b"x".to_vec(), &[Edit::once("", "y")]).is_err());
    }
}
