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

use super::disk::names_in;
use super::layout::FolderStore;
use super::log::{LockedLog, Plan, stripe_of};
use crate::checkup::{Healed, Repair};
use crate::claim::StepId;
use crate::event::{Entry, Event};
use crate::state::Verb;
use crate::step::{Landed, Step};
use tollgate_base::error::{Fault, Result};
use tollgate_base::event::TaskReclaimed;
use tollgate_base::task::TaskName;

/// A staged file is moved at once. One that is older than this was left by a process that died.
const STAGED_S: i64 = 3600;

impl FolderStore {
    /// Heals the stripe before a step. If the interrupted step is the very same one and is finished now: where it landed.
    pub(super) fn heal_before(&self, log: &mut LockedLog, step: &Step) -> Result<Option<Landed>> {
        let Some(plan) = log.state.pending.take() else { return Ok(None) };
        self.heal_plan(log, &plan)?;
        if plan.step.id != step.id || plan.step.verb == Some(Verb::Claim) {
            return Ok(None);
        }
        let (_, there) = self.whereabouts(&plan);
        Ok(Some(self.landed(&plan, there.map_or(plan.step.task.clone(), |(task, _)| task))))
    }

    /// Finishes the interrupted step of a stripe, or rolls it back.
    pub(super) fn heal_stripe(&self, log: &mut LockedLog) -> Result<Option<Healed>> {
        match log.state.pending.take() {
            Some(plan) => self.heal_plan(log, &plan).map(Some),
            None => Ok(None),
        }
    }

    fn heal_plan(&self, log: &mut LockedLog, plan: &Plan) -> Result<Healed> {
        let (task, verb) = (plan.step.task.clone(), plan.step.verb);
        if verb == Some(Verb::Claim) {
            self.roll_back(log, plan)?;
            return Ok(Healed { task, verb, how: Repair::RolledBack });
        }
        let (here, there) = self.whereabouts(plan);
        let landed = if here {
            self.put_in(plan, &self.path(&task, &plan.step.from))?;
            self.transfer(plan)?
        } else {
            there.map(|(name, _)| name)
        };
        self.sync_move(&plan.step)?;
        self.journal_once(plan, &plan.step.id, &plan.step.events)?;
        log.done(&self.disk, plan, &landed.unwrap_or(task.clone()))?;
        Ok(Healed { task, verb, how: Repair::Finished })
    }

    /// Rolls a step back.
    pub(super) fn roll_back(&self, log: &mut LockedLog, plan: &Plan) -> Result<()> {
        let step = &plan.step;
        let (here, there) = self.whereabouts(plan);
        let path = match &there {
            Some((task, _)) => self.path(task, &step.to),
            None => self.path(&step.task, &step.from),
        };
        if here || there.is_some() {
            self.take_out(plan, &path)?;
        }
        if let Some((_, ino)) = &there {
            self.transfer_to(&path, *ino, &step.task, &step.from, plan.undo_id()?.as_str())?;
        }
        // If the journal has told of the step, it must tell of its end.
        if !step.events.is_empty() && self.options.journal.has(&step.id, step.at)? {
            let undo = plan.undo_id()?;
            self.journal_once(plan, &undo, &[rolled_back(plan, &undo)])?;
        }
        log.undone(&self.disk)
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
        let stage = self.private("stage", step.as_str());
        let _ = fs::remove_file(&stage);
        self.disk.create(&stage, &bytes)?;
        self.disk.replace(&stage, &self.private("owed", step.as_str()))
    }

    /// Heals every stripe whose process is gone, and records the events that this journal is owed.
    pub(super) fn heal_all(&self) -> Result<Vec<Healed>> {
        let mut healed = Vec::new();
        for stripe in self.logs.in_use()? {
            if self.logs.read(stripe)?.pending.is_none() {
                continue;
            }
            // If somebody has the lock, the step is under way right now.
            if let Some(mut log) = self.logs.lock(stripe, Duration::ZERO, &self.disk)? {
                healed.extend(self.heal_stripe(&mut log)?);
            }
        }
        self.record_owed()?;
        Ok(healed)
    }

    fn record_owed(&self) -> Result<()> {
        for name in names_in(&self.private.join("owed"))? {
            let path = self.private("owed", &name);
            let Ok(bytes) = fs::read(&path) else { continue };
            let Ok(plan) = serde_json::from_slice::<Plan>(&bytes) else { continue };
            if plan.journal != self.options.journal.id() {
                continue;
            }
            let stripe = stripe_of(&plan.step.task);
            let Some(_log) = self.logs.lock(stripe, Duration::ZERO, &self.disk)? else { continue };
            if fs::symlink_metadata(&path).is_ok() {
                self.journal_once(&plan, &plan.step.id, &plan.step.events)?;
                self.disk.remove(&path)?;
            }
        }
        Ok(())
    }

    /// Deletes records of tasks that are nowhere, and staged files of processes that died. A record is deleted only under
    /// the lock of its stripe.
    pub(super) fn sweep_all(&self, now: Timestamp) -> Result<()> {
        let found = |task: &TaskName, slots: &[_]| {
            slots.iter().any(|slot| fs::symlink_metadata(self.path(task, slot)).is_ok())
        };
        for stripe in self.logs.in_use()? {
            for (task, noted) in self.logs.read(stripe)?.notes {
                if found(&task, std::slice::from_ref(&noted.record.slot)) {
                    continue;
                }
                let Some(mut log) = self.logs.lock(stripe, Duration::ZERO, &self.disk)? else { continue };
                if log.state.pending.is_none() && !found(&task, &self.slots(None)?) {
                    log.forget(&self.disk, &task)?;
                }
            }
        }
        for name in names_in(&self.private.join("stage"))? {
            let path = self.private("stage", &name);
            let old = |found: fs::Metadata| now.as_second() - found.ctime() > STAGED_S;
            if fs::symlink_metadata(&path).is_ok_and(old) {
                self.disk.remove(&path)?;
            }
        }
        Ok(())
    }
}

fn rolled_back(plan: &Plan, undo: &StepId) -> Entry {
    let step = &plan.step;
    let reclaimed = TaskReclaimed {
        task: step.task.clone(),
        attempt: None,
        reason: Some("claim cut short".to_owned()),
        step: undo.clone(),
    };
    let event = Event::Reclaim(reclaimed, step.from.state());
    Entry { time: step.at, agent: step.to.agent().cloned(), turn: None, event }
}
