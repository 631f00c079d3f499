//! The record of a run: one JSON document for the hook that started it.

use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};
use tollgate_base::file::replace_file;
use tollgate_base::settings::Durability;
use tollgate_guard::refusal::Payload;

use crate::{RunEnd, RunLevel, RunNote, RunOutcome};

/// A file that a command read. Its path is relative to the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReadFile {
    /// The file.
    #[serde(serialize_with = "as_text")]
    pub path: PathBuf,
    /// Its hash, if it is known which bytes the command read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Digest>,
}

/// A file that a command changed. Its path is relative to the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WrittenFile {
    /// The file.
    #[serde(serialize_with = "as_text")]
    pub path: PathBuf,
    /// Its hash before the run; `None` if it did not exist.
    pub before: Option<Digest>,
    /// Its hash after the run; `None` if it was deleted.
    pub after: Option<Digest>,
}

/// The record of a run.
#[derive(Debug, Serialize)]
pub struct RunRecord<'a> {
    level: RunLevel,
    /// The exit code of the command. `None` if it was killed or did not start.
    exit: Option<u8>,
    refused: Vec<Payload>,
    reads: &'a [ReadFile],
    writes: &'a [WrittenFile],
    notes: Vec<String>,
}

impl<'a> RunRecord<'a> {
    /// The record of this run.
    pub fn of(outcome: &'a RunOutcome) -> Self {
        let exit = match outcome.end {
            RunEnd::Exited(code) => Some(code),
            RunEnd::Killed(_) | RunEnd::NotFound | RunEnd::NotExecutable => None,
        };
        Self {
            level: outcome.level,
            exit,
            refused: outcome.refused.as_ref().map(|refused| refused.payloads()).unwrap_or_default(),
            reads: &outcome.reads,
            writes: &outcome.writes,
            notes: outcome.notes.iter().map(RunNote::to_string).collect(),
        }
    }

    /// Writes it to a file, as a whole.
    pub fn write(&self, path: &Path) -> Result<()> {
        let bytes = serde_json::to_vec(self).map_err(|error| Fault::invalid(error.to_string()))?;
        replace_file(path, &bytes, Durability::Fast)
    }
}

fn as_text<S: Serializer>(path: &Path, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

impl std::fmt::Display for RunNote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ReadChanged(path) => {
                write!(
                    f,
                    "`{}` was read by the command and changed by someone else while it ran",
                    path.display()
                )
            }
            Self::ReadsUnknown => {
                f.write_str("the workspace is too large to know which files the command read")
            }
            Self::NotKept(path) => {
                write!(f, "`{}` is a socket or a pipe, and ended with the command", path.display())
            }
            Self::LeftBehind => {
                f.write_str("the command left processes behind: what they change is committed when they end")
            }
        }
    }
}
