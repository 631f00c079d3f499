//! The plan of a step: what it changes on the remote, made for the tip of the branch that was last seen.
//!
//! Invariant: a card is the same for every try of a step, so the card shows if an earlier try got through unnoticed.

use serde::{Deserialize, Serialize};

use super::card::{Card, ref_of};
use super::clone::LocalClone;
use super::commit::{NewCommit, PathChange};
use super::remote::Update;
use super::seen::Seen;
use crate::claim::ClaimRecord;
use crate::folder::disk::no_name_left;
use crate::state::Verb;
use crate::step::{Step, StepOutcome};
use crate::store::{Store, Task, Version};
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_base::task::TaskName;

/// A step on its way to the remote.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct PushPlan {
    pub(super) step: Step,
    /// The version of the file in the tree.
    #[serde(skip)]
    pub(super) version: Version,
    /// The name that the task gets.
    pub(super) landing: TaskName,
    /// The object of the card before the step.
    pub(super) old: Option<String>,
    /// The card after the step, and its object.
    pub(super) card: Option<(String, Card)>,
    /// The commits that were pushed for it, each for another tip.
    pub(super) commits: Vec<String>,
    /// The text on the branch after the step, if this process still knows it.
    #[serde(skip)]
    pub(super) text: Option<Vec<u8>>,
}

/// A step as it would be on the branch now.
pub(super) struct Staged {
    landing: TaskName,
    text: Vec<u8>,
    record: Option<ClaimRecord>,
}

impl PushPlan {
    pub(super) fn new(step: &Step, version: Version, old: Option<String>) -> Self {
        let (step, landing) = (step.clone(), step.task.clone());
        Self { step, version, landing, old, card: None, commits: Vec::new(), text: None }
    }
}

impl LocalClone {
    /// The result of the step on what is here now; or why it cannot be taken.
    pub(super) fn stage(&self, plan: &PushPlan, seen: &Seen) -> Result<Result<Staged, StepOutcome>> {
        let (step, folder) = (&plan.step, self.folder());
        if seen.card(&step.task).map(|found| &found.oid) != plan.old.as_ref() {
            return Ok(Err(StepOutcome::Conflict));
        }
        let found = folder.get(&step.task, Some(step.from.state()), step.at)?;
        let is_same = |found: &Task| found.slot == step.from && found.version == plan.version;
        let Some(found) = found.filter(is_same) else { return Ok(Err(StepOutcome::Conflict)) };
        let Some(text) = folder.read(&found, u64::MAX)? else { return Ok(Err(StepOutcome::Conflict)) };
        if step.check.is_some_and(|sha256| sha256 != Digest::of(&text)) {
            return Ok(Err(StepOutcome::Changed));
        }
        let mut text = step.edited(&text);
        if step.from.agent().is_some() {
            text = self.tree.with_edits(&step.task, text)?;
        }
        let is_taken = |name: &TaskName| step.from != step.to && folder.path(name, &step.to).exists();
        let mut landing = step.task.clone();
        if is_taken(&landing) {
            landing = step.fallback_name();
            if is_taken(&landing) {
                return Err(no_name_left(&step.task, &step.to));
            }
        }
        let record = step.record_after(&text);
        Ok(Ok(Staged { landing, text, record }))
    }

    /// Gives the plan its card, and makes its commit.
    pub(super) fn dress(&self, plan: &mut PushPlan, staged: Staged) -> Result<NewCommit> {
        let Staged { landing, text, record } = staged;
        let is_same =
            |(_, card): &(String, Card)| card.task == landing && Some(&card.record) == record.as_ref();
        if !plan.card.as_ref().is_some_and(is_same) {
            let card = record.map(|record| self.new_card(&landing, record)).transpose()?;
            plan.card = card.map(|card| (String::new(), card));
        }
        plan.landing = landing;
        let (step, branch) = (&plan.step, &self.tree.branch);
        let commit = NewCommit {
            message: message(step, &plan.landing),
            changes: vec![
                PathChange::Remove(branch.path_of(&step.task, &step.from)),
                PathChange::Put(branch.path_of(&plan.landing, &step.to), text.clone()),
            ],
        };
        plan.text = Some(text);
        Ok(commit)
    }

    /// How the refs of the cards change.
    pub(super) fn card_updates(&self, plan: &PushPlan) -> Vec<Update> {
        let card_ref = |task: &TaskName| self.remote.card_ref(&ref_of(task));
        let (old, new) = (plan.old.clone(), plan.card.as_ref().map(|(oid, _)| oid.clone()));
        let (before, after) = (card_ref(&plan.step.task), card_ref(&plan.landing));
        let updates = if before == after {
            vec![Update { name: after, old, new }]
        } else {
            vec![Update { name: before, old, new: None }, Update { name: after, old: None, new }]
        };
        updates.into_iter().filter(|update| update.old.is_some() || update.new.is_some()).collect()
    }
}

/// The commit's message: one line, for people.
fn message(step: &Step, landing: &TaskName) -> String {
    let task = step.task.stem();
    let who = step.from.agent().or_else(|| step.to.agent()).map_or("tollgate", |agent| agent.as_str());
    let what = match step.verb {
        Some(Verb::Claim) => format!("{who} claims {task}"),
        Some(Verb::Release) => format!("{who} releases {task} to {}", step.to),
        Some(Verb::Reclaim) => format!("{task} is reclaimed from {who}, to {}", step.to),
        Some(Verb::Approve) => format!("{task} is approved"),
        Some(Verb::Reject) => format!("{task} is rejected"),
        Some(Verb::Reopen) => format!("{task} was changed and waits for approval again"),
        None => task.to_owned(),
    };
    if step.task == *landing {
        format!("tollgate: {what}")
    } else {
        format!("tollgate: {what}, as {}", landing.stem())
    }
}
