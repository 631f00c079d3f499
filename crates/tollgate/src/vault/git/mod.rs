//! Tasks over git: one owner across machines, settled by the remote before any work.
//!
//! # The cut
//!
//! - **Authority** is the remote. Each task that was ever claimed and is not final has a card there (`card`), behind a ref
//!   of its own. Who may take the next step is decided by the remote's compare-and-swap of that ref, and by nothing else.
//! - **The record** is the move of the markdown file on the branch. Card and record change in one push that the remote takes
//!   whole or not at all (`talk`), made for exactly the tip that was looked at (`record`). So a claim is checked against
//!   what is on the branch at the moment it is made: a clone that has slept cannot claim what was finished meanwhile.
//! - **On one machine** a [`FolderStore`] excludes workers as ever, with its locks, held claims, log and ledger. It works in
//!   a tree of tollgate's own (`tree`), `<vault>/.tollgate/git/tree`, which shows the vault's folders of the branch.
//! - **The person's** index, working tree and branch are theirs. They follow by a fast-forward that git itself finds
//!   harmless (`follow`), or not at all.
//!
//! # One step
//!
//! 1. Take the lock of the conversation: one at a time for each clone. Settle what an earlier one left (`step`).
//! 2. Make the card and the commit for the tip that was last seen. Write down what is about to be pushed.
//! 3. Push both. Taken: go on. Moved: look, bring the tree up to the new tip, and if the task is still as it was, go to 2;
//!    otherwise another was quicker. Refused: say why. Unclear: look, and believe what is there.
//! 4. Take the same step in the tree, with its ledger line. Now it is told.
//!
//! An owner's heartbeat is a new card and no commit. An owner elsewhere is gone when its card has not changed for a whole
//! lease by the clock of whoever waits (`seen`); taking the task from it is a compare-and-swap of that very card, so the
//! owner who was only slow is fenced off: nothing it pushes is taken any more, and its file is put aside for a person.
//!
//! Invariant: the user's own `git` program does all the talking (`run`).

mod beat;
mod card;
mod checkup;
mod finish;
mod follow;
mod open;
mod owed;
mod record;
mod run;
mod seen;
mod step;
mod talk;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use self::record::Maker;
use self::run::Given;
use self::seen::Seen;
use self::step::Turns;
use self::talk::Remote;
use self::tree::Tree;
use super::claim::{Claim, ClaimId, Note, Tenure};
use super::event::Event;
use super::figures::{Count, Tally};
use super::folder::{FolderOptions, FolderStore};
use super::hold::{Hold, Owner};
use super::name::TaskName;
use super::state::{Slot, State};
use super::store::{Healed, Landed, Outcome, Scan, Step, Store, Stored};
use super::task::Broken;
use crate::digest::Digest;
use crate::error::{At, Fault, Result};
use crate::lock::Pauses;
use crate::name::Agent;
use crate::settings::Offline;

pub use self::beat::Beat;
pub use self::checkup::{Finding, Probe};
pub use self::follow::Followed;

/// How git is used.
#[derive(Clone)]
pub struct GitOptions {
    /// The program.
    pub program: PathBuf,
    /// The remote's name.
    pub remote: String,
    /// The branch that the tasks are on.
    pub branch: String,
    /// Where on the remote the cards are: the start of their refs' names.
    pub claim_refs: String,
    /// How long an owner may be silent before another machine may take its task.
    pub lease: Duration,
    /// How long the remote may take for one answer.
    pub patience: Duration,
    /// What happens when it cannot be reached.
    pub offline: Offline,
    /// Whether the person's working tree is to follow.
    pub follow: bool,
    /// The user has not said in the environment how ssh is to be run.
    pub plain_ssh: bool,
    /// How the folders of the tree are used.
    pub folder: FolderOptions,
}

/// Tasks over git.
#[derive(Clone)]
pub struct GitStore {
    folder: FolderStore,
    remote: Remote,
    maker: Maker,
    tree: Tree,
    private: PathBuf,
    clone: String,
    options: GitOptions,
    turns: Arc<Turns>,
}

