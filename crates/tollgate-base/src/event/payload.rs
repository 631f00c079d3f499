//! The payloads of events.
//!
//! Paths are relative to the workspace where they can be. A hash is `sha256:` and 64 hex digits, or null where there was
//! no file. What happens to a task names the step that it records: a step is recorded once.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::name::{Agent, ClaimId, StepId};
use crate::task::{Mode, State, TaskName, Tenure, Verdict};
use crate::words::words;

/// What was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Mutation {
    /// One file.
    File(FileChanged),
    /// One folder, with everything in it.
    Folder(FolderMoved),
}

/// A file that was created, overwritten, deleted or moved.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChanged {
    /// The id of the change.
    pub id: String,
    /// The tool that made it.
    pub tool_name: String,
    /// The file.
    pub target_file: String,
    /// What it held before.
    #[serde(with = "prefixed")]
    pub hash_before: Option<Digest>,
    /// What it holds now.
    #[serde(with = "prefixed")]
    pub hash_after: Option<Digest>,
    /// Its new path, if it was moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_to: Option<String>,
    /// How well the change was protected. `None` if another process wrote this line, after the one that made the change had died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<Guarantee>,
    /// Whether its owner could be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<FileOwner>,
    /// It was deleted, and its user could execute it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub executable: bool,
    /// The author died before this line, and another process wrote it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recovered: bool,
    /// How long the commit took, from the locks to this line; on its first line only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_us: Option<u64>,
    /// `run`, if a command made it that tollgate ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<String>,
    /// How well that command was guarded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
}

/// A folder that was moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderMoved {
    /// The id of the change.
    pub id: String,
    /// The tool that made it.
    pub tool_name: String,
    /// Its old path.
    pub target_file: String,
    /// Its new path.
    pub moved_to: String,
    /// Always true: it tells the line from that of a file.
    pub folder: bool,
    /// The number of files in it.
    pub files: usize,
    /// The author died before this line, and another process wrote it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recovered: bool,
}

words! {
    /// What became of a change.
    MutationStatus {
        /// It stands.
        Applied = "APPLIED",
        /// A power cut kept this line of a change of many files and lost the last, so the whole change was rolled back.
        Undone = "UNDONE",
    }
}

words! {
    /// How well a change was protected against programs that do not use tollgate.
    Guarantee {
        /// No save of another program can be lost. One that comes late is kept and reported.
        Full = "full",
        /// No kernel lease (another user's file, a network file system): a save in place that comes in between is found
        /// by the late-write check, after the write was acknowledged.
        NoQuiet = "no_quiet",
        /// The file is on another file system than the state: no late-write check.
        NoLateWriteCheck = "no_second_look",
        /// The file system cannot exchange two names: a save that falls between check and rename is lost.
        NoExchange = "no_exchange",
        /// The agent's own tool wrote the file between two hooks, under a reservation.
        Reserved = "reserved",
    }
}

words! {
    /// What happened to the owner of a file.
    FileOwner {
        /// The owner could not be kept.
        Changed = "changed",
    }
}

/// A write that was refused, or that would have been.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteRefused {
    /// The tool.
    pub tool_name: String,
    /// The file.
    pub target_file: String,
    /// What the agent last knew.
    #[serde(with = "prefixed")]
    pub baseline_hash: Option<Digest>,
    /// What was on disk.
    #[serde(with = "prefixed")]
    pub current_hash: Option<Digest>,
    /// Whose unfinished work the write would have destroyed, if that was the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<UnfinishedWork>,
}

/// Whose unfinished work a file has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnfinishedWork {
    /// The agent. `None`: a person, or a program that does not use tollgate.
    pub agent: Option<Agent>,
    /// When the file was written, if that is known.
    pub since: Option<Timestamp>,
}

words! {
    /// Whether a refusal was enforced.
    RefusalStatus {
        /// The write was refused.
        Denied = "DENIED",
        /// The policy only observes: the write went through.
        Observed = "OBSERVED",
    }
}

