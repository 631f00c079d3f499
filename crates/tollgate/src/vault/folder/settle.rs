//! Settling a step that was cut short, by whoever comes next.
//!
//! A claim is taken back: nobody was told of it, so nobody works on it. Its block is cut off again and the file goes
//! back to where it was, so that what was approved is still what was approved. Every other step is finished: a completion
//! that was written down moves the task, it never has the work done again.
//!
//! Invariants: the lock of the task's stripe is ours, so whoever began the step is gone. Each function may die at any act
//! and be run again from the start by somebody else. The file is known by its inode, which no act of ours changes.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::FolderStore;
use super::carry::change_of;
use super::disk::Disk;
use super::log::{Change, Plan};
use super::stripe::Log;
use crate::error::{At, Fault, Result};
use crate::vault::claim::StepId;
use crate::vault::event::{Event, Kind, Payload};
use crate::vault::figures::Count;
use crate::vault::name::TaskName;
use crate::vault::state::{Slot, Verb};
use crate::vault::store::{Healed, Landed, Settled, Step};

impl FolderStore {
    /// Settles what lies in the way of a step. If that was the very same step, it is done now.
    pub(super) fn settle_first(&self, log: &mut Log<'_>, step: &Step) -> Result<Option<Landed>> {
        let Some(plan) = log.pending()? else { return Ok(None) };
        self.settle(log)?;
        if plan.step.id != step.id || plan.step.verb == Some(Verb::Claim) {
            return Ok(None);
        }
        let (_, there) = self.whereabouts(&plan);
        Ok(Some(self.landed(&plan, there.map_or(plan.step.task.clone(), |(task, _)| task))))
    }

    /// Where the file of a plan is now: whether it is where it came from, and under which name it is where it goes.
    fn whereabouts(&self, plan: &Plan<'_>) -> (bool, Option<(TaskName, u64)>) {
        let step = &plan.step;
        let ino = |path: PathBuf| {
            self.disk.look(&path).ok().flatten().filter(|found| found.is_file).map(|found| found.ino)
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
    pub(super) fn undo(&self, log: &mut Log<'_>, plan: &Plan<'_>) -> Result<()> {
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
            self.transfer_to(&path, *ino, &step.task, &step.from, plan.undo()?.as_str())?;
        }
        // What the ledger has told, it must take back.
        if !step.events.is_empty() && self.options.journal.has(&step.id, step.at)? {
            if let (Slot::InProgress(agent), Some(Verb::Claim)) = (&step.to, step.verb)
                && !self.sums.has(agent, &step.id)?
            {
                self.sums.add(&self.disk, agent, &Count::Claim(step.id.clone()))?;
            }
            let undo = plan.undo()?;
            self.journal_once(plan, &undo, &[taken_back(plan, &undo)])?;
        }
        log.undone(&self.disk)
    }

    /// Takes the change out of the file again, if it, or a part of it, is in there and nothing else has changed.
    fn take_out(&self, plan: &Plan<'_>, path: &Path) -> Result<()> {
        let Some(change) = &plan.change else { return Ok(()) };
        match half_written(&self.disk, change, path)? {
            Some(file) => self.disk.replace_tail(&file, path, change.at, &change.old),
            None => Ok(()),
        }
    }

    /// Finishes a step that was cut short, or takes it back. The lock is ours, so whoever began it is gone.
    pub(super) fn settle(&self, log: &mut Log<'_>) -> Result<Option<Healed>> {
        let Some(plan) = log.pending()? else { return Ok(None) };
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
    pub(super) fn put_in(&self, plan: &Plan<'_>, path: &Path) -> Result<()> {
        let Some(change) = &plan.change else { return Ok(()) };
        if let Some(file) = half_written(&self.disk, change, path)? {
            self.disk.replace_tail(&file, path, change.at, &change.new)?;
            return self.disk.sync(&file, path);
        }
        // As it was, or changed by somebody since: the change is planned anew on what is there.
        let Some((file, seen)) = self.disk.open_task(path, true)? else { return Ok(()) };
        if let Some(change) = change_of(&plan.step, &file, seen.len).at("read", path)? {
            self.disk.replace_tail(&file, path, change.at, &change.new)?;
        }
        self.disk.sync(&file, path)
    }

    /// Writes events of a step that was cut short, unless they are written. Those of another workspace's ledger are
    /// left for it.
    fn journal_once(&self, plan: &Plan<'_>, step: &StepId, events: &[Event]) -> Result<()> {
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
        let step_owed = owed.step.to_mut();
        step_owed.id = step.clone();
        step_owed.events = events.to_vec();
        let bytes = serde_json::to_vec(&owed).map_err(|error| Fault::invalid(error.to_string()))?;
        let stage = self.private("stage", step.as_str());
        let _ = fs::remove_file(&stage);
        self.disk.create(&stage, &bytes)?;
        self.disk.replace(&stage, &self.private("owed", step.as_str()))
    }

    /// Settles all steps whose makers are gone, and writes what this ledger is owed.
    pub(super) fn heal_all(&self) -> Result<Vec<Healed>> {
        let mut healed = Vec::new();
        for stripe in self.stripes.under_way()? {
            // Held: somebody is at it right now.
            if let Some(mut log) = self.stripes.lock(stripe, Duration::ZERO)? {
                healed.extend(self.settle(&mut log)?);
            }
        }
        self.pay_owed()?;
        Ok(healed)
    }

    fn pay_owed(&self) -> Result<()> {
        for name in names_in(&self.private.join("owed"))? {
            let path = self.private("owed", &name);
            let Ok(bytes) = fs::read(&path) else { continue };
            let Ok(plan) = serde_json::from_slice::<Plan<'_>>(&bytes) else { continue };
            if plan.journal != self.options.journal.id() {
                continue;
            }
            let Some(_log) = self.stripes.lock(plan.step.task.stripe(), Duration::ZERO)? else { continue };
            if fs::symlink_metadata(&path).is_ok() {
                self.journal_once(&plan, &plan.step.id, &plan.step.events)?;
                self.disk.remove(&path)?;
            }
        }
        Ok(())
    }
}

/// The file, if its end is somewhere between old and new.
fn half_written(disk: &Disk, change: &Change, path: &Path) -> Result<Option<File>> {
    let Some((file, seen)) = disk.open_task(path, true)? else { return Ok(None) };
    let most = change.at + change.new.len().max(change.old.len()) as u64;
    if seen.len < change.at || seen.len > most {
        return Ok(None);
    }
    let mut end = vec![0; usize::try_from(seen.len - change.at).unwrap_or(0)];
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

fn taken_back(plan: &Plan<'_>, undo: &StepId) -> Event {
    let step = &plan.step;
    Event {
        time: step.at,
        agent: step.to.agent().cloned(),
        kind: Kind::Reclaim,
        payload: Payload { reason: Some("claim cut short".to_owned()), ..Payload::new(&step.task, undo) },
        result: step.from.state().into(),
    }
}
