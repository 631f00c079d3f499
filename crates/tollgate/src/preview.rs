//! Looking without having looked: what an edit would make of a file.
//!
//! An agent that is shown a diff has not seen the file, so nothing here moves a baseline. If it did, the agent could
//! then overwrite changes that it knows nothing of.

use std::path::Path;

use crate::digest::Digest;
use crate::edit::{self, Edit};
use crate::error::Result;
use crate::gate::{Gate, Read};
use crate::guard::{Outcome, Refused};
use crate::name::TurnId;
use crate::part::Part;
use crate::path::FilePath;
use crate::refusal::Refusal;
use crate::turn::Turn;

/// What an edit would make of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    /// The file.
    pub path: FilePath,
    /// The hash of what it is.
    pub sha256: Digest,
    /// What it is.
    pub before: Vec<u8>,
    /// What it would be.
    pub after: Vec<u8>,
}

impl Gate {
    /// Reads a file on nobody's behalf: no turn remembers it.
    pub fn peek(&self, path: impl AsRef<Path>) -> Result<Outcome<Read>> {
        let nobody = Turn::begin(TurnId::new()?, "nobody".parse()?);
        self.read(&nobody, path, Part::Whole)
    }

    /// What these edits would make of the file that is there now. Nothing is changed, remembered or recorded.
    pub fn preview(&self, path: impl AsRef<Path>, edits: &[Edit]) -> Result<Outcome<Preview>> {
        let read = match self.peek(path)? {
            Outcome::Done(read) => read,
            Outcome::Refused(refused) => return Ok(Outcome::Refused(refused)),
        };
        Ok(match edit::apply(read.bytes.clone(), edits)? {
            Ok(after) => {
                Outcome::Done(Preview { path: read.path, sha256: read.sha256, before: read.bytes, after })
            }
            Err(reason) => Outcome::Refused(Refused::unrecorded(Refusal::new(read.path, reason))),
        })
    }
}
