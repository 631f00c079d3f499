//! Healing: the next process finishes or rolls back the step of one that died, and deletes leftovers.
//!
//! A claim is rolled back: nobody was told of it, so nobody works on it. Its block is cut off and the file goes back to
//! where it was, so that the approved text is still the approved text. Every other step is finished: a completion that was
//! written down moves the task and never repeats the work.
//!
//! Invariants: we have the lock of the stripe, so the process that began the step is gone. Each function may die at any
//! act and be run again from the start by another process. The file is known by its inode, which no act of ours changes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use jiff::Timestamp;

use super::layout::FolderStore;
use super::log::{LockedLog, Plan, stripe_of};
use crate::checkup::{Healed, Repair};
use crate::claim::StepId;
use crate::event::{Entry, Event};
use crate::state::{Slot, Verb};
use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};
use tollgate_base::event::TaskReclaimed;
use tollgate_base::file::names_in;
use tollgate_base::task::TaskName;

/// A staged file is moved at once. One that is older than this was left by a process that died.
const STAGED_S: i64 = 3600;

impl FolderStore {
    /// Finishes the interrupted step of a stripe, or rolls it back.
    pub(super) fn heal_stripe(&self, log: &mut LockedLog) -> Result<Option<Healed>> {
        let Some(plan) = log.state.pending.take() else { return Ok(None) };
        let (task, verb) = (plan.step.task.clone(), plan.step.verb);
        if verb == Some(Verb::Claim) {
            self.roll_back(log, &plan)?;
            return Ok(Some(Healed { task, verb, how: Repair::RolledBack }));
        }
        let landed = self.finish(&plan)?;
        self.sync_move(&plan.step)?;
        self.journal_once(&plan, &plan.step.id, &plan.step.events)?;
        log.done(&plan, &landed.unwrap_or(task.clone()))?;
        Ok(Some(Healed { task, verb, how: Repair::Finished }))
    }

    /// Rolls a step back.
    pub(super) fn roll_back(&self, log: &mut LockedLog, plan: &Plan) -> Result<()> {
        let step = &plan.step;
        // The id of the step that rolls this one back: the same whoever does it, and however often.
        let undo = format!("s-{}", &Digest::of(step.id.as_str().as_bytes()).to_string()[..16]);
        if let Some((name, slot, ino)) = self.whereabouts(plan) {
            let path = self.path(&name, &slot);
            self.take_out(plan, &path)?;
            if slot != step.from {
                self.transfer_to(&path, ino, &step.task, &step.from, &undo)?;
            }
        }
        // If the journal has told of the step, it must tell of its end.
        if !step.events.is_empty() && self.options.journal.has(&step.id, step.at)? {
            let undo: StepId = undo.parse()?;
            let reclaimed = TaskReclaimed {
                task: step.task.clone(),
                attempt: None,
                reason: Some("claim cut short".to_owned()),
                step: undo.clone(),
            };
            let event = Event::Reclaim(reclaimed, step.from.state());
            let entry = Entry { time: step.at, agent: step.to.agent().cloned(), turn: None, event };
            self.journal_once(plan, &undo, &[entry])?;
        }
        log.undone()
    }

    /// Records the events of an interrupted step, unless they are recorded. Events of another workspace's journal are left
    /// for it in `owed/`.
    fn journal_once(&self, plan: &Plan, step: &StepId, events: &[Entry]) -> Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        let journal = &self.options.journal;
        if plan.journal == journal.id() {
            return if journal.has(step, plan.step.at)? { Ok(()) } else { journal.append(events) };
        }
        let mut owed = plan.clone();
        owed.step.id = step.clone();
        owed.step.events = events.to_vec();
        let bytes = serde_json::to_vec(&owed).map_err(|error| Fault::invalid(error.to_string()))?;
        let path = self.private.join("owed").join(step.as_str());
        self.disk.replace_via(&self.stage(step.as_str()), &path, &bytes)
    }

    /// Heals every stripe whose process is gone, and records the events that this journal is owed.
    pub(super) fn heal_all(&self) -> Result<Vec<Healed>> {
        let logs = self.private.join("logs");
        if !logs.exists() {
            return Err(Fault::damaged(&logs, "it was deleted while in use: start tollgate again"));
        }
        let mut healed = Vec::new();
        for stripe in 0..=u8::MAX {
            // If somebody has the lock, the step is under way right now.
            if self.read_log(stripe)?.pending.is_some()
                && let Some(mut log) = self.lock_log(stripe, Duration::ZERO)?
            {
                healed.extend(self.heal_stripe(&mut log)?);
            }
        }
        self.record_owed()?;
        Ok(healed)
    }

    fn record_owed(&self) -> Result<()> {
        let folder = self.private.join("owed");
        for name in names_in(&folder)? {
            let path = folder.join(name);
            let Ok(bytes) = fs::read(&path) else { continue };
            let Ok(plan) = serde_json::from_slice::<Plan>(&bytes) else { continue };
            if plan.journal == self.options.journal.id()
                && let Some(_log) = self.lock_log(stripe_of(&plan.step.task), Duration::ZERO)?
                && path.exists()
            {
                self.journal_once(&plan, &plan.step.id, &plan.step.events)?;
                self.disk.remove(&path)?;
            }
        }
        Ok(())
    }

    /// Deletes records of tasks that are nowhere, and staged files of processes that died. A record is deleted only under
    /// the lock of its stripe.
    pub(super) fn sweep_all(&self, now: Timestamp) -> Result<()> {
        let found = |task: &TaskName, slot: &Slot| fs::symlink_metadata(self.path(task, slot)).is_ok();
        for stripe in 0..=u8::MAX {
            for (task, noted) in self.read_log(stripe)?.notes {
                if !found(&task, &noted.record.slot)
                    && let Some(mut log) = self.lock_log(stripe, Duration::ZERO)?
                    && log.state.pending.is_none()
                    && !self.slots(None)?.iter().any(|slot| found(&task, slot))
                {
                    log.forget(&task)?;
                }
            }
        }
        let stage = self.private.join("stage");
        for path in names_in(&stage)?.iter().map(|name| stage.join(name)) {
            let is_old = |found: fs::Metadata| now.as_second() - found.ctime() > STAGED_S;
            if fs::symlink_metadata(&path).is_ok_and(is_old) {
                self.disk.remove(&path)?;
            }
        }
        Ok(())
    }
}
