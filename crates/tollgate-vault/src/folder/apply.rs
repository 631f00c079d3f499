//! Applying a step: written down, then carried out, then marked as done. And healing: the next process finishes or rolls
//! back the step of one that died.
//!
//! Into an owner's slot the move comes first and the block second, because only the owner may write there; out of it the
//! block is closed first, because everybody may look at the result. An interrupted claim is rolled back: nobody was told of
//! it, so nobody works on it. Its block is cut off and the file goes back to where it was, so that the approved text is
//! still the approved text. Every other step is finished: a completion that was written down moves the task and never
//! repeats the work.
//!
//! Invariants: all of this happens under the lock of the task's stripe, so the process that began an interrupted step is
//! gone. Each function may die at any act and be run again from the start by another process. The file is known by its
//! inode, which no act of ours changes.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::OFlags;

use super::FolderStore;
use super::disk::{Moved, date_back, is_at, no_name_left, open_task, read, read_range};
use super::log::{LockedLog, stripe_of, version};
use super::log_line::{StepPlan, TextChange};
use crate::checkup::Finding;
use crate::claim::{StepId, Tenure};
use crate::event::{Entry, Event};
use crate::state::{Slot, Verb};
use crate::step::{Step, StepOutcome, TaskAfterStep, TextEdit};
use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::event::TaskReclaimed;
use tollgate_base::file::names_in;
use tollgate_base::private;
use tollgate_base::task::TaskName;

/// Where a file is, and its inode.
type FilePlace = (TaskName, Slot, u64);

impl FolderStore {
    /// Takes a step, if the task is at its version.
    pub(super) fn take(&self, log: &mut LockedLog, step: &Step) -> Result<StepOutcome> {
        let path = self.path(&step.task, &step.from);
        // Opened for writing at once, so that a missing permission is found before anything is done.
        let flags = if step.edit == TextEdit::Keep { OFlags::RDONLY } else { OFlags::RDWR };
        let is_same = |found: &fs::Metadata| version(found, log.state.notes.get(&step.task)) == step.version;
        let Some((file, found)) = open_task(&path, flags)?.filter(|(_, found)| is_same(found)) else {
            return Ok(self.taken_before(log, step)?.map_or(StepOutcome::Conflict, StepOutcome::Done));
        };
        let mut plan = StepPlan {
            step: step.clone(),
            ino: found.ino(),
            len: found.len(),
            journal: self.options.journal.id().to_owned(),
            change: change_of(step, &file, found.len()).at("read", &path)?,
        };
        if step.records_digest {
            let text = read(&file, 0, found.len()).at("read", &path)?;
            plan.step.record = step.record_after(&step.edited(&text));
        }
        let is_claim = step.verb == Some(Verb::Claim);
        if !is_claim && !is_as_checked(step, &file, &path)? {
            return Ok(StepOutcome::Changed);
        }
        if matches!(step.edit, TextEdit::Progress(..) | TextEdit::Draft(..)) {
            // The plan adds to a block that the claim may not have flushed.
            self.disk.sync(&file, &path)?;
        }
        log.begin(&plan)?;
        let outcome =
            if is_claim { self.claim(log, &plan, &file) } else { self.carry_out(log, &plan, &file) };
        if !matches!(outcome, Ok(StepOutcome::Done(_) | StepOutcome::Unknown(_))) {
            // If it cannot be rolled back now, the next process does it.
            let undone = self.roll_back(log, &plan);
            return outcome.and_then(|outcome| undone.map(|()| outcome));
        }
        outcome
    }

    /// Where this step brought the task, if it was taken before and its answer was lost.
    fn taken_before(&self, log: &LockedLog, step: &Step) -> Result<Option<TaskAfterStep>> {
        let names = [step.fallback_name(), step.task.clone()];
        let is_noted =
            |name: &&TaskName| log.state.notes.get(name).is_some_and(|noted| noted.step == step.id);
        if let Some(name) = names.iter().find(is_noted) {
            return Ok(Some(self.landed(step, name.clone())));
        }
        // Nothing is noted about a final task, but the journal tells. It may also tell of a claim that was rolled back.
        let may_tell = step.verb != Some(Verb::Claim) && !step.events.is_empty();
        if !may_tell || !self.options.journal.has(&step.id, step.at)? {
            return Ok(None);
        }
        let name = names.into_iter().find(|name| self.path(name, &step.to).exists());
        Ok(Some(self.landed(step, name.unwrap_or_else(|| step.task.clone()))))
    }