words! {
    /// The kinds of refusal, as they are spelled in JSON.
    #[allow(missing_docs, reason = "each is a reason of a refusal, where it is explained")]
    ErrorType {
        StaleFile = "STALE_FILE",
        FileBusy = "FILE_BUSY",
        UnreadFile = "UNREAD_FILE",
        UnreadableFile = "UNREADABLE_FILE",
        OutsideWorkspace = "OUTSIDE_WORKSPACE",
        ProtectedPath = "PROTECTED_PATH",
        NotAFile = "NOT_A_FILE",
        HardLinked = "HARD_LINKED",
        ReadOnly = "READ_ONLY",
        TextNotFound = "TEXT_NOT_FOUND",
        Fenced = "FENCED",
        OtherTree = "OTHER_TREE",
        PremiseChanged = "PREMISE_CHANGED",
    }
}

impl ErrorType {
    /// Whether the refusal kept somebody's work: a conflict, and not a mistake of the caller or a closed path.
    pub fn is_conflict(self) -> bool {
        match self {
            Self::StaleFile
            | Self::FileBusy
            | Self::UnreadFile
            | Self::Fenced
            | Self::OtherTree
            | Self::PremiseChanged => true,
            Self::UnreadableFile
            | Self::OutsideWorkspace
            | Self::ProtectedPath
            | Self::NotAFile
            | Self::HardLinked
            | Self::ReadOnly
            | Self::TextNotFound => false,
        }
    }
}

/// A save of another program that was found in a file after the file had been replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateWrite {
    /// Its id in recovery.
    pub recovery_id: String,
    /// The file.
    pub target_file: String,
    /// What the file held when it was replaced.
    #[serde(with = "prefixed")]
    pub baseline_hash: Option<Digest>,
    /// What was found in it, and is kept.
    #[serde(with = "prefixed")]
    pub found_hash: Option<Digest>,
    /// The agent that replaced the file.
    pub replaced_by: Agent,
}

/// A reservation that is void: its tool call did not report its end in time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationVoid {
    /// The tool.
    pub tool_name: String,
    /// The file.
    pub target_file: String,
    /// When it was made.
    pub since: Timestamp,
}

/// The beginning or the end of a turn. The line itself names agent and turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TurnMark {}

/// A commit of an agent's own changes, which `tollgate commit` made in git.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnChangesCommitted {
    /// The commit's name in git.
    pub commit: String,
    /// The branch; null if HEAD names no branch.
    pub branch: Option<String>,
    /// The root of the working tree, relative to the workspace; `.` for the workspace itself.
    pub tree: String,
    /// What the commit changed.
    pub paths: Vec<String>,
    /// The commit has everything that the agent had changed in this working tree and not committed before.
    pub whole: bool,
    /// The process that made the commit died before this line, and another process wrote it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recovered: bool,
}

/// A damaged end of the ledger that was moved to a file of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TailMoved {
    /// The number of damaged bytes.
    pub bytes_dropped: u64,
    /// The file that has them now.
    pub kept_in: String,
}

/// A task was claimed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskClaimed {
    /// The task.
    pub task: TaskName,
    /// The claim.
    pub claim_id: ClaimId,
    /// Its fencing number.
    pub epoch: u64,
    /// What the owner is to do.
    pub mode: Mode,
    /// Where the task was.
    pub from: State,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// How long the task had waited.
    pub waited_ms: i64,
    /// The step.
    pub step: StepId,
}

/// Another agent claimed the task first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimLost {
    /// The task.
    pub task: TaskName,
    /// Where the task was.
    pub from: State,
    /// The step.
    pub step: StepId,
}

/// A claim ended in an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimFailed {
    /// The task.
    pub task: TaskName,
    /// The error.
    pub error: String,
    /// The step.
    pub step: StepId,
}

/// The lease of a claim was extended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRenewed {
    /// The task.
    pub task: TaskName,
    /// The claim.
    pub claim_id: ClaimId,
    /// How long the claim lasts now.
    pub tenure: Tenure,
    /// The step.
    pub step: StepId,
}

