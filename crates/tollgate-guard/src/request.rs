//! What an agent asks for: changes of files, in a turn and with a tool.

use std::path::PathBuf;

use crate::edit::Edit;
use crate::fence::WriteFence;
use crate::path::FilePath;
use crate::root::Root;
use crate::turn::{Extent, TurnState};
use tollgate_base::digest::Digest;
use tollgate_base::event::Event;
use tollgate_base::ledger::Entry;

/// Which agent asks, in which turn and with which tool.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) root: &'a Root,
    pub(crate) turn: &'a dyn TurnState,
    pub(crate) tool: &'a str,
    /// How well the command was guarded, if tollgate ran a command.
    pub(crate) level: Option<&'a str>,
    /// What the agent must not have lost.
    pub(crate) fences: &'a [WriteFence],
}

impl Request<'_> {
    pub(crate) fn entry(&self, event: Event) -> Entry {
        self.root.entry(Some(self.turn.agent()), Some(self.turn.id()), event)
    }

    /// The path for locks, reservations and the ledger: relative to the workspace if possible, so that it does not depend on
    /// where the workspace is mounted.
    pub(crate) fn key(&self, path: &FilePath) -> PathBuf {
        let path = path.as_path();
        path.strip_prefix(self.root.path()).unwrap_or(path).to_owned()
    }
}

/// A change of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The file, absolute or relative to the workspace.
    pub path: PathBuf,
    /// What to do.
    pub action: Action,
    /// What must be on disk.
    pub expected: Expected,
}

impl Change {
    /// A change of a file that must be as the turn knows it.
    pub fn new(path: impl Into<PathBuf>, action: Action) -> Self {
        Self { path: path.into(), action, expected: Expected::Baseline }
    }

    /// The same change with another expectation.
    #[must_use]
    pub fn expecting(self, expected: Expected) -> Self {
        Self { expected, ..self }
    }
}

/// What to do with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Write these bytes. Creates the file if it does not exist.
    Write(Vec<u8>),
    /// Create the file with these bytes. It must not exist.
    Create(Vec<u8>),
    /// Replace old text with new text, several edits as one.
    Edit(Vec<Edit>),
    /// Delete it.
    Delete,
    /// Move it to this path, which must be free.
    MoveTo(PathBuf),
}

impl Action {
    pub(crate) fn extent(&self) -> Extent {
        match self {
            Self::Edit(_) => Extent::Part,
            Self::Write(_) | Self::Create(_) | Self::Delete | Self::MoveTo(_) => Extent::Whole,
        }
    }
}

/// What must be on disk for a change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Expected {
    /// What the turn last knew. If it knows nothing of the file, the setting `unread` decides.
    #[default]
    Baseline,
    /// A file with this hash.
    Hash(Digest),
    /// No file.
    Absent,
}
