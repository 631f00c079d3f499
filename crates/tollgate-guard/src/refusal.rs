//! The answer to a call: done, or refused with a reason that programs can act on.
//!
//! One refusal has two exact renderings. The [`Payload`] is for controllers and has five keys. The [`Report`] is for the
//! agent and says what to do. Their shapes are a contract: the JSON Schemas in `schemas/` are generated from these types.

use std::borrow::Cow;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::every_byte;
use crate::fence::LostClaim;
use crate::harm;
pub use crate::harm::Harm;
use crate::path::FilePath;
use crate::premise::{self, ChangedFile, ChangedPremise};
use crate::turn::FileState;
use tollgate_base::digest::Digest;
use tollgate_base::name::Agent;

pub use tollgate_base::event::{ErrorType, UnfinishedWork};

/// The answer to a call: done, or refused.
#[derive(Debug)]
#[must_use = "a refusal is an answer, not an error: it has to be looked at"]
pub enum Outcome<T> {
    /// It was done.
    Done(T),
    /// It was refused, and nothing was changed.
    Refused(Refused),
}

impl<T> Outcome<T> {
    /// The refusal of a read. The ledger does not record it, because a read changes nothing.
    pub(crate) fn refused(path: FilePath, reason: Reason) -> Self {
        Self::Refused(Refused { refusals: vec![Refusal::new(path, reason)] })
    }

    /// Changes the value of [`Outcome::Done`].
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Self::Done(value) => Outcome::Done(f(value)),
            Self::Refused(refused) => Outcome::Refused(refused),
        }
    }

    /// Turns a refusal into an error, for callers that use `?`.
    pub fn into_result(self) -> Result<T, Refused> {
        match self {
            Self::Done(value) => Ok(value),
            Self::Refused(refused) => Err(refused),
        }
    }
}

/// One or more refusals of one call, sorted by path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// There is at least one.
    pub(crate) refusals: Vec<Refusal>,
}

impl Refused {
    /// All of these refusals. `None` if there are none.
    pub fn all(mut refusals: Vec<Refusal>) -> Option<Self> {
        refusals.sort_by(|a, b| a.path.cmp(&b.path));
        (!refusals.is_empty()).then_some(Self { refusals })
    }

    /// The refusals. There is at least one.
    pub fn refusals(&self) -> &[Refusal] {
        &self.refusals
    }

    /// The number of the first ledger line of these refusals, once they are recorded.
    pub fn line(&self) -> Option<u64> {
        self.refusals.iter().find_map(|refusal| refusal.line)
    }

    /// The payload of the first refusal, for the controller.
    pub fn payload(&self) -> Payload {
        self.refusals[0].payload()
    }

    /// The payloads of all refusals, for the controller.
    pub fn payloads(&self) -> Vec<Payload> {
        self.refusals.iter().map(Refusal::payload).collect()
    }

    /// One report per file, for the agent.
    pub fn reports(&self) -> Vec<Report> {
        self.refusals.iter().map(Refusal::report).collect()
    }
}

impl fmt::Display for Refused {
    /// One line per file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |refusal: &Refusal| format!("`{}`: {}", refusal.path, refusal.words().0);
        f.write_str(&self.refusals.iter().map(line).collect::<Vec<_>>().join("\n"))
    }
}

impl std::error::Error for Refused {}

/// A refusal. Nothing on disk was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The file.
    #[serde(with = "every_byte")]
    pub path: FilePath,
    /// The reason.
    pub reason: Reason,
    /// The number of its ledger line, once it is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<u64>,
}

/// The reason of a refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The file is in another working tree of the repository than the one in which the agent began.
    OtherTree,
    /// Files that the agent has read in this turn were changed since. There is at least one, and they are sorted by path.
    PremiseChanged(Vec<ChangedPremise>),
    /// The path is not a regular file but a directory, a FIFO or a device.
    NotAFile,
    /// The file has other names (hard links), and a replacement would separate them.
    HardLinked,
    /// The file is read-only.
    ReadOnly,
    /// The agent works under a claim that is no longer its own.
    Fenced(LostClaim),
    /// The old text of an edit does not occur in the file, or more than once.
    TextNotFound {
        /// The number of occurrences.
        found: usize,
        /// The beginning of the old text.
        text: String,
    },
}

impl Reason {
    pub(crate) fn stale(expected: FileState, actual: FileState) -> Self {
        Self::Stale(Stale::new(expected, actual))
    }
}

