//! The last known head of a ledger, kept outside the workspace: a witness against a cut or rewritten end.
//!
//! An append never fails because of it: a home folder that is full or read-only must not stop an agent. It is not flushed
//! either. After a power cut it may be behind the ledger, which is harmless. It may also be ahead of lines that were not
//! flushed, so the record names the boot in which they were written: after another boot only the flushed lines count.
//!
//! Invariant: a witness that contradicts the ledger is not overwritten by later appends. It is marked disputed and stays
//! until a person deletes the file; otherwise the first append after a cut would hide the cut.
//!
//! Limit: other users keep their heads in their own state folders. If they have appended past the remembered line, the
//! next append replaces the witness without comparing, because that would cost as much as they have written.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::boot_clock::boot_id;
use crate::error::{At, Fault, Result};
use crate::file::version_in;
use crate::private;
use crate::settings::Durability;

use super::files::{Ledger, open_to_read};
use super::line::Cursor;

const VERSION: u32 = 1;

/// The record is padded to this length and replaced by one write in place, so that it is never seen in two halves. It is
/// longer than the longest record, and shorter than a disk sector.
const LENGTH: usize = 400;

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    version: u32,
    #[serde(flatten)]
    head: Cursor,
    #[serde(default)]
    disputed: bool,
    /// If the last lines up to the head were not flushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unflushed: Option<Unflushed>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Unflushed {
    /// The boot in which they were written.
    boot: String,
    /// The last head that was flushed.
    flushed: Option<Cursor>,
}

impl Record {
    /// The head that the ledger must have reached.
    fn known(&self) -> Option<Cursor> {
        match &self.unflushed {
            Some(Unflushed { boot, flushed }) if boot != boot_id() => *flushed,
            _ => Some(self.head),
        }
    }

    fn flushed(self) -> Option<Cursor> {
        self.unflushed.map_or(Some(self.head), |unflushed| unflushed.flushed)
    }
}

impl Ledger {
    /// What is remembered, if anything is.
    pub(super) fn remembered(&self) -> Result<Option<Cursor>> {
        let Some(path) = &self.head else { return Ok(None) };
        Ok(load(path)?.and_then(|record| record.known()))
    }

    /// Remembers `after`, unless what is remembered contradicts `before`, where the ledger ended until now.
    pub(super) fn remember(&self, before: Cursor, after: Cursor, durability: Durability) {
        let Some(path) = &self.head else { return };
        let record = match load(path) {
            // Not replaced: disputed, of a later version, or not readable.
            Ok(Some(Record { disputed: true, .. })) | Err(_) => return,
            Ok(record) => record,
        };
        let known = record.as_ref().and_then(Record::known);
        let is_contradicted =
            known.is_some_and(|known| known.seq > before.seq || (known.seq == before.seq && known != before));
        let record = match record {
            Some(record) if is_contradicted => Record { disputed: true, ..record },
            record => {
                let unflushed =
                    || Unflushed { boot: boot_id().to_owned(), flushed: record.and_then(Record::flushed) };
                let unflushed = (durability == Durability::Fast).then(unflushed);
                Record { version: VERSION, head: after, disputed: false, unflushed }
            }
        };
        // An append does not fail because the witness cannot be written.
        let _ = save(path, &record);
    }
}

fn load(path: &Path) -> Result<Option<Record>> {
    let Some(file) = open_to_read(path)? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.take(2 * LENGTH as u64).read_to_end(&mut bytes).at("read", path)?;
    match version_in(&bytes) {
        Some(found) if found > VERSION => {
            Err(Fault::NewerFormat { path: path.to_owned(), found, known: VERSION })
        }
        // A record that a power cut has torn counts as none.
        _ => Ok(serde_json::from_slice(&bytes).ok()),
    }
}

fn save(path: &Path, record: &Record) -> io::Result<()> {
    let json = serde_json::to_string(record)?;
    let open = || private::open_with_mode(path, OFlags::WRONLY | OFlags::CREATE, Mode::RUSR | Mode::WUSR);
    let file = File::from(match (open(), path.parent()) {
        (Err(error), Some(folder)) if error.kind() == io::ErrorKind::NotFound => {
            // The XDG rules: what is made in the user's state folder is for the user alone.
            private::create_folders(folder, 0o700)?;
            open()?
        }
        (opened, _) => opened?,
    });
    file.write_all_at(format!("{json:<0$}\n", LENGTH - 1).as_bytes(), 0)?;
    file.set_len(LENGTH as u64)
}
