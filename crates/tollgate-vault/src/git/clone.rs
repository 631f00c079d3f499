//! This clone of the repository: its tree, what it has seen of the remote, and the lock of its conversation.
//!
//! Invariants: one process of a clone talks to the remote at a time, under the lock of the [`Conversation`]. The tree and
//! the state files of the clone change only under that lock.

use std::fs::{File, TryLockError};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::answers::Answers;
use super::card::Card;
use super::commit::Maker;
use super::options::GitOptions;
use super::remote::Remote;
use super::seen::Seen;
use super::tree::Tree;
use crate::claim::{ClaimId, ClaimRecord};
use crate::folder::FolderStore;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::lock::Pauses;
use tollgate_base::task::TaskName;

/// This clone.
#[derive(Clone)]
pub(super) struct LocalClone {
    pub(super) id: String,
    pub(super) options: GitOptions,
    pub(super) remote: Remote,
    pub(super) maker: Maker,
    pub(super) tree: Tree,
    /// The folder of the state files.
    pub(super) private: PathBuf,
    pub(super) answers: Arc<Answers>,
}

/// The lock of the conversation with the remote.
pub(super) struct Conversation(pub(super) File);

impl LocalClone {
    /// The tasks in the tree.
    pub(super) fn folder(&self) -> &FolderStore {
        &self.tree.folder
    }

    /// Waits until no other process of this clone talks to the remote.
    pub(super) fn converse(&self) -> Result<Conversation> {
        // The other process may be waiting for an answer of the remote, and may then look once more.
        let wait = 3 * self.options.patience + Duration::from_secs(10);
        let mut pauses = Pauses::lasting(wait);
        let mut waited = 0_u32;
        loop {
            match self.try_converse()? {
                Some(talk) => return Ok(talk),
                None if pauses.pause() => {
                    waited += 1;
                    if waited.is_multiple_of(100) {
                        self.remote.git.kill_orphan();
                    }
                }
                None => {
                    return Err(Fault::Locked { path: self.private.join("lock"), waited_s: wait.as_secs() });
                }
            }
        }
    }

    /// `None` if another process of this clone talks to the remote.
    pub(super) fn try_converse(&self) -> Result<Option<Conversation>> {
        let path = self.private.join("lock");
        let file = tollgate_base::lock::open(&path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Conversation(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error).at("lock", &path),
        }
    }

    fn seen_path(&self) -> PathBuf {
        self.private.join("seen.json")
    }

    pub(super) fn seen(&self) -> Result<Seen> {
        Seen::read(&self.seen_path())
    }

    pub(super) fn keep(&self, seen: &Seen) -> Result<()> {
        seen.write(self.folder().disk(), &self.seen_path())
    }

    /// Looks at the remote and brings the tree up to date. The answer is the files that were set aside.
    pub(super) fn look(&self, talk: &Conversation) -> Result<Vec<PathBuf>> {
        self.glance(talk)?;
        self.catch_up()
    }

    /// Looks at the remote and leaves the tree as it is.
    pub(super) fn glance(&self, talk: &Conversation) -> Result<()> {
        let view = self.remote.look(&talk.0)?;
        let mut seen = self.seen()?;
        seen.learn(view);
        self.keep(&seen)
    }

    /// Brings the tree up to date with what was seen. The answer is the files that were set aside.
    pub(super) fn catch_up(&self) -> Result<Vec<PathBuf>> {
        let mut seen = self.seen()?;
        if seen.tip.is_empty() {
            return Ok(Vec::new());
        }
        let aside = self.tree.import(seen.imported.as_deref(), &seen.tip)?;
        if seen.imported.as_ref() != Some(&seen.tip) {
            seen.imported = Some(seen.tip.clone());
            self.keep(&seen)?;
        }
        Ok(aside)
    }

    /// A new card of this clone.
    pub(super) fn new_card(&self, task: &TaskName, record: ClaimRecord) -> Result<Card> {
        let lease_ms = u64::try_from(self.options.lease.as_millis()).unwrap_or(u64::MAX);
        Card::new(task, &self.id, lease_ms, record)
    }

    /// The card of a task and its object, if it is still the card of this claim of this clone.
    pub(super) fn own_card<'a>(
        &self,
        seen: &'a Seen,
        task: &TaskName,
        claim: &ClaimId,
    ) -> Option<(&'a String, &'a Card)> {
        let found = seen.card(task)?;
        let card = found.card.as_ref().filter(|card| card.belongs_to(&self.id, claim))?;
        Some((&found.oid, card))
    }

    pub(super) fn refused(&self, what: &str) -> Fault {
        Fault::RemoteRefused { remote: self.remote.name.clone(), what: what.to_owned() }
    }
}