/// A change that the agent has not seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stale {
    /// The file as the agent last knew it.
    pub expected: FileState,
    /// The file on disk.
    pub actual: FileState,
    /// The author of the bytes on disk, if it was a guarded agent.
    pub changed_by: Option<ChangedBy>,
    /// The diff from the bytes that the agent knew to those on disk, of limited length, if both are known and text.
    pub diff: Option<String>,
    /// What the agent wanted to write is kept, and can be merged with the file on disk without a conflict.
    #[serde(default)]
    pub mergeable: bool,
    /// What the change would have done to the work of others. If it would have destroyed it, `expected` is what git has of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub harm: Option<Harm>,
    /// Whose work it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<UnfinishedWork>,
}

impl Stale {
    pub(crate) fn new(expected: FileState, actual: FileState) -> Self {
        Self {
            expected,
            actual,
            changed_by: None,
            diff: None,
            mergeable: false,
            harm: None,
            unfinished: None,
        }
    }
}

/// The author of a change, from the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedBy {
    /// The agent.
    pub agent: Agent,
    /// The time of the change.
    pub time: Timestamp,
}

/// The rendering for controllers: exactly these five keys. Only a path that is not UTF-8 has one more.
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
    /// The bytes of the path in base64, if they are not UTF-8: then `file_path` is only for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub file_path_base64: Option<String>,
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
    /// Whose unfinished work the change would have destroyed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "harm::unfinished_work")]
    pub unfinished: Option<UnfinishedWork>,
    /// The files that were changed since the agent read them, if it must read them again before it writes anything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<ChangedFile>,
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
    /// Make the change in your own working tree.
    StayInTree,
    /// Let a person decide.
    AskAPerson,
    /// Stop working on the task: it is no longer yours.
    StopWork,
}

impl Refusal {
    pub(crate) fn new(path: FilePath, reason: Reason) -> Self {
        Self { path, reason, line: None }
    }

    fn kind(&self) -> (ErrorType, Resolution) {
        match self.reason {
            Reason::Stale(_) => (ErrorType::StaleFile, Resolution::ReReadRequired),
            Reason::Busy { .. } => (ErrorType::FileBusy, Resolution::RetryLater),
            Reason::Unread { .. } => (ErrorType::UnreadFile, Resolution::ReadRequired),
            Reason::Unreadable => (ErrorType::UnreadableFile, Resolution::ReadRequired),
            Reason::Outside => (ErrorType::OutsideWorkspace, Resolution::ChooseAnotherPath),
            Reason::Protected => (ErrorType::ProtectedPath, Resolution::ChooseAnotherPath),
            Reason::OtherTree => (ErrorType::OtherTree, Resolution::StayInTree),
            Reason::PremiseChanged(_) => (ErrorType::PremiseChanged, Resolution::ReReadRequired),
            Reason::NotAFile => (ErrorType::NotAFile, Resolution::ChooseAnotherPath),
            Reason::HardLinked => (ErrorType::HardLinked, Resolution::AskAPerson),
            Reason::ReadOnly => (ErrorType::ReadOnly, Resolution::AskAPerson),
            Reason::Fenced(_) => (ErrorType::Fenced, Resolution::StopWork),
            Reason::TextNotFound { .. } => (ErrorType::TextNotFound, Resolution::ReadRequired),
        }
    }

    /// The kind of refusal.
    pub fn error_type(&self) -> ErrorType {
        self.kind().0
    }

    /// What to do.
    pub fn resolution(&self) -> Resolution {
        self.kind().1
    }

    /// The expected hash and the hash on disk, if known.
    pub fn hashes(&self) -> (Option<Digest>, Option<Digest>) {
        match &self.reason {
            Reason::Stale(stale) => (stale.expected.digest(), stale.actual.digest()),
            Reason::Unread { actual } => (None, actual.digest()),
            Reason::PremiseChanged(files) => {
                files.first().map_or((None, None), |file| (file.known.digest(), file.now.digest()))
            }
            _ => (None, None),
        }
    }

    /// The file that the hashes are about: the one that was to be changed, or the first one that must be read again.
    fn subject(&self) -> &FilePath {
        match &self.reason {
            Reason::PremiseChanged(files) => files.first().map_or(&self.path, |file| &file.path),
            _ => &self.path,
        }
    }

    /// The files that were changed since the agent read them, if that is the reason.
    pub fn premises(&self) -> &[ChangedPremise] {
        match &self.reason {
            Reason::PremiseChanged(files) => files,
            _ => &[],
        }
    }

