//! From the disk to the store: what a person did with the files of one task.
//!
//! A file that has other bytes than the view wrote was edited. A file where the view wrote none was moved there, if the file of
//! this task is missing elsewhere; otherwise it is new. A file that is missing everywhere was deleted. Each becomes one step of
//! the store, on the text and the place that the person saw, or it is undone and they are told.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::folder_view::{FolderView, ViewTrouble};
use super::notes::{NewTaskFile, ShownTask};
use super::notice::Notice;
use super::showing::{FetchedTask, LOOK_AGAIN};
use super::view_files::LocalFile;
use crate::decisions;
use crate::denial::Denial;
use crate::folder::disk::Moved;
use crate::state::{Slot, State};
use crate::step::{Step, StepOutcome};
use crate::store::{Ready, Task};
use crate::vault::until_answered;
use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};
use tollgate_base::name::StepId;
use tollgate_base::task::TaskName;

/// How often a step is made again because the store had a newer version with the same text. More often than that, the hint
/// about it has not arrived yet.
const STEPS: u32 = 3;

const SOMEBODY_WAS_FASTER: &str = "somebody else changed the task first";

/// What came of a person's step.
enum PersonStepResult {
    Yes,
    /// The task has just been changed.
    Again,
    /// The step is not possible, for this reason.
    No(String),
}

impl FolderView {
    /// Makes the files of one task and the store agree; `states` are those in which the store may have something new.
    pub(super) fn reconcile(
        &mut self,
        task: &TaskName,
        mut states: BTreeSet<State>,
    ) -> Result<(), ViewTrouble> {
        let mut files = self.files.named(task, self.now())?;
        let slots = |files: &[LocalFile]| files.iter().map(|file| file.slot.clone()).collect::<Vec<_>>();
        // A person who moves a file at this moment makes it seem to be at two places.
        if files.len() > 1 && slots(&files) != slots(&self.files.named(task, self.now())?) {
            self.to_do.postpone(task, states, LOOK_AGAIN);
            return Ok(());
        }
        // Somebody is about to write it, or has written nothing.
        files.retain(|file| !file.bytes.is_empty());
        let known = self.notes.named(task);
        let shown_at = |slot: &Slot| known.iter().find(|shown| shown.slot == *slot);
        let is_ours =
            |file: &LocalFile| shown_at(&file.slot).is_some_and(|shown| shown.sha256 == file.sha256);
        if let Some(wait) = files.iter().filter(|file| !is_ours(file)).find_map(unfinished) {
            self.to_do.postpone(task, states, wait);
            return Ok(());
        }
        let is_missing = |shown: &&ShownTask| !files.iter().any(|file| file.slot == shown.slot);
        let mut missing: Vec<ShownTask> = known.iter().filter(is_missing).cloned().collect();
        for state in State::ALL {
            if !missing.iter().any(|shown| shown.slot.state() == state) {
                self.to_do.missing.remove(&(task.clone(), state));
            }
        }
        for file in &files {
            match shown_at(&file.slot) {
                Some(_) if is_ours(file) => continue,
                Some(shown) => self.edited(shown, file)?,
                None => {
                    let at = missing.iter().position(|shown| shown.sha256 == file.sha256);
                    let from = at.or(missing.len().checked_sub(1)).map(|at| missing.swap_remove(at));
                    states.extend(from.iter().map(|shown| shown.slot.state()));
                    self.arrived(task, file, from)?;
                }
            }
            states.insert(file.slot.state());
        }
        if self.notes.adding(task).is_some() && !files.iter().any(|file| file.slot == Slot::NEEDS_ACTION) {
            // It is gone again. If the store has it, the view shows it.
            self.notes.gone(task, State::NeedsAction)?;
        }
        for shown in missing {
            self.deleted(&shown)?;
        }
        for state in states {
            self.show(task, state)?;
        }
        Ok(())
    }

    /// A person changed the text of a task.
    fn edited(&mut self, seen: &ShownTask, file: &LocalFile) -> Result<(), ViewTrouble> {
        for _ in 0..STEPS {
            let found = match self.fetch(&seen.task, seen.slot.state())? {
                // The step was taken before a process died.
                Some(found) if found.is(&file.slot, file.sha256) => {
                    return Ok(self.note(&seen.task, &file.slot, Some(file.sha256), found.task.modified)?);
                }
                Some(found) if found.is(&seen.slot, seen.sha256) => found,
                _ => return self.keep(&seen.task, file, SOMEBODY_WAS_FASTER),
            };
            match self.rewrite(&found, file)? {
                PersonStepResult::Yes => {
                    return Ok(self.note(
                        &seen.task,
                        &file.slot,
                        Some(file.sha256),
                        Timestamp::UNIX_EPOCH,
                    )?);
                }
                PersonStepResult::Again => {}
                PersonStepResult::No(why) => return self.keep(&seen.task, file, &why),
            }
        }
        self.look_again(&seen.task, seen.slot.state());
        Ok(())
    }

