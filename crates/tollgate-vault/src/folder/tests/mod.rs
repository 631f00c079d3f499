//! The folder store under test: what happens at its acts, and a vault in a fresh folder.

mod chaos;
mod conform;
mod crash;
mod logs;
mod power_cut;
mod tasks;

use std::io;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::{FolderOptions, FolderStore};
use crate::denial::{Allowed, Denial};
use crate::event::{Journal, MemoryJournal};
use crate::owner::{ClaimKind, ClaimRequest, Claimed};
use crate::rules::Terms;
use crate::vault::Vault;
use tollgate_base::settings::Durability;

/// What is to happen at an act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Go,
    Die,
    /// In the middle of a write.
    DieHalf,
    Fail(i32),
}

/// What a test is thrown with.
pub(crate) struct Died;

pub(crate) type Fates = Arc<dyn Fn(&'static str) -> Fate + Send + Sync>;

/// Lets an act of the disk meet its fate. If it returns `Ok`, the act goes on.
pub(super) fn meet(
    fates: Option<&Fates>,
    act: &'static str,
    bytes: &[u8],
    write: &dyn Fn(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    match fates.map_or(Fate::Go, |fates| fates(act)) {
        Fate::DieHalf if !bytes.is_empty() => {
            write(&bytes[..bytes.len() / 2])?;
            resume_unwind(Box::new(Died))
        }
        Fate::Go | Fate::DieHalf => Ok(()),
        Fate::Die => resume_unwind(Box::new(Died)),
        Fate::Fail(code) => Err(io::Error::from_raw_os_error(code)),
    }
}

impl FolderStore {
    /// What is to happen at every act from here on.
    pub(crate) fn set_fates(&mut self, fates: Fates) {
        self.disk.fates = Some(fates);
    }
}

/// Stores in folders take the time from the files.
pub(super) const NOW: Timestamp = Timestamp::UNIX_EPOCH;

pub(super) fn options(journal: &Arc<MemoryJournal>) -> FolderOptions {
    FolderOptions {
        durability: Durability::Fast,
        settle: Duration::from_secs(2),
        journal: Arc::clone(journal) as Arc<dyn Journal>,
        quiet: None,
    }
}

/// A vault in a fresh folder, with the doors a test needs.
struct World {
    folder: tempfile::TempDir,
    journal: Arc<MemoryJournal>,
    store: FolderStore,
    vault: Vault,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let journal = Arc::new(MemoryJournal::default());
        let store = FolderStore::open(folder.path(), options(&journal)).unwrap();
        let vault = Vault::new(Arc::new(store.clone()), Terms::default());
        Self { folder, journal, store, vault }
    }

    fn with(&self, change: impl FnOnce(&mut FolderStore)) -> Vault {
        let mut store = self.store.clone();
        change(&mut store);
        Vault::new(Arc::new(store), Terms::default())
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }
}

/// Long after everything the tests write.
fn later() -> Timestamp {
    Timestamp::now() + jiff::SignedDuration::from_hours(1)
}

fn asked(who: &str) -> ClaimRequest {
    ClaimRequest { agent: who.parse().unwrap(), kind: ClaimKind::Leased, renamed_in: false }
}

fn claimed(claiming: Allowed<Claimed>) -> Claimed {
    match claiming {
        Ok(claimed) => claimed,
        Err(not) => panic!("{not:?}"),
    }
}

fn refused(claiming: Allowed<Claimed>) -> Denial {
    match claiming {
        Ok(claimed) => panic!("{claimed:?}"),
        Err(not) => not,
    }
}
