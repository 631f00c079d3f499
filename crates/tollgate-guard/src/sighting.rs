//! What an agent knew of one file, first and last, and the rules by which that changes. This file does no I/O.

use serde::{Deserialize, Serialize};

use crate::file_state::FileState;
use tollgate_base::digest::Digest;

/// How much of a file a read showed, or a write replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The whole file: a whole read, an overwrite, a deletion, a move.
    Whole,
    /// A part: a range of lines, an edit from old text to new text.
    Part,
}

/// What the agent knew of one file, first and last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    /// The hash of the first successful read.
    pub(crate) first: Option<Digest>,
    pub(crate) last: FileState,
    /// A state that the agent has seen in part: its first look, or a newer state after a refusal. Enough for an edit.
    pub(crate) part: Option<FileState>,
    /// The agent's last write to this file was refused, and it has not read the whole file since.
    pub(crate) refused: bool,
}

impl Sighting {
    /// The first read in this turn.
    pub fn new(state: FileState) -> Self {
        Self { first: state.digest(), ..Self::unread(state) }
    }

    /// The first read in this turn, of a part.
    pub(crate) fn in_part(state: FileState) -> Self {
        Self { part: Some(state), ..Self::new(state) }
    }

    /// The agent knows this state, but not from a read.
    pub(crate) fn unread(state: FileState) -> Self {
        Self { first: None, last: state, part: None, refused: false }
    }

    /// The hash of the first successful read. It never changes.
    pub fn initial(&self) -> Option<Digest> {
        self.first
    }

    /// The state that must be on disk for a write of this extent.
    pub fn baseline(&self, write: Extent) -> FileState {
        match (write, self.part) {
            (Extent::Part, Some(part)) => part,
            _ => self.last,
        }
    }

    /// Whether the agent has seen all of this state, or made it.
    pub fn is_all_of(&self, state: FileState) -> bool {
        self.last == state && self.part != Some(state)
    }

    /// What is known after a read of this state, of a file of which the turn knew something or nothing.
    pub(crate) fn after_read(seen: Option<Self>, state: FileState, shown: Extent) -> Self {
        match (seen, shown) {
            (Some(seen), _) => seen.read(state, shown),
            (None, Extent::Whole) => Self::new(state),
            (None, Extent::Part) => Self::in_part(state),
        }
    }

    /// Whether a read that shows this much of this state shows the agent nothing new.
    pub(crate) fn covers(&self, state: FileState, shown: Extent) -> bool {
        self.is_all_of(state) || shown == Extent::Part && self.part == Some(state)
    }

    /// The agent read the file again.
    #[must_use]
    pub fn read(self, state: FileState, shown: Extent) -> Self {
        let first = self.first.or(state.digest());
        match shown {
            Extent::Whole => Self { first, ..Self::unread(state) },
            // Before a refusal, the agent does not know that the rest may have changed, so a partial read does not count.
            Extent::Part if self.refused => Self { first, part: Some(state), ..self },
            Extent::Part => Self { first, ..self },
        }
    }

    /// The agent wrote the file itself.
    #[must_use]
    pub fn wrote(self, state: FileState) -> Self {
        Self { first: self.first, ..Self::unread(state) }
    }

    /// What is known of a file that was moved to a path of which the turn knew `other`.
    pub(crate) fn moved_over(self, other: Option<Self>) -> Self {
        Self { first: other.and_then(|other| other.first).or(self.first), ..self }
    }

    /// The agent's write was refused.
    #[must_use]
    pub fn refused(self) -> Self {
        Self { refused: true, ..self }
    }
}