/// What one round with the remote has brought.
#[derive(Debug, Default)]
pub struct Round {
    /// The branch's commit.
    pub tip: String,
    /// Whether anything was new.
    pub news: bool,
    /// What was put aside for a person.
    pub aside: Vec<PathBuf>,
    /// What became of steps that were taken while the remote could not be reached.
    pub paid: usize,
    /// What became of the person's working tree.
    pub followed: Option<Followed>,
}

/// The lock of the conversation with the remote.
struct Talk(File);

impl GitStore {
    /// The folder that shows the tasks.
    pub fn tree(&self) -> &Path {
        self.folder.vault()
    }

    /// The folder of the locks of held claims.
    pub fn held(&self) -> &Path {
        self.folder.held()
    }

    /// How long an owner may be silent.
    pub fn lease(&self) -> Duration {
        self.options.lease
    }

    /// One round: looks at the remote, brings the tree up to it, and lets the person's working tree follow.
    pub fn sync(&self) -> Result<Round> {
        let talk = self.converse()?;
        self.settle(&talk)?;
        let before = self.seen()?;
        self.glance(&talk)?;
        let paid = self.pay(&talk)?;
        let mut round = Round { paid, aside: self.catch_up()?, ..Round::default() };
        let seen = self.seen()?;
        round.news = before.imported != seen.imported;
        round.tip.clone_from(&seen.tip);
        if self.options.follow {
            round.followed = Some(self.follow(&seen.tip)?);
        }
        Ok(round)
    }

    /// What was put aside and is still there.
    pub fn kept_aside(&self) -> Vec<PathBuf> {
        self.tree.kept_aside()
    }

    /// Looks at the remote and brings the tree up to it.
    fn look(&self, talk: &Talk) -> Result<Vec<PathBuf>> {
        self.glance(talk)?;
        self.catch_up()
    }

    /// Only looks.
    fn glance(&self, talk: &Talk) -> Result<()> {
        let view = self.remote.look(&talk.0)?;
        let mut seen = self.seen()?;
        seen.learn(view);
        self.keep(&seen)
    }

    /// Brings the tree up to what was seen. The answer is what was put aside.
    fn catch_up(&self) -> Result<Vec<PathBuf>> {
        let mut seen = self.seen()?;
        let aside = self.tree.import(seen.imported.as_deref(), &seen.tip)?;
        if seen.imported.as_ref() != Some(&seen.tip) {
            seen.imported = Some(seen.tip.clone());
            self.keep(&seen)?;
        }
        Ok(aside)
    }

    fn seen_path(&self) -> PathBuf {
        self.private.join("seen.json")
    }

    fn seen(&self) -> Result<Seen> {
        Seen::read(&self.seen_path())
    }

    fn keep(&self, seen: &Seen) -> Result<()> {
        seen.write(&self.seen_path())
    }

    /// One conversation at a time. The lock is also that of everything that happens in the tree.
    fn converse(&self) -> Result<Talk> {
        let path = self.private.join("lock");
        // Whoever has it may be waiting for an answer of the remote, and then look once more.
        let wait = 3 * self.options.patience + Duration::from_secs(10);
        let mut pauses = Pauses::lasting(wait);
        let mut waited = 0_u32;
        loop {
            match self.try_converse()? {
                Some(talk) => return Ok(talk),
                None if pauses.pause() => {
                    waited += 1;
                    if waited.is_multiple_of(100) {
                        self.remote.git.end_orphan();
                    }
                }
                None => return Err(Fault::Locked { path, waited_s: wait.as_secs() }),
            }
        }
    }

    fn try_converse(&self) -> Result<Option<Talk>> {
        let path = self.private.join("lock");
        let file = crate::lock::open(&path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Talk(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error).at("lock", &path),
        }
    }

