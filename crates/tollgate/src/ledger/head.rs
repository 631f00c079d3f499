//! The last known head of a ledger, kept outside the workspace: the witness against a cut or rewritten end.
//!
//! Only a witness, so appending never fails for its sake: a home folder that is full or read-only must not stop an agent.
//! It is not flushed either. After a power cut it may be behind the ledger, which is harmless.
//!
//! Invariant: a witness that contradicts the ledger is not overwritten by later appends. It is marked disputed and stays
//! until a person removes the file; otherwise the first append after a cut would cover it up.
//!
//! Limit: if others (whose heads are in their own state folders) have appended past the remembered line, the next append
//! moves the witness on without looking back at it, because looking back costs as much as they have written.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{At, Fault, Result};

use super::{Head, open_to_read};

const VERSION: u32 = 1;

/// The record is padded to this length and replaced by one write in place, so that it is never seen in two halves. It is
/// longer than the longest record, and much shorter than a disk sector.
const LENGTH: usize = 160;

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    version: u32,
    #[serde(flatten)]
    head: Head,
    #[serde(default)]
    disputed: bool,
}

/// What is remembered, if anything is.
pub(super) fn remembered(path: &Path) -> Result<Option<Head>> {
    Ok(load(path)?.map(|record| record.head))
}

/// Remembers `after`, unless what is remembered contradicts `before`, where the ledger ended until now.
pub(super) fn remember(path: &Path, before: Head, after: Head) {
    let record = match load(path) {
        // Not ours to replace: disputed, of a later version, or not readable at all.
        Ok(Some(Record { disputed: true, .. })) | Err(_) => return,
        Ok(Some(Record { head, .. }))
            if head.seq > before.seq || (head.seq == before.seq && head != before) =>
        {
            Record { version: VERSION, head, disputed: true }
        }
        Ok(_) => Record { version: VERSION, head: after, disputed: false },
    };
    // See above: a witness that cannot be written is no reason to fail.
    let _ = save(path, &record);
}

fn load(path: &Path) -> Result<Option<Record>> {
    let Some(file) = open_to_read(path)? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.take(2 * LENGTH as u64).read_to_end(&mut bytes).at("read", path)?;
    #[derive(Deserialize)]
    struct OnlyVersion {
        version: u32,
    }
    match serde_json::from_slice::<OnlyVersion>(&bytes) {
        Ok(OnlyVersion { version }) if version > VERSION => {
            Err(Fault::NewerFormat { path: path.to_owned(), found: version, known: VERSION })
        }
        // What a power cut left of the record remembers nothing.
        _ => Ok(serde_json::from_slice(&bytes).ok()),
    }
}

fn save(path: &Path, record: &Record) -> io::Result<()> {
    let json = serde_json::to_string(record)?;
    let file = match open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Some(folder) = path.parent() {
                // As the XDG rules ask: what is made in the user's state folder is for the user alone.
                DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            }
            open(path)?
        }
        opened => opened?,
    };
    file.write_all_at(format!("{json:<0$}\n", LENGTH - 1).as_bytes(), 0)?;
    file.set_len(LENGTH as u64)
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(path)
}
