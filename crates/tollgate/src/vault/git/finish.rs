//! After the push: the same step in the tree; and settling what was cut short in between.
//!
//! What is about to be pushed is written down first, with the names of its objects. Whoever finds that after a crash looks
//! at the remote: if a record is on the branch, the steps were taken and are finished here; if not, they never happened.
//!
//! Invariants: under the lock of the conversation, which a push that outlives tollgate keeps, so what is looked at is not
//! about to change by our own doing. What the remote has, nothing here can undo.

use std::fs;
use std::path::{Path, PathBuf};

use super::GitStore;
use super::Talk;
use super::run::Given;
use super::step::Plan;
use super::tree::read;
use crate::error::{Fault, Result};
use crate::vault::figures::Count;
use crate::vault::state::{Slot, Verb};
use crate::vault::store::{Landed, Outcome, Step, Store};

/// So often the file is looked at afresh, because an agent writes a note into it at the same moment.
const TRIES: u32 = 64;

impl GitStore {
    /// Takes the step in the tree too.
    pub(super) fn finish(&self, plan: &Plan) -> Result<Landed> {
        let step = &plan.step;
        let path = self.folder.path(&plan.landing, &step.to);
        if !self.finish_in_folder(step)? {
            // The file is not there any more, or this was done before a crash. It comes from the branch, and the ledger is
            // told all the same, once.
            if !self.options.folder.journal.has(&step.id, step.at)? {
                self.folder.tell(&step.events)?;
            }
            if let (Some(Verb::Claim), Slot::InProgress(agent)) = (step.verb, &step.to) {
                self.folder.count(agent, Count::Claim(step.id.clone()))?;
            }
        }
        self.as_on_the_branch(plan, &path)?;
        if step.from.agent().is_some() {
            self.tree.edits_kept(&step.task);
        }
        Ok(Landed { task: plan.landing.clone(), slot: step.to.clone(), path: Some(path) })
    }

    fn finish_in_folder(&self, step: &Step) -> Result<bool> {
        for _ in 0..TRIES {
            let stored = self.folder.get(&step.task, Some(step.from.state()), step.at)?;
            let Some(stored) = stored.filter(|stored| stored.slot == step.from) else { break };
            let local = Step { version: stored.placed.version, check: None, hurry: false, ..step.clone() };
            if let Outcome::Done(_) = self.folder.apply(&local)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The file that a step has brought somewhere is the one that is on the branch there.
    fn as_on_the_branch(&self, plan: &Plan, path: &Path) -> Result<()> {
        let local = read(path)?;
        if plan.step.to.agent().is_some() && local.is_some() {
            return Ok(());
        }
        let bytes = match &plan.bytes {
            Some(bytes) => bytes.clone(),
            None => {
                let name = self.tree.path_of(&plan.landing, &plan.step.to);
                let name = format!("{}:{}", self.seen()?.tip, String::from_utf8_lossy(&name));
                let found = self.remote.git.local(&["cat-file", "blob", &name], &Given::Nothing)?;
                if !found.ok {
                    // Moved on since; what is there now is brought in.
                    return Ok(());
                }
                found.out
            }
        };
        if local.as_deref() == Some(bytes.as_slice()) {
            return Ok(());
        }
        if local.is_some() {
            self.tree.put_aside(path, &plan.landing)?;
        }
        self.tree.put(path, &bytes)
    }

    /// Whether one of these records is on the branch.
    pub(super) fn any_landed<'a>(&self, commits: impl IntoIterator<Item = &'a String>) -> Result<bool> {
        let tip = self.seen()?.tip;
        for commit in commits {
            let ran =
                self.remote.git.local(&["merge-base", "--is-ancestor", commit, &tip], &Given::Nothing)?;
            if ran.ok {
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

    /// Writes down what is about to be pushed.
    pub(super) fn write_down<'a>(&self, plans: impl Iterator<Item = &'a Plan>) -> Result<()> {
        let path = self.pending_path();
        let plans: Vec<&Plan> = plans.collect();
        let bytes = serde_json::to_vec(&plans).map_err(|error| Fault::invalid(error.to_string()))?;
        let stage = path.with_extension("new");
        let _ = fs::remove_file(&stage);
        // Flushed: after a power cut the claim would else be on the remote and nobody here would know.
        self.folder.disk().create(&stage, &bytes)?;
        self.folder.disk().replace(&stage, &path)
    }

    /// Nothing is under way any more.
    pub(super) fn forget(&self) -> Result<()> {
        self.folder.disk().remove(&self.pending_path())
    }

    /// Settles what was cut short between the push and the tree.
    pub(super) fn settle(&self, talk: &Talk) -> Result<()> {
        let path = self.pending_path();
        let Some(bytes) = read(&path)? else { return Ok(()) };
        let plans: Vec<Plan> =
            serde_json::from_slice(&bytes).map_err(|error| Fault::damaged(&path, error))?;
        // What was cut short in the folders goes back first: a step that the remote has is then taken from the start.
        self.folder.heal()?;
        // Only looked at, not brought in: what a step does to the tree comes from the step, with its ledger line.
        self.glance(talk)?;
        if self.any_landed(plans.iter().flat_map(|plan| &plan.commits))? {
            for plan in &plans {
                self.finish(plan)?;
            }
        }
        self.forget()?;
        self.catch_up().map(drop)
    }
}
