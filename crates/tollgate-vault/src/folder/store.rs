//! The folder store as the rules see it.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::Duration;

use jiff::Timestamp;
use rustix::fs::Access;

use super::disk::{Moved, date_back};
use super::layout::{FolderStore, version};
use super::log::{LockedLog, Noted, stripe_of};
use super::{carried, effect, held, scan, watch};
use crate::brief::{Brief, HEAD};
use crate::checkup::Healed;
use crate::claim::{Claim, ClaimRecord};
use crate::claim_lock::{ClaimLock, Liveness};
use crate::event::{Cursor, Entry, EventPage};
use crate::figures::Tally;
use crate::state::{Slot, State};
use crate::step::{Landed, Outcome, Step};
use crate::store::{Ready, Scan, Store, Task};
use crate::watch::{Wake, Watch};
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::name::{Agent, ClaimId, StepId, random_id};
use tollgate_base::task::TaskName;

/// The longest wait for a task's lock. A step takes a millisecond; on a disk that is slow to flush, a second.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// How many answers are remembered, so that a step that is applied again gets the same answer. A retry follows at once, so
/// this is more than all threads of a process can have under way.
const ANSWERS: usize = 256;

impl FolderStore {
    /// The task in this slot, if it is there.
    fn look(
        &self,
        task: &TaskName,
        slot: &Slot,
        noted: Option<&Noted>,
        now: Timestamp,
    ) -> Result<Option<Task>> {
        let path = self.path(task, slot);
        let Some((file, seen)) = self.disk.open_task(&path, false)? else { return Ok(None) };
        let mut head = vec![0; usize::try_from(seen.len).unwrap_or(HEAD).min(HEAD)];
        let read = file.read_at(&mut head, 0).at("read", &path)?;
        let twin = noted.map(|noted| &noted.record.slot).filter(|other| {
            *other != slot && fs::symlink_metadata(self.path(task, other)).is_ok_and(|found| found.is_file())
        });
        let mut ready = scan::ready(&seen, self.options.settle, now);
        if let (Some(quiet), Slot::Free(_), Ready::Now | Ready::After(_)) = (self.options.quiet, slot, ready)
            && !quiet(file).at("look at", &path)?
        {
            if !self.disk.is_at(&path, seen.ino) {
                // Somebody claimed it at this moment: it is the new owner who writes.
                return Ok(None);
            }
            ready = Ready::Open;
        }
        let new = || ClaimRecord::new(slot.clone());
        Ok(Some(Task {
            name: task.clone(),
            slot: slot.clone(),
            version: version(&seen, noted),
            record: noted.map_or_else(new, |noted| noted.record.clone().seen_in(slot)),
            brief: Brief::read(&head[..read]),
            ready,
            twin: twin.cloned(),
            modified: scan::modified(&seen),
            changed: scan::changed(&seen),
            len: seen.len,
            path: Some(path),
        }))
    }

    /// The lock of everything that is done to a task.
    fn lock(&self, task: &TaskName) -> Result<LockedLog> {
        let locked = || Fault::Locked { path: self.private.join("logs"), waited_s: LOCK_WAIT.as_secs() };
        self.logs.lock(stripe_of(task), LOCK_WAIT, &self.disk)?.ok_or_else(locked)
    }

    fn answers(&self) -> std::sync::MutexGuard<'_, VecDeque<(StepId, Landed)>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, step: &Step) -> Option<Landed> {
        self.answers().iter().find(|(id, _)| *id == step.id).map(|(_, landed)| landed.clone())
    }
}

impl Store for FolderStore {
    fn scan(&self, state: State, now: Timestamp) -> Result<Scan> {
        self.scan_state(state, now)
    }

