//! A refusal: the answer "no", with a reason that programs can act on.
//!
//! One refusal has two exact renderings. The [`Payload`] is for controllers and has five keys. The [`Report`] is for the
//! agent and says what to do. Their shapes are a contract: the JSON Schemas in `schemas/` are generated from these types.

use std::borrow::Cow;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::path::FilePath;
use crate::turn::FileState;
use tollgate_base::digest::Digest;
use tollgate_base::name::Agent;

pub use tollgate_base::event::ErrorType;

/// A refusal. Nothing on disk was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The file.
    pub path: FilePath,
    /// The reason.
    pub reason: Reason,
}

/// The reason of a refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The file is not what the agent last knew.
    Stale(Stale),
    /// Another process has the file open for writing, or another agent is about to write it.
    Busy {
        /// The agent that has reserved the file, if that is the reason.
        holder: Option<Agent>,
    },
    /// The settings require a read before a write, and there was none.
    Unread {
        /// The file on disk.
        actual: FileState,
    },
    /// The last read of the file failed, so its bytes are unknown.
    Unreadable,
    /// The path leads out of the workspace.
    Outside,
    /// The path belongs to tollgate, to a host's hooks or to the vault's own folders.
    Protected,
    /// The path is not a regular file but a directory, a FIFO or a device.
    NotAFile,
    /// The file has other names (hard links), and a replacement would separate them.
    HardLinked,
    /// The file is read-only.
    ReadOnly,
    /// The old text of an edit does not occur in the file, or more than once.
    TextNotFound {
        /// The number of occurrences.
        found: usize,
        /// The beginning of the old text.
        text: String,
    },
}

/// A change that the agent has not seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stale {
    /// The file as the agent last knew it.
    pub expected: FileState,
    /// The file on disk.
    pub actual: FileState,
    /// The author of the bytes on disk, if it was a guarded agent.
    pub changed_by: Option<ChangedBy>,
    /// The diff from the bytes that the agent knew to those on disk, of limited length, if both are known and text.
    pub diff: Option<String>,
}

/// The author of a change, from the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedBy {
    /// The agent.
    pub agent: Agent,
    /// The time of the change.
    pub time: Timestamp,
}

/// The rendering for controllers: exactly these five keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "tollgate refusal payload")]
pub struct Payload {
    /// The kind of refusal.
    #[schemars(schema_with = "error_types")]
    pub error_type: ErrorType,
    /// The file, absolute.
    pub file_path: String,
    /// The SHA-256 that the write expected. Null if it expected no file, or if unknown.
    #[schemars(schema_with = "hash_or_null")]
    pub expected_hash: Option<Digest>,
    /// The SHA-256 of the file on disk. Null if there is no file, or if unknown.
    #[schemars(schema_with = "hash_or_null")]
    pub actual_hash: Option<Digest>,
    /// What to do.
    pub resolution: Resolution,
}

/// The rendering for the agent: exactly these keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "tollgate refusal report")]
pub struct Report {
    /// The kind of refusal.
    #[schemars(schema_with = "error_types")]
    pub error_type: ErrorType,
    /// What happened, as a sentence.
    pub message: Cow<'static, str>,
    /// The file and its hashes.
    pub details: Details,
    /// What to do, as a sentence.
    pub recovery_hint: Cow<'static, str>,
}

/// The file and its hashes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Details {
    /// The file, absolute.
    pub path: String,
    /// The SHA-256 of the file as the agent last knew it.
    #[schemars(schema_with = "hash_or_null")]
    pub baseline_hash: Option<Digest>,
    /// The SHA-256 of the file on disk.
    #[schemars(schema_with = "hash_or_null")]
    pub current_disk_hash: Option<Digest>,
}

fn error_types(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "string", "enum": ErrorType::ALL})
}

fn hash_or_null(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": ["string", "null"], "pattern": "^[0-9a-f]{64}$"})
}

/// What to do after a refusal, as in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[schemars(inline)]
#[non_exhaustive]
pub enum Resolution {
    /// Read the file again, redo the change on the new bytes, then write.
    ReReadRequired,
    /// Read the file first.
    ReadRequired,
    /// Try the same call again in a moment.
    RetryLater,
    /// Use another path.
    ChooseAnotherPath,
    /// Let a person decide.
    AskAPerson,
}

impl Refusal {
    pub(crate) fn new(path: FilePath, reason: Reason) -> Self {
        Self { path, reason }
    }