/// One attempt, from its claim to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedAttempt {
    /// The claim.
    pub claim_id: ClaimId,
    /// Its fencing number.
    pub epoch: u64,
    /// How it ended.
    pub result: Verdict,
    /// How long it took.
    pub duration_s: u64,
}

/// The owner released a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskReleased {
    /// The task.
    pub task: TaskName,
    /// The attempt that this ends.
    #[serde(flatten)]
    pub attempt: EndedAttempt,
    /// Why, if the owner said so or the attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The step.
    pub step: StepId,
}

/// A task was taken from an owner who is gone, or a claim was rolled back, or a move by hand ended it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskReclaimed {
    /// The task.
    pub task: TaskName,
    /// The attempt that this ends. `None` if the task had no claim, its claim was rolled back, or somebody moved the task by
    /// hand.
    #[serde(flatten)]
    pub attempt: Option<EndedAttempt>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The step.
    pub step: StepId,
}

/// A person decided about a task, or must decide: an approval became void, or the task is in doubt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskDecided {
    /// The task.
    pub task: TaskName,
    /// The decision.
    #[serde(flatten)]
    pub decision: Decision,
    /// The step.
    pub step: StepId,
}

impl TaskDecided {
    pub(super) fn status(&self) -> &'static str {
        match self.decision {
            Decision::Approve { .. } => "APPROVED",
            Decision::Reject { .. } => "REJECTED",
            Decision::Retry { .. } => State::NeedsAction.as_str(),
            Decision::Edit { state, .. } => state.as_str(),
            Decision::Void { .. } | Decision::Ask { .. } => State::PendingApproval.as_str(),
        }
    }
}

/// What was decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "lowercase")]
pub enum Decision {
    /// A person approved exactly these bytes.
    Approve {
        /// The person; `hand` if they moved the file instead of using tollgate.
        by: String,
        /// The bytes that were approved.
        sha256: Digest,
        /// The bytes that the person was shown, if they edited them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        edited_from: Option<Digest>,
    },
    /// A person rejected the task.
    Reject {
        /// The person.
        by: String,
        /// Why.
        reason: String,
    },
    /// A person wants the task to be tried again, with its attempts counted from zero.
    Retry {
        /// The person.
        by: String,
        /// What should be different this time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A person changed the text of a task that nobody has claimed, or of one that waits for a decision.
    Edit {
        /// The person.
        by: String,
        /// Where the task is.
        #[serde(default = "needs_action", skip_serializing_if = "is_needs_action")]
        state: State,
        /// The new text.
        sha256: Digest,
        /// The text that the person started from.
        edited_from: Digest,
    },
    /// The approval is void: the task is not what was approved.
    Void {
        /// Why.
        reason: String,
    },
    /// A person must look at the task before anybody claims it.
    Ask {
        /// Why.
        reason: String,
    },
}

fn needs_action() -> State {
    State::NeedsAction
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_needs_action(state: &State) -> bool {
    *state == State::NeedsAction
}

impl Decision {
    /// As it stands in the ledger.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Approve { .. } => "approve",
            Self::Reject { .. } => "reject",
            Self::Retry { .. } => "retry",
            Self::Edit { .. } => "edit",
            Self::Void { .. } => "void",
            Self::Ask { .. } => "ask",
        }
    }
}

/// The breaker of a worker opened or closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakerTurned {
    /// The number of failures in a row that opened it, with those of later tries.
    pub failures: u32,
    /// How the last command ended.
    pub reason: String,
    /// When the worker tries one task again. `None`: the breaker is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl BreakerTurned {
    pub(super) fn status(&self) -> &'static str {
        if self.until.is_some() { "OPEN" } else { "CLOSED" }
    }
}

/// A hash as the guard writes it: with the name of its kind in front.
mod prefixed {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::digest::Digest;

    #[expect(clippy::ref_option, reason = "the shape that serde calls")]
    pub(super) fn serialize<S: Serializer>(hash: &Option<Digest>, serializer: S) -> Result<S::Ok, S::Error> {
        match hash {
            Some(hash) => serializer.collect_str(&format_args!("sha256:{hash}")),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Digest>, D::Error> {
        Option::deserialize(deserializer)
    }
}
