//! Taking a step: written down, then carried out, then marked as done.
//!
//! Invariants: all of this happens under the lock of the task's stripe. It may die at any act; [`super::settle`] then
//! finishes it or takes it back. Going into an owner's hands the move comes first and the block second, because only
//! the owner may write; coming out of them the block is closed first, because everybody may look.

use std::borrow::Cow;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::disk::{Moved, date_back, no_name_left};
use super::log::{Change, Plan};
use super::stripe::Log;
use super::{FolderStore, digest_of, version};
use crate::error::{At, Result};
use crate::vault::claim::Tenure;
use crate::vault::edit;
use crate::vault::figures::Count;
use crate::vault::name::TaskName;
use crate::vault::state::{Slot, Verb};
use crate::vault::store::{Edit, Landed, Outcome, Step};

/// How much of the end of a file is read for a block. Larger only if a worker writes more than this into its notes.
const BLOCKS: u64 = 1 << 20;

impl FolderStore {
    /// Writes the step down, if the task is as it was.
    pub(super) fn plan<'a>(&'a self, log: &mut Log<'_>, step: &'a Step) -> Result<Option<(Plan<'a>, File)>> {
        let path = self.path(&step.task, &step.from);
        // For writing at once, so that a missing permission is found out before anything is done.
        let Some((file, seen)) = self.disk.open_task(&path, step.edit != Edit::Keep)? else {
            return Ok(None);
        };
        if version(&seen, log.known.notes.get(&step.task).map(AsRef::as_ref)) != step.version {
            return Ok(None);
        }
        let mut plan = Plan {
            step: Cow::Borrowed(step),
            ino: seen.ino,
            len: seen.len,
            journal: Cow::Borrowed(self.options.journal.id()),
            change: None,
        };
        plan.change = change_of(step, &file, seen.len).at("read", &path)?;
        if step.offer {
            let at = plan.change.as_ref().map_or(u64::MAX, |change| change.at);
            let mut hasher = digest_of(&file, at).at("read", &path)?;
            hasher.update(plan.change.as_ref().map_or(&[], |change| &change.new));
            if let Some(note) = &mut plan.step.to_mut().note {
                note.offered = Some(hasher.finish());
            }
        }
        log.begin(&self.disk, &plan)?;
        Ok(Some((plan, file)))
    }

    /// Takes a step that was just written down.
    pub(super) fn carry_out(&self, log: &mut Log<'_>, plan: &Plan<'_>, file: &File) -> Result<Outcome> {
        let outcome = if plan.step.verb == Some(Verb::Claim) {
            self.carry_claim(log, plan, file)
        } else {
            self.carry_other(log, plan, file)
        };
        let took_place = matches!(outcome, Ok(Outcome::Done(_) | Outcome::Unknown(_)));
        if !took_place {
            // If it cannot be taken back now, whoever comes next does it.
            let undone = self.undo(log, plan);
            return outcome.and_then(|outcome| undone.map(|()| outcome));
        }
        outcome
    }

    /// The move, then the block, then the ledger.
    fn carry_claim(&self, log: &mut Log<'_>, plan: &Plan<'_>, file: &File) -> Result<Outcome> {
        let step = &plan.step;
        let Some(task) = self.transfer(plan)? else { return Ok(Outcome::Conflict) };
        let path = self.path(&task, &step.to);
        if file.metadata().at("look at", &path)?.len() != plan.len {
            return Ok(Outcome::Conflict);
        }
        // Checked here, where nobody else writes, and before anything is added.
        if let Some(approved) = step.check
            && digest_of(file, u64::MAX).at("read", &path)?.finish() != approved
        {
            return Ok(Outcome::Changed);
        }
        if let Some(change) = &plan.change {
            self.disk.write_tail(file, &path, change.at, &change.new)?;
        }
        if !self.disk.is_at(&path, plan.ino) {
            // A person took it away at that moment. The edit went with it; it did not bring it back.
            return Ok(Outcome::Conflict);
        }
        // A claim whose step comes back after a power cut is taken back. That is right if its owner was cut off too, and
        // then it need not be on the disk that the task was claimed; an owner elsewhere must find it claimed, and what
        // must not be executed twice must be seen to have been begun.
        let claim = plan.note().and_then(|note| note.claim.as_ref());
        let outlives_a_power_cut = claim.is_some_and(|claim| claim.sensitive || claim.tenure != Tenure::Held);
        if outlives_a_power_cut {
            self.disk.sync(file, &path)?;
            self.sync_move(step)?;
        }
        self.options.journal.append(&step.events)?;
        if let Slot::InProgress(agent) = &step.to {
            self.sums.add(&self.disk, agent, &Count::Claim(step.id.clone()))?;
        }
        self.finish(log, plan, &task)?;
        if outlives_a_power_cut {
            log.sync(&self.disk)?;
        }
        Ok(Outcome::Done(self.landed(plan, task)))
    }

    /// The edit, then the move, then the ledger.
    fn carry_other(&self, log: &mut Log<'_>, plan: &Plan<'_>, file: &File) -> Result<Outcome> {
        let step = &plan.step;
        let path = self.path(&step.task, &step.from);
        if let Some(sha256) = step.check
            && digest_of(file, u64::MAX).at("read", &path)?.finish() != sha256
        {
            return Ok(Outcome::Changed);
        }
        if let Some(change) = &plan.change {
            self.disk.write_tail(file, &path, change.at, &change.new)?;
            let end = change.at + change.new.len() as u64;
            if plan.len > end {
                self.disk.cut(file, &path, end)?;
            }
            if step.to == Slot::NEEDS_ACTION {
                // So that the next attempt can begin at once. Another user's file cannot be dated; then it settles first.
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
            // Saved by an editor at that moment, it is another file. It must not be there without its result.
            let landed = self.path(&task, &step.to);
            if !self.disk.is_at(&landed, plan.ino) {
                self.put_in(plan, &landed)?;
            }
        }
        // From here on it has happened. What is missing is the ledger's line, which whoever comes next can add.
        let told = self
            .sync_move(step)
            .and_then(
                |()| if step.events.is_empty() { Ok(()) } else { self.options.journal.append(&step.events) },
            )
            .and_then(|()| self.finish(log, plan, &task));
        Ok(match told {
            Ok(()) => Outcome::Done(self.landed(plan, task)),
            Err(fault) => Outcome::Unknown(fault),
        })
    }

    /// Moves the file; `None` if it is not there. The answer is its name, another one if its own is taken.
    pub(super) fn transfer(&self, plan: &Plan<'_>) -> Result<Option<TaskName>> {
        let step = &plan.step;
        if step.from == step.to {
            return Ok(Some(step.task.clone()));
        }
        self.transfer_to(&self.path(&step.task, &step.from), plan.ino, &step.task, &step.to, &step.beside)
    }

    pub(super) fn transfer_to(
        &self,
        from: &Path,
        ino: u64,
        task: &TaskName,
        to: &Slot,
        beside: &str,
    ) -> Result<Option<TaskName>> {
        let mut name = task.clone();
        loop {
            match self.disk.transfer(from, &self.path(&name, to), ino)? {
                Moved::Done => return Ok(Some(name)),
                Moved::Missing => return Ok(None),
                Moved::Taken if name == *task => name = task.beside(beside),
                Moved::Taken => return Err(no_name_left(task, to)),
            }
        }
    }

    /// Without it a power cut could bring the file back to where it was, and its step is marked as done. A rename is one
    /// act of the file system's journal: what is on the disk of one folder is on the disk of the other.
    pub(super) fn sync_move(&self, step: &Step) -> Result<()> {
        if step.from == step.to {
            return Ok(());
        }
        self.disk.sync_folder(&self.folder(&step.to))
    }

    /// The step's note is in force, and nothing is under way.
    pub(super) fn finish(&self, log: &mut Log<'_>, plan: &Plan<'_>, task: &TaskName) -> Result<()> {
        log.done(&self.disk, plan, task)
    }

    pub(super) fn landed(&self, plan: &Plan<'_>, task: TaskName) -> Landed {
        let slot = plan.step.to.clone();
        Landed { path: Some(self.path(&task, &slot)), task, slot }
    }
}