    /// The rendering for controllers.
    pub fn payload(&self) -> Payload {
        let (expected_hash, actual_hash) = self.hashes();
        let path = self.subject().as_path();
        Payload {
            error_type: self.error_type(),
            file_path: self.subject().to_string(),
            expected_hash,
            actual_hash,
            resolution: self.resolution(),
            file_path_base64: path.to_str().is_none().then(|| BASE64.encode(path.as_os_str().as_bytes())),
        }
    }

    /// The rendering for the agent.
    pub fn report(&self) -> Report {
        let (baseline_hash, current_disk_hash) = self.hashes();
        let (message, recovery_hint) = self.words();
        Report {
            error_type: self.error_type(),
            message,
            details: Details { path: self.subject().to_string(), baseline_hash, current_disk_hash },
            recovery_hint: recovery_hint.into(),
            unfinished: self.unfinished().cloned(),
            changed: self.premises().iter().map(ChangedPremise::in_report).collect(),
        }
    }

    /// Whose unfinished work the change would have destroyed, if that is the reason.
    pub fn unfinished(&self) -> Option<&UnfinishedWork> {
        match &self.reason {
            Reason::Stale(stale) => stale.unfinished.as_ref(),
            _ => None,
        }
    }

    fn words(&self) -> (Cow<'static, str>, &'static str) {
        match &self.reason {
            Reason::Stale(Stale { harm: Some(harm), unfinished, .. }) => {
                harm.words(unfinished.as_ref().and_then(|work| work.agent.as_ref()))
            }
            Reason::Stale(stale) => (
                match (stale.expected, stale.actual) {
                    (_, FileState::Absent) => "Target missing. Re-read required.".into(),
                    (FileState::Absent, _) => "Target already exists. Re-read required.".into(),
                    _ => "File modified by another actor. Re-read required.".into(),
                },
                "Perform a new 'read_file' to see the latest changes before attempting to write again.",
            ),
            Reason::Busy { holder: Some(holder) } => (
                format!("Agent '{holder}' is about to write this file.").into(),
                "Wait a moment, read the file again, then retry.",
            ),
            Reason::Busy { holder: None } => (
                "Another process has the file open for writing.".into(),
                "Retry in a moment. A file that is always open, such as a log, cannot be replaced: append to it instead.",
            ),
            Reason::Unread { .. } => (
                "The file was not read in this turn.".into(),
                "Perform a 'read_file' first, then base your write on what you find.",
            ),
            Reason::Unreadable => (
                "The last read of this file failed, so what it holds is not known.".into(),
                "Perform a 'read_file' that succeeds, then write.",
            ),
            Reason::Outside => (
                "The path leads out of the workspace.".into(),
                "Choose a path inside the workspace. Symbolic links that lead out of it do not count as inside.",
            ),
            Reason::Protected => (
                "The path is reserved and cannot be changed by an agent.".into(),
                "Choose another path, or ask a person to make the change.",
            ),
            Reason::OtherTree => (
                "The file is in another working tree of this repository than the one in which you began."
                    .into(),
                "Make the change in your own working tree. If it must be made there, ask a person: they can start you in that \
                 tree, or set `stay = false` under `[git]`.",
            ),
            Reason::PremiseChanged(files) => premise::words(files),
            Reason::NotAFile => (
                "The target is not a regular file.".into(),
                "Choose the path of a file, not of a directory or a device.",
            ),
            Reason::HardLinked => (
                "The file has several names (hard links), and a replacement would separate them.".into(),
                "Ask a person. They can break the link, or set `hard_links = \"detach\"`.",
            ),
            Reason::ReadOnly => (
                "The file is read-only.".into(),
                "Ask a person. They can change its permissions, or set `read_only = \"replace\"`.",
            ),
            Reason::Fenced(LostClaim { task, .. }) => (
                format!("Your claim on the task '{task}' has ended, so another agent may be working on it.")
                    .into(),
                "Stop working on this task and write nothing more for it. If you claimed it with claim_task, call \
                 release_task before you go on with other work.",
            ),
            Reason::TextNotFound { found: 0, text } => (
                format!("The old text is not in the file: {text:?}").into(),
                "Perform a new 'read_file' and copy the old text exactly, with its white space.",
            ),
            Reason::TextNotFound { found, text } => (
                format!("The old text is in the file {found} times: {text:?}").into(),
                "Give more of the lines around it, so that it is unique, or ask for all to be replaced.",
            ),
        }
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

#[cfg(test)]
mod tests;