    /// Gives the task in the store the text of this file.
    fn rewrite(&mut self, found: &FetchedTask, file: &LocalFile) -> Result<PersonStepResult, ViewTrouble> {
        if let Slot::InProgress(agent) = &found.task.slot {
            return Ok(PersonStepResult::No(format!("`{agent}` is working on the task")));
        }
        match std::str::from_utf8(&file.bytes) {
            Err(_) => Ok(PersonStepResult::No("its text is not UTF-8".to_owned())),
            Ok(text) if text.trim().is_empty() => {
                Ok(PersonStepResult::No("a task needs some text".to_owned()))
            }
            Ok(text) => {
                let step = decisions::rewrite(&found.task, found.sha256, text, self.now());
                // Before the step, because afterwards nobody has the text that it replaces.
                let kept = self.keep_unseen(found)?;
                let taken = self.take(&found.task, step);
                let is_refused = matches!(taken, Ok(PersonStepResult::Again | PersonStepResult::No(_)));
                self.unseen_was_kept(found, kept, is_refused);
                taken
            }
        }
    }

    fn take(&self, task: &Task, step: Result<Step>) -> Result<PersonStepResult, ViewTrouble> {
        match step.and_then(|step| self.vault.decide(task, step)) {
            Ok(Ok(_)) => Ok(PersonStepResult::Yes),
            Ok(Err(Denial::Changed(_))) => Ok(PersonStepResult::Again),
            Ok(Err(denial)) => Ok(PersonStepResult::No(denial.to_string())),
            Err(Fault::Invalid { what, .. }) => Ok(PersonStepResult::No(what)),
            Err(fault) => Err(ViewTrouble::of_store(fault)),
        }
    }

    /// There is a file where the view wrote none.
    fn arrived(
        &mut self,
        task: &TaskName,
        file: &LocalFile,
        from: Option<ShownTask>,
    ) -> Result<(), ViewTrouble> {
        let there = self.fetch(task, file.slot.state())?;
        if let Some(found) = there.filter(|found| found.is(&file.slot, file.sha256)) {
            return Ok(self.note(task, &file.slot, Some(file.sha256), found.task.modified)?);
        }
        match from {
            Some(from) => self.moved(from, file),
            None if file.slot == Slot::NEEDS_ACTION => self.added(task, file),
            None => self.keep(task, file, "it is no task of the store: put new tasks into `Needs_Action`"),
        }
    }

    /// A person moved the file of a task, and may have changed it.
    fn moved(&mut self, mut seen: ShownTask, file: &LocalFile) -> Result<(), ViewTrouble> {
        let task = seen.task.clone();
        for _ in 0..STEPS {
            let found = self.fetch(&task, seen.slot.state())?;
            let Some(found) = found.filter(|found| found.is(&seen.slot, seen.sha256)) else {
                if seen.sha256 != file.sha256 {
                    return self.keep(&task, file, SOMEBODY_WAS_FASTER);
                }
                self.remove(&task, &file.slot, file.sha256)?;
                self.undone(&task, &file.slot, SOMEBODY_WAS_FASTER);
                return Ok(());
            };
            if seen.sha256 != file.sha256 {
                match self.rewrite(&found, file)? {
                    PersonStepResult::Yes => {
                        seen.sha256 = file.sha256;
                        self.notes.put(seen.clone())?;
                    }
                    PersonStepResult::Again => {}
                    PersonStepResult::No(why) => return self.keep(&task, file, &why),
                }
                continue;
            }
            let (terms, now) = (self.vault.terms(), self.now());
            let Some(step) = decisions::moved_by_hand(&found.task, &file.slot, found.sha256, terms, now)
            else {
                return self.put_back(&seen, file, &why_not(&seen.slot, &file.slot));
            };
            match self.take(&found.task, step)? {
                PersonStepResult::Yes => {
                    self.notes.gone(&task, seen.slot.state())?;
                    return Ok(self.note(&task, &file.slot, Some(file.sha256), Timestamp::UNIX_EPOCH)?);
                }
                PersonStepResult::Again => {}
                PersonStepResult::No(why) => return self.put_back(&seen, file, &why),
            }
        }
        self.look_again(&task, file.slot.state());
        Ok(())
    }

    /// Undoes a move.
    fn put_back(&mut self, seen: &ShownTask, file: &LocalFile, why: &str) -> Result<(), ViewTrouble> {
        let (from, to) = (self.files.path(&seen.task, &file.slot), self.files.path(&seen.task, &seen.slot));
        match self.files.disk.transfer(&from, &to, 0)? {
            Moved::Done | Moved::Missing => {
                self.undone(&seen.task, &file.slot, why);
                Ok(())
            }
            Moved::Taken => self.keep(&seen.task, file, why),
        }
    }