/// What the step changes in the file. Only the end is read, where the blocks are, unless the block is not there.
pub(super) fn change_of(step: &Step, file: &File, len: u64) -> std::io::Result<Option<Change>> {
    let mut from = match &step.edit {
        Edit::Keep => return Ok(None),
        Edit::Close(claim, _) if len.saturating_sub(claim.block_at) <= BLOCKS => claim.block_at,
        Edit::Close(..) | Edit::Amend(..) => 0,
        Edit::Open | Edit::Progress(..) | Edit::Reject(..) => len,
    };
    loop {
        // One byte more, to see whether the block begins a line.
        let start = from.saturating_sub(1).min(len);
        let mut end = vec![0; usize::try_from(len - start).unwrap_or(0)];
        file.read_exact_at(&mut end, start)?;
        let found = match &step.edit {
            Edit::Close(claim, _) => crate::vault::block::find(&end, &claim.id).is_some(),
            _ => true,
        };
        if !found && from > 0 {
            // The worker has rewritten the file; the block may be anywhere.
            from = 0;
            continue;
        }
        return Ok(edit::tail(&end, step).map(|tail| {
            let old = &end[tail.at..];
            // Only what differs, so that the log of the step is short.
            let same = old.iter().zip(&tail.bytes).take_while(|(old, new)| old == new).count();
            let at = start + (tail.at + same) as u64;
            Change { at, old: old[same..].to_vec(), new: tail.bytes[same..].to_vec() }
        }));
    }
}