    fn get(&self, task: &TaskName, state: Option<State>, now: Timestamp) -> Result<Option<Task>> {
        let (mut noted, is_pending) = self.logs.noted(task)?;
        // A process may have died on the way. If it is alive, the task is as it was before its step.
        if is_pending && let Some(mut log) = self.logs.lock(stripe_of(task), Duration::ZERO, &self.disk)? {
            self.heal_stripe(&mut log)?;
            noted = log.state.notes.remove(task);
        }
        // Nearly always it is where it was put.
        let slot = noted.as_ref().map(|noted| &noted.record.slot);
        if let Some(slot) = slot.filter(|slot| state.is_none_or(|state| slot.state() == state))
            && let Some(found) = self.look(task, slot, noted.as_ref(), now)?
        {
            return Ok(Some(found));
        }
        for slot in self.slots(state)? {
            if let Some(found) = self.look(task, &slot, noted.as_ref(), now)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn read(&self, task: &Task, limit: u64) -> Result<Option<Vec<u8>>> {
        let path = self.path(&task.name, &task.slot);
        let (noted, _) = self.logs.noted(&task.name)?;
        let Some((file, seen)) = self.disk.open_task(&path, false)? else { return Ok(None) };
        if version(&seen, noted.as_ref()) != task.version {
            return Ok(None);
        }
        effect::read(&file, 0, limit).at("read", &path).map(Some)
    }

    fn apply(&self, step: &Step) -> Result<Outcome> {
        if let Some(landed) = self.answer(step) {
            return Ok(Outcome::Done(landed));
        }
        let mut log = self.lock(&step.task)?;
        let outcome = match self.heal_before(&mut log, step)? {
            Some(landed) => Outcome::Done(landed),
            None => self.take(&mut log, step)?,
        };
        if let Outcome::Done(landed) = &outcome {
            let mut answers = self.answers();
            answers.truncate(ANSWERS - 1);
            answers.push_front((step.id.clone(), landed.clone()));
        }
        Ok(outcome)
    }

    fn add(&self, task: &TaskName, text: &[u8], _now: Timestamp) -> Result<Option<Landed>> {
        let stage = self.stage(&random_id()?);
        let file = self.disk.create(&stage, text)?;
        let meta = file.metadata().at("look at", &stage)?;
        date_back(&file).at("date", &stage)?;
        let slot = Slot::NEEDS_ACTION;
        let path = self.path(task, &slot);
        let moved = self.disk.transfer(&stage, &path, meta.ino());
        if !matches!(moved, Ok(Moved::Done)) {
            let _ = fs::remove_file(&stage);
        }
        Ok(match moved? {
            Moved::Done => {
                self.disk.sync_folder(&self.slot_folder(&slot))?;
                Some(Landed { task: task.clone(), slot, path: Some(path) })
            }
            Moved::Taken => None,
            Moved::Missing => return Err(Fault::Missing { what: format!("`{}`", stage.display()) }),
        })
    }

    fn record(&self, events: &[Entry]) -> Result<()> {
        self.options.journal.append(events)
    }

    fn events(&self, after: &Cursor, limit: usize) -> Result<EventPage> {
        self.options.journal.events(after, limit)
    }

    fn tallies(&self) -> Result<BTreeMap<Agent, Tally>> {
        let journal = &self.options.journal;
        let mut tallies = journal.tallies()?;
        carried::add(&self.private, journal.id(), &mut tallies)?;
        Ok(tallies)
    }

    fn watch(&self, states: &[State], wake: Wake) -> Result<Option<Watch>> {
        watch::start(&self.vault, &self.private.join("held"), states, wake).map(Some)
    }

    fn hold(&self, claim: &ClaimId) -> Result<Option<ClaimLock>> {
        held::hold(&self.private.join("held"), claim).map(Some)
    }

    fn liveness(&self, claim: &Claim, _now: Timestamp) -> Result<Liveness> {
        held::liveness(&self.private.join("held"), claim)
    }

    fn heal(&self) -> Result<Vec<Healed>> {
        self.heal_all()
    }

    fn problems(&self) -> Vec<String> {
        let usable = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
        let problem = |folder: PathBuf| match rustix::fs::access(&folder, usable) {
            Ok(()) if folder.is_dir() => None,
            Ok(()) => Some(format!("`{}` is not a folder", folder.display())),
            Err(error) => Some(format!("`{}` is not usable: {}", folder.display(), io::Error::from(error))),
        };
        State::ALL.into_iter().filter_map(|state| problem(self.vault.join(state.as_str()))).collect()
    }

    fn sweep(&self, now: Timestamp) -> Result<()> {
        self.sweep_all(now)
    }

    fn folder(&self) -> Option<&Path> {
        Some(&self.vault)
    }
}
