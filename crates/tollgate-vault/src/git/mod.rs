//! Tasks over git: one owner across machines. The remote decides, before any work begins.
//!
//! # Who decides what
//!
//! - **The remote** is the authority. Each task that was ever claimed and is not final has a card there (`card`), behind a
//!   ref of its own. The remote's compare-and-swap of that ref decides who may take the next step, and nothing else does.
//! - **The branch** has the move of the markdown file, as a commit. Card and commit change in one push that the remote takes
//!   as a whole or not at all (`remote`), made for exactly the tip that was seen (`plan`). So a claim is checked against
//!   what is on the branch at that moment: a clone that is behind cannot claim a task that was finished in the meantime.
//! - **On one machine** a [`FolderStore`](crate::FolderStore) excludes the workers from each other, with its locks, held
//!   claims, log and journal. It works in a tree of tollgate's own (`tree`), `<vault>/.tollgate/git/tree`, which shows the
//!   vault's folders as they are on the branch.
//! - **The person's** index, working tree and branch are theirs. They follow by a fast-forward that git itself allows
//!   (`sync`), or not at all.
//!
//! # One step
//!
//! 1. Take the lock of the conversation (`clone`): one at a time for each clone. Settle what an earlier process left
//!    (`pending`).
//! 2. Make the card and the commit for the tip that was last seen (`plan`). Write down what is about to be pushed.
//! 3. Push both (`push`). Taken: go on. Moved: look, bring the tree up to date, and if the task is still the same, go to 2;
//!    otherwise somebody else was faster. Refused: say why. Unclear: look, and trust what is there.
//! 4. Take the same step in the tree, with its events. Only now is it done.
//!
//! An owner's heartbeat is a new card and no commit (`heartbeat`). An owner on another machine is gone when its card has not
//! changed for a whole lease by the clock of the machine that waits (`seen`). Its task is reclaimed by a compare-and-swap of
//! that very card. So an owner that was only slow is fenced off: the remote takes nothing from it any more, and its file is
//! set aside for a person.
//!
//! Invariants: the user's own `git` program does all the talking (`run`). Imports go one way, from this file down to `run`.

mod add;
mod answers;
mod batch;
mod branch;
mod card;
mod checkup;
mod clock;
mod clone;
mod commit;
mod edits;
mod file;
mod heartbeat;
mod offline;
mod open;
mod options;
mod pending;
mod plan;
mod probe;
mod process;
mod push;
mod remote;
mod run;
mod seen;
mod sync;
#[cfg(test)]
mod tests;
mod tree;
mod version;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use self::answers::Fate;
use self::batch::Batches;
use self::clone::LocalClone;
use self::seen::Seen;
use crate::brief::Broken;
use crate::checkup::{Finding, Synced};
use crate::claim::{Claim, ClaimId, ClaimRecord, Tenure};
use crate::claim_lock::{ClaimLock, Liveness};
use crate::event::{Entry, EventPage};
use crate::figures::Tally;
use crate::state::{Slot, State};
use crate::step::{Step, StepOutcome};
use crate::store::{Landed, Scan, Store, Task, Wake, Watch};
use tollgate_base::error::{Fault, Result};
use tollgate_base::name::Agent;
use tollgate_base::task::TaskName;

pub use self::options::GitOptions;

/// Tasks over git.
#[derive(Clone)]
pub struct GitStore {
    local: LocalClone,
    batches: Arc<Batches>,
}

impl GitStore {
    /// The folder in which people and agents see the tasks of the vault in `vault`.
    pub fn folder_in(vault: &Path) -> PathBuf {
        open::folder_in(vault)
    }

    /// Opens the vault in this folder, which must be inside a repository that has the remote.
    pub fn open(vault: &Path, options: GitOptions) -> Result<Self> {
        Ok(Self { local: LocalClone::open(vault, options)?, batches: Arc::default() })
    }

    /// Adds what the remote knows about a task to what the tree knows.
    fn overlay(&self, mut task: Task, seen: &Seen) -> Task {
        let found = seen.card(&task.name);
        task.version = version::join(found.map(|found| found.oid.as_str()), &task.version);
        match found.map(|found| found.card.as_ref()) {
            None => task.record = ClaimRecord::new(task.slot.clone()),
            Some(None) => {
                let why = "a later version of tollgate wrote its claim, or its claim is damaged";
                task.brief = Err(Broken(why.to_owned()));
            }
            Some(Some(card)) => {
                let id = |record: &ClaimRecord| record.claim.as_ref().map(|claim| claim.id.clone());
                let is_ours = card.clone == self.local.id;
                let is_same = task.record.slot == card.record.slot && id(&task.record) == id(&card.record);
                // The tree of the owner's machine may know more: its renewals reach the remote only now and then.
                if !(is_ours && is_same && task.record.claim.is_some()) {
                    task.record = card.record.clone().seen_in(&task.slot);
                }
                if let Some(claim) = task.record.claim.as_mut().filter(|_| !is_ours) {
                    // No clock of another machine is trusted: only silence shows that its owner is gone.
                    claim.tenure = Tenure::Held;
                }
                let is_there = |slot: &&Slot| self.local.folder().path(&task.name, slot).is_file();
                task.twin =
                    Some(&card.record.slot).filter(|slot| **slot != task.slot).filter(is_there).cloned();
            }
        }
        task
    }
}