    fn undone(&self, task: &TaskName, to: &Slot, why: &str) {
        self.tell(&Notice::PutBack { task: task.clone(), to: to.clone(), why: why.to_owned() });
    }

    /// A person put a new file into `Needs_Action`.
    fn added(&mut self, task: &TaskName, file: &LocalFile) -> Result<(), ViewTrouble> {
        let adding = match self.notes.adding(task).cloned() {
            Some(adding) => adding,
            None => {
                let found = self.vault.store().get(task, None, self.now()).map_err(ViewTrouble::ByStore)?;
                if let Some(found) = found.filter(|found| !found.slot.state().is_final()) {
                    let why = format!("there is another task of this name in `{}`", found.slot);
                    return self.keep(task, file, &why);
                }
                let adding = NewTaskFile { task: task.clone(), id: StepId::new()?, sha256: file.sha256 };
                self.notes.add(adding.clone())?;
                adding
            }
        };
        let add = || self.vault.store().add(&adding.id, task, &file.bytes, self.now());
        let why = match until_answered(add) {
            Ok(StepOutcome::Done(_)) => {
                // If a person changed the file after a process died, the store may have either text.
                let is_new = adding.sha256 == file.sha256
                    || self
                        .fetch(task, State::NeedsAction)?
                        .is_some_and(|found| found.is(&file.slot, file.sha256));
                let sha256 = if is_new { file.sha256 } else { adding.sha256 };
                self.note(task, &file.slot, Some(sha256), Timestamp::UNIX_EPOCH)?;
                if !is_new {
                    self.look_again(task, State::NeedsAction);
                }
                return Ok(());
            }
            Ok(StepOutcome::Unknown(fault)) => return Err(ViewTrouble::ByStore(fault)),
            Ok(StepOutcome::Conflict | StepOutcome::Changed) => {
                "there is another task of this name".to_owned()
            }
            Err(Fault::Invalid { what, .. }) => what,
            Err(fault) => return Err(ViewTrouble::of_store(fault)),
        };
        self.notes.gone(task, State::NeedsAction)?;
        self.keep(task, file, &why)
    }

    /// The file of a task is gone. The task is not, so its file comes back: after a while, because some editors delete a file
    /// and then write it again.
    fn deleted(&mut self, seen: &ShownTask) -> Result<(), ViewTrouble> {
        let (task, slot) = (&seen.task, &seen.slot);
        let since = *self.to_do.missing.entry(key(task, slot)).or_insert_with(Instant::now);
        let left = self.options.settle.saturating_sub(since.elapsed());
        if !left.is_zero() {
            self.to_do.postpone(task, [], left);
            return Ok(());
        }
        self.to_do.missing.remove(&key(task, slot));
        if let Some(found) = self.fetch(task, slot.state())?.filter(|found| found.is(slot, seen.sha256)) {
            // An empty file in its place has nothing to keep.
            let empty = self.files.look(task, slot, self.now())?.map(|file| file.sha256);
            let was = empty.filter(|here| *here == Digest::of(b""));
            self.write(task, slot, was, &found.text, found.task.modified)?;
            self.tell(&Notice::Restored { task: task.clone(), slot: slot.clone() });
        } else {
            self.look_again(task, slot.state());
        }
        Ok(())
    }

    /// Sets a person's file aside, so that the place is free for what the store has.
    fn keep(&mut self, task: &TaskName, file: &LocalFile, why: &str) -> Result<(), ViewTrouble> {
        self.set_aside(&self.files.path(task, &file.slot), task, &file.slot, why)?;
        for shown in self.notes.named(task) {
            if self.files.look(task, &shown.slot, self.now())?.is_none() {
                self.notes.gone(task, shown.slot.state())?;
            }
        }
        Ok(())
    }
}

fn key(task: &TaskName, slot: &Slot) -> (TaskName, State) {
    (task.clone(), slot.state())
}

/// How long to wait for a file that somebody may still be writing.
fn unfinished(file: &LocalFile) -> Option<Duration> {
    match file.ready {
        Ready::Now | Ready::Empty => None,
        Ready::After(wait) => Some(wait),
        Ready::Open => Some(LOOK_AGAIN),
    }
}

/// Why no step leads from here to there.
fn why_not(from: &Slot, to: &Slot) -> String {
    match (from, to) {
        (Slot::InProgress(agent), _) => format!("`{agent}` is working on the task"),
        (_, Slot::InProgress(_)) => "an agent claims a task with `tollgate task claim`".to_owned(),
        (Slot::Free(State::Done), _) => "it is done: add a new task instead".to_owned(),
        (_, Slot::Free(State::Done)) => "only its owner can finish a task".to_owned(),
        (_, Slot::Free(State::Approved)) => "only a task in `Pending_Approval` can be approved".to_owned(),
        _ => format!("a task cannot go from `{from}` to `{to}` by hand"),
    }
}
