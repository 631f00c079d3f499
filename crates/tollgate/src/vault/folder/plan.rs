//! The step that is being taken, and the note that stays of it: one file format, two folders.
//!
//! A step is first written to `steps/`, whole and flushed; then it is carried out; then the same file is renamed to
//! `notes/`, which replaces the note of the step before in one act. So what lies in `steps/` is under way or was cut
//! short, and what lies in `notes/` was carried out to the end.
//!
//! The file: one line of JSON, then the raw bytes that the step takes from the end of the task's file (`old`) and those
//! that it puts there (`new`), so that a write that was cut short can be made again.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{At, Fault, Result};
use crate::vault::claim::{Note, StepId};
use crate::vault::store::Step;

/// The version of everything in `<vault>/.tollgate/vault/`.
pub(crate) const FORMAT: u32 = 1;

/// A step and all that is needed to carry it out, again or back.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) format: u32,
    pub(crate) step: Step,
    /// The inode of the task's file, by which it is known wherever it lies.
    pub(crate) ino: u64,
    /// How long it was.
    pub(crate) len: u64,
    /// The journal that the events belong into.
    pub(crate) journal: String,
    /// The step that takes this one back, if need be.
    pub(crate) undo: StepId,
    /// Where the change begins, and how many bytes are taken and put.
    pub(crate) change: Option<Change>,
    #[serde(skip)]
    pub(crate) old: Vec<u8>,
    #[serde(skip)]
    pub(crate) new: Vec<u8>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Change {
    pub(crate) at: u64,
    pub(crate) old: usize,
    pub(crate) new: usize,
}

impl Plan {
    pub(crate) fn bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec(self).map_err(|error| Fault::invalid(error.to_string()))?;
        bytes.push(b'\n');
        bytes.extend_from_slice(&self.old);
        bytes.extend_from_slice(&self.new);
        Ok(bytes)
    }

    /// `None` if there is no such file, or if its writing was cut short, which means that nothing else was done.
    pub(crate) fn load(path: &Path) -> Result<Option<Self>> {
        match fs::read(path) {
            Ok(bytes) => Self::parse(&bytes, path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).at("read", path),
        }
    }

    fn parse(bytes: &[u8], path: &Path) -> Result<Option<Self>> {
        #[derive(Deserialize)]
        struct OnlyFormat {
            format: u32,
        }
        let Some(end) = bytes.iter().position(|b| *b == b'\n') else { return Ok(None) };
        let (line, raw) = (&bytes[..end], &bytes[end + 1..]);
        let Ok(OnlyFormat { format }) = serde_json::from_slice(line) else { return Ok(None) };
        if format > FORMAT {
            return Err(Fault::NewerFormat { path: path.to_owned(), found: format, known: FORMAT });
        }
        let Ok(mut plan) = serde_json::from_slice::<Self>(line) else { return Ok(None) };
        if let Some(change) = plan.change {
            if raw.len() != change.old + change.new {
                return Ok(None);
            }
            plan.old = raw[..change.old].to_vec();
            plan.new = raw[change.old..].to_vec();
        }
        Ok(Some(plan))
    }

    /// What stays known.
    pub(crate) fn note(&self) -> Option<&Note> {
        self.step.note.as_ref()
    }
}
