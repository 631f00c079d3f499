//! Previews: what an edit would make of a file.
//!
//! An agent that sees a diff has not seen the whole file, so a preview does not count as a read. If it did, the agent
//! could overwrite changes that it has not seen.

use std::path::Path;

use crate::edit::{self, Edit};
use crate::outcome::{Outcome, Refused};
use crate::part::Part;
use crate::path::FilePath;
use crate::read::{Read, read};
use crate::refusal::Refusal;
use crate::root::Root;
use crate::turn::Turn;
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_base::name::TurnId;

/// What an edit would make of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    /// The file.
    pub path: FilePath,
    /// The hash of the file.
    pub sha256: Digest,
    /// The current bytes.
    pub before: Vec<u8>,
    /// The bytes after the edit.
    pub after: Vec<u8>,
}

/// Reads a file without recording the read in any turn.
pub(crate) fn peek(root: &Root, path: &Path) -> Result<Outcome<Read>> {
    let nobody = Turn::begin(TurnId::new()?, "nobody".parse()?);
    read(root, &nobody, path, Part::Whole)
}

/// What these edits would make of a file. Changes and records nothing.
pub(crate) fn preview(root: &Root, path: &Path, edits: &[Edit]) -> Result<Outcome<Preview>> {
    let read = match peek(root, path)? {
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
