//! A three-way merge of texts: what the agent read, what it wanted to write, and what is on disk.
//!
//! This file does no I/O. Lines are compared as they are, so that no byte outside a conflict is changed, with one
//! exception: if the texts have different line endings, the merge has those of the disk. Otherwise every line would be a
//! conflict.

use std::borrow::Cow;

use diffy::{ConflictStyle, IncompleteHunkStyle, MergeOptions};
use jiff::Timestamp;
use similar::{ChangeTag, TextDiff};

use crate::path::FilePath;
use crate::turn::TEXT_PER_FILE;
use tollgate_base::digest::Digest;
use tollgate_base::name::Agent;

/// The number of lines that two texts may have between their common beginning and their common end. The time of a merge
/// grows with the square of it: with 10,000 lines it is about a second.
const LINES: usize = 10_000;

/// The number of lines that may differ in a merge during a refusal, which should come in milliseconds.
const QUICK_LINES: usize = 1_000;

/// A refused write, merged with what is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merge {
    /// The file.
    pub path: FilePath,
    /// The agent whose write was refused.
    pub agent: Agent,
    /// When its write was refused.
    pub refused: Timestamp,
    /// The bytes on disk with which it was merged. The merge may replace these and no others.
    pub disk: Digest,
    /// There are no conflicts.
    pub clean: bool,
    /// The merged text, with markers around every conflict.
    pub content: String,
    /// The diff from the disk to the merged text.
    pub diff: String,
    /// The bytes on disk.
    pub(crate) read: Vec<u8>,
    /// The number of the ledger line of the refusal.
    pub line: u64,
}

/// Why there is no merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoMerge {
    /// No refused write to this file is kept.
    NothingRefused,
    /// The bytes that the agent had read were not kept, or it had read none.
    NoBase,
    /// The bytes that the agent had read, or wanted to write, were kept and are not any more.
    NoLongerKept,
    /// There is no file on disk.
    NoFile,
    /// One of the texts is not UTF-8, or has a zero byte.
    NotText,
    /// One of the texts is too large, or too different from the others.
    TooLarge,
}

impl NoMerge {
    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::NothingRefused => "nothing_refused",
            Self::NoBase => "no_base",
            Self::NoLongerKept => "no_longer_kept",
            Self::NoFile => "no_file",
            Self::NotText => "not_text",
            Self::TooLarge => "too_large",
        }
    }
}

impl std::fmt::Display for NoMerge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NothingRefused => "no refused write to this file is kept",
            Self::NoBase => {
                "tollgate has not kept the text that the agent had read before its write was refused"
            }
            Self::NoLongerKept => "the bytes of the refused write are no longer kept",
            Self::NoFile => "the file does not exist, so there is nothing to merge with",
            Self::NotText => "only texts in UTF-8 can be merged",
            Self::TooLarge => "the texts are too large, or too different, to be merged",
        })
    }
}

/// The time that a merge may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MergeLimit {
    /// A second.
    Whole,
    /// Some milliseconds.
    Quick,
}

/// The merged text: `Ok` if it is clean, `Err` with markers around every conflict.
pub(crate) fn merge(
    base: &[u8],
    wanted: &[u8],
    disk: &[u8],
    limit: MergeLimit,
) -> Result<Result<String, String>, NoMerge> {
    let [base, wanted, disk] = [text(base)?, text(wanted)?, text(disk)?];
    let (base, wanted) = match line_ending(disk) {
        Some(ending) => (with_ending(base, ending), with_ending(wanted, ending)),
        None => (base.into(), wanted.into()),
    };
    let most = if limit == MergeLimit::Quick { QUICK_LINES } else { LINES };
    if different_lines(&base, &wanted) > most || different_lines(&base, disk) > most {
        return Err(NoMerge::TooLarge);
    }
    let mut options = MergeOptions::new();
    options.set_conflict_style(ConflictStyle::Diff3).set_incomplete_hunk_style(IncompleteHunkStyle::Git);
    let merged = options.merge(&base, &wanted, disk);
    Ok(merged.map_err(|conflicts| named(&conflicts)))
}

/// A unified diff from one text to another, with these names. `None` if one of them is not text, or too large.
pub fn diff_texts(one: &[u8], other: &[u8], names: [&str; 2]) -> Option<String> {
    let (one, other) = (text(one).ok()?, text(other).ok()?);
    let diff = TextDiff::configure().timeout(std::time::Duration::from_secs(1)).diff_lines(one, other);
    Some(diff.unified_diff().context_radius(3).header(names[0], names[1]).to_string())
}

