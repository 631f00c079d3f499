//! After the push: the same step in the tree; and settling what was interrupted between the two.
//!
//! Before a push, its step is written down with the names of its objects. A process that finds this file looks at the remote:
//! if one of the commits is on the branch, the step was taken, and is finished here; if not, it never happened.
//!
//! Invariants: all of this happens under the lock of the conversation. A push that outlives tollgate keeps that lock, so no
//! push of our own can change what is looked at. What the remote has taken is never undone here. The folder store gets a
//! step without its events, because it may roll a claim back and take it again; the events are recorded once, after it.

use std::path::{Path, PathBuf};

use super::clone::{Conversation, GitStore};
use super::push::PushPlan;
use super::tree::read;
use crate::claim::StepId;
use crate::step::{Step, StepOutcome, TextEdit};
use crate::store::{Store, TaskAfterStep};
use tollgate_base::error::{Fault, Result};

/// How often the step is tried again because an agent writes to the file at the same moment.
const TRIES: u32 = 64;

impl GitStore {
    /// The remote does not have this step, unless its answer is known.
    pub(super) fn not_taken(&self, step: &StepId) {
        if self.answers.get(step) == Some(None) {
            self.answers.forget(step);
        }
    }

    /// Takes the step in the tree, too, without its events.
    pub(super) fn finish_in_tree(&self, plan: &PushPlan) -> Result<TaskAfterStep> {
        let step = &plan.step;
        let path = self.tasks().path(&plan.landing, &step.to);
        self.apply_in_tree(step)?;
        self.show_the_branch(plan, &path)?;
        if step.from.agent().is_some() {
            self.tree.forget_edits(&step.task);
        }
        Ok(TaskAfterStep { task: plan.landing.clone(), slot: step.to.clone(), path: Some(path) })
    }

    fn apply_in_tree(&self, step: &Step) -> Result<()> {
        let tasks = self.tasks();
        for _ in 0..TRIES {
            let found = tasks.get(&step.task, Some(step.from.state()), step.at)?;
            // The file is gone, or the step was finished before a crash.
            let Some(found) = found.filter(|found| found.slot == step.from) else { return Ok(()) };
            // The remote has decided, so the text is not compared again. An edit that replaces all of it is an exception.
            let check = step.check.filter(|_| matches!(step.edit, TextEdit::Replace(_)));
            let local = Step { version: found.version, check, events: Vec::new(), ..step.clone() };
            match tasks.apply(&local)? {
                StepOutcome::Done(_) => return Ok(()),
                StepOutcome::Changed => break,
                StepOutcome::Conflict | StepOutcome::Unknown(_) => {}
            }
        }
        // Something else writes to it here. On the branch it is no longer there.
        self.tree.set_aside(&tasks.path(&step.task, &step.from), &step.task)
    }

    /// Makes sure that the file in the tree is the one that the step brought to the branch.
    fn show_the_branch(&self, plan: &PushPlan, path: &Path) -> Result<()> {
        let local = read(path)?;
        if plan.step.to.agent().is_some() && local.is_some() {
            return Ok(());
        }
        let text = self.tree.branch.text(&self.seen()?.tip, &plan.landing, &plan.step.to)?;
        // `None`: somebody has moved it since. The next import brings in where it is now.
        let Some(text) = text.filter(|text| local.as_ref() != Some(text)) else { return Ok(()) };
        if local.is_some() {
            self.tree.set_aside(path, &plan.landing)?;
        }
        self.tree.put(path, &text)
    }

    /// Whether one of these commits is on the branch.
    pub(super) fn any_landed(&self, commits: &[String]) -> Result<bool> {
        let seen = self.seen()?;
        for commit in commits {
            if self.tree.branch.is_ancestor(commit, &seen.tip)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) fn pending_path(&self) -> PathBuf {
        self.private.join("pending.json")
    }

    /// Writes down the step that is about to be pushed.
    pub(super) fn write_down(&self, plan: &PushPlan) -> Result<()> {
        let bytes = serde_json::to_vec(&[plan]).map_err(|error| Fault::invalid(error.to_string()))?;
        // Flushed: otherwise a claim could be on the remote after a power cut and nobody here would know.
        let disk = self.tasks().disk();
        disk.replace_file(&self.pending_path(), &bytes, disk.durability)?;
        self.answers.remember(&plan.step.id, None);
        Ok(())
    }

    /// Nothing is under way any more: the remote did not take this step, or it is finished here.
    pub(super) fn forget(&self, plan: &PushPlan) -> Result<()> {
        self.tasks().disk().remove(&self.pending_path())?;
        self.not_taken(&plan.step.id);
        Ok(())
    }

    /// Finishes the step that was interrupted between the push and the tree, or finds out that it never happened.
    pub(super) fn settle(&self, talk: &Conversation) -> Result<usize> {
        let path = self.pending_path();
        let mut settled = 0;
        if let Some(bytes) = read(&path)? {
            let [plan]: [PushPlan; 1] =
                serde_json::from_slice(&bytes).map_err(|error| Fault::damaged(&path, error))?;
            // The folder store rolls its part back first, so that a step that the remote has starts from the beginning.
            self.tasks().heal()?;
            // Only a glance: what a step does to the tree comes from the step, together with its events.
            self.glance(talk)?;
            if self.any_landed(&plan.commits)? {
                let step = &plan.step;
                let landed = self.finish_in_tree(&plan)?;
                // The process that pushed the step may have recorded its events before it died.
                if !self.options.folder.journal.has(&step.id, step.at)? {
                    self.tasks().record(&step.events)?;
                }
                self.answers.remember(&step.id, Some(landed));
            }
            settled = 1;
            self.forget(&plan)?;
        }
        // A process may also have died between its look and this.
        self.catch_up()?;
        Ok(settled)
    }
}
