//! What must be written to undo changes: each file as if they had not been made, with all that others have done to it since.
//!
//! Changes of one file that follow each other are undone as one. If the file still holds what the last of them left, it gets back what
//! the first of them found. Otherwise a three-way merge takes them out of what is there now; if that is a conflict, nothing is planned
//! for the file. This file writes nothing.

use std::collections::BTreeMap;

use super::content::Contents;
use super::step::{Step, What};
use crate::change::{Action, Change, Expected};
use crate::merge::{MergeLimit, diff_texts, merge};
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;

/// Changes of one path that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The path, as the ledger writes it.
    pub path: String,
    /// What the first of them found; `None`: no file.
    pub before: Option<Digest>,
    /// What the last of them left.
    pub after: Option<Digest>,
    /// One of them deleted the file, and its user could execute it.
    pub executable: bool,
    /// The ledger lines of the first and the last of them.
    pub lines: [u64; 2],
}

impl Span {
    /// Whether the path holds the same as before.
    pub fn is_nothing(&self) -> bool {
        self.before == self.after
    }
}

/// The spans of the selected steps, for each path the oldest first. `steps` are all steps since the first selected one, the oldest
/// first: a step that is not selected, and a change by somebody else, ends a span.
pub fn spans(steps: &[Step], is_selected: impl Fn(&Step) -> bool) -> Vec<Span> {
    struct Chain {
        spans: Vec<Span>,
        goes_on: bool,
    }
    let mut chains: BTreeMap<&str, Chain> = BTreeMap::new();
    for step in steps {
        let selected = is_selected(step);
        for (path, before, after) in step.effects() {
            let chain = chains.entry(path).or_insert(Chain { spans: Vec::new(), goes_on: false });
            match chain.spans.last_mut() {
                _ if !selected => {}
                Some(span) if chain.goes_on && span.after == before => {
                    span.after = after;
                    span.executable |= step.executable;
                    span.lines[1] = step.seq;
                }
                _ => {
                    let (path, executable, lines) = (path.to_owned(), step.executable, [step.seq; 2]);
                    chain.spans.push(Span { path, before, after, executable, lines });
                }
            }
            chain.goes_on = selected;
        }
    }
    chains.into_values().flat_map(|chain| chain.spans).collect()
}

/// What undoing does to one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undone {
    /// The path, as the ledger writes it.
    pub path: String,
    /// What is on disk now; `None`: no file.
    pub disk: Option<Vec<u8>>,
    /// What comes of it.
    pub result: UndoResult,
}

impl Undone {
    /// The diff from what is on disk to what comes of it, under this name. `None` if there is none, or it is not text.
    pub fn diff(&self, name: &str) -> Option<String> {
        let UndoResult::Becomes { bytes, .. } = &self.result else { return None };
        let both = [&self.disk, bytes].map(|bytes| bytes.as_deref().unwrap_or_default());
        diff_texts(both[0], both[1], ["on disk", name])
    }
}

/// What comes of undoing changes of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UndoResult {
    /// The path already holds what it held before.
    Already,
    /// It gets these bytes, or is deleted. `merged`: somebody had changed the file since, and the merge is clean.
    Becomes {
        /// The bytes; `None`: no file.
        bytes: Option<Vec<u8>>,
        /// Whether it is a merge.
        merged: bool,
    },
    /// The file is moved back to this path.
    MovesBack {
        /// The path, as the ledger writes it.
        to: String,
    },
    /// It cannot be undone.
    Conflict(WhyNot),
}

/// Why changes of a path cannot be undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhyNot {
    /// Somebody has changed the same lines since. The text has markers around each conflict.
    SameLines(String),
    /// Somebody has changed the file since, and it is not text, or too large for a merge.
    NotText,
    /// Somebody has changed, created or deleted the file since, so that there is nothing to merge.
    Gone,
    /// Bytes that it takes are no longer kept.
    NotKept,
    /// A symbolic link has no bytes of its own.
    Link,
}

