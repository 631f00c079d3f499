//! What a tool will do to files, as far as its input says.

use std::path::{Path, PathBuf};

use tollgate::digest::Digest;
use tollgate::edit::{Edit, Occurrence};
use tollgate::turn::{Extent, TEXT_PER_FILE};

use crate::host::event::{FileEffect, Hunk};
use crate::host::patch;

/// What to do with a call that cannot be judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weight {
    /// Block it, because it may change files.
    Writes,
    /// Let it run, because it changes no file that tollgate knows of.
    Harmless,
}

/// What a tool will do to files.
#[derive(Debug, Default)]
pub(super) struct ToolPlan {
    pub(super) reads: Vec<(PathBuf, Extent)>,
    pub(super) changes: Vec<PlannedChange>,
    /// Paths that it creates or changes without changing the content of a file.
    pub(super) touched: Vec<PathBuf>,
    /// A shell runs it, so it may do more than is listed here.
    pub(super) shell: bool,
    /// It changes files that its input does not name in a way that tollgate can read.
    pub(super) unreadable: bool,
    /// Files that the input of an unknown tool names.
    pub(super) suspects: Vec<PathBuf>,
    /// A command of tollgate that only a person may run. It is blocked before any workspace judges the call.
    pub(super) people_only: Option<String>,
    /// The commands of tollgate that act in the name of an agent.
    pub(super) acts_as: Vec<ActsAs>,
    /// The shell command changes a file whose name its text does not tell, runs a text that is not known, or is not understood. So it
    /// may change every file that it names.
    pub(super) vague: bool,
    /// The patterns of file names in the shell command.
    pub(super) patterns: Vec<String>,
}

/// A command of tollgate that acts in the name of an agent.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ActsAs {
    pub(super) command: String,
    /// The name that the command gives, empty if its text does not tell; `None` for the name that the shell already has.
    pub(super) name: Option<String>,
}

/// A file that a tool will change.
#[derive(Debug)]
pub(super) struct PlannedChange {
    pub(super) path: PathBuf,
    pub(super) extent: Extent,
    pub(super) text: Text,
    /// git changes it, which leaves its own files in a folder alone.
    pub(super) by_git: bool,
    /// It may be a folder, or a link to one: its files come with it.
    pub(super) brings_files: bool,
}

/// What is known about the new text of a file.
#[derive(Debug)]
pub(super) enum Text {
    Exactly(String),
    Edited(Vec<Edit>),
    Patched(Vec<Hunk>),
    Unknown,
}

impl ToolPlan {
    pub(super) fn weight(&self) -> Weight {
        if self.changes.is_empty() && self.touched.is_empty() && !self.vague && !self.unreadable {
            Weight::Harmless
        } else {
            Weight::Writes
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names_nothing() && self.suspects.is_empty() && !self.shell && !self.unreadable
    }

    /// Whether only the input of an unknown tool names files.
    pub(super) fn is_only_suspicious(&self) -> bool {
        self.names_nothing() && !self.shell && !self.unreadable
    }

    /// Whether it neither reads nor changes a file that is known.
    pub(super) fn names_nothing(&self) -> bool {
        self.reads.is_empty() && self.changes.is_empty() && self.touched.is_empty()
    }

    pub(super) fn add(&mut self, effect: &FileEffect, folder: &Path) {
        let (path, extent, text) = match effect {
            FileEffect::Read(path, extent) => return self.reads.push((folder.join(path), *extent)),
            FileEffect::Write(path, Some(text)) => (path, Extent::Whole, Text::Exactly(text.clone())),
            FileEffect::Write(path, None) => (path, Extent::Whole, Text::Unknown),
            FileEffect::Edit(path, edits) => (path, Extent::Part, Text::Edited(edits.clone())),
            FileEffect::Patch(path, hunks) => (path, Extent::Part, Text::Patched(hunks.clone())),
            FileEffect::Delete(path) => (path, Extent::Whole, Text::Unknown),
            FileEffect::Unreadable => {
                self.unreadable = true;
                return;
            }
        };
        self.changes.push(PlannedChange {
            path: folder.join(path),
            extent,
            text,
            by_git: false,
            brings_files: false,
        });
    }

    /// Adds what a shell command does.
    pub(super) fn follow(&mut self, command: Self) {
        self.vague |= command.vague;
        self.patterns.extend(command.patterns);
        self.reads.extend(command.reads);
        self.changes.extend(command.changes);
        self.touched.extend(command.touched);
        self.acts_as.extend(command.acts_as);
        self.people_only = self.people_only.take().or(command.people_only);
    }
}

impl PlannedChange {
    /// The hash that the file will have, if that is certain.
    pub(super) fn digest(&self, path: &Path) -> Option<Digest> {
        let text = match &self.text {
            Text::Exactly(text) => return Some(Digest::of(text.as_bytes())),
            Text::Unknown => return None,
            Text::Edited(_) | Text::Patched(_) => small_text(path)?,
        };
        self.outcome(Some(text.as_bytes())).map(|text| Digest::of(text.as_bytes()))
    }

    /// The text that the tool would make of this one, if that is certain.
    pub(super) fn outcome(&self, before: Option<&[u8]>) -> Option<String> {
        let before = || str::from_utf8(before?).ok();
        match &self.text {
            Text::Exactly(text) => Some(text.clone()),
            Text::Unknown => None,
            Text::Edited(edits) if edits.is_empty() => None,
            Text::Patched(hunks) => patch::outcome(before()?, hunks),
            Text::Edited(edits) => {
                let mut text = before()?.to_owned();
                for edit in edits {
                    let found = text.matches(&edit.old).count();
                    text = match edit.occurrence {
                        _ if edit.old.is_empty() || found == 0 => return None,
                        Occurrence::All => text.replace(&edit.old, &edit.new),
                        _ if found == 1 => text.replacen(&edit.old, &edit.new, 1),
                        _ => return None,
                    };
                }
                Some(text)
            }
        }
    }
}

/// The content of a file, if it is text and not too long.
fn small_text(path: &Path) -> Option<String> {
    let size = std::fs::metadata(path).ok()?.len();
    (size <= TEXT_PER_FILE as u64).then(|| std::fs::read_to_string(path).ok())?
}
