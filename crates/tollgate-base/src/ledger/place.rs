//! Finding the place of a cursor again, in whichever file it is by now.
//!
//! Reads a few blocks of at most two files, however long the ledger is. Takes no lock.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use serde::Deserialize;

use crate::digest::Digest;
use crate::error::{At, Result};

use super::cursor::Cursor;
use super::files::{Shared, open_to_read};
use super::read::{BLOCK, Backwards};

/// Why the place of a cursor is not in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// Files with older lines were deleted, among them that of this cursor.
    Deleted {
        /// The number of the first line that is there.
        first: u64,
    },
    /// The ledger has another line in this place: the line was edited, or the cursor is from another ledger.
    Changed,
    /// The ledger ends before this place.
    Cut {
        /// The number of the last line that is there; 0 if there is none.
        last: u64,
    },
}

/// A file of the ledger, and where in it the lines after a cursor begin.
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) offset: u64,
}

/// What ties a line to the one before.
#[derive(Deserialize)]
struct Link {
    seq: u64,
    prev: Digest,
}

/// The place after the line of this cursor.
pub(super) fn find(ledger: &Shared, cursor: Cursor) -> Result<Result<Place, Lost>> {
    // Opened before the others are listed. Should the file become a full one in between, it is left out of the list.
    let growing = open_to_read(&ledger.path)?;
    let full = ledger.full_files(growing.as_ref())?;
    let mut first_after = None;
    let mut files: Vec<_> = full.into_iter().map(|(first, path)| (Some(first), path, None)).collect();
    files.extend(growing.map(|file| (None, ledger.path.clone(), Some(file))));
    for (named, path, file) in files.into_iter().rev() {
        // Full files are named by their first line: most need not be opened.
        if let Some(first) = named.filter(|first| *first > cursor.seq.saturating_add(1)) {
            first_after = Some(first);
            continue;
        }
        let Some(file) = file.map_or_else(|| open_to_read(&path), |file| Ok(Some(file)))? else { continue };
        let length = file.metadata().at("look at", &path)?.len();
        let mut lines = Backwards::new(&file, length, BLOCK).at("read", &path)?;
        let whole = lines.end();
        if let Some((seq, line)) = lines.last_up_to(cursor.seq).at("read", &path)? {
            return Ok(if seq == cursor.seq && Digest::of(&line.bytes) == cursor.hash {
                Ok(Place { path, file, offset: line.end })
            } else if seq == cursor.seq || first_after.is_some() || line.end < whole {
                Err(Lost::Changed)
            } else {
                Err(Lost::Cut { last: seq })
            });
        }
        // Its first line tells what the line before it was, even if the file of that one is not there any more.
        let Some(next) = first_link(&file).at("read", &path)? else { continue };
        if next.seq == cursor.seq.saturating_add(1) {
            let is_chained = next.prev == cursor.hash;
            return Ok(if is_chained { Ok(Place { path, file, offset: 0 }) } else { Err(Lost::Changed) });
        }
        first_after = Some(next.seq);
    }
    Ok(Err(first_after.map_or(Lost::Cut { last: 0 }, |first| Lost::Deleted { first })))
}

fn first_link(file: &File) -> std::io::Result<Option<Link>> {
    let mut line = Vec::new();
    BufReader::new(file).read_until(b'\n', &mut line)?;
    Ok(serde_json::from_slice(&line).ok())
}
