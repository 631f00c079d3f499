//! Tasks over git: one owner across machines. The remote decides, before any work begins.
//!
//! # Who decides what
//!
//! - **The remote** is the authority. Each task that was ever claimed and is not final has a card there (`card`), behind a
//!   ref of its own. The remote's compare-and-swap of that ref decides who may take the next step, and nothing else does.
//! - **The branch** has the move of the markdown file, as a commit. Card and commit change in one push that the remote takes
//!   as a whole or not at all (`remote`), made for exactly the tip that was seen (`push`). So a claim is checked against
//!   what is on the branch at that moment: a clone that is behind cannot claim a task that was finished in the meantime.
//! - **On one machine** a [`FolderStore`](crate::FolderStore) excludes the workers from each other, with its locks, held
//!   claims, log and journal. It works in a tree of tollgate's own (`tree`), `<vault>/.tollgate/git/tree`, which shows the
//!   vault's folders as they are on the branch.
//! - **The person's** index, working tree and branch are theirs. They follow by a fast-forward that git itself allows
//!   (`checkup`), or not at all.
//!
//! A step is pushed first (`push`) and then taken in the tree, with its events (`pending`); only then is it done. An owner on
//! another machine is gone when its card has not changed for a whole lease by the clock of the machine that waits (`seen`).
//! Its task is reclaimed by a compare-and-swap of that very card, so an owner that was only slow is fenced off: the remote
//! takes nothing from it any more, and its file is set aside for a person. `docs/reference/git.md` describes each act.
//!
//! Invariants: the user's own `git` program does all the talking (`run`). Imports go one way, from this file down to `run`.

mod branch;
mod card;
mod checkup;
mod clone;
mod pending;
mod push;
mod remote;
mod repository;
mod run;
mod seen;
#[cfg(test)]
mod tests;
mod tree;
mod uncommitted;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;

use self::card::{join_versions, split_version};
use self::seen::SeenRemote;
use crate::brief::UnreadableTask;
use crate::checkup::{Finding, SyncRound};
use crate::claim::{Claim, ClaimId, ClaimRecord, StepId, Tenure};
use crate::claim_lock::{ClaimLock, Liveness};
use crate::event::{Entry, EventPage};
use crate::figures::Tally;
use crate::state::{Slot, State};
use crate::step::{Step, StepOutcome};
use crate::store::{Scan, Store, Task, Wake, Watch};
use tollgate_base::error::{Fault, Result};
use tollgate_base::file::{TEMPORARY, names_in};
use tollgate_base::name::Agent;
use tollgate_base::private;
use tollgate_base::task::TaskName;

pub use self::clone::{GitOptions, GitStore};

/// A temporary file gets its name at once. One that is older than this was left by a process that died.
const LEFT_S: i64 = 3600;

/// Adds what the remote knows about a task to what the tree knows.
fn overlay(store: &GitStore, mut task: Task, seen: &SeenRemote) -> Task {
    let found = seen.card(&task.name);
    task.version = join_versions(found.map(|found| found.oid.as_str()), &task.version);
    match found.map(|found| found.card.as_ref()) {
        None => task.record = ClaimRecord::new(task.slot.clone()),
        Some(None) => {
            let why = "a later version of tollgate wrote its claim, or its claim is damaged";
            task.brief = Err(UnreadableTask(why.to_owned()));
        }
        Some(Some(card)) => {
            let id = |record: &ClaimRecord| record.claim.as_ref().map(|claim| claim.id.clone());
            let is_ours = card.clone == store.id;
            let is_same = task.record.slot == card.record.slot && id(&task.record) == id(&card.record);
            // The tree of the owner's machine may know more: its renewals reach the remote only now and then.
            if !(is_ours && is_same && task.record.claim.is_some()) {
                task.record = card.record.clone().seen_in(&task.slot);
            }
            if let Some(claim) = task.record.claim.as_mut().filter(|_| !is_ours) {
                // No clock of another machine is trusted: only silence shows that its owner is gone.
                claim.tenure = Tenure::Held;
            }
            let is_there = |slot: &&Slot| store.tasks().path(&task.name, slot).is_file();
            task.twin = Some(&card.record.slot).filter(|slot| **slot != task.slot).filter(is_there).cloned();
        }
    }
    task
}

/// Deletes temporary files in this folder that crashes left.
fn sweep_folder(folder: &Path, now: Timestamp) -> Result<()> {
    for name in names_in(folder)? {
        let path = folder.join(&name);
        let is_old = |found: fs::Metadata| now.as_second() - found.ctime() > LEFT_S;
        if name.as_bytes().starts_with(TEMPORARY.as_bytes()) && fs::symlink_metadata(&path).is_ok_and(is_old)
        {
            // Nothing depends on it.
            let _ = private::remove_file(&path);
        }
    }
    Ok(())
}

impl Store for GitStore {
    fn scan(&self, state: State, now: Timestamp) -> Result<Scan> {
        let mut scan = self.tasks().scan(state, now)?;
        if state == State::NeedsAction {
            scan.unfit.extend(self.uncommitted(&scan)?);
        }
        Ok(scan)
    }

