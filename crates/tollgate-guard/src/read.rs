//! Reading a file for an agent, whole or in part.

use std::io::{self, Write};
use std::path::Path;

use crate::disk::{Spot, Steady};
use crate::guard::READ_WAIT;
use crate::outcome::{Outcome, Refused};
use crate::part::{Part, Selection};
use crate::path::FilePath;
use crate::place::Located;
use crate::refusal::{Reason, Refusal};
use crate::root::Root;
use crate::turn::{Extent, FileState, TEXT_PER_FILE, TurnState};
use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::lock::Pauses;

/// Up to this size, a file is read completely before the caller gets a byte, so that a slow caller does not keep other
/// programs from saving it. Larger files are streamed.
const READ_AT_ONCE: u64 = 16 << 20;

/// The result of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// The file.
    pub path: FilePath,
    /// The hash of the whole file, even if only a part was read.
    pub sha256: Digest,
    /// The size of the whole file in bytes.
    pub size: u64,
    /// The bytes of the part.
    pub bytes: Vec<u8>,
}

/// Reads a file, or a part of it, and records what the agent saw.
pub(crate) fn read(root: &Root, turn: &dyn TurnState, path: &Path, part: Part) -> Result<Outcome<Read>> {
    let mut streamed = Vec::new();
    let read = read_part(root, turn, path, part, &mut streamed)?;
    // A whole file that was read at once is in `bytes` already and need not be copied.
    Ok(read.map(|read| if read.bytes.is_empty() { Read { bytes: streamed, ..read } } else { read }))
}

/// Like [`read`], but writes the bytes to `sink`.
pub(crate) fn read_to(
    root: &Root,
    turn: &dyn TurnState,
    path: &Path,
    part: Part,
    sink: &mut dyn Write,
) -> Result<Outcome<Read>> {
    match read_part(root, turn, path, part, sink)? {
        Outcome::Done(read) => {
            sink.write_all(&read.bytes).at("hand out", &read.path)?;
            Ok(Outcome::Done(Read { bytes: Vec::new(), ..read }))
        }
        refused => Ok(refused),
    }
}

/// Returns the bytes of a whole file that is small enough to be read at once. Writes all other bytes to `sink`.
fn read_part(
    root: &Root,
    turn: &dyn TurnState,
    path: &Path,
    part: Part,
    sink: &mut dyn Write,
) -> Result<Outcome<Read>> {
    let refused =
        |path: FilePath, reason| Ok(Outcome::Refused(Refused::unrecorded(Refusal::new(path, reason))));
    let path = match root.locate(path)? {
        Located::Inside(place) => place.path,
        Located::Outside(path) => return refused(path, Reason::Outside),
        Located::Root(path) => return refused(path, Reason::NotAFile),
    };
    let found = match root.spot_anywhere(&path)? {
        Some(spot) => steady(&spot, turn.get(&path)?.is_some())?,
        None => Steady::Nothing,
    };
    let mut file = match found {
        Steady::File(file) | Steady::Busy(file) => file,
        Steady::NotAFile => return refused(path, Reason::NotAFile),
        Steady::Nothing => {
            turn.observe(&path, FileState::Absent, Extent::Whole)?;
            return Err(Fault::Missing { what: format!("`{path}`") });
        }
        Steady::Unreadable => {
            turn.observe(&path, FileState::Unreadable, Extent::Whole)?;
            return Err(io::Error::from(io::ErrorKind::PermissionDenied)).at("read", &path);
        }
    };
    let size = file.len();
    let mut selection = Selection::new(part);
    let sha256 = if size <= READ_AT_ONCE {
        let (bytes, digest) = file.read()?;
        file.let_go();
        if size <= TEXT_PER_FILE as u64 {
            turn.keep_text(digest, &bytes)?;
        }
        if part == Part::Whole {
            turn.observe(&path, FileState::Present(digest), Extent::Whole)?;
            return Ok(Outcome::Done(Read { path, sha256: digest, size, bytes }));
        }
        selection.feed(&bytes, sink).at("hand out", &path)?;
        digest
    } else {
        file.let_go();
        file.stream(|chunk| selection.feed(chunk, sink).at("hand out", &path))?
    };
    let shown = selection.finish(sink).at("hand out", &path)?;
    turn.observe(&path, FileState::Present(sha256), shown)?;
    Ok(Outcome::Done(Read { path, sha256, size, bytes: Vec::new() }))
}

/// Opens a file once nobody is writing it. Some editors move the old file away before they write the new one, so a file that
/// the turn has seen may be missing for a moment.
fn steady(spot: &Spot, seen: bool) -> Result<Steady> {
    let mut pauses = Pauses::lasting(READ_WAIT);
    loop {
        match spot.steady(READ_WAIT)? {
            Steady::Nothing if seen && pauses.pause() => {}
            found => return Ok(found),
        }
    }
}