impl Store for GitStore {
    fn scan(&self, state: State, now: Timestamp) -> Result<Scan> {
        self.local.folder().scan(state, now)
    }

    fn get(&self, task: &TaskName, state: Option<State>, now: Timestamp) -> Result<Option<Task>> {
        let seen = self.local.seen()?;
        Ok(self.local.folder().get(task, state, now)?.map(|found| self.overlay(found, &seen)))
    }

    fn read(&self, task: &Task, limit: u64) -> Result<Option<Vec<u8>>> {
        // A new card does not change the text.
        let Some((_, version)) = version::split(&task.version) else { return Ok(None) };
        self.local.folder().read(&Task { version, ..task.clone() }, limit)
    }

    fn apply(&self, step: &Step) -> Result<StepOutcome> {
        if let Some(Fate::Taken(landed)) = self.local.answers.get(&step.id) {
            return Ok(StepOutcome::Done(landed));
        }
        match self.batches.take(step, |batch| self.local.take_batch(batch)) {
            // Something failed after the step was pushed, so the remote may have it.
            Err(fault) if self.local.answers.get(&step.id) == Some(Fate::Pushed) => {
                Ok(StepOutcome::Unknown(fault))
            }
            outcome => outcome,
        }
    }

    fn add(&self, task: &TaskName, text: &[u8], now: Timestamp) -> Result<Option<Landed>> {
        self.local.add(task, text, now)
    }

    fn record(&self, events: &[Entry]) -> Result<()> {
        self.local.folder().record(events)
    }

    fn events(&self, after: &str, limit: usize) -> Result<EventPage> {
        self.local.folder().events(after, limit)
    }

    fn tallies(&self) -> Result<BTreeMap<Agent, Tally>> {
        self.local.folder().tallies()
    }

    fn watch(&self, states: &[State], wake: Wake) -> Result<Option<Watch>> {
        self.local.folder().watch(states, wake)
    }

    fn hold(&self, claim: &ClaimId) -> Result<Option<ClaimLock>> {
        self.local.folder().hold(claim)
    }

    fn liveness(&self, claim: &Claim) -> Result<Liveness> {
        let seen = self.local.seen()?;
        match seen.of_claim(&claim.id) {
            Some((found, card)) if card.clone != self.local.id => {
                let is_gone = found.unchanged_for() >= Duration::from_millis(card.lease_ms);
                Ok(if is_gone { Liveness::Gone(ClaimLock::nothing()) } else { Liveness::Alive })
            }
            _ => self.local.folder().liveness(claim),
        }
    }

    /// A third of the lease: an owner that was not heard three times in a row is gone.
    fn heartbeat_interval(&self) -> Option<Duration> {
        Some(self.local.options.lease / 3)
    }

    fn heartbeat(&self, task: &TaskName, claim: &ClaimId) -> Result<bool> {
        self.local.heartbeat(task, claim)
    }

    fn heartbeat_all(&self) -> Result<()> {
        self.local.heartbeat_all()
    }

    fn heal(&self) -> Result<usize> {
        let mut healed = 0;
        if self.local.is_pending()
            && let Some(talk) = self.local.try_converse()?
        {
            match self.local.settle(&talk) {
                Ok(settled) => healed = settled,
                // Nobody can tell now what became of the step. The next process that reaches the remote settles it.
                Err(Fault::Unreachable { .. }) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(healed + self.local.folder().heal()?)
    }

    fn sync(&self) -> Result<Option<Synced>> {
        let talk = self.local.converse()?;
        self.local.probe_once(&talk)?;
        self.local.sync(&talk).map(Some)
    }

    fn checkup(&self) -> Result<Vec<Finding>> {
        self.local.checkup()
    }

    fn problems(&self) -> Vec<String> {
        self.local.folder().problems()
    }

    fn sweep(&self, now: Timestamp) -> Result<()> {
        for folder in [&self.local.private, &self.local.tree.edits.folder] {
            file::sweep(folder, now)?;
        }
        self.local.folder().sweep(now)
    }

    fn batch(&self, wait: Duration) -> bool {
        self.batches.set_wait(wait);
        true
    }
}
