//! The folder store as the rules see it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustix::fs::{Access, OFlags};

use super::cache::Cache;
use super::disk::{Disk, Moved, date_new, is_at, linked, open_task, read, read_range};
use super::log::{record_of, stripe_of, version};
use super::log_line::NotedTask;
use super::{
    FolderOptions, FolderStore, format, held, make_private_folder, make_state_folders, private_folder, scan,
    slot_folder, watch,
};
use crate::brief::HEAD;
use crate::checkup::Finding;
use crate::claim::{Claim, ClaimRecord};
use crate::claim_lock::{ClaimLock, Liveness};
use crate::event::{Entry, EventPage};
use crate::figures::Tally;
use crate::recent::Recent;
use crate::state::{Slot, State};
use crate::step::{Step, StepOutcome, TaskAfterStep};
use crate::store::{Ready, Scan, Store, Task, Wake, Watch};
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::file::names_in;
use tollgate_base::lock::Lock;
use tollgate_base::name::{Agent, ClaimId, StepId, is_random_id, random_id};
use tollgate_base::private;
use tollgate_base::task::TaskName;

/// The longest wait for a task's lock. A step takes a millisecond; on a disk that is slow to flush, a second.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// A staged file is moved at once. One that is older than this was left by a process that died.
const STAGED_S: i64 = 3600;

impl FolderStore {
    /// Opens a vault and makes the folders that are missing.
    pub fn open(vault: &Path, options: FolderOptions) -> Result<Self> {
        fs::create_dir_all(vault).at("make the folder", vault)?;
        // Without links, of which there may be some above the vault, but none in it.
        let vault = fs::canonicalize(vault).at("open the vault", vault)?;
        // A folder of its own, because a vault may be a workspace too, whose state lies beside it.
        let private = private_folder(&vault);
        let folders = ["logs", "owed", "stage", "cache"].map(|name| private.join(name));
        make_state_folders(&vault)?;
        make_private_folder(&vault)?;
        for folder in &folders {
            private::create_folders(folder, 0o777).at("make the folder", folder)?;
        }
        format::state_or_check(&private)?;
        held::make(&private.join("held"))?;
        let disk = Disk::new(options.durability);
        Ok(Self { vault, private, options, disk, additions: Recent::default(), last_log: Arc::default() })
    }

    /// Whether this claim owns the task in this vault, from its files alone: nothing is opened, made or healed, so every write
    /// can ask. While a step is under way, the answer is that before the step.
    pub fn is_owned(vault: &Path, task: &TaskName, claim: &ClaimId) -> Result<bool> {
        let Some(record) = record_of(&private_folder(vault), task)? else { return Ok(false) };
        let is_there = || slot_folder(vault, &record.slot).join(task.as_str()).symlink_metadata().is_ok();
        let owner = record.claim.as_ref().map(|claim| &claim.id);
        Ok(owner == Some(claim) && record.slot.agent().is_some() && is_there())
    }

    /// The task in this slot, if it is there.
    fn look(
        &self,
        task: &TaskName,
        slot: &Slot,
        noted: Option<&NotedTask>,
        now: Timestamp,
    ) -> Result<Option<Task>> {
        let path = self.path(task, slot);
        let Some((file, found)) = open_task(&path, OFlags::RDONLY)? else { return Ok(None) };
        let head = read_range(&file, 0, found.len().min(HEAD as u64)).at("read", &path)?;
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
        let record = noted.map_or_else(|| ClaimRecord::new(slot.clone()), |noted| noted.record.clone());
        let (version, changed) = (version(&found, noted), scan::changed(&found));
        let task = Task::new(task.clone(), slot.clone(), version, record, &head, changed);
        Ok(Some(Task {
            brief: if scan::is_shared(slot, &found) { Err(scan::shared()) } else { task.brief },
            ready,
            twin: twin.cloned(),
            modified: scan::modified(&found),
            len: found.len(),
            path: Some(path),
            ..task
        }))
    }
}

