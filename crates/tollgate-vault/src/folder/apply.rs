//! Applying a step: written down, then carried out, then marked as done.
//!
//! Invariants: all of this happens under the lock of the task's stripe. The process may die at any act; `heal`
//! then finishes the step or rolls it back. Into an owner's slot the move comes first and the block second, because only
//! the owner may write there; out of it the block is closed first, because everybody may look at the result.

use std::fs::File;

use super::disk::date_back;
use super::effect::{change_of, read};
use super::layout::{FolderStore, version};
use super::log::{LockedLog, Plan};
use crate::claim::Tenure;
use crate::event::Entry;
use crate::state::{Slot, Verb};
use crate::step::{Edit, Outcome, Step};
use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Result};

impl FolderStore {
    /// Takes a step, if the task is at its version.
    pub(super) fn take(&self, log: &mut LockedLog, step: &Step) -> Result<Outcome> {
        let path = self.path(&step.task, &step.from);
        // Opened for writing at once, so that a missing permission is found before anything is done.
        let Some((file, seen)) = self.disk.open_task(&path, step.edit != Edit::Keep)? else {
            return Ok(Outcome::Conflict);
        };
        if version(&seen, log.state.notes.get(&step.task)) != step.version {
            return Ok(Outcome::Conflict);
        }
        let mut plan = Plan {
            step: step.clone(),
            ino: seen.ino,
            len: seen.len,
            journal: self.options.journal.id().to_owned(),
            change: change_of(step, &file, seen.len).at("read", &path)?,
        };
        if step.records_digest {
            let text = read(&file, 0, seen.len).at("read", &path)?;
            plan.step.record = step.record_after(&step.edited(&text));
        }
        let plan = log.begin(&self.disk, plan)?;
        let outcome = if step.verb == Some(Verb::Claim) {
            self.carry_claim(log, &plan, &file)
        } else {
            self.carry_other(log, &plan, &file)
        };
        if !matches!(outcome, Ok(Outcome::Done(_) | Outcome::Unknown(_))) {
            // If it cannot be rolled back now, the next process does it.
            let undone = self.roll_back(log, &plan);
            return outcome.and_then(|outcome| undone.map(|()| outcome));
        }
        outcome
    }

    /// The move, then the block, then the journal.
    fn carry_claim(&self, log: &mut LockedLog, plan: &Plan, file: &File) -> Result<Outcome> {
        let step = &plan.step;
        let Some(task) = self.transfer(plan)? else { return Ok(Outcome::Conflict) };
        let path = self.path(&task, &step.to);
        if file.metadata().at("look at", &path)?.len() != plan.len {
            return Ok(Outcome::Conflict);
        }
        // Checked here, where nobody else writes, and before anything is added.
        if let Some(approved) = step.check
            && Digest::of(&read(file, 0, plan.len).at("read", &path)?) != approved
        {
            return Ok(Outcome::Changed);
        }
        if let Some(change) = &plan.change {
            self.disk.write_tail(file, &path, change.at, &change.new)?;
        }
        if !self.disk.is_at(&path, plan.ino) {
            // A person moved it away at that moment. The edit went with it and did not bring it back.
            return Ok(Outcome::Conflict);
        }
        // After a power cut, a claim without its mark is rolled back. That is safe for a held claim, because its owner died
        // too. An owner elsewhere must find its lease, and a sensitive action must be seen to have begun: flush those.
        let claim = step.record.as_ref().and_then(|record| record.claim.as_ref());
        let outlives_a_power_cut = claim.is_some_and(|claim| claim.sensitive || claim.tenure != Tenure::Held);
        if outlives_a_power_cut {
            self.disk.sync(file, &path)?;
            self.sync_move(step)?;
        }
        self.append(&step.events)?;
        log.done(&self.disk, plan, &task)?;
        if outlives_a_power_cut {
            log.sync(&self.disk)?;
        }
        Ok(Outcome::Done(self.landed(plan, task)))
    }

    /// The edit, then the move, then the journal.
    fn carry_other(&self, log: &mut LockedLog, plan: &Plan, file: &File) -> Result<Outcome> {
        let step = &plan.step;
        let path = self.path(&step.task, &step.from);
        if let Some(sha256) = step.check
            && Digest::of(&read(file, 0, u64::MAX).at("read", &path)?) != sha256
        {
            return Ok(Outcome::Changed);
        }
        if let Some(change) = &plan.change {
            self.disk.replace_tail(file, &path, change.at, &change.new)?;
            if step.to == Slot::NEEDS_ACTION {
                // So that the next attempt can begin at once. The file of another user cannot be dated; it settles first.
                let _ = date_back(file);
            }
            // Without it a power cut could leave a finished task without its result.
            self.disk.sync(file, &path)?;
        }
        if step.from == step.to && !self.disk.is_at(&path, plan.ino) {
            return Ok(Outcome::Conflict);
        }
        let Some(task) = self.transfer(plan)? else { return Ok(Outcome::Conflict) };
        if plan.change.is_some() {
            // If an editor saved it at that moment, it is another file, which must not be there without its result.
            let landed = self.path(&task, &step.to);
            if !self.disk.is_at(&landed, plan.ino) {
                self.put_in(plan, &landed)?;
            }
        }
        // From here on it has happened. What is missing is the journal's line, which the next process can add.
        let told = self
            .sync_move(step)
            .and_then(|()| self.append(&step.events))
            .and_then(|()| log.done(&self.disk, plan, &task));
        Ok(match told {
            Ok(()) => Outcome::Done(self.landed(plan, task)),
            Err(fault) => Outcome::Unknown(fault),
        })
    }

    fn append(&self, events: &[Entry]) -> Result<()> {
        if events.is_empty() { Ok(()) } else { self.options.journal.append(events) }
    }
}