/// The number of lines that are only in the other text, and only in the first. `None` if one of them is not text, or too large.
pub fn changed_lines(one: &[u8], other: &[u8]) -> Option<[usize; 2]> {
    let (one, other) = (text(one).ok()?, text(other).ok()?);
    let diff = TextDiff::configure().timeout(std::time::Duration::from_secs(1)).diff_lines(one, other);
    let count = |wanted| diff.iter_all_changes().filter(|change| change.tag() == wanted).count();
    Some([count(ChangeTag::Insert), count(ChangeTag::Delete)])
}

fn text(bytes: &[u8]) -> Result<&str, NoMerge> {
    if bytes.len() > TEXT_PER_FILE {
        return Err(NoMerge::TooLarge);
    }
    str::from_utf8(bytes).ok().filter(|text| !text.contains('\0')).ok_or(NoMerge::NotText)
}

/// The line ending of a text, if all its lines have the same.
fn line_ending(text: &str) -> Option<&'static str> {
    let (all, crlf) = (text.matches('\n').count(), text.matches("\r\n").count());
    match crlf {
        _ if all == 0 => None,
        0 => Some("\n"),
        _ if crlf == all => Some("\r\n"),
        _ => None,
    }
}

fn with_ending<'t>(text: &'t str, ending: &str) -> Cow<'t, str> {
    match (line_ending(text), ending) {
        (Some("\n"), "\r\n") => text.replace('\n', "\r\n").into(),
        (Some("\r\n"), "\n") => text.replace("\r\n", "\n").into(),
        _ => text.into(),
    }
}

/// The number of lines of both texts between their common beginning and their common end.
fn different_lines(one: &str, other: &str) -> usize {
    let (one, other): (Vec<&str>, Vec<&str>) =
        (one.split_inclusive('\n').collect(), other.split_inclusive('\n').collect());
    let start = one.iter().zip(&other).take_while(|(one, other)| one == other).count();
    let (one, other) = (&one[start..], &other[start..]);
    let end = one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count();
    one.len() + other.len() - 2 * end
}

