//! The record of a run: one JSON document for the hook that started it.

use std::path::Path;

use serde::Serialize;

use tollgate_base::error::{Fault, Result};
use tollgate_base::file::replace_file;
use tollgate_base::settings::Durability;
use tollgate_guard::guard::Refused;
use tollgate_guard::refusal::Payload;

use crate::level::RunLevel;
use crate::outcome::{ReadFile, RunEnd, RunNote, RunOutcome, WrittenFile};

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
            refused: outcome.refused.as_ref().map(Refused::payloads).unwrap_or_default(),
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
