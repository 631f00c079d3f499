//! The files of a ledger.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::fs::OFlags;

use crate::error::{At, Fault, Result};
use crate::file::names_in;
use crate::lock::{KeptLock, KeptLockGuard, Lock};
use crate::private;

/// The longest time an append waits for the lock. An append takes less than a millisecond, plus a flush, so a process
/// that holds the lock for this long hangs.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// The ledger of one workspace.
#[derive(Debug, Clone)]
pub struct Ledger {
    pub(super) folder: PathBuf,
    pub(super) path: PathBuf,
    lock: PathBuf,
    pub(super) max_size: u64,
    pub(super) head: Option<PathBuf>,
    pub(super) kept: Arc<Mutex<KeptFiles>>,
}

/// The files that stay open between appends.
#[derive(Debug, Default)]
pub(super) struct KeptFiles {
    lock: KeptLock,
    growing: GrowingFile,
}

/// The file that grows, as it was when it was opened.
pub(super) type GrowingFile = Option<(File, Metadata)>;

impl Ledger {
    /// The ledger in this folder, guarded by this lock file. No file is read or made yet. The folder must exist before
    /// the first append. When the file is at least `max_size` large, the ledger goes on in a new one. `head` is the file
    /// outside the workspace that remembers the last known head; it and its folder are made when needed.
    pub fn new(folder: &Path, lock: &Path, max_size: u64, head: Option<PathBuf>) -> Self {
        let path = folder.join("ledger.jsonl");
        Self { folder: folder.to_owned(), path, lock: lock.to_owned(), max_size, head, kept: Arc::default() }
    }

    /// The file that grows.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn lock(&self) -> Result<Lock> {
        Lock::acquire(&self.lock, LOCK_WAIT)?.ok_or_else(|| self.locked())
    }

    /// Locks the ledger for an append, and returns the file that grows if it was open.
    pub(super) fn lock_kept<'a>(
        &self,
        kept: &'a mut KeptFiles,
    ) -> Result<(KeptLockGuard<'a>, &'a mut GrowingFile)> {
        let lock = kept.lock.acquire(&self.lock, LOCK_WAIT)?.ok_or_else(|| self.locked())?;
        Ok((lock, &mut kept.growing))
    }

    fn locked(&self) -> Fault {
        Fault::Locked { path: self.lock.clone(), waited_s: LOCK_WAIT.as_secs() }
    }

    /// The files as they are at this moment, the oldest first.
    pub(super) fn files(&self) -> Result<Vec<LedgerFile>> {
        let mut growing = LedgerFile { path: self.path.as_path().into(), first: None, open: None, from: 0 };
        // Opened before the full files are listed: should it become a full one in between, it is in the list and ends
        // it. In the other order its lines could be left out.
        growing.open = growing.take()?;
        let name_of_full = |name: &str| name.strip_prefix("ledger-")?.strip_suffix(".jsonl")?.parse().ok();
        let full = names_in(&self.folder)?.into_iter().filter_map(|name| {
            let first = name.to_str().and_then(name_of_full)?;
            Some(LedgerFile { path: self.folder.join(name).into(), first: Some(first), open: None, from: 0 })
        });
        let mut files: Vec<LedgerFile> = full.collect();
        files.sort_unstable_by_key(|file| file.first);
        if let Some((_, found)) = &growing.open {
            if let Some(at) = files.iter().position(|full| full.is_now(found)) {
                files.truncate(at);
            }
            files.push(growing);
        }
        Ok(files)
    }
}

/// One file of a ledger. Full files are opened when they are read, because most need not be.
#[derive(Debug)]
pub(super) struct LedgerFile {
    pub(super) path: Arc<Path>,
    /// The number of the first line: in the name of a full file, not known of the one that grows.
    pub(super) first: Option<u64>,
    /// Once it is open: how it was at that moment. What is added later is not read.
    pub(super) open: Option<(File, Metadata)>,
    /// Where reading begins.
    pub(super) from: u64,
}

impl LedgerFile {
    /// The file, open. `None` if it does not exist (any more).
    pub(super) fn take(&mut self) -> Result<Option<(File, Metadata)>> {
        if self.open.is_some() {
            return Ok(self.open.take());
        }
        let Some(file) = open_to_read(&self.path)? else { return Ok(None) };
        let found = file.metadata().at("look at", &*self.path)?;
        Ok(Some((file, found)))
    }

    /// Whether this file is now at its path.
    pub(super) fn is_now(&self, file: &Metadata) -> bool {
        self.path.symlink_metadata().is_ok_and(|now| is_same_file(&now, file))
    }
}

pub(super) fn is_same_file(a: &Metadata, b: &Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// `None` if the file does not exist.
pub(super) fn open_to_read(path: &Path) -> Result<Option<File>> {
    // Not through a link: it could make a reader wait for a pipe, or show another user's file as the ledger.
    match private::open(path, OFlags::RDONLY | OFlags::NONBLOCK) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).at("open", path),
    }
}
