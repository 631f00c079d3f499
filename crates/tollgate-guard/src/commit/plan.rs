//! What a commit is asked to do, and what it answers.

use std::path::Path;

use crate::path::FilePath;
use crate::place::Place;
use crate::refusal::{Reason, Refusal, Stale};
use crate::root::Root;
use crate::stage::ChangeId;
use crate::turn::FileState;
use tollgate_base::digest::Digest;
use tollgate_base::error::Fault;
pub use tollgate_base::event::Guarantee;
use tollgate_base::event::{Event, FileChanged, FolderMoved};
use tollgate_base::ledger::Entry;
use tollgate_base::name::{Agent, TurnId};

/// One change of one file.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) place: Place,
    pub(crate) deed: Deed,
    pub(crate) base: Base,
}

/// What happens to the file.
#[derive(Debug)]
pub(crate) enum Deed {
    /// It gets these bytes. It is created if it does not exist.
    Put { bytes: Vec<u8>, digest: Digest },
    /// It is deleted.
    Remove,
    /// It is moved to another path, which must be free.
    MoveTo(Place),
}

impl Deed {
    pub(crate) fn put(bytes: Vec<u8>) -> Self {
        let digest = Digest::of(&bytes);
        Self::Put { bytes, digest }
    }

    /// What is at the path afterwards.
    pub(crate) fn after(&self) -> FileState {
        match self {
            Self::Put { digest, .. } => FileState::Present(*digest),
            Self::Remove | Self::MoveTo(_) => FileState::Absent,
        }
    }

    /// The new path of a move.
    pub(crate) fn moved_to(&self) -> Option<&Place> {
        match self {
            Self::MoveTo(to) => Some(to),
            Self::Put { .. } | Self::Remove => None,
        }
    }
}

/// What must be on disk for the change to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Base {
    /// Anything.
    Any,
    /// This state. Otherwise the change is refused.
    Exactly(FileState),
    /// This state. Otherwise the change is made, and the ledger says that it would have been refused.
    Observed(FileState),
}

/// The agent that makes a change, its turn and its tool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Author<'a> {
    pub(crate) agent: &'a Agent,
    pub(crate) turn: Option<&'a TurnId>,
    pub(crate) tool: &'a str,
}

impl Author<'_> {
    /// A ledger line of this author.
    pub(crate) fn entry(&self, root: &Root, event: Event) -> Entry {
        Entry { time: root.now(), agent: Some(self.agent.clone()), turn: self.turn.cloned(), event }
    }
}

/// The result of a commit.
#[derive(Debug)]
pub(crate) enum Committed {
    /// All changes were made. The refusals are those that were only observed.
    Applied { changes: Vec<Applied>, observed: Vec<Refusal>, left: Left },
    /// No change was made.
    Refused(Vec<Refusal>),
}

/// Whether a successful commit left temporary files behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    Nothing,
    /// Something could not be deleted. Until the workspace is healed, a new file may have a second name in the stage.
    Something,
}

/// One change that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The id of the change, in the ledger and in recovery.
    pub id: String,
    /// The file.
    pub path: FilePath,
    /// The new path, if the file was moved.
    pub moved_to: Option<FilePath>,
    /// The file before the change.
    pub before: FileState,
    /// The file after the change.
    pub after: FileState,
    /// How well the change was protected against programs unaware of tollgate.
    pub guarantee: Guarantee,
}

/// The ledger's record of a changed file.
pub(crate) fn file_changed(
    id: &ChangeId,
    tool: &str,
    target: &Path,
    before: FileState,
    after: FileState,
) -> FileChanged {
    FileChanged {
        id: id.as_str().to_owned(),
        tool_name: tool.to_owned(),
        target_file: target.display().to_string(),
        hash_before: before.digest(),
        hash_after: after.digest(),
        moved_to: None,
        guarantee: None,
        owner: None,
        recovered: false,
        took_us: None,
    }
}

/// The ledger's record of a moved folder.
pub(crate) fn folder_moved(id: &str, tool: &str, (from, to): (&Path, &Path), files: usize) -> FolderMoved {
    FolderMoved {
        id: id.to_owned(),
        tool_name: tool.to_owned(),
        target_file: from.display().to_string(),
        moved_to: to.display().to_string(),
        folder: true,
        files,
        recovered: false,
    }
}

pub(crate) fn stale(expected: FileState, actual: FileState) -> Reason {
    Reason::Stale(Stale { expected, actual, changed_by: None, diff: None })
}

pub(crate) fn nothing_there(place: &Place) -> Fault {
    Fault::Missing { what: format!("`{}`", place.path) }
}
