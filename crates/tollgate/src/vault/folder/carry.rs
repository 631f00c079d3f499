//! Carrying a step out, and settling one that was cut short.
//!
//! A claim that was cut short is taken back: nobody was told of it, so nobody works on it. Its block is cut off again
//! and the file goes back to where it was, so that what was approved is still what was approved. Every other step is
//! finished: a completion that was written down moves the task, it never has the work done again.
//!
//! Invariants: all of this happens under the lock of the task's name. Each function may die at any act and be run again
//! from the start by somebody else. The file is known by its inode, which no act of ours changes.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use super::disk::{Moved, open_task};
use super::log::{Change, Log, Plan, UnderWay};
use super::{FolderStore, digest_of, version};
use crate::error::{At, Fault, Result};
use crate::vault::claim::{StepId, Tenure};
use crate::vault::edit;
use crate::vault::event::{Event, Kind};
use crate::vault::figures::Count;
use crate::vault::name::TaskName;
use crate::vault::state::{Slot, Verb};
use crate::vault::store::{Edit, Healed, Landed, Outcome, Settled, Step, Store as _};

/// How much of the end of a file is read for a block. Larger only if a worker writes more than this into its notes.
const BLOCKS: u64 = 1 << 20;

impl FolderStore {
    /// Settles what lies in the way of a step. If that was the very same step, it is done now.
    pub(super) fn settle_first(&self, log: &mut Log, step: &Step) -> Result<Option<Landed>> {
        let Some(plan) = log.known.pending.clone() else { return Ok(None) };
        self.settle(log)?;
        if plan.step.id != step.id || plan.step.verb == Some(Verb::Claim) {
            return Ok(None);
        }
        let (_, there) = self.whereabouts(&plan);
        Ok(Some(self.landed(&plan, there.map_or(plan.step.task.clone(), |(task, _)| task))))
    }

    /// Writes the step down, if the task is as it was.
    pub(super) fn plan(&self, log: &mut Log, step: &Step) -> Result<Option<Plan>> {
        let path = self.path(&step.task, &step.from);
        let Some((file, meta)) = open_task(&path, false)? else { return Ok(None) };
        if version(&meta, log.known.notes.get(&step.task)) != step.version {
            return Ok(None);
        }
        let mut plan = Plan {
            step: step.clone(),
            ino: meta.ino(),
            len: meta.len(),
            journal: self.options.journal.id().to_owned(),
            undo: StepId::new()?,
            change: None,
        };
        plan.change = self.change(step, &file, meta.len()).at("read", &path)?;
        if step.offer {
            let at = plan.change.as_ref().map_or(u64::MAX, |change| change.at);
            let mut hasher = digest_of(&file, at).at("read", &path)?;
            hasher.update(plan.change.as_ref().map_or(&[], |change| &change.new));
            if let Some(note) = &mut plan.step.note {
                note.offered = Some(hasher.finish());
            }
        }
        self.under_way.set(log.stripe.into(), true)?;
        log.begin(&self.disk, &plan)?;
        Ok(Some(plan))
    }

    /// What the step changes in the file. Only the end is read, where the blocks are, unless the block is not there.
    #[expect(clippy::unused_self, reason = "reads as one of the acts")]
    fn change(&self, step: &Step, file: &File, len: u64) -> std::io::Result<Option<Change>> {
        let mut from = match &step.edit {
            Edit::Keep => return Ok(None),
            Edit::Close(claim, _) if len.saturating_sub(claim.block_at) <= BLOCKS => claim.block_at,
            Edit::Close(..) => 0,
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
            return Ok(edit::tail(&end, step).map(|tail| Change {
                at: start + tail.at as u64,
                old: end[tail.at..].to_vec(),
                new: tail.bytes,
            }));
        }
    }

