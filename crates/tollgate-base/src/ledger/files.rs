//! The files of a ledger.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::error::{At, Fault, Result};
use crate::lock::Lock;

use super::writer::Writer;

/// The longest time an append waits for the lock. An append takes less than a millisecond, plus a flush, so a process
/// that holds the lock for this long hangs.
pub(super) const LOCK_WAIT: Duration = Duration::from_secs(10);

/// Whether an append survives a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// Not necessarily: it survives the end of the process, not of the machine.
    No,
    /// The lines, and all before them, are on the disk when the call returns.
    Data,
}

/// How a ledger is kept.
#[derive(Debug, Clone)]
pub struct LedgerOptions {
    /// When the file is at least this large, the ledger goes on in a new one.
    pub max_size: u64,
    /// The file outside the workspace that remembers the last known head. It and its folder are made when needed.
    pub head: Option<PathBuf>,
}

/// The ledger of one workspace. Clones share what they know about its end.
#[derive(Debug, Clone)]
pub struct Ledger(pub(super) Arc<Shared>);

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) folder: PathBuf,
    pub(super) path: PathBuf,
    pub(super) lock: PathBuf,
    pub(super) options: LedgerOptions,
    pub(super) writer: Mutex<Writer>,
}

impl Ledger {
    /// The ledger in this folder, guarded by this lock file. No file is read or made yet. The folder must exist before
    /// the first append.
    pub fn new(folder: &Path, lock: &Path, options: LedgerOptions) -> Self {
        Self(Arc::new(Shared {
            folder: folder.to_owned(),
            path: folder.join("ledger.jsonl"),
            lock: lock.to_owned(),
            options,
            writer: Mutex::default(),
        }))
    }

    /// The file that grows.
    pub fn path(&self) -> &Path {
        &self.0.path
    }
}

impl Shared {
    pub(super) fn lock(&self) -> Result<Lock> {
        Lock::acquire(&self.lock, LOCK_WAIT)?.ok_or_else(|| self.locked())
    }

    pub(super) fn locked(&self) -> Fault {
        Fault::Locked { path: self.lock.clone(), waited_s: LOCK_WAIT.as_secs() }
    }

    /// The full files, the oldest first, with the number of their first line. With `before`: only those before that
    /// file, should it be a full one by now.
    pub(super) fn full_files(&self, before: Option<&File>) -> Result<Vec<(u64, PathBuf)>> {
        let mut found = Vec::new();
        let items = match self.folder.read_dir() {
            // Nothing has happened in this workspace yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            items => items.at("list", &self.folder)?,
        };
        for item in items {
            let name = item.at("list", &self.folder)?.file_name();
            if let Some(first) = name.to_str().and_then(first_seq_in) {
                found.push((first, self.folder.join(&name)));
            }
        }
        found.sort_unstable();
        if let Some(before) = before {
            let id = identity(before).at("look at", &self.path)?;
            let same =
                |path: &Path| path.symlink_metadata().is_ok_and(|found| (found.dev(), found.ino()) == id);
            if let Some(at) = found.iter().position(|(_, path)| same(path)) {
                found.truncate(at);
            }
        }
        Ok(found)
    }

    pub(super) fn full_file(&self, first_seq: u64) -> PathBuf {
        self.folder.join(format!("ledger-{first_seq}.jsonl"))
    }
}

pub(super) fn first_seq_in(name: &str) -> Option<u64> {
    name.strip_prefix("ledger-")?.strip_suffix(".jsonl")?.parse().ok()
}

pub(super) fn identity(file: &File) -> io::Result<(u64, u64)> {
    let found = file.metadata()?;
    Ok((found.dev(), found.ino()))
}

/// `None` if the file does not exist.
pub(super) fn open_to_read(path: &Path) -> Result<Option<File>> {
    // Not through a link: it could make a reader wait for a pipe, or show another user's file as the ledger.
    match OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).at("open", path),
    }
}
