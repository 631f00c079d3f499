//! The record of a run: one JSON document for the hook that started it.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

use serde::Serialize;

use tollgate_base::error::{At, Fault, Result};
use tollgate_guard::guard::Refused;
use tollgate_guard::refusal::Payload;

use crate::level::RunLevel;
use crate::outcome::{ChangedFile, ReadFile, RunEnd, RunNote, RunOutcome};

/// The record of a run.
#[derive(Debug, Serialize)]
pub struct RunRecord<'a> {
    level: RunLevel,
    /// The exit code of the command. `None` if it was killed or did not start.
    exit: Option<u8>,
    refused: Vec<Payload>,
    reads: &'a [ReadFile],
    writes: &'a [ChangedFile],
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
            refused: outcome.refused.as_ref().map(Refused::payloads).unwrap_or_default(),
            reads: &outcome.reads,
            writes: &outcome.writes,
            notes: outcome.notes.iter().map(RunNote::to_string).collect(),
        }
    }
}

/// The file for a record. It is created before the command starts: a command whose record has no place must not change anything.
#[derive(Debug)]
pub struct RecordFile {
    file: File,
    path: PathBuf,
}

impl RecordFile {
    /// Creates the file, or empties the one that is there. It stays empty until the run has ended.
    pub fn create(path: PathBuf) -> Result<Self> {
        let file = File::create(&path).at("create", &path)?;
        Ok(Self { file, path })
    }

    /// Writes the record.
    pub fn write(mut self, record: &RunRecord<'_>) -> Result<()> {
        let bytes = serde_json::to_vec(record).map_err(|error| Fault::invalid(error.to_string()))?;
        self.file.write_all(&bytes).at("write", &self.path)
    }
}