    /// What the remote knows of a task, laid over what the tree knows.
    fn overlay(&self, mut stored: Stored, seen: &Seen) -> Result<Stored> {
        let found = seen.card(&stored.task);
        stored.version.remote = found.map(|found| found.oid.clone());
        match found.map(|found| found.card.as_ref()) {
            None if self.is_owed(&stored.task)? => {}
            None => stored.note = Note::new(stored.slot.clone()),
            Some(None) => {
                let why = "what the remote says of it was written by a later tollgate, or is damaged";
                stored.brief = Err(Broken(why.to_owned()));
            }
            Some(Some(card)) => {
                let id = |note: &Note| note.claim.as_ref().map(|claim| claim.id.clone());
                let ours = card.clone == self.clone;
                let same = stored.note.slot == card.note.slot && id(&stored.note) == id(&card.note);
                if !(ours && same && stored.note.claim.is_some()) {
                    stored.note = card.note.clone().seen_in(&stored.slot);
                }
                if let Some(claim) = stored.note.claim.as_mut().filter(|_| !ours) {
                    // No clock of another machine is believed: whether its owner is gone, its silence tells.
                    claim.tenure = Tenure::Held;
                }
                let there = |slot: &&Slot| self.folder.path(&stored.task, slot).is_file();
                stored.twin =
                    Some(&card.note.slot).filter(|slot| **slot != stored.slot).filter(there).cloned();
            }
        }
        Ok(stored)
    }
}

impl Store for GitStore {
    fn scan(&self, state: State, now: Timestamp) -> Result<Scan> {
        self.folder.scan(state, now)
    }

    fn get(&self, task: &TaskName, state: Option<State>, now: Timestamp) -> Result<Option<Stored>> {
        let seen = self.seen()?;
        self.folder.get(task, state, now)?.map(|stored| self.overlay(stored, &seen)).transpose()
    }

    fn is_in(&self, task: &TaskName, state: State) -> Result<bool> {
        self.folder.is_in(task, state)
    }

    fn digest(&self, stored: &Stored) -> Result<Option<Digest>> {
        let mut stored = stored.clone();
        stored.version.remote = None;
        self.folder.digest(&stored)
    }

    fn read(&self, stored: &Stored, limit: u64) -> Result<Vec<u8>> {
        self.folder.read(stored, limit)
    }

    fn apply(&self, step: &Step) -> Result<Outcome> {
        self.take_step(step)
    }

    fn add(&self, task: &TaskName, bytes: &[u8]) -> Result<Option<Landed>> {
        self.add_task(task, bytes)
    }

    fn hold(&self, claim: &ClaimId) -> Result<Hold> {
        self.folder.hold(claim)
    }

    fn owner(&self, claim: &Claim, now: Timestamp) -> Result<Owner> {
        let seen = self.seen()?;
        match seen.of_claim(&claim.id) {
            Some((found, card)) if card.clone != self.clone => {
                let lease = Duration::from_millis(card.lease_ms);
                Ok(if found.unchanged_for() >= lease { Owner::Gone(Hold::nothing()) } else { Owner::Alive })
            }
            _ => self.folder.owner(claim, now),
        }
    }

    fn tell(&self, events: &[Event]) -> Result<()> {
        self.folder.tell(events)
    }

    fn count(&self, agent: &Agent, what: Count) -> Result<()> {
        self.folder.count(agent, what)
    }

    fn figures(&self) -> Result<BTreeMap<Agent, (u64, Tally)>> {
        self.folder.figures()
    }

    fn heal(&self) -> Result<Vec<Healed>> {
        if self.is_pending()
            && let Some(talk) = self.try_converse()?
        {
            match self.settle(&talk) {
                // It cannot be told now what became of it. Whoever next reaches the remote settles it.
                Ok(()) | Err(Fault::Unreachable { .. }) => {}
                Err(fault) => return Err(fault),
            }
        }
        self.folder.heal()
    }

    fn sweep(&self, now: Timestamp) -> Result<()> {
        self.folder.sweep(now)
    }
}