    fn get(&self, task: &TaskName, state: Option<State>, now: Timestamp) -> Result<Option<Task>> {
        let seen = self.seen()?;
        Ok(self.tasks().get(task, state, now)?.map(|found| overlay(self, found, &seen)))
    }

    fn read(&self, task: &Task, limit: u64) -> Result<Option<Vec<u8>>> {
        // A new card does not change the text.
        let Some((_, version)) = split_version(&task.version) else { return Ok(None) };
        self.tasks().read(&Task { version, ..task.clone() }, limit)
    }

    fn apply(&self, step: &Step) -> Result<StepOutcome> {
        let outcome = match self.answers.get(&step.id) {
            Some(Some(landed)) => return Ok(StepOutcome::Done(landed)),
            _ => self.take(step),
        };
        match (outcome, self.answers.get(&step.id)) {
            // Something failed after the step was taken, or after it was pushed, so that the remote may have it.
            (Err(_), Some(Some(landed))) => Ok(StepOutcome::Done(landed)),
            (Err(fault), Some(None)) => Ok(StepOutcome::Unknown(fault)),
            (outcome, _) => outcome,
        }
    }

    fn add(&self, id: &StepId, task: &TaskName, text: &[u8], now: Timestamp) -> Result<StepOutcome> {
        let mut commits = self.additions.get(id).unwrap_or_default();
        let added = self.put_new(&mut commits, task, text, now);
        let is_unclear = matches!(&added, Err(Fault::Unreachable { .. })) && !commits.is_empty();
        self.additions.remember(id, commits);
        match added {
            Err(fault) if is_unclear => Ok(StepOutcome::Unknown(fault)),
            added => added,
        }
    }

    fn record(&self, events: &[Entry]) -> Result<()> {
        self.tasks().record(events)
    }

    fn events(&self, after: &str, limit: usize) -> Result<EventPage> {
        self.tasks().events(after, limit)
    }

    fn tallies(&self) -> Result<BTreeMap<Agent, Tally>> {
        self.tasks().tallies()
    }

    fn watch(&self, states: &[State], wake: Wake) -> Result<Option<Watch>> {
        self.tasks().watch(states, wake)
    }

    fn hold(&self, claim: &ClaimId) -> Result<Option<ClaimLock>> {
        self.tasks().hold(claim)
    }

    fn liveness(&self, claim: &Claim) -> Result<Liveness> {
        let seen = self.seen()?;
        match seen.of_claim(&claim.id) {
            Some((found, card)) if card.clone != self.id => {
                Ok(if found.is_silent(card) { Liveness::Gone(ClaimLock::nothing()) } else { Liveness::Alive })
            }
            _ => self.tasks().liveness(claim),
        }
    }

    /// A third of the lease: an owner that was not heard three times in a row is gone.
    fn heartbeat_interval(&self) -> Option<Duration> {
        Some(self.options.lease / 3)
    }

    fn heartbeat(&self, task: &TaskName, claim: &ClaimId) -> Result<bool> {
        let talk = self.converse()?;
        self.settle(&talk)?;
        self.replace_card(&talk, task, claim, None)
    }

    /// Servers call it every few seconds. A card that is not due is left alone: its claim is not in the answer, because the
    /// remote was not asked, so nothing has extended it.
    fn heartbeat_all(&self) -> Result<Vec<ClaimId>> {
        let mut alive = Vec::new();
        for found in self.seen()?.cards.values() {
            if let Some(card) = found.card.as_ref().filter(|card| card.clone == self.id)
                && let Some(claim) = &card.record.claim
                && claim.tenure == Tenure::Held
                && found.is_due(card)
                && matches!(self.tasks().liveness(claim)?, Liveness::Alive)
            {
                alive.extend(self.heartbeat(&card.task, &claim.id)?.then(|| claim.id.clone()));
            }
        }
        Ok(alive)
    }

    /// Other machines count the lease from the card that they see, and see it after its push began.
    fn proven_at(&self, claim: &ClaimId) -> Option<u64> {
        let seen = self.seen().ok()?;
        let (found, card) = seen.of_claim(claim)?;
        (card.clone == self.id).then_some(found.since_ms)
    }

    fn heal(&self) -> Result<usize> {
        let mut healed = 0;
        if self.pending_path().exists()
            && let Some(talk) = self.try_converse(Duration::ZERO)?
        {
            match self.settle(&talk) {
                Ok(settled) => healed = settled,
                // Nobody can tell now what became of the step. The next process that reaches the remote settles it.
                Err(Fault::Unreachable { .. }) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(healed + self.tasks().heal()?)
    }

    fn sync(&self) -> Result<Option<SyncRound>> {
        let talk = self.converse()?;
        self.probe_once(&talk)?;
        self.sync_once(&talk).map(Some)
    }

    fn checkup(&self) -> Result<Vec<Finding>> {
        self.check_all()
    }

    fn problems(&self) -> Vec<String> {
        self.tasks().problems()
    }

    fn sweep(&self, now: Timestamp) -> Result<()> {
        for folder in [&self.private, &self.private.join("repository"), &self.tree.edits] {
            sweep_folder(folder, now)?;
        }
        self.tasks().sweep(now)
    }
}