impl WhyNot {
    /// The text with a conflict, if there is one: what it would be without the change, and what is on disk.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::SameLines(text) => Some(text),
            _ => None,
        }
    }

    /// The word in JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Self::SameLines(_) => "same_lines",
            Self::NotText => "not_text",
            Self::Gone => "gone",
            Self::NotKept => "not_kept",
            Self::Link => "link",
        }
    }
}

impl std::fmt::Display for WhyNot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::SameLines(_) => "somebody has changed the same lines since",
            Self::NotText => "somebody has changed it since, and it is not text, or too large for a merge",
            Self::Gone => "somebody has created or deleted it since",
            Self::NotKept => "the bytes that it takes are no longer kept",
            Self::Link => "it is a symbolic link now",
        })
    }
}

/// A plan to undo changes of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The paths, in their order.
    pub files: Vec<Undone>,
    /// What must be written, all at once. Each change is made only if the file still is as it was when the plan was made.
    pub changes: Vec<Change>,
    /// Moves of folders among the changes, from and to, which a plan does not undo.
    pub folders: Vec<[String; 2]>,
}

impl Plan {
    /// Plans to undo the selected steps. `steps` are all steps since the first selected one, the oldest first.
    pub fn undo(
        contents: &Contents<'_>,
        steps: &[Step],
        is_selected: impl Fn(&Step) -> bool,
    ) -> Result<Self> {
        let spans = spans(steps, &is_selected);
        let mut plan = Self { files: Vec::new(), changes: Vec::new(), folders: Vec::new() };
        for step in steps.iter().filter(|step| is_selected(step)) {
            if let (What::Folder, Some(to)) = (step.what, &step.moved_to) {
                plan.folders.push([step.path.clone(), to.clone()]);
            }
        }
        let mut by_path: BTreeMap<&str, Vec<&Span>> = BTreeMap::new();
        for span in &spans {
            by_path.entry(&span.path).or_default().push(span);
        }
        let moved = moves_back(contents, steps, &is_selected, &by_path)?;
        for (path, spans) in by_path {
            // The other end of a move.
            if moved.values().any(|to| to == path) {
                continue;
            }
            let (file, change) = match moved.get(path) {
                Some(to) => back(contents, path, to)?,
                None => undo_path(contents, path, &spans)?,
            };
            plan.files.push(file);
            plan.changes.extend(change);
        }
        Ok(plan)
    }

    /// Plans to make changes that were refused, as if each file had been changed from its version `after` to its version `before`.
    pub(crate) fn of_spans(contents: &Contents<'_>, spans: &[Span]) -> Result<Self> {
        let mut plan = Self { files: Vec::new(), changes: Vec::new(), folders: Vec::new() };
        for span in spans {
            let (file, change) = undo_path(contents, &span.path, &[span])?;
            plan.files.push(file);
            plan.changes.extend(change);
        }
        Ok(plan)
    }

    /// The paths that cannot be undone, each with the reason.
    pub fn conflicts(&self) -> impl Iterator<Item = (&Undone, &WhyNot)> {
        self.files.iter().filter_map(|file| match &file.result {
            UndoResult::Conflict(why) => Some((file, why)),
            _ => None,
        })
    }
}

/// The moves that can be undone by moving back, from the new path to the old one: nothing else was done to either path among what is
/// undone, the file is as the move left it, and the old path is free. A file that is moved back keeps its mode.
fn moves_back(
    contents: &Contents<'_>,
    steps: &[Step],
    is_selected: impl Fn(&Step) -> bool,
    by_path: &BTreeMap<&str, Vec<&Span>>,
) -> Result<BTreeMap<String, String>> {
    let mut moves = BTreeMap::new();
    for step in steps.iter().filter(|step| is_selected(step)) {
        let (Some(to), What::File { after: Some(after), .. }) = (&step.moved_to, step.what) else { continue };
        let alone = |path: &str| {
            by_path.get(path).is_some_and(|spans| spans.len() == 1 && spans[0].lines == [step.seq; 2])
        };
        if alone(&step.path)
            && alone(to)
            && contents.on_disk(&step.path)?.is_none()
            && contents.on_disk(to)?.is_some_and(|found| found.digest == after)
        {
            moves.insert(to.clone(), step.path.clone());
        }
    }
    Ok(moves)
}

