//! The folder store as the rules see it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rustix::fs::{Access, OFlags};

use super::disk::{Moved, date_back, is_at, open_task, read};
use super::layout::FolderStore;
use super::log::{Noted, stripe_of, version};
use super::{held, migrate, scan, watch};
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
use tollgate_base::name::{Agent, ClaimId, random_id};
use tollgate_base::task::TaskName;

/// The longest wait for a task's lock. A step takes a millisecond; on a disk that is slow to flush, a second.
const LOCK_WAIT: Duration = Duration::from_secs(10);

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
        let Some((file, found)) = open_task(&path, OFlags::RDONLY)? else { return Ok(None) };
        let head = read(&file, 0, HEAD as u64).at("read", &path)?;
        let twin = noted.map(|noted| &noted.record.slot).filter(|other| {
            *other != slot && fs::symlink_metadata(self.path(task, other)).is_ok_and(|found| found.is_file())
        });
        let mut ready = scan::ready(&found, self.options.settle, now);
        if let (Some(quiet), Slot::Free(_), Ready::Now | Ready::After(_)) = (self.options.quiet, slot, ready)
            && !quiet(file).at("look at", &path)?
        {
            if !is_at(&path, found.ino()) {
                // Somebody claimed it at this moment: it is the new owner who writes.
                return Ok(None);
            }
            ready = Ready::Open;
        }
        let new = || ClaimRecord::new(slot.clone());
        Ok(Some(Task {
            name: task.clone(),
            slot: slot.clone(),
            version: version(&found, noted),
            record: noted.map_or_else(new, |noted| noted.record.clone().seen_in(slot)),
            brief: Brief::read(&head),
            ready,
            twin: twin.cloned(),
            modified: scan::modified(&found),
            changed: scan::changed(&found),
            len: found.len(),
            path: Some(path),
        }))
    }
}

impl Store for FolderStore {
    fn scan(&self, state: State, now: Timestamp) -> Result<Scan> {
        self.scan_state(state, now)
    }

    fn get(&self, task: &TaskName, state: Option<State>, now: Timestamp) -> Result<Option<Task>> {
        let stripe = stripe_of(task);
        let mut known = self.read_log(stripe)?;
        // A process may have died on the way. If it is alive, the task is as it was before its step.
        if known.pending.is_some()
            && let Some(mut log) = self.lock_log(stripe, Duration::ZERO)?
        {
            self.heal_stripe(&mut log)?;
            known = log.state;
        }
        let noted = known.notes.get(task);
        // Nearly always it is where it was put.
        let likely = noted.map(|noted| &noted.record.slot);
        if let Some(slot) = likely.filter(|slot| state.is_none_or(|state| slot.state() == state))
            && let Some(found) = self.look(task, slot, noted, now)?
        {
            return Ok(Some(found));
        }
        for slot in self.slots(state)? {
            if let Some(found) = self.look(task, &slot, noted, now)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn read(&self, task: &Task, limit: u64) -> Result<Option<Vec<u8>>> {
        let path = self.path(&task.name, &task.slot);
        let known = self.read_log(stripe_of(&task.name))?;
        match open_task(&path, OFlags::RDONLY)? {
            Some((file, found)) if version(&found, known.notes.get(&task.name)) == task.version => {
                read(&file, 0, limit).at("read", &path).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn apply(&self, step: &Step) -> Result<Outcome> {
        let Some(mut log) = self.lock_log(stripe_of(&step.task), LOCK_WAIT)? else {
            return Err(Fault::Locked { path: self.private.join("logs"), waited_s: LOCK_WAIT.as_secs() });
        };
        self.heal_stripe(&mut log)?;
        self.take(&mut log, step)
    }

    fn add(&self, task: &TaskName, text: &[u8], _now: Timestamp) -> Result<Option<Landed>> {
        let stage = self.stage(&random_id()?);
        let file = self.disk.create(&stage, text)?;
        let meta = file.metadata().at("look at", &stage)?;
        date_back(&file, 1).at("date", &stage)?;
        let slot = Slot::NEEDS_ACTION;
        let path = self.path(task, &slot);
        let moved = self.disk.transfer(&stage, &path, meta.ino());
        // There only if it was not moved.
        let _ = fs::remove_file(&stage);
        match moved? {
            Moved::Done => {
                self.disk.sync_folder(&self.slot_folder(&slot))?;
                Ok(Some(Landed { task: task.clone(), slot, path: Some(path) }))
            }
            Moved::Taken => Ok(None),
            Moved::Missing => Err(Fault::Missing { what: format!("`{}`", stage.display()) }),
        }
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
        migrate::add_carried(&self.private, journal.id(), &mut tallies)?;
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