/// Whether a store can have staged a file under this name: see the callers of [`FolderStore::stage`].
fn is_staged(name: &OsStr) -> bool {
    let is_of_random_id = |name: &str| is_random_id(name.split('-').next().unwrap_or(name));
    name.to_str().is_some_and(|name| name.parse::<StepId>().is_ok() || is_of_random_id(name))
}

impl Store for FolderStore {
    fn scan(&self, state: State, now: Timestamp) -> Result<Scan> {
        let mut scan = Scan::default();
        if state == State::InProgress {
            for agent in self.agents()? {
                self.scan_folder(&Slot::InProgress(agent), &mut Cache::default(), now, &mut scan)?;
            }
            return Ok(scan);
        }
        let path = self.private.join("cache").join(state.as_str());
        // One process at a time reads a folder for the first time; the others then find in the cache what it read. Without
        // the lock, as on a read-only file system, everybody reads for themselves.
        let reading = Lock::acquire(&path.with_extension("lock"), LOCK_WAIT).ok();
        let known = private::read(&path).unwrap_or_default();
        let _reading = reading.filter(|_| known.is_empty());
        let mut cache = Cache::parse(&known);
        self.scan_folder(&Slot::Free(state), &mut cache, now, &mut scan)?;
        cache.save(&path, &self.stage(&random_id()?));
        Ok(scan)
    }