fn back(contents: &Contents<'_>, path: &str, to: &str) -> Result<(Undone, Option<Change>)> {
    let disk = contents.on_disk(path)?;
    let change = disk.as_ref().map(|disk| {
        Change::new(contents.path(path), Action::MoveTo(contents.path(to)))
            .expecting(Expected::Hash(disk.digest))
    });
    let result = UndoResult::MovesBack { to: to.to_owned() };
    Ok((Undone { path: path.to_owned(), disk: disk.and_then(|disk| disk.bytes), result }, change))
}

/// What a path would hold, while its spans are undone from the newest to the oldest.
enum Would {
    Hold(Option<Digest>),
    Merged(String),
}

fn undo_path(contents: &Contents<'_>, path: &str, spans: &[&Span]) -> Result<(Undone, Option<Change>)> {
    let disk = contents.on_disk(path)?;
    let digest = disk.as_ref().map(|disk| disk.digest);
    let bytes = disk.as_ref().and_then(|disk| disk.bytes.clone());
    let of = |digest: Digest| match &bytes {
        Some(bytes) if Some(digest) == disk.as_ref().map(|disk| disk.digest) => Ok(Some(bytes.clone())),
        _ => contents.find(digest),
    };
    let ends = |result| (Undone { path: path.to_owned(), disk: bytes.clone(), result }, None);
    let mut would = Would::Hold(digest);
    for span in spans.iter().rev().filter(|span| !span.is_nothing()) {
        would = match would {
            Would::Hold(held) if held == span.after => Would::Hold(span.before),
            Would::Hold(held) if held == span.before => Would::Hold(held),
            would => {
                let held = match would {
                    Would::Merged(text) => Some(text.into_bytes()),
                    Would::Hold(Some(digest)) => match of(digest)? {
                        Some(bytes) => Some(bytes),
                        None => return Ok(ends(UndoResult::Conflict(WhyNot::NotKept))),
                    },
                    Would::Hold(None) => None,
                };
                let (Some(held), Some(before), Some(after)) = (held, span.before, span.after) else {
                    return Ok(ends(UndoResult::Conflict(WhyNot::Gone)));
                };
                let (Some(before), Some(after)) = (of(before)?, of(after)?) else {
                    return Ok(ends(UndoResult::Conflict(WhyNot::NotKept)));
                };
                match merge(&after, &before, &held, MergeLimit::Whole) {
                    Ok(Ok(text)) => Would::Merged(text),
                    Ok(Err(text)) => {
                        return Ok(ends(UndoResult::Conflict(WhyNot::SameLines(text))));
                    }
                    Err(_) => return Ok(ends(UndoResult::Conflict(WhyNot::NotText))),
                }
            }
        };
    }
    let (new, merged) = match would {
        Would::Hold(held) if held == digest => return Ok(ends(UndoResult::Already)),
        Would::Hold(None) => (None, false),
        Would::Hold(Some(digest)) => match of(digest)? {
            Some(bytes) => (Some(bytes), false),
            None => return Ok(ends(UndoResult::Conflict(WhyNot::NotKept))),
        },
        Would::Merged(text) => (Some(text.into_bytes()), true),
    };
    if new.is_some() && disk.as_ref().is_some_and(|disk| disk.is_link) {
        return Ok(ends(UndoResult::Conflict(WhyNot::Link)));
    }
    if new.is_some() && new == bytes {
        return Ok(ends(UndoResult::Already));
    }
    let is_program = |span: &&Span| span.executable && new.as_deref().map(Digest::of) == span.before;
    let action = match &new {
        None => Action::Delete,
        Some(bytes) if disk.is_none() && spans.iter().any(is_program) => Action::CreateProgram(bytes.clone()),
        Some(bytes) => Action::Write(bytes.clone()),
    };
    let expected = digest.map_or(Expected::Absent, Expected::Hash);
    let change = Change::new(contents.path(path), action).expecting(expected);
    let result = UndoResult::Becomes { bytes: new, merged };
    Ok((Undone { path: path.to_owned(), disk: bytes.clone(), result }, Some(change)))
}