    /// The kind of refusal.
    pub fn error_type(&self) -> ErrorType {
        match self.reason {
            Reason::Stale(_) => ErrorType::StaleFile,
            Reason::Busy { .. } => ErrorType::FileBusy,
            Reason::Unread { .. } => ErrorType::UnreadFile,
            Reason::Unreadable => ErrorType::UnreadableFile,
            Reason::Outside => ErrorType::OutsideWorkspace,
            Reason::Protected => ErrorType::ProtectedPath,
            Reason::NotAFile => ErrorType::NotAFile,
            Reason::HardLinked => ErrorType::HardLinked,
            Reason::ReadOnly => ErrorType::ReadOnly,
            Reason::TextNotFound { .. } => ErrorType::TextNotFound,
        }
    }

    /// What to do.
    pub fn resolution(&self) -> Resolution {
        match self.error_type() {
            ErrorType::StaleFile => Resolution::ReReadRequired,
            ErrorType::FileBusy => Resolution::RetryLater,
            ErrorType::UnreadFile | ErrorType::UnreadableFile | ErrorType::TextNotFound => {
                Resolution::ReadRequired
            }
            ErrorType::OutsideWorkspace | ErrorType::ProtectedPath | ErrorType::NotAFile => {
                Resolution::ChooseAnotherPath
            }
            ErrorType::HardLinked | ErrorType::ReadOnly => Resolution::AskAPerson,
        }
    }

    /// The expected hash and the hash on disk, if known.
    pub fn hashes(&self) -> (Option<Digest>, Option<Digest>) {
        match &self.reason {
            Reason::Stale(stale) => (stale.expected.digest(), stale.actual.digest()),
            Reason::Unread { actual } => (None, actual.digest()),
            _ => (None, None),
        }
    }

    /// The rendering for controllers.
    pub fn payload(&self) -> Payload {
        let (expected_hash, actual_hash) = self.hashes();
        Payload {
            error_type: self.error_type(),
            file_path: self.path.to_string(),
            expected_hash,
            actual_hash,
            resolution: self.resolution(),
        }
    }

    /// The rendering for the agent.
    pub fn report(&self) -> Report {
        let (baseline_hash, current_disk_hash) = self.hashes();
        let (message, recovery_hint) = self.words();
        Report {
            error_type: self.error_type(),
            message,
            details: Details { path: self.path.to_string(), baseline_hash, current_disk_hash },
            recovery_hint,
        }
    }

    fn words(&self) -> (Cow<'static, str>, Cow<'static, str>) {
        let (message, hint) = match &self.reason {
            Reason::Stale(stale) => (
                match (stale.expected, stale.actual) {
                    (_, FileState::Absent) => "Target missing. Re-read required.",
                    (FileState::Absent, _) => "Target already exists. Re-read required.",
                    _ => "File modified by another actor. Re-read required.",
                },
                "Perform a new 'read_file' to see the latest changes before attempting to write again.",
            ),
            Reason::Busy { holder: Some(holder) } => {
                return (
                    format!("Agent '{holder}' is about to write this file.").into(),
                    "Wait a moment, read the file again, then retry.".into(),
                );
            }
            Reason::Busy { holder: None } => (
                "Another process has the file open for writing.",
                "Retry in a moment. A file that is always open, such as a log, cannot be replaced: append to it instead.",
            ),
            Reason::Unread { .. } => (
                "The file was not read in this turn.",
                "Perform a 'read_file' first, then write on the basis of what you find.",
            ),
            Reason::Unreadable => (
                "The last read of this file failed, so what it holds is not known.",
                "Perform a 'read_file' that succeeds, then write.",
            ),
            Reason::Outside => (
                "The path leads out of the workspace.",
                "Choose a path inside the workspace. Symbolic links that lead out of it do not count as inside.",
            ),
            Reason::Protected => (
                "The path is reserved and cannot be changed by an agent.",
                "Choose another path, or ask a person to make the change.",
            ),
            Reason::NotAFile => (
                "The target is not a regular file.",
                "Choose the path of a file, not of a directory or a device.",
            ),
            Reason::HardLinked => (
                "The file has several names (hard links), and a replacement would separate them.",
                "Ask a person. They can break the link, or set `hard_links = \"detach\"`.",
            ),
            Reason::ReadOnly => (
                "The file is read-only.",
                "Ask a person. They can change its permissions, or set `read_only = \"replace\"`.",
            ),
            Reason::TextNotFound { found: 0, text } => {
                return (
                    format!("The old text is not in the file: {text:?}").into(),
                    "Perform a new 'read_file' and copy the old text exactly, with its white space.".into(),
                );
            }
            Reason::TextNotFound { found, text } => {
                return (
                    format!("The old text is in the file {found} times: {text:?}").into(),
                    "Give more of the lines around it, so that it is unique, or ask for all to be replaced."
                        .into(),
                );
            }
        };
        (message.into(), hint.into())
    }
}

/// The JSON Schema of the payload.
pub fn payload_schema() -> schemars::Schema {
    schemars::schema_for!(Payload)
}

/// The JSON Schema of the report.
pub fn report_schema() -> schemars::Schema {
    schemars::schema_for!(Report)
}