    /// The move, then the block, then the journal.
    fn claim(&self, log: &mut LockedLog, plan: &StepPlan, file: &File) -> Result<StepOutcome> {
        let step = &plan.step;
        let Some(task) = self.transfer(plan)? else { return Ok(StepOutcome::Conflict) };
        let path = self.path(&task, &step.to);
        if file.metadata().at("look at", &path)?.len() != plan.len {
            return Ok(StepOutcome::Conflict);
        }
        // Checked here, where nobody else writes, and before anything is added.
        if !is_as_checked(step, file, &path)? {
            return Ok(StepOutcome::Changed);
        }
        if let Some(change) = &plan.change {
            self.disk.replace_tail(file, &path, change.at, &change.new, plan.len)?;
        }
        if !is_at(&path, plan.ino) {
            // A person moved it away at that moment. The edit went with it and did not bring it back.
            return Ok(StepOutcome::Conflict);
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
        log.done(plan, &task)?;
        if outlives_a_power_cut {
            log.sync()?;
        }
        Ok(StepOutcome::Done(self.landed(step, task)))
    }

    fn carry_out(&self, log: &mut LockedLog, plan: &StepPlan, file: &File) -> Result<StepOutcome> {
        let step = &plan.step;
        self.put_in(plan, file, &self.path(&step.task, &step.from))?;
        let Some(task) = self.move_on(plan, plan.ino)? else { return Ok(StepOutcome::Conflict) };
        // From here on it has happened. What is missing is the journal's line, which the next process can add.
        let told = self.sync_move(step).and_then(|()| self.append(&step.events));
        Ok(match told.and_then(|()| log.done(plan, &task)) {
            Ok(()) => StepOutcome::Done(self.landed(step, task)),
            Err(fault) => StepOutcome::Unknown(fault),
        })
    }

    /// The edit, then the move, as far as they are not made. `None`: the file is gone. Otherwise its name now.
    fn finish(&self, plan: &StepPlan, place: Option<FilePlace>) -> Result<Option<TaskName>> {
        let step = &plan.step;
        let Some((name, slot, ino)) = place else { return Ok(None) };
        if slot == step.to && step.from != step.to {
            // A power cut can leave it under both names. The old one goes.
            let old = self.path(&step.task, &step.from);
            if is_at(&old, ino) {
                self.disk.remove(&old)?;
            }
            return Ok(Some(name));
        }
        self.put_in_at(plan, &self.path(&name, &slot))?;
        self.move_on(plan, ino)
    }

    /// The move of a file that has the edit. `None`: it is gone. Otherwise its name now.
    fn move_on(&self, plan: &StepPlan, ino: u64) -> Result<Option<TaskName>> {
        let Some(task) = self.transfer(plan)? else { return Ok(None) };
        let landed = self.path(&task, &plan.step.to);
        if !is_at(&landed, ino) {
            // An editor saved it at that moment: it is another file, which must not be there without its result.
            self.put_in_at(plan, &landed)?;
        }
        Ok(Some(task))
    }

    /// Finishes the interrupted step of a stripe, or rolls it back.
    pub(super) fn heal_stripe(&self, log: &mut LockedLog) -> Result<()> {
        let Some(plan) = log.state.pending.take() else { return Ok(()) };
        if plan.step.verb == Some(Verb::Claim) {
            return self.roll_back(log, &plan);
        }
        let landed = self.finish(&plan, self.whereabouts(&plan))?;
        self.sync_move(&plan.step)?;
        self.journal_once(&plan, &plan.step.id, &plan.step.events)?;
        log.done(&plan, landed.as_ref().unwrap_or(&plan.step.task))
    }

    /// Rolls a step back.
    fn roll_back(&self, log: &mut LockedLog, plan: &StepPlan) -> Result<()> {
        let step = &plan.step;
        // The id of the step that rolls this one back: the same in every process and at every attempt.
        let undo = format!("s-{}", &Digest::of(step.id.as_str().as_bytes()).to_string()[..16]);
        if let Some((name, slot, ino)) = self.whereabouts(plan) {
            let path = self.path(&name, &slot);
            self.take_out(plan, &path)?;
            if slot != step.from {
                self.transfer_to(&path, ino, &step.task, &step.from, &undo)?;
                // Before the mark: nobody would undo what a second power cut brings back.
                self.disk.sync_move(&self.slot_folder(&slot), &self.slot_folder(&step.from))?;
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
    fn journal_once(&self, plan: &StepPlan, step: &StepId, events: &[Entry]) -> Result<()> {
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
        let path = self.private.join("owed").join(owed_name(step, &plan.journal));
        self.disk.replace_via(&self.stage(step.as_str()), &path, &bytes)
    }

    /// Records the events that other workspaces have left for this journal.
    pub(super) fn record_owed(&self) -> Result<()> {
        let (folder, own) =
            (self.private.join("owed"), format!(".{}", journal_word(self.options.journal.id())));
        for name in names_in(&folder)? {
            // Every command comes here, so the files of other workspaces, which may never come back, are not read.
            if !name.to_str().is_some_and(|name| name.ends_with(&own)) {
                continue;
            }
            let path = folder.join(name);
            // The checkup reports it.
            let Some(plan) = read_owed(&path) else { continue };
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

    /// What is in `owed/` for other workspaces, or cannot be read.
    pub(super) fn still_owed(&self) -> Result<Vec<Finding>> {
        let folder = self.private.join("owed");
        let (mut others, mut unreadable) = (0, 0);
        for name in names_in(&folder)? {
            let path = folder.join(name);
            match read_owed(&path) {
                // The next call that heals records it.
                Some(plan) if plan.journal == self.options.journal.id() => {}
                Some(_) => others += 1,
                // If it is not there any more, it has just been recorded.
                None => unreadable += usize::from(path.exists()),
            }
        }
        let folder = folder.display();
        let mut findings = Vec::new();
        if others > 0 {
            let what = format!("steps with events for the ledgers of other workspaces: {others}");
            let fix = format!(
                "run `tollgate doctor` in the other workspaces that use this vault; if they are gone, delete the \
                 files in `{folder}`"
            );
            findings.push(Finding::warning(what).fix(fix));
        }
        if unreadable > 0 {
            let what = format!(
                "files in `{folder}` that cannot be read: {unreadable}; their events are in no ledger"
            );
            findings.push(Finding::warning(what).fix("check these files, then delete them"));
        }
        Ok(findings)
    }

    fn append(&self, events: &[Entry]) -> Result<()> {
        if events.is_empty() { Ok(()) } else { self.options.journal.append(events) }
    }

    /// Moves the file; `None` if it is not there. The answer is its name, the fallback name if its own is taken.
    fn transfer(&self, plan: &StepPlan) -> Result<Option<TaskName>> {
        let step = &plan.step;
        if step.from == step.to {
            return Ok(Some(step.task.clone()));
        }
        let from = self.path(&step.task, &step.from);
        self.transfer_to(&from, plan.ino, &step.task, &step.to, &step.fallback_suffix)
    }

    fn transfer_to(
        &self,
        from: &Path,
        ino: u64,
        task: &TaskName,
        to: &Slot,
        fallback_suffix: &str,
    ) -> Result<Option<TaskName>> {
        for suffix in [None, Some(fallback_suffix)] {
            let name = suffix.map_or_else(|| task.clone(), |suffix| task.beside(suffix));
            match self.disk.transfer(from, &self.path(&name, to), ino)? {
                Moved::Done => return Ok(Some(name)),
                Moved::Missing => return Ok(None),
                Moved::Taken => {}
            }
        }
        Err(no_name_left(task, to))
    }

    /// Without it a power cut could bring the file back to where it was, although its step is marked as done.
    fn sync_move(&self, step: &Step) -> Result<()> {
        if step.from == step.to {
            return Ok(());
        }
        self.disk.sync_move(&self.slot_folder(&step.from), &self.slot_folder(&step.to))
    }

    fn landed(&self, step: &Step, task: TaskName) -> TaskAfterStep {
        TaskAfterStep { path: Some(self.path(&task, &step.to)), task, slot: step.to.clone() }
    }

    /// Where the file of a plan is, and which file it is there.
    fn whereabouts(&self, plan: &StepPlan) -> Option<FilePlace> {
        let step = &plan.step;
        let ino = |name: &TaskName, slot: &Slot| {
            let found = fs::symlink_metadata(self.path(name, slot)).ok().filter(fs::Metadata::is_file)?;
            Some((name.clone(), slot.clone(), found.ino()))
        };
        let from = ino(&step.task, &step.from);
        if step.from == step.to {
            return from;
        }
        let there = [step.task.clone(), step.fallback_name()].map(|name| ino(&name, &step.to));
        let mut there = there.into_iter().flatten();
        // If an editor saved it in between, it has another inode. Its name identifies it, if it is nowhere else.
        let is_gone = from.is_none() && step.verb == Some(Verb::Claim);
        there.clone().find(|found| found.2 == plan.ino).or_else(|| there.next().filter(|_| is_gone)).or(from)
    }

    /// Removes the change from the file again, if it, or a part of it, is in there and nothing else has changed.
    fn take_out(&self, plan: &StepPlan, path: &Path) -> Result<()> {
        if let Some(change) = &plan.change
            && let Some((file, found)) = open_task(path, OFlags::RDWR)?
            && let Some(end) = change.end_in(&file, found.len()).at("read", path)?
            && end != change.old
        {
            self.disk.replace_tail(&file, path, change.at, &change.old, found.len())?;
            // Otherwise a second power cut could leave the block of a claim that is marked as rolled back.
            self.disk.sync(&file, path)?;
        }
        Ok(())
    }

    /// Makes the change in the file that is there, if one is.
    fn put_in_at(&self, plan: &StepPlan, path: &Path) -> Result<()> {
        if plan.change.is_none() {
            return Ok(());
        }
        open_task(path, OFlags::RDWR)?.map_or(Ok(()), |(file, _)| self.put_in(plan, &file, path))
    }

    /// Makes the change, also if a part of it is in the file.
    fn put_in(&self, plan: &StepPlan, file: &File, path: &Path) -> Result<()> {
        let Some(change) = &plan.change else { return Ok(()) };
        let len = file.metadata().at("look at", path)?.len();
        if change.end_in(file, len).at("read", path)?.is_some() {
            self.disk.replace_tail(file, path, change.at, &change.new, len)?;
        } else if let Some(other) = change_of(&plan.step, file, len).at("read", path)? {
            // Somebody has changed the file since: make the change on what is there.
            self.disk.replace_tail(file, path, other.at, &other.new, len)?;
        } else {
            return Ok(());
        }
        if plan.step.to == Slot::NEEDS_ACTION {
            // So that the next attempt can begin at once. The file of another user cannot be dated; it settles first.
            let _ = date_back(file, 1);
        }
        // Without it a power cut could leave a finished task without its result.
        self.disk.sync(file, path)
    }
}

/// A journal as a word in the name of a file.
fn journal_word(id: &str) -> String {
    Digest::of(id.as_bytes()).to_string()[..16].to_owned()
}

/// The name of the file with the events of a step for a journal.
fn owed_name(step: &StepId, journal: &str) -> String {
    format!("{step}.{}", journal_word(journal))
}

/// `None` if it cannot be read.
fn read_owed(path: &Path) -> Option<StepPlan> {
    serde_json::from_slice(&private::read(path).ok()?).ok()
}

/// Whether the text is the one that the step is about.
fn is_as_checked(step: &Step, file: &File, path: &Path) -> Result<bool> {
    match step.check {
        Some(sha256) => Ok(Digest::of(&read(file, 0, u64::MAX).at("read", path)?) == sha256),
        None => Ok(true),
    }
}

impl TextChange {
    /// The end of a file of this length, from where the change begins, if it is somewhere between old and new.
    fn end_in(&self, file: &File, len: u64) -> io::Result<Option<Vec<u8>>> {
        let most = self.at + self.new.len().max(self.old.len()) as u64;
        if len < self.at || len > most {
            return Ok(None);
        }
        let end = read_range(file, self.at, len)?;
        // After a power cut, bytes that were not flushed can be zero in a file that has its length.
        let is_mixed = |(at, byte): (usize, &u8)| {
            *byte == 0 || [&self.new, &self.old].iter().any(|bytes| bytes.get(at) == Some(byte))
        };
        Ok(end.iter().enumerate().all(is_mixed).then_some(end))
    }
}

/// What the step changes in a file of this length: from the block that it closes, otherwise from the first byte that differs, so
/// that the plan is short.
fn change_of(step: &Step, file: &File, len: u64) -> io::Result<Option<TextChange>> {
    let start = match &step.edit {
        TextEdit::Keep => return Ok(None),
        TextEdit::Close(..) | TextEdit::Replace(_) => 0,
        // The last byte tells whether the text ends with a newline.
        TextEdit::Open
        | TextEdit::Progress(..)
        | TextEdit::Draft(..)
        | TextEdit::Reject(..)
        | TextEdit::Retry(..)
        | TextEdit::Ask(_) => len.saturating_sub(1),
    };
    let end = read_range(file, start, len)?;
    Ok(step.tail(&end).map(|(at, new)| {
        let old = &end[at..];
        // A held claim has not flushed its block, so the process that finishes the release after a power cut writes all of it.
        let same = match &step.edit {
            TextEdit::Close(..) => 0,
            _ => old.iter().zip(&new).take_while(|(old, new)| old == new).count(),
        };
        TextChange { at: start + (at + same) as u64, old: old[same..].to_vec(), new: new[same..].to_vec() }
    }))
}
