//! The payloads of what happens to files, turns and the ledger itself.
//!
//! Paths are relative to the workspace where they can be. A hash is `sha256:` and 64 hex digits, or null where there was
//! no file.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::name::Agent;
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// How well the change was protected. Not known of a change whose line another process wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<Guarantee>,
    /// Whether its owner could be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<FileOwner>,
    /// The author died before this line, and another process wrote it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recovered: bool,
    /// How long the commit took, from the locks to this line; on its first line only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_us: Option<u64>,
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
        /// by the second look, after the write was acknowledged.
        NoQuiet = "no_quiet",
        /// The file is on another file system than the state: no second look.
        NoSecondLook = "no_second_look",
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

/// A damaged end of the ledger that was moved to a file of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TailMoved {
    /// The number of damaged bytes.
    pub bytes_dropped: u64,
    /// The file that has them now.
    pub kept_in: String,
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