/// Markers in the words of the agent: the merge of its own text is not "ours".
fn named(conflicts: &str) -> String {
    let line = |line: &str| {
        let (marker, ending) = match line.strip_suffix("\r\n") {
            Some(marker) => (marker, "\r\n"),
            None => line.strip_suffix('\n').map_or((line, ""), |marker| (marker, "\n")),
        };
        match marker {
            "<<<<<<< ours" => format!("<<<<<<< what you wanted{ending}"),
            "||||||| original" => format!("||||||| what you read{ending}"),
            ">>>>>>> theirs" => format!(">>>>>>> on disk{ending}"),
            _ => line.to_owned(),
        }
    };
    conflicts.split_inclusive('\n').map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(base: &str, wanted: &str, disk: &str) -> Result<Result<String, String>, NoMerge> {
        merge(base.as_bytes(), wanted.as_bytes(), disk.as_bytes(), MergeLimit::Whole)
    }

    fn clean(base: &str, wanted: &str, disk: &str) -> String {
        merged(base, wanted, disk).unwrap().unwrap()
    }

    /// Each row: what was read, what was wanted, what is on disk, and the merge.
    #[test]
    fn changes_in_different_places_are_both_kept() {
        let table = [
            ("a\nb\nc\n", "A\nb\nc\n", "a\nb\nC\n", "A\nb\nC\n"),
            ("a\nb\nc\n", "a\nb\nc\nd\n", "0\na\nb\nc\n", "0\na\nb\nc\nd\n"),
            // Both made the same change.
            ("a\nb\n", "a\nB\n", "a\nB\n", "a\nB\n"),
            // Only one of them made a change.
            ("a\n", "b\n", "a\n", "b\n"),
            ("a\n", "a\n", "b\n", "b\n"),
            // Deleted and changed, in different places.
            ("a\nb\nc\nd\n", "b\nc\nd\n", "a\nb\nc\nD\n", "b\nc\nD\n"),
            ("ä\nb\nc", "Ä\nb\nc", "ä\nb\nC", "Ä\nb\nC"),
        ];
        for (base, wanted, disk, expected) in table {
            assert_eq!(clean(base, wanted, disk), expected, "{base:?} {wanted:?} {disk:?}");
        }
    }

    #[test]
    fn changes_of_one_line_are_a_conflict_that_shows_all_three_texts() {
        let text = merged("a\nb\nc\n", "a\nmine\nc\n", "a\nyours\nc\n").unwrap().unwrap_err();
        assert_eq!(
            text,
            "a\n<<<<<<< what you wanted\nmine\n||||||| what you read\nb\n=======\nyours\n>>>>>>> on disk\nc\n"
        );
        for (wanted, disk) in [("a\nx\n", "a\ny\n"), ("x\n", ""), ("", "x\n")] {
            assert!(merged("a\n", wanted, disk).unwrap().is_err(), "{wanted:?} {disk:?}");
        }
    }

    #[test]
    fn a_missing_final_newline_stays_missing_and_markers_have_lines_of_their_own() {
        assert_eq!(clean("a\nb\nc\nd", "A\nb\nc\nd", "a\nb\nc\nD"), "A\nb\nc\nD");
        assert_eq!(clean("a\nb\nc\nd\n", "A\nb\nc\nd\n", "a\nb\nc\nd"), "A\nb\nc\nd");
        let text = merged("a", "b", "c").unwrap().unwrap_err();
        assert!(text.lines().any(|line| line == "======="), "{text}");
    }

    #[test]
    fn the_line_endings_of_the_disk_decide() {
        assert_eq!(clean("a\nb\nc\n", "A\nb\nc\n", "a\r\nb\r\nC\r\n"), "A\r\nb\r\nC\r\n");
        assert_eq!(clean("a\r\nb\r\nc\r\n", "A\nb\nc\n", "a\nb\nC\n"), "A\nb\nC\n");
        assert_eq!(clean("a\r\nb\r\nc\r\n", "A\r\nb\r\nc\r\n", "a\r\nb\r\nC\r\n"), "A\r\nb\r\nC\r\n");
        // Mixed: no line is touched that nobody changed.
        assert_eq!(clean("a\r\nb\nc\n", "A\r\nb\nc\n", "a\r\nb\nC\n"), "A\r\nb\nC\n");
        let text = merged("a\r\n", "b\r\n", "c\r\n").unwrap().unwrap_err();
        assert!(text.contains(">>>>>>> on disk"), "{text:?}");
    }

    #[test]
    fn what_cannot_be_merged_is_named() {
        let merge =
            |base: &[u8], wanted: &[u8], disk: &[u8], limit| merge(base, wanted, disk, limit).unwrap_err();
        for [base, wanted, disk] in [["\0", "a", "b"], ["a", "\0", "b"], ["a", "b", "\0"]] {
            let found = merge(base.as_bytes(), wanted.as_bytes(), disk.as_bytes(), MergeLimit::Whole);
            assert_eq!(found, NoMerge::NotText);
        }
        assert_eq!(merge(b"\xff", b"a", b"b", MergeLimit::Whole), NoMerge::NotText);
        let large = vec![b'x'; TEXT_PER_FILE + 1];
        assert_eq!(merge(b"a", &large, b"b", MergeLimit::Whole), NoMerge::TooLarge);
        let lines = |word: &str, count: usize| format!("{word}\n").repeat(count).into_bytes();
        assert_eq!(merge(b"", &lines("a", LINES + 1), b"", MergeLimit::Whole), NoMerge::TooLarge);
        assert_eq!(merge(b"", b"", &lines("a", QUICK_LINES + 1), MergeLimit::Quick), NoMerge::TooLarge);
    }

    /// Two agents each change some of 40 lines. Where a line and its neighbours were changed by one agent only, a clean
    /// merge has that change, and nothing else differs.
    #[test]
    fn a_clean_merge_has_every_change_and_no_other() {
        let mut seed = 7_u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut seen = 0;
        for _ in 0..500 {
            let base: Vec<String> = (0..40).map(|line| format!("line {line}\n")).collect();
            let (mut wanted, mut disk, mut both) = (base.clone(), base.clone(), base.clone());
            for line in 0..40 {
                match random(8) {
                    0 => wanted[line] = format!("wanted {line}\n"),
                    1 => disk[line] = format!("disk {line}\n"),
                    _ => {}
                }
                if wanted[line] != base[line] {
                    both[line].clone_from(&wanted[line]);
                } else if disk[line] != base[line] {
                    both[line].clone_from(&disk[line]);
                }
            }
            if let Ok(text) = merged(&base.concat(), &wanted.concat(), &disk.concat()).unwrap() {
                assert_eq!(text, both.concat());
                seen += 1;
            }
        }
        assert!(seen > 5, "{seen}");
    }
}
