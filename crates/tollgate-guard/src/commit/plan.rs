//! What a commit is asked to do, and what it answers.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::change::StartState;
use crate::disk::{Spot, Target};
use crate::path::FilePath;
use crate::place::Place;
use crate::refusal::{Reason, Refusal};
use crate::root::Root;
use crate::stage::ChangeId;
use crate::turn::FileState;
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
pub use tollgate_base::event::Guarantee;
use tollgate_base::event::{FileChanged, FolderMoved};
use tollgate_base::settings::{HardLinks, ReadOnly};

/// The number of times that a commit starts again because of a foreign save, before it says that the file is busy. Each
/// round takes a fraction of a millisecond, so only a program that saves without a pause comes near this limit.
pub(super) const ROUNDS: usize = 200;

/// One change of one file.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) place: Place,
    pub(crate) operation: Operation,
    pub(crate) base: Base,
    /// `None` if a tool asked for the change.
    pub(crate) command: Option<ByCommand>,
}

/// What a change has in addition if a command made it, in its own view of the workspace.
#[derive(Debug, Clone, Default)]
pub(crate) struct ByCommand {
    /// The command wrote into the file and did not replace it.
    pub(crate) in_place: bool,
    /// Another change of the same commit makes room: something at the path, or on the way to it, is not what the change
    /// needs. So the folder of the path is opened last, when it exists.
    pub(crate) after_others: bool,
    /// Folders in the way, innermost first, with their modes. They are empty by then.
    pub(crate) clears: Vec<(PathBuf, u32)>,
}

/// What happens to the file.
#[derive(Debug)]
pub(crate) enum Operation {
    /// It gets this content. It is created if it does not exist.
    Put {
        content: NewContent,
        digest: Digest,
    },
    Remove,
    /// The file is moved to another path, which must be free.
    MoveTo(Place),
    /// It gets this mode. Its bytes stay.
    SetMode(u32),
}

/// What a file gets.
#[derive(Debug)]
pub(crate) enum NewContent {
    Bytes(Vec<u8>),
    /// Its user may execute it, if it is a new file.
    Program(Vec<u8>),
    /// The bytes, the mode, the times and the attributes of this file, which a command has written.
    Copy(PathBuf),
    /// It becomes a symbolic link with this path in it.
    Link(Vec<u8>),
}

impl Operation {
    pub(crate) fn put(bytes: Vec<u8>) -> Self {
        let digest = Digest::of(&bytes);
        Self::Put { content: NewContent::Bytes(bytes), digest }
    }

    /// What is at the path afterwards.
    pub(crate) fn after(&self) -> FileState {
        match self {
            Self::Put { digest, .. } => FileState::Present(*digest),
            Self::Remove | Self::MoveTo(_) => FileState::Absent,
            // What is there already.
            Self::SetMode(_) => FileState::Unreadable,
        }
    }

    pub(crate) fn moved_to(&self) -> Option<&Place> {
        match self {
            Self::MoveTo(to) => Some(to),
            Self::Put { .. } | Self::Remove | Self::SetMode(_) => None,
        }
    }
}

/// What must be on disk for the change to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Base {
    Any,
    /// This state. Otherwise the change is refused.
    Exactly(FileState),
    /// This state. Otherwise the change is made, and the ledger says that it would have been refused.
    Observed(FileState),
    /// What was there when a command started. Otherwise the change is refused.
    Since(StartState),
}

/// The result of a look at a file.
pub(super) enum Looked {
    Ready,
    Refused(Refusal),
    /// Another process has the file open for writing, or changed it during the look.
    Busy,
}

impl Plan {
    pub(crate) fn new(place: Place, operation: Operation, base: Base) -> Self {
        Self { place, operation, base, command: None }
    }

    /// Whether another change of the same commit makes room for this one.
    pub(super) fn is_after_others(&self) -> bool {
        self.command.as_ref().is_some_and(|command| command.after_others)
    }

    /// The file that must exist for the change to be made.
    pub(super) fn file_expected(&self) -> Option<FileState> {
        match self.base {
            Base::Exactly(expected @ FileState::Present(_)) => Some(expected),
            Base::Since(since) if since.was_present() => Some(since.expected()),
            _ => None,
        }
    }

    /// The folders that the change lacks and may create. They will exist, so the change no longer lists them.
    pub(super) fn take_missing(&mut self) -> Vec<PathBuf> {
        let is_there = self.place.missing.is_empty();
        // A file that must exist is stale without its folder.
        if self.is_after_others() || !is_there && self.file_expected().is_some() {
            return Vec::new();
        }
        match &mut self.operation {
            Operation::Put { .. } => std::mem::take(&mut self.place.missing),
            Operation::MoveTo(to) if is_there => std::mem::take(&mut to.missing),
            Operation::MoveTo(_) | Operation::Remove | Operation::SetMode(_) => Vec::new(),
        }
    }

    /// Why this file cannot be replaced, regardless of its bytes.
    pub(super) fn unfit(&self, root: &Root, spot: &Spot, file: &Target) -> Result<Option<Reason>> {
        let settings = &root.settings().guard;
        if file.is_link() {
            return Ok(None);
        }
        let command = self.command.as_ref();
        // A command that replaces a file breaks its hard links itself.
        let replaced =
            matches!(self.operation, Operation::Put { .. }) && command.is_none_or(|command| command.in_place);
        if replaced && settings.hard_links == HardLinks::Refuse && file.links()? > 1 {
            return Ok(Some(Reason::HardLinked));
        }
        if command.is_some() {
            // The kernel has decided what the command may write.
            return Ok(None);
        }
        let read_only = file.has_no_write_bit() || !spot.may_write();
        Ok((settings.read_only == ReadOnly::Refuse && read_only).then_some(Reason::ReadOnly))
    }

    pub(super) fn refuse(&self, reason: Reason) -> Looked {
        Looked::Refused(Refusal::new(self.place.path().clone(), reason))
    }

    /// There is something else than a file. If the agent knew a file, that is a change which it has not seen.
    pub(super) fn not_a_file(&self) -> Looked {
        match self.base {
            Base::Exactly(expected @ FileState::Present(_)) => self.stale(expected, FileState::Unreadable),
            Base::Since(since) => self.stale(since.expected(), FileState::Unreadable),
            _ => self.refuse(Reason::NotAFile),
        }
    }

    pub(super) fn stale(&self, expected: FileState, actual: FileState) -> Looked {
        self.refuse(Reason::stale(expected, actual))
    }
}

/// One change that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedChange {
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
    /// It was a symbolic link, which was deleted or moved itself.
    pub link: bool,
    /// How well the change was protected against programs unaware of tollgate.
    pub guarantee: Guarantee,
}

impl AppliedChange {
    /// For programs: what the command line and the packages say about a change.
    pub fn json(&self) -> Value {
        let mut json = json!({
            "file_path": self.path.to_string(),
            "hash_before": self.before.digest(),
            "hash_after": self.after.digest(),
            "change_id": self.id,
            "guarantee": self.guarantee,
        });
        if let Some(to) = &self.moved_to {
            json["moved_to"] = to.to_string().into();
        }
        json
    }
}

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
        ..FileChanged::default()
    }
}

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
