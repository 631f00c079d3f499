//! A premise: a file that an agent was shown in its turn, as a whole and because it asked for it. What it does next rests on it.
//!
//! This file says what a changed premise is, and what the agent is told. It does no I/O.
//!
//! What counts as shown: a read by MCP, the command line, a package or a file tool of the agent's program, and a command that names the file
//! and prints all of it. A part of a file, a search, and what a command opened without being told its name do not count.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use similar::{DiffOp, DiffTag, TextDiff};

use crate::every_byte;
use crate::file_state::FileState;
use crate::path::FilePath;
use tollgate_base::digest::Digest;
use tollgate_base::name::Agent;
use tollgate_base::visible::{ago, plain};

/// The length of a diff that is shown without being asked for.
const DIFF_LINES: usize = 20;

/// The time for a diff. A late answer would be worse than one without a diff.
const DIFF_TIME: Duration = Duration::from_millis(100);

/// The longest line of such a diff, in characters.
const LINE: usize = 200;

/// A file that an agent has read in its turn, and that somebody else has changed since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedPremise {
    /// The file.
    #[serde(with = "every_byte")]
    pub path: FilePath,
    /// When the agent was shown it.
    pub read: Timestamp,
    /// What it was then, or what the agent made of it since.
    pub known: FileState,
    /// What it is now.
    pub now: FileState,
    /// Who has changed it. `None`: a program that does not use tollgate.
    pub changed_by: Option<Agent>,
    /// The number of lines that differ, if both texts are known.
    pub lines: Option<usize>,
    /// The diff, of limited length, without a header.
    pub diff: Option<String>,
}

/// One of these files, in a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangedFile {
    /// The file, absolute.
    pub path: String,
    /// The SHA-256 of the file as the agent last knew it.
    #[schemars(schema_with = "hash_or_null")]
    pub baseline_hash: Option<Digest>,
    /// The SHA-256 of the file on disk. Null if there is no file.
    #[schemars(schema_with = "hash_or_null")]
    pub current_disk_hash: Option<Digest>,
    /// The agent that has changed it. Null if it was a program that does not use tollgate.
    #[schemars(schema_with = "name_or_null")]
    pub changed_by: Option<Agent>,
}

fn hash_or_null(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": ["string", "null"], "pattern": "^[0-9a-f]{64}$"})
}

fn name_or_null(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": ["string", "null"]})
}

impl ChangedPremise {
    pub(crate) fn in_report(&self) -> ChangedFile {
        ChangedFile {
            path: self.path.to_string(),
            baseline_hash: self.known.digest(),
            current_disk_hash: self.now.digest(),
            changed_by: self.changed_by.clone(),
        }
    }

    /// What happened: `` `api.ts`, which you read 40 s ago, was changed by `red` (2 lines)``. The path is shown as `path`.
    pub fn sentence(&self, path: &str, now: Timestamp) -> String {
        let path = plain(path);
        let done = match self.now {
            FileState::Absent => "deleted",
            FileState::Present(_) | FileState::Unreadable => "changed",
        };
        let who = match &self.changed_by {
            Some(agent) => format!("`{agent}`"),
            None => "a program that does not use tollgate".to_owned(),
        };
        let lines = match self.lines {
            Some(1) => " (1 line)".to_owned(),
            Some(lines) => format!(" ({lines} lines)"),
            None => String::new(),
        };
        format!("`{path}`, which you read {}, was {done} by {who}{lines}", ago(now, self.read))
    }

    /// The sentence as a note, with the diff if there is one.
    pub(crate) fn note(&self, path: &str, now: Timestamp) -> String {
        let mut note = format!("note: {}", self.sentence(path, now));
        for line in self.diff.iter().flat_map(|diff| diff.lines()) {
            let _ = write!(note, "\n{}", plain(line));
        }
        note
    }
}

/// What happened to the files on which a change would rest, and what to do.
pub(crate) fn words(files: &[ChangedPremise]) -> (Cow<'static, str>, &'static str) {
    let message = match files.len() {
        0 | 1 => {
            "A file that you have read in this turn was modified by another actor. Re-read required.".into()
        }
        count => format!(
            "{count} files that you have read in this turn were modified by other actors. Re-read required."
        )
        .into(),
    };
    (
        message,
        "Perform a new 'read_file' on each file under 'changed', check whether your change is still right, then write.",
    )
}

