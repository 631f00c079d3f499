//! The name of a task: its file name. Pure.
//!
//! Invariant: a [`TaskName`] is one component of a path, ends in `.md`, is visible (no leading dot), has no control
//! characters, and fits into a file name. So it needs no further check wherever it is joined to a folder or printed.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

use crate::error::{Fault, Result};

/// The longest file name that Linux file systems take.
const LONGEST: usize = 255;

/// So many bytes of a long name are never cut, also not if a name beside it gets one beside it.
const SURE: usize = 160;

/// The name of a task: the name of its file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct TaskName(Arc<str>);

impl TaskName {
    /// A file name exactly as it lies in a folder; no `.md` is added.
    pub fn of_file(name: &str) -> Result<Self> {
        let wrong = if name.is_empty() || name == ".md" {
            "it is empty"
        } else if name.len() > LONGEST {
            "it is longer than 255 bytes"
        } else if name.contains('/') {
            "it has a `/`"
        } else if name.chars().any(char::is_control) {
            "it has a control character"
        } else if name.starts_with('.') {
            "it starts with a dot"
        } else if !name.ends_with(".md") {
            "it does not end in `.md`"
        } else {
            return Ok(Self(name.into()));
        };
        let shown: String = name.chars().take(80).collect();
        Err(Fault::invalid(format!("`{}` cannot be the name of a task: {wrong}", shown.escape_debug())))
    }

    /// The file's name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Without `.md`.
    pub fn stem(&self) -> &str {
        self.0.strip_suffix(".md").unwrap_or(&self.0)
    }

    /// Another name for the same task, for a folder where its own is taken: `x.md` becomes `x.<word>.md`. A long name
    /// is cut so that it still fits.
    pub fn beside(&self, word: &str) -> Self {
        let suffix = format!(".{word}.md");
        let mut end = self.stem().len().min(LONGEST - suffix.len());
        while !self.0.is_char_boundary(end) {
            end -= 1;
        }
        Self(format!("{}{suffix}", &self.0[..end]).into())
    }

    /// In which of 256 stripes it is. The same for every name beside it.
    pub(crate) fn stripe(&self) -> u8 {
        let mut stem = self.stem();
        while let Some((before, word)) = stem.rsplit_once('.') {
            let (kind, digits) = word.split_at_checked(2).unwrap_or((word, ""));
            if !matches!(kind, "c-" | "s-")
                || digits.len() != 16
                || !digits.bytes().all(|b| b.is_ascii_hexdigit())
            {
                break;
            }
            stem = before;
        }
        // The name beside a long one is cut.
        let bytes = stem.as_bytes();
        crc32fast::hash(&bytes[..bytes.len().min(SURE)]).to_le_bytes()[0]
    }
}

impl fmt::Display for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for TaskName {
    type Err = Fault;

    /// As people write it: with or without `.md`.
    fn from_str(text: &str) -> Result<Self> {
        if text.ends_with(".md") { Self::of_file(text) } else { Self::of_file(&format!("{text}.md")) }
    }
}

impl TryFrom<String> for TaskName {
    type Error = Fault;

    fn try_from(text: String) -> Result<Self> {
        Self::of_file(&text)
    }
}

impl Serialize for TaskName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_visible_component() {
        for (text, name) in
            [("x", "x.md"), ("x.md", "x.md"), ("Besuch bei Ö.md", "Besuch bei Ö.md"), ("a.b", "a.b.md")]
        {
            assert_eq!(text.parse::<TaskName>().unwrap().as_str(), name);
        }
        let long = format!("{}.md", "x".repeat(252));
        assert_eq!(TaskName::of_file(&long).unwrap().as_str().len(), 255);
        for bad in ["", ".md", "a/b", "../x", "..", ".hidden", "a\nb", "a\0b", "a\x1b[31m", &"x".repeat(253)]
        {
            let error = bad.parse::<TaskName>().unwrap_err().to_string();
            assert!(!error.contains(|c: char| c.is_control()), "{error:?} is safe to print");
        }
        assert!(TaskName::of_file("x.txt").is_err());
    }

    #[test]
    fn the_name_beside_fits_and_is_in_the_same_stripe() {
        let name: TaskName = "x".parse().unwrap();
        assert_eq!(name.beside("c-1").as_str(), "x.c-1.md");
        let long = TaskName::of_file(&format!("{}.md", "ö".repeat(126))).unwrap();
        let beside = long.beside("c-0123456789abcdef");
        assert!(beside.as_str().len() <= 255 && TaskName::of_file(beside.as_str()).is_ok());
        assert_eq!(long.stripe(), beside.stripe());
        assert_eq!(long.stripe(), beside.beside("s-0123456789abcdef").stripe());
        assert_eq!(name.stripe(), name.beside("c-0123456789abcdef").stripe());
        assert_ne!(name.stripe(), name.beside("c-0123").stripe(), "a word that tollgate never makes");
    }
}
