//! After the push: the same step in the tree; and settling a step that was interrupted between the two.
//!
//! Before a push, its steps are written down with the names of their objects. A process that finds this file looks at the
//! remote: if one of the commits is on the branch, the steps were taken, and are finished here; if not, they never happened.
//!
//! Invariants: all of this happens under the lock of the conversation. A push that outlives tollgate keeps that lock, so no
//! push of our own can change what is looked at. What the remote has taken is never undone here. The folder store gets the
//! steps without their events, because it may roll a claim back and take it again; the events are recorded once, after it.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::answers::Fate;
use super::clone::{Conversation, LocalClone};
use super::file::read;
use super::plan::PushPlan;
use crate::folder::migrate::to_current_form;
use crate::step::{Edit, Step, StepOutcome};
use crate::store::{Landed, Store};
use tollgate_base::error::{Fault, Result};

/// How often the step is tried again because an agent writes to the file at the same moment.
const TRIES: u32 = 64;

/// Whether the events of a step may be in the journal already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Events {
    /// The step is finished for the first time.
    New,
    /// The process that pushed the step may have recorded them before it died.
    MaybeRecorded,
}

impl LocalClone {
    /// Takes the step in the tree, too.
    pub(super) fn finish(&self, plan: &PushPlan, events: Events) -> Result<Landed> {
        let step = &plan.step;
        let path = self.folder().path(&plan.landing, &step.to);
        self.finish_in_tree(step)?;
        self.show_the_branch(plan, &path)?;
        if step.from.agent().is_some() {
            self.tree.edits.forget(&step.task);
        }
        if events == Events::New || !self.options.folder.journal.has(&step.id, step.at)? {
            self.folder().record(&step.events)?;
        }
        let landed = Landed { task: plan.landing.clone(), slot: step.to.clone(), path: Some(path) };
        self.answers.set(&step.id, Fate::Taken(landed.clone()));
        Ok(landed)
    }

    fn finish_in_tree(&self, step: &Step) -> Result<()> {
        let folder = self.folder();
        for _ in 0..TRIES {
            let found = folder.get(&step.task, Some(step.from.state()), step.at)?;
            // The file is gone, or the step was finished before a crash.
            let Some(found) = found.filter(|found| found.slot == step.from) else { return Ok(()) };
            // The remote has decided, so the text is not compared again. An edit that replaces all of it is an exception.
            let check = step.check.filter(|_| matches!(step.edit, Edit::Replace(_)));
            let local = Step { version: found.version, check, events: Vec::new(), ..step.clone() };
            match folder.apply(&local)? {
                StepOutcome::Done(_) => return Ok(()),
                StepOutcome::Changed => break,
                StepOutcome::Conflict | StepOutcome::Unknown(_) => {}
            }
        }
        // Something else writes to it here. On the branch it is no longer there.
        self.tree.set_aside(&folder.path(&step.task, &step.from), &step.task).map(drop)
    }

    /// Makes sure that the file in the tree is the one that the step brought to the branch.
    fn show_the_branch(&self, plan: &PushPlan, path: &Path) -> Result<()> {
        let local = read(path)?;
        if plan.step.to.agent().is_some() && local.is_some() {
            return Ok(());
        }
        let text = match &plan.text {
            Some(text) => Some(text.clone()),
            None => self.tree.branch.text(&self.seen()?.tip, &plan.landing, &plan.step.to)?,
        };
        // `None`: somebody has moved it since. The next import brings in where it is now.
        let Some(text) = text.filter(|text| local.as_ref() != Some(text)) else { return Ok(()) };
        if local.is_some() {
            self.tree.set_aside(path, &plan.landing)?;
        }
        self.tree.put(path, &text)
    }

    /// Whether one of these commits is on the branch.
    pub(super) fn any_landed<'a>(&self, commits: impl IntoIterator<Item = &'a String>) -> Result<bool> {
        let tip = self.seen()?.tip;
        for commit in commits {
            if self.tree.branch.is_ancestor(commit, &tip)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn pending_path(&self) -> PathBuf {
        self.private.join("pending.json")
    }

    pub(super) fn is_pending(&self) -> bool {
        self.pending_path().exists()
    }

    /// Writes down the steps that are about to be pushed.
    pub(super) fn write_down(&self, plans: &[&PushPlan]) -> Result<()> {
        let bytes = serde_json::to_vec(plans).map_err(|error| Fault::invalid(error.to_string()))?;
        // Flushed: otherwise a claim could be on the remote after a power cut and nobody here would know.
        let disk = self.folder().disk();
        disk.replace_file(&self.pending_path(), &bytes, disk.durability)?;
        for plan in plans {
            self.answers.set(&plan.step.id, Fate::Pushed);
        }
        Ok(())
    }

    /// The remote did not take these steps, and nothing else is under way.
    pub(super) fn forget<'a>(&self, plans: impl IntoIterator<Item = &'a PushPlan>) -> Result<()> {
        self.folder().disk().remove(&self.pending_path())?;
        for plan in plans {
            self.answers.not_taken(&plan.step.id);
        }
        Ok(())
    }

    /// Finishes the steps that were interrupted between the push and the tree, or finds out that they never happened.
    pub(super) fn settle(&self, talk: &Conversation) -> Result<usize> {
        let path = self.pending_path();
        let mut settled = 0;
        if let Some(bytes) = read(&path)? {
            let plans = parse(&bytes).map_err(|error| Fault::damaged(&path, error))?;
            // The folder store rolls its part back first, so that a step that the remote has starts from the beginning.
            self.folder().heal()?;
            // Only a glance: what a step does to the tree comes from the step, together with its events.
            self.glance(talk)?;
            if self.any_landed(plans.iter().flat_map(|plan| &plan.commits))? {
                for plan in &plans {
                    self.finish(plan, Events::MaybeRecorded)?;
                }
            }
            settled = plans.len();
            self.forget(&plans)?;
        }
        self.publish_offline_work(talk)?;
        // A process may also have died between its look and this.
        self.catch_up()?;
        Ok(settled)
    }
}

fn parse(bytes: &[u8]) -> serde_json::Result<Vec<PushPlan>> {
    let mut plans: Value = serde_json::from_slice(bytes)?;
    plans.as_array_mut().into_iter().flatten().for_each(to_current_form);
    serde_json::from_value(plans)
}
