//! A change of a file, in one form for all who ask for one: an agent that writes through the gate, a tool of its program that
//! writes itself, a command in its own view of the workspace, a command whose system calls are supervised.

use std::path::PathBuf;

use crate::edit::Edit;
use crate::file_state::FileState;
use crate::turn::Extent;
use tollgate_base::digest::Digest;

/// A change of one file: what happens to it, and what it must be based on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The file, absolute or relative to the workspace.
    pub path: PathBuf,
    /// What happens to it.
    pub action: Action,
    /// What must be on disk.
    pub expected: Expected,
}

impl Change {
    /// A change of a file that must be as the turn knows it.
    pub fn new(path: impl Into<PathBuf>, action: Action) -> Self {
        Self { path: path.into(), action, expected: Expected::Baseline }
    }

    /// A change of some part of a file by the agent's own program. The result is not known.
    pub fn of_some_part(path: impl Into<PathBuf>) -> Self {
        Self::new(path, Action::by_program(Extent::Part))
    }

    /// This change, with another expectation.
    #[must_use]
    pub fn expecting(self, expected: Expected) -> Self {
        Self { expected, ..self }
    }
}

/// What happens to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// It gets these bytes. It is created if it does not exist.
    Write(Vec<u8>),
    /// The file is created with these bytes. It must not exist.
    Create(Vec<u8>),
    /// The same, and its user may execute it.
    CreateProgram(Vec<u8>),
    /// Old text is replaced with new text, several edits as one.
    Edit(Vec<Edit>),
    /// The file is deleted.
    Delete,
    /// The file is moved to this path, which must be free.
    MoveTo(PathBuf),
    /// It becomes a copy of a file that a command has written in its own view of the workspace.
    CopyOf {
        /// The file of the command.
        file: PathBuf,
        /// The hash of that file.
        digest: Digest,
        /// The command wrote into the file that was there, and did not replace it.
        in_place: bool,
    },
    /// It becomes a symbolic link with this path in it.
    Link(Vec<u8>),
    /// It gets this mode. Its bytes stay.
    SetMode(u32),
    /// A program makes the change itself, as soon as it may.
    ByProgram {
        /// How much of the file it replaces.
        extent: Extent,
        /// The hash that the file will have, if that is certain.
        result: Option<Digest>,
    },
}

impl Action {
    /// A program replaces this much of the file, nobody knows with what.
    pub fn by_program(extent: Extent) -> Self {
        Self::ByProgram { extent, result: None }
    }

    pub(crate) fn extent(&self) -> Extent {
        match self {
            Self::Edit(_) => Extent::Part,
            Self::ByProgram { extent, .. } => *extent,
            Self::Write(_)
            | Self::Create(_)
            | Self::CreateProgram(_)
            | Self::Delete
            | Self::MoveTo(_)
            | Self::CopyOf { .. }
            | Self::Link(_)
            | Self::SetMode(_) => Extent::Whole,
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
    /// What was there when a command started, what the agent knows, or both: that depends on whether the command looked.
    AtStart(StartState, CommandLook),
}

impl Expected {
    /// Exactly this state. A file that cannot be read has no hash to compare: then what the turn knows decides.
    pub fn state(state: FileState) -> Self {
        match state {
            FileState::Present(digest) => Self::Hash(digest),
            FileState::Absent => Self::Absent,
            FileState::Unreadable => Self::Baseline,
        }
    }
}

/// What was at a path when a command started, and how to tell whether it is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartState {
    /// When the command started, by the clock of the file system, in nanoseconds since 1970. Every later change of a file has
    /// this time or a later one.
    pub start: i128,
    /// What was there: `Unreadable` if it was a file whose hash is not known. `None` if nobody looked.
    pub was: Option<FileState>,
}

impl StartState {
    /// Whether a file with this hash, whose metadata last changed at this time, is what was there.
    pub(crate) fn holds(&self, changed: i128, digest: Digest) -> bool {
        match self.was {
            Some(FileState::Absent) => false,
            Some(FileState::Present(was)) => was == digest,
            Some(FileState::Unreadable) | None => changed < self.start,
        }
    }

    /// Whether it was there, for certain.
    pub(crate) fn was_present(&self) -> bool {
        matches!(self.was, Some(FileState::Present(_) | FileState::Unreadable))
    }

    /// What was there, as far as it is known.
    pub(crate) fn expected(&self) -> FileState {
        self.was.unwrap_or(FileState::Unreadable)
    }
}

/// Whether a command looked at a file before it changed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandLook {
    /// It looked, and what it saw the agent knows. So the file must be what it was when the command started.
    ForAgent,
    /// It looked for itself. If the agent has seen the file before, it must still be what the agent saw.
    ForItself,
    /// It did not look. The file must be what the agent knows, and if the agent knows nothing, what it was when the command
    /// started.
    None,
    /// Nobody knows whether it looked. Both must hold.
    Unknown,
}