    /// Takes a step that was just written down.
    pub(super) fn carry_out(&self, log: &mut Log, plan: &Plan) -> Result<Outcome> {
        let outcome = if plan.step.verb == Some(Verb::Claim) {
            self.carry_claim(log, plan)
        } else {
            self.carry_other(log, plan)
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
    fn carry_claim(&self, log: &mut Log, plan: &Plan) -> Result<Outcome> {
        let step = &plan.step;
        let Some(task) = self.transfer(plan)? else { return Ok(Outcome::Conflict) };
        let path = self.path(&task, &step.to);
        let Some((file, meta)) = open_task(&path, true)? else { return Ok(Outcome::Conflict) };
        if meta.ino() != plan.ino || meta.len() != plan.len {
            return Ok(Outcome::Conflict);
        }
        // Checked here, where nobody else writes, and before anything is added.
        if let Some(approved) = step.check
            && digest_of(&file, u64::MAX).at("read", &path)?.finish() != approved
        {
            return Ok(Outcome::Changed);
        }
        if let Some(change) = &plan.change {
            self.disk.write_tail(&file, &path, change.at, &change.new)?;
            // Without it a power cut could leave an owner's file without the owner.
            self.disk.sync(&file, &path)?;
        }
        if !fs::symlink_metadata(&path).is_ok_and(|found| found.ino() == plan.ino) {
            // A person took it away at that moment. The edit went with it; it did not bring it back.
            return Ok(Outcome::Conflict);
        }
        self.sync_move(step)?;
        self.options.journal.append(&step.events)?;
        self.count_claim(plan)?;
        self.finish(log, plan, &task)?;
        // A claim whose step comes back after a power cut is taken back. That is right if its owner was cut off too;
        // without this it would also happen to an owner elsewhere, or to what must not be executed twice.
        if plan
            .note()
            .and_then(|note| note.claim.as_ref())
            .is_some_and(|c| c.sensitive || c.tenure != Tenure::Held)
        {
            log.sync(&self.disk)?;
        }
        Ok(Outcome::Done(self.landed(plan, task)))
    }

    /// The edit, then the move, then the ledger.
    fn carry_other(&self, log: &mut Log, plan: &Plan) -> Result<Outcome> {
        let step = &plan.step;
        let path = self.path(&step.task, &step.from);
        if step.check.is_some() || plan.change.is_some() {
            let Some((file, meta)) = open_task(&path, plan.change.is_some())? else {
                return Ok(Outcome::Conflict);
            };
            if meta.ino() != plan.ino || meta.len() != plan.len {
                return Ok(Outcome::Conflict);
            }
            if let Some(sha256) = step.check
                && digest_of(&file, u64::MAX).at("read", &path)?.finish() != sha256
            {
                return Ok(Outcome::Changed);
            }
            if let Some(change) = &plan.change {
                self.disk.write_tail(&file, &path, change.at, &change.new)?;
                // Without it a power cut could leave a finished task without its result.
                self.disk.sync(&file, &path)?;
            }
        }
        let Some(task) = self.transfer(plan)? else { return Ok(Outcome::Conflict) };
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
    fn transfer(&self, plan: &Plan) -> Result<Option<TaskName>> {
        let step = &plan.step;
        if step.from == step.to {
            return Ok(Some(step.task.clone()));
        }
        self.transfer_to(&self.path(&step.task, &step.from), plan.ino, &step.task, &step.to, &step.beside)
    }

    fn transfer_to(
        &self,
        from: &Path,
        ino: u64,
        task: &TaskName,
        to: &Slot,
        beside: &str,
    ) -> Result<Option<TaskName>> {
        for task in [task.clone(), task.beside(beside)] {
            match self.disk.transfer(from, &self.path(&task, to), ino)? {
                Moved::Done => return Ok(Some(task)),
                Moved::Missing => return Ok(None),
                Moved::Taken => {}
            }
        }
        Err(Fault::invalid(format!("`{task}` cannot go to `{to}`: both of its names are taken there")))
    }

    /// Without it a power cut could leave a file in both folders or in none, on file systems that allow that.
    fn sync_move(&self, step: &Step) -> Result<()> {
        if step.from == step.to {
            return Ok(());
        }
        self.disk.sync_folder(&self.folder(&step.to))?;
        self.disk.sync_folder(&self.folder(&step.from))
    }

    fn count_claim(&self, plan: &Plan) -> Result<()> {
        match &plan.step.to {
            Slot::InProgress(agent) if plan.step.verb == Some(Verb::Claim) => {
                self.count(agent, Count::Claim(plan.step.id.clone()))
            }
            _ => Ok(()),
        }
    }

    /// The step's note is in force, and nothing is under way.
    fn finish(&self, log: &mut Log, plan: &Plan, task: &TaskName) -> Result<()> {
        log.done(&self.disk, task)?;
        self.under_way.set(log.stripe.into(), false)?;
        if let Edit::Close(claim, _) = &plan.step.edit
            && claim.tenure == Tenure::Held
        {
            // One that stays behind is swept; the step is done.
            let _ = self.disk.remove(&self.private("held", claim.id.as_str()));
        }
        Ok(())
    }

    fn landed(&self, plan: &Plan, task: TaskName) -> Landed {
        let slot = plan.step.to.clone();
        Landed { path: Some(self.path(&task, &slot)), task, slot }
    }

    /// Where the file of a plan is now: whether it is where it came from, and under which name it is where it goes.
    fn whereabouts(&self, plan: &Plan) -> (bool, Option<(TaskName, u64)>) {
        let step = &plan.step;
        let ino = |path: PathBuf| {
            fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file).map(|found| found.ino())
        };
        let from = ino(self.path(&step.task, &step.from));
        if step.from == step.to {
            return (from.is_some(), None);
        }
        let names = [step.task.clone(), step.task.beside(&step.beside)];
        let there = names.iter().find(|name| ino(self.path(name, &step.to)) == Some(plan.ino));
        // Saved by an editor in between, it has another inode. Its name tells it, if it is nowhere else.
        let there = there.or_else(|| {
            let gone = from.is_none() && step.verb == Some(Verb::Claim);
            names.iter().find(|name| gone && ino(self.path(name, &step.to)).is_some())
        });
        let there = there.and_then(|name| ino(self.path(name, &step.to)).map(|ino| (name.clone(), ino)));
        (from.is_some() && there.is_none(), there)
    }

    /// Takes a step back that came to nothing.
    fn undo(&self, log: &mut Log, plan: &Plan) -> Result<()> {
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
            self.transfer_to(&path, *ino, &step.task, &step.from, plan.undo.as_str())?;
        }
        // What the ledger has told, it must take back.
        if !step.events.is_empty() && self.options.journal.has(&step.id, step.at)? {
            self.count_claim(plan)?;
            self.journal_once(plan, &plan.undo, &[taken_back(plan)])?;
        }
        log.undone(&self.disk)?;
        self.under_way.set(log.stripe.into(), false)?;
        if let Some(claim) = plan.note().and_then(|note| note.claim.as_ref())
            && claim.tenure == Tenure::Held
            && step.verb == Some(Verb::Claim)
        {
            let _ = self.disk.remove(&self.private("held", claim.id.as_str()));
        }
        Ok(())
    }

    /// Takes the change out of the file again, if it, or a part of it, is in there and nothing else has changed.
    fn take_out(&self, plan: &Plan, path: &Path) -> Result<()> {
        let Some(change) = &plan.change else { return Ok(()) };
        match half_written(change, path)? {
            Some(file) => self.disk.write_tail(&file, path, change.at, &change.old),
            None => Ok(()),
        }
    }

    /// Finishes a step that was cut short, or takes it back. The lock is ours, so whoever began it is gone.
    fn settle(&self, log: &mut Log) -> Result<Option<Healed>> {
        let Some(plan) = log.known.pending.clone() else {
            // Cut short before it was written down: nothing was done yet.
            self.under_way.set(log.stripe.into(), false)?;
            return Ok(None);
        };
        let (task, verb) = (plan.step.task.clone(), plan.step.verb);
        if verb == Some(Verb::Claim) {
            self.undo(log, &plan)?;
            return Ok(Some(Healed { task, verb, how: Settled::TakenBack }));
        }
        let (here, there) = self.whereabouts(&plan);
        let landed = if here {
            let path = self.path(&task, &plan.step.from);
            self.put_in(&plan, &path)?;
            self.transfer(&plan)?
        } else {
            there.map(|(name, _)| name)
        };
        self.sync_move(&plan.step)?;
        self.journal_once(&plan, &plan.step.id, &plan.step.events)?;
        self.finish(log, &plan, &landed.unwrap_or(plan.step.task.clone()))?;
        Ok(Some(Healed { task, verb, how: Settled::Finished }))
    }

    /// Makes the change of a step that was cut short, unless it is made.
    fn put_in(&self, plan: &Plan, path: &Path) -> Result<()> {
        let Some(change) = &plan.change else { return Ok(()) };
        if let Some(file) = half_written(change, path)? {
            self.disk.write_tail(&file, path, change.at, &change.new)?;
            return self.disk.sync(&file, path);
        }
        // As it was, or changed by somebody since: the change is planned anew on what is there.
        let Some((file, meta)) = open_task(path, true)? else { return Ok(()) };
        if let Some(change) = self.change(&plan.step, &file, meta.len()).at("read", path)? {
            self.disk.write_tail(&file, path, change.at, &change.new)?;
        }
        self.disk.sync(&file, path)
    }

    /// Writes events of a step that was cut short, unless they are written. Those of another workspace's ledger are
    /// left for it.
    fn journal_once(&self, plan: &Plan, step: &StepId, events: &[Event]) -> Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        if plan.journal == self.options.journal.id() {
            return if self.options.journal.has(step, plan.step.at)? {
                Ok(())
            } else {
                self.options.journal.append(events)
            };
        }
        let mut owed = plan.clone();
        owed.step.id = step.clone();
        owed.step.events = events.to_vec();
        let bytes = serde_json::to_vec(&owed).map_err(|error| Fault::invalid(error.to_string()))?;
        let stage = self.private("stage", step.as_str());
        let _ = fs::remove_file(&stage);
        self.disk.create(&stage, &bytes)?;
        self.disk.replace(&stage, &self.private("owed", step.as_str()))?;
        self.under_way.set(UnderWay::OWED, true)
    }