    fn get(&self, task: &TaskName, state: Option<State>, now: Timestamp) -> Result<Option<Task>> {
        if let Some(state) = state.filter(|state| *state != State::InProgress)
            && fs::symlink_metadata(self.path(task, &Slot::Free(state))).is_err()
        {
            // Nearly always because somebody claimed it first.
            return Ok(None);
        }
        let stripe = stripe_of(task);
        let mut known = self.read_log(stripe)?;
        if let Some(plan) = &known.pending {
            match self.lock_log(stripe, Duration::ZERO)? {
                // A process died on the way.
                Some(mut log) => {
                    self.heal_stripe(&mut log)?;
                    known = Arc::new(log.state.clone());
                }
                // Somebody is claiming it: as good as gone.
                None if state.is_some_and(|state| plan.claims(task, state)) => return Ok(None),
                // The task is as it was before this step.
                None => {}
            }
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

    fn claim_of(&self, task: &TaskName, now: Timestamp) -> Result<Option<Claim>> {
        let known = self.read_log(stripe_of(task))?;
        if let (Some(noted), None) = (known.notes.get(task), &known.pending)
            && noted.record.slot.agent().is_some()
            && fs::symlink_metadata(self.path(task, &noted.record.slot)).is_ok_and(|found| found.is_file())
        {
            return Ok(noted.record.claim.clone());
        }
        Ok(self.get(task, Some(State::InProgress), now)?.and_then(|task| task.record.claim))
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

    fn apply(&self, step: &Step) -> Result<StepOutcome> {
        let Some(mut log) = self.lock_log(stripe_of(&step.task), LOCK_WAIT)? else {
            return Err(Fault::Locked { path: self.private.join("logs"), waited_s: LOCK_WAIT.as_secs() });
        };
        self.heal_stripe(&mut log)?;
        self.take(&mut log, step)
    }

    fn add(&self, id: &StepId, task: &TaskName, text: &[u8], now: Timestamp) -> Result<StepOutcome> {
        if let Some(landed) = self.additions.get(id) {
            return Ok(StepOutcome::Done(landed));
        }
        let stage = self.stage(&random_id()?);
        let file = self.disk.create(&stage, text)?;
        let meta = file.metadata().at("look at", &stage)?;
        date_new(&file, now).at("date", &stage)?;
        let slot = Slot::NEEDS_ACTION;
        let path = self.path(task, &slot);
        let moved = self.disk.transfer(&stage, &path, meta.ino());
        // There only if it was not moved.
        let _ = private::remove_file(&stage);
        match moved? {
            Moved::Done => {
                self.disk.sync_folder(&self.slot_folder(&slot))?;
                let landed = TaskAfterStep { task: task.clone(), slot, path: Some(path) };
                self.additions.remember(id, landed.clone());
                Ok(StepOutcome::Done(landed))
            }
            Moved::Taken => Ok(StepOutcome::Conflict),
            Moved::Missing => Err(Fault::no_file(stage)),
        }
    }

    fn record(&self, events: &[Entry]) -> Result<()> {
        self.options.journal.append(events)
    }

    fn events(&self, after: &str, limit: usize) -> Result<EventPage> {
        self.options.journal.events(after, limit)
    }

    fn tallies(&self) -> Result<BTreeMap<Agent, Tally>> {
        self.options.journal.tallies()
    }

    fn watch(&self, states: &[State], wake: Wake) -> Result<Option<Watch>> {
        watch::start(&self.vault, Some(&self.private.join("held")), states, wake).map(Some)
    }

    fn hold(&self, claim: &ClaimId) -> Result<Option<ClaimLock>> {
        held::hold(&self.private.join("held"), claim).map(Some)
    }

    fn liveness(&self, claim: &Claim) -> Result<Liveness> {
        held::liveness(&self.private.join("held"), claim)
    }

    fn heal(&self) -> Result<usize> {
        let logs = self.private.join("logs");
        if !logs.exists() {
            return Err(Fault::damaged(&logs, "it was deleted while in use: start tollgate again"));
        }
        let mut healed = 0;
        for stripe in 0..=u8::MAX {
            // If somebody has the lock, the step is under way right now.
            if self.may_be_pending(stripe)?
                && let Some(mut log) = self.lock_log(stripe, Duration::ZERO)?
            {
                healed += usize::from(log.state.pending.is_some());
                self.heal_stripe(&mut log)?;
            }
        }
        self.record_owed()?;
        Ok(healed)
    }

    fn checkup(&self) -> Result<Vec<Finding>> {
        self.still_owed()
    }

    fn problems(&self) -> Vec<String> {
        let usable = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
        let problem = |folder: PathBuf| match rustix::fs::access(&folder, usable) {
            Ok(()) if folder.is_dir() => linked(&folder).map(|fault| fault.to_string()),
            Ok(()) => Some(format!("`{}` is not a folder", folder.display())),
            Err(error) => Some(format!("`{}` is not usable: {}", folder.display(), io::Error::from(error))),
        };
        State::ALL.into_iter().filter_map(|state| problem(self.vault.join(state.as_str()))).collect()
    }

    // Deletes records of tasks that are nowhere, only under the lock of the stripe, and staged files of processes that died.
    fn sweep(&self, now: Timestamp) -> Result<()> {
        let found = |task: &TaskName, slot: &Slot| fs::symlink_metadata(self.path(task, slot)).is_ok();
        for stripe in 0..=u8::MAX {
            for (task, noted) in &self.read_log(stripe)?.notes {
                if !found(task, &noted.record.slot)
                    && let Some(mut log) = self.lock_log(stripe, Duration::ZERO)?
                    && log.state.pending.is_none()
                    && !self.slots(None)?.iter().any(|slot| found(task, slot))
                {
                    log.forget(task)?;
                }
            }
        }
        let stage = self.private.join("stage");
        let staged = names_in(&stage)?.into_iter().filter(|name| is_staged(name));
        for path in staged.map(|name| stage.join(name)) {
            let is_old = |found: fs::Metadata| now.as_second() - found.ctime() > STAGED_S;
            if fs::symlink_metadata(&path).is_ok_and(is_old) {
                self.disk.remove(&path)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_the_store_makes_are_swept() {
        let id = random_id().unwrap();
        for name in [id.clone(), format!("{id}-2"), "s-0123456789abcdef".to_owned()] {
            assert!(is_staged(name.as_ref()), "{name}");
        }
        for name in ["letter.txt", "letter-2", "s-", "0123", ".git", ""] {
            assert!(!is_staged(name.as_ref()), "{name}");
        }
    }
}