/// The number of lines that differ between two texts, and their diff of limited length. `None` if they are not text.
pub(crate) fn difference(old: &[u8], new: &[u8]) -> Option<(usize, String)> {
    let (old, new) = (str::from_utf8(old).ok()?, str::from_utf8(new).ok()?);
    if old.contains('\0') || new.contains('\0') {
        return None;
    }
    let diff = TextDiff::configure().timeout(DIFF_TIME).diff_lines(old, new);
    let changed = diff.ops().iter().filter(|op| op.tag() != DiffTag::Equal);
    let count = changed.map(|op| op.old_range().len().max(op.new_range().len())).sum();
    let text = diff.unified_diff().context_radius(1).missing_newline_hint(false).to_string();
    let mut lines: Vec<String> = text.lines().take(DIFF_LINES + 1).map(cut).collect();
    if lines.len() > DIFF_LINES {
        lines.truncate(DIFF_LINES - 1);
        lines.push(format!("... ({} lines more)", text.lines().count() - lines.len()));
    }
    Some((count, lines.join("\n")))
}

/// A line, cut if it is too long.
fn cut(line: &str) -> String {
    match line.char_indices().nth(LINE) {
        Some((at, _)) => format!("{}...", &line[..at]),
        None => line.to_owned(),
    }
}

/// The lines of the new text that differ from the old one, counted from 1: the first and the last of them. Lines that are gone are
/// where they were. `None` if the texts are the same, or are not text.
pub(crate) fn changed_lines(old: &[u8], new: &[u8]) -> Option<(usize, usize)> {
    let (old, new) = (str::from_utf8(old).ok()?, str::from_utf8(new).ok()?);
    let diff = TextDiff::configure().timeout(DIFF_TIME).diff_lines(old, new);
    let changed = || diff.ops().iter().filter(|op| op.tag() != DiffTag::Equal).map(DiffOp::new_range);
    let first = changed().map(|range| range.start + 1).min()?;
    let last = changed().map(|range| range.end.max(range.start + 1)).max()?;
    Some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn premise(now: FileState, changed_by: Option<&str>, lines: Option<usize>) -> ChangedPremise {
        ChangedPremise {
            path: FilePath::trusted("/w/api.ts".into()),
            read: Timestamp::UNIX_EPOCH,
            known: FileState::Present(Digest::of(b"one")),
            now,
            changed_by: changed_by.map(|name| name.parse().unwrap()),
            lines,
            diff: None,
        }
    }

    #[test]
    fn a_note_says_which_file_was_changed_when_it_was_read_and_by_whom() {
        let now = Timestamp::from_second(40).unwrap();
        let changed = FileState::Present(Digest::of(b"two"));
        for (premise, words) in [
            (
                premise(changed, Some("red"), Some(2)),
                "`api.ts`, which you read 40 s ago, was changed by `red` (2 lines)",
            ),
            (
                premise(changed, None, Some(1)),
                "`api.ts`, which you read 40 s ago, was changed by a program that does not use tollgate (1 line)",
            ),
            (
                premise(FileState::Absent, Some("red"), None),
                "`api.ts`, which you read 40 s ago, was deleted by `red`",
            ),
        ] {
            assert_eq!(premise.sentence("api.ts", now), words);
        }
    }

    #[test]
    fn a_diff_has_at_most_twenty_lines() {
        let text = |word: &str, lines: usize| (0..lines).map(|n| format!("{word} {n}\n")).collect::<String>();
        for (old, new, count) in [
            ("a\nb\nc\n".to_owned(), "a\nB\nc\n".to_owned(), 1),
            ("a\n".to_owned(), "a\nb\nc\n".to_owned(), 2),
            ("a\nb\n".to_owned(), String::new(), 2),
            (text("old", 9), text("new", 9), 9),
            (text("old", 500), text("new", 500), 500),
        ] {
            let (found, diff) = difference(old.as_bytes(), new.as_bytes()).unwrap();
            assert_eq!(found, count, "{diff}");
            assert!(diff.lines().count() <= DIFF_LINES, "{diff}");
            assert_eq!(diff.contains("lines more)"), count == 500, "{diff}");
            assert!(diff.starts_with("@@"), "{diff}");
        }
        assert_eq!(difference(b"\xff", b"a"), None);
        let long = difference(b"a\n", "x".repeat(10_000).as_bytes()).unwrap().1;
        assert!(long.len() < 400, "{}", long.len());
    }

    #[test]
    fn lines_are_counted_in_the_new_text() {
        for (old, new, lines) in [
            ("a\nb\nc\n", "a\nB\nc\n", Some((2, 2))),
            ("a\nb\nc\n", "A\nb\nC\n", Some((1, 3))),
            ("a\nb\nc\n", "a\nc\n", Some((2, 2))),
            ("", "a\nb\n", Some((1, 2))),
            ("a\n", "a\n", None),
        ] {
            assert_eq!(changed_lines(old.as_bytes(), new.as_bytes()), lines, "{old:?} {new:?}");
        }
    }
}