    /// Settles all steps whose makers are gone, and writes what this ledger is owed.
    pub(super) fn heal_all(&self) -> Result<Vec<Healed>> {
        let mut healed = Vec::new();
        for at in self.under_way.all()? {
            match u8::try_from(at) {
                Ok(stripe) => {
                    // Held: somebody is at it right now.
                    if let Some(mut log) = self.lock(stripe, Duration::ZERO)? {
                        healed.extend(self.settle(&mut log)?);
                    }
                }
                Err(_) => self.pay_owed()?,
            }
        }
        Ok(healed)
    }

    fn pay_owed(&self) -> Result<()> {
        for name in names_in(&self.private.join("owed"))? {
            let path = self.private("owed", &name);
            let Ok(bytes) = fs::read(&path) else { continue };
            let Ok(plan) = serde_json::from_slice::<Plan>(&bytes) else { continue };
            if plan.journal != self.options.journal.id() {
                continue;
            }
            let Some(_log) = self.lock(plan.step.task.stripe(), Duration::ZERO)? else { continue };
            if fs::symlink_metadata(&path).is_ok() {
                self.journal_once(&plan, &plan.step.id, &plan.step.events)?;
                self.disk.remove(&path)?;
            }
        }
        Ok(())
    }
}

/// The file, if its end is somewhere between old and new.
fn half_written(change: &Change, path: &Path) -> Result<Option<File>> {
    let Some((file, meta)) = open_task(path, true)? else { return Ok(None) };
    let most = change.at + change.new.len().max(change.old.len()) as u64;
    if meta.len() < change.at || meta.len() > most {
        return Ok(None);
    }
    let mut end = vec![0; usize::try_from(meta.len() - change.at).unwrap_or(0)];
    file.read_exact_at(&mut end, change.at).at("read", path)?;
    let mut bytes = end.iter().enumerate();
    let mixed = bytes.all(|(at, byte)| change.new.get(at) == Some(byte) || change.old.get(at) == Some(byte));
    Ok((mixed && end != change.old).then_some(file))
}

pub(super) fn names_in(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).at("read", folder)? {
        names.extend(entry.at("read", folder)?.file_name().into_string());
    }
    Ok(names)
}

fn taken_back(plan: &Plan) -> Event {
    let step = &plan.step;
    Event {
        step: plan.undo.clone(),
        time: step.at,
        agent: step.to.agent().cloned(),
        kind: Kind::Reclaim,
        payload: json!({"task": step.task, "reason": "claim cut short", "step": plan.undo}),
        result: json!({"status": step.from.state()}),
    }
}
