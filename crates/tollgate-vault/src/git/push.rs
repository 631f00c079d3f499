//! What this clone pushes: steps with their cards, new tasks, heartbeats.
//!
//! The commit and the card of a step go to the remote in one push. If the branch has moved, the step is checked again on the
//! new tip: it came too late, or it is pushed again.
//!
//! Invariants: all of this happens under the lock of the conversation. A step is done only when the remote has it. After
//! [`GitStore::write_down`] a fault means that the fate of the step is unknown. A heartbeat never touches the
//! branch, so it does not make the history longer, and only the claim whose id is on the card can replace it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::branch::NewCommit;
use super::card::{Card, ref_of, split_version};
use super::clone::{Conversation, GitStore};
use super::remote::{PushResult, Update};
use super::seen::SeenRemote;
use crate::claim::{ClaimId, ClaimRecord};
use crate::folder::disk::no_name_left;
use crate::state::{Slot, State, Verb};
use crate::step::{Step, StepOutcome, TextEdit};
use crate::store::{Store, Task, TaskAfterStep, Version};
use tollgate_base::boot_clock::millis_since_boot;
use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};
use tollgate_base::task::TaskName;

/// How often a commit is made again because the branch has moved. Each time somebody else got through, so this number is
/// reached only if hundreds push all the time.
const TRIES: u32 = 300;

/// How often the remote may say that somebody else was faster when nobody was. Clones that push at the same moment hold
/// the locks of the server for a few milliseconds each.
const STUCK: u32 = 12;

/// How often a push without a clear answer is tried again, if a look shows that nothing happened.
const UNCLEAR: u32 = 3;

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
}

impl GitStore {
    /// Begins a conversation in which something is pushed.
    fn begin(&self) -> Result<Conversation> {
        let talk = self.converse()?;
        self.settle(&talk)?;
        self.probe_once(&talk)?;
        Ok(talk)
    }

    /// Takes a step.
    pub(super) fn take(&self, step: &Step) -> Result<StepOutcome> {
        let talk = self.begin()?;
        if let Some(landed) = self.taken_before(step)? {
            return Ok(StepOutcome::Done(landed));
        }
        let Some((old, version)) = split_version(&step.version) else { return Ok(StepOutcome::Conflict) };
        if step.verb.is_none() {
            return self.renew(&talk, step, old, version);
        }
        let (step, landing) = (step.clone(), step.task.clone());
        let mut plan = PushPlan { step, version, landing, old, card: None, commits: Vec::new() };
        self.push_until_taken(&talk, &mut plan)
    }

    /// Where the step brought the task, if it was taken before and its answer was lost.
    fn taken_before(&self, step: &Step) -> Result<Option<TaskAfterStep>> {
        match self.answers.get(&step.id) {
            // Another process has settled it: the journal tells how.
            Some(None) if self.options.folder.journal.has(&step.id, step.at)? => {
                let is_there = |name: &TaskName| self.tasks().path(name, &step.to).exists();
                let task = Some(step.fallback_name()).filter(is_there).unwrap_or_else(|| step.task.clone());
                let path = Some(self.tasks().path(&task, &step.to));
                Ok(Some(TaskAfterStep { task, slot: step.to.clone(), path }))
            }
            Some(None) => {
                self.not_taken(&step.id);
                Ok(None)
            }
            answer => Ok(answer.flatten()),
        }
    }

    /// Pushes, looks and tries again, until the remote has the step or somebody else was faster.
    fn push_until_taken(&self, talk: &Conversation, plan: &mut PushPlan) -> Result<StepOutcome> {
        let (mut unclear, mut stuck) = (0, 0);
        if !self.shows_the_branch(&plan.step)? {
            // The tree has changed under the step.
            return Ok(StepOutcome::Conflict);
        }
        for tried in 0..TRIES {
            let seen = self.seen()?;
            let updates = match self.prepare(plan, &seen)? {
                Ok(updates) => updates,
                Err(outcome) => return self.forget(plan).map(|()| outcome),
            };
            self.write_down(plan)?;
            let (began, began_ms) = (Instant::now(), millis_since_boot());
            let (is_clear, said) = match self.remote.push(&updates, talk.0.file())? {
                PushResult::Taken => {
                    self.learn_own(plan, began_ms)?;
                    return self.finish_pushed(plan);
                }
                PushResult::Refused(what) => return self.give_up(plan, &what),
                PushResult::Moved(what) => (true, what),
                PushResult::Unclear(what) => (false, what),
            };
            if is_clear {
                // Before the look, so that the look is recent when the next push starts.
                sleep(backoff(began.elapsed(), tried));
            }
            match self.glance(talk) {
                // The next process that reaches the remote finds out.
                Err(Fault::Unreachable { .. }) => {
                    return Ok(StepOutcome::Unknown(self.remote.unreachable(&said)));
                }
                looked => looked?,
            }
            unclear += u32::from(!is_clear);
            // The remote says that somebody else was faster, and nobody was: a server process holds a lock at this moment,
            // or left one when it crashed.
            stuck += u32::from(is_clear && self.seen()?.same_as(&seen));
            // An unclear push may also get through later than a following one.
            if unclear > 0 && self.any_landed(&plan.commits)? {
                return self.finish_pushed(plan);
            }
            if unclear > UNCLEAR || stuck > STUCK {
                // The remote answers, but takes nothing.
                return self.give_up(plan, &said);
            }
            self.catch_up()?;
        }
        self.give_up(plan, &format!("the branch `{}` changes all the time", self.remote.branch))
    }

    fn give_up(&self, plan: &PushPlan, what: &str) -> Result<StepOutcome> {
        self.forget(plan)?;
        Err(self.remote.refused(what))
    }

    fn finish_pushed(&self, plan: &PushPlan) -> Result<StepOutcome> {
        let landed = self.finish_in_tree(plan)?;
        self.tasks().record(&plan.step.events)?;
        self.answers.remember(&plan.step.id, Some(landed.clone()));
        self.forget(plan)?;
        self.catch_up()?;
        Ok(StepOutcome::Done(landed))
    }

    /// Whether the task is on the branch where the tree shows it. All other code keeps it so; if it is not so, this brings
    /// the tree in order.
    fn shows_the_branch(&self, step: &Step) -> Result<bool> {
        let mut seen = self.seen_to_change()?;
        if !self.tasks().path(&step.task, &step.from).exists()
            || self.tree.branch.text(&seen.tip, &step.task, &step.from)?.is_some()
        {
            return Ok(true);
        }
        seen.imported = None;
        self.keep(&seen)?;
        self.catch_up().map(|()| false)
    }

    /// Remembers what the remote took from this clone, so that nobody has to look.
    fn learn_own(&self, plan: &PushPlan, began_ms: u64) -> Result<()> {
        let mut seen = self.seen_to_change()?;
        seen.tip = plan.commits.last().cloned().unwrap_or_default();
        seen.imported = Some(seen.tip.clone());
        seen.cards.remove(&ref_of(&plan.step.task));
        if let Some((oid, card)) = &plan.card {
            seen.put(card.clone(), oid.clone(), began_ms);
        }
        self.keep(&seen)
    }

    /// Makes the objects of a step for what is here now, and says how the refs change; or why it cannot be taken.
    pub(super) fn prepare(
        &self,
        plan: &mut PushPlan,
        seen: &SeenRemote,
    ) -> Result<Result<Vec<Update>, StepOutcome>> {
        let (step, tasks, branch) = (&plan.step, self.tasks(), &self.tree.branch);
        if seen.card(&step.task).map(|found| &found.oid) != plan.old.as_ref() {
            return Ok(Err(StepOutcome::Conflict));
        }
        let found = tasks.get(&step.task, Some(step.from.state()), step.at)?;
        let is_same = |found: &Task| found.slot == step.from && found.version == plan.version;
        let Some(found) = found.filter(is_same) else { return Ok(Err(StepOutcome::Conflict)) };
        let Some(text) = tasks.read(&found, u64::MAX)? else { return Ok(Err(StepOutcome::Conflict)) };
        if step.check.is_some_and(|sha256| sha256 != Digest::of(&text)) {
            return Ok(Err(StepOutcome::Changed));
        }
        let mut text = step.edited(&text);
        if step.from.agent().is_some() {
            text = self.tree.with_edits(&step.task, text)?;
        }
        let is_taken = |name: &TaskName| step.from != step.to && tasks.path(name, &step.to).exists();
        plan.landing = step.task.clone();
        if is_taken(&plan.landing) {
            plan.landing = step.fallback_name();
            if is_taken(&plan.landing) {
                return Err(no_name_left(&step.task, &step.to));
            }
        }
        let card = step.record_after(&text).map(|record| self.new_card(&plan.landing, record)).transpose()?;
        let removed = (branch.path_of(&step.task, &step.from), None);
        let put = (branch.path_of(&plan.landing, &step.to), Some(text));
        let commit = NewCommit { message: message(step, &plan.landing), changes: vec![removed, put] };
        let mut made = branch.make(card.as_ref(), Some((&commit, &seen.tip)))?;
        let (name, new) = (self.remote.branch_ref(), made.pop());
        plan.commits.extend(new.clone());
        plan.card = made.pop().zip(card);
        let mut updates = vec![Update { name, old: Some(seen.tip.clone()), new }];
        updates.extend(self.card_updates(plan));
        Ok(Ok(updates))
    }

    /// How the refs of the cards change.
    fn card_updates(&self, plan: &PushPlan) -> impl Iterator<Item = Update> {
        let card_ref = |task: &TaskName| self.remote.card_ref(&ref_of(task));
        let (old, new) = (plan.old.clone(), plan.card.as_ref().map(|(oid, _)| oid.clone()));
        let (before, after) = (card_ref(&plan.step.task), card_ref(&plan.landing));
        let updates = if before == after {
            vec![Update { name: after, old, new }]
        } else {
            vec![Update { name: before, old, new: None }, Update { name: after, old: None, new }]
        };
        updates.into_iter().filter(|update| update.old.is_some() || update.new.is_some())
    }

    /// Puts a new task on the branch and into the tree, unless one of the commits that were made for it is there.
    pub(super) fn put_new(
        &self,
        commits: &mut Vec<String>,
        task: &TaskName,
        text: &[u8],
        now: Timestamp,
    ) -> Result<StepOutcome> {
        let talk = self.begin()?;
        let (tasks, slot) = (self.tasks(), Slot::NEEDS_ACTION);
        if self.seen()?.tip.is_empty() {
            self.look(&talk)?;
        }
        let is_taken = self.publish(&talk, commits, |_| {
            self.catch_up()?;
            if tasks.get(task, Some(State::NeedsAction), now)?.is_some() {
                return Ok(None);
            }
            let changes = vec![(self.tree.branch.path_of(task, &slot), Some(text.to_vec()))];
            let message = format!("tollgate: new task {}", task.stem());
            Ok(Some((NewCommit { message, changes }, None)))
        })?;
        // If the process dies before this, the next conversation brings the task in.
        self.catch_up()?;
        let path = Some(tasks.path(task, &slot));
        let landed = TaskAfterStep { task: task.clone(), slot, path };
        Ok(if is_taken { StepOutcome::Done(landed) } else { StepOutcome::Conflict })
    }

    /// Puts a commit on the branch, with a change of a card if need be, and makes it again if the branch has moved. Whether
    /// the branch has it: `change` may find that it is no longer wanted. The tree stays as it is. `commits` are those that
    /// were made for it.
    pub(super) fn publish(
        &self,
        talk: &Conversation,
        commits: &mut Vec<String>,
        mut change: impl FnMut(&SeenRemote) -> Result<Option<(NewCommit, Option<Update>)>>,
    ) -> Result<bool> {
        for _ in 0..TRIES {
            if self.any_landed(commits)? {
                return Ok(true);
            }
            let mut seen = self.seen_to_change()?;
            let Some((commit, card)) = change(&seen)? else { return Ok(false) };
            let new = self.tree.branch.make(None, Some((&commit, &seen.tip)))?.remove(0);
            commits.push(new.clone());
            let (name, old) = (self.remote.branch_ref(), Some(seen.tip));
            let mut updates = vec![Update { name, old, new: Some(new.clone()) }];
            updates.extend(card);
            if self.push(talk, &updates)? {
                seen.tip = new;
                return self.keep(&seen).map(|()| true);
            }
        }
        Err(self.remote.takes_nothing())
    }

    /// Takes a step of the owner that moves nothing: a renewal, a progress note, a draft. It replaces the card if that is
    /// due, so that the remote is not asked all the time. The text reaches the branch with the release.
    pub(super) fn renew(
        &self,
        talk: &Conversation,
        step: &Step,
        card: Option<String>,
        version: Version,
    ) -> Result<StepOutcome> {
        let seen = self.seen()?;
        let found = seen.card(&step.task);
        let owner = step.record.as_ref().and_then(|record| Some((record, &record.claim.as_ref()?.id)));
        // A heartbeat, or an earlier try of this step, may have replaced the card. It is still the card of this claim.
        let is_own = owner.is_some_and(|(_, claim)| self.own_card(&seen, &step.task, claim).is_some());
        if !is_own && found.map(|found| &found.oid) != card.as_ref() {
            return Ok(StepOutcome::Conflict);
        }
        let is_due = found.is_some_and(|found| found.card.as_ref().is_some_and(|card| found.is_due(card)));
        if let Some((record, claim)) = owner.filter(|_| is_due) {
            match self.replace_card(talk, &step.task, claim, Some(record)) {
                Ok(true) => {}
                Ok(false) => return Ok(StepOutcome::Conflict),
                // The owner's text is kept all the same. It does not extend the claim on the remote.
                Err(Fault::Unreachable { .. })
                    if matches!(step.edit, TextEdit::Progress(..) | TextEdit::Draft(..)) => {}
                Err(fault) => return Err(fault),
            }
        }
        self.tasks().apply(&Step { version, ..step.clone() })
    }

    /// Replaces the card of this claim by a new one, with this record or with the old one.
    pub(super) fn replace_card(
        &self,
        talk: &Conversation,
        task: &TaskName,
        claim: &ClaimId,
        record: Option<&ClaimRecord>,
    ) -> Result<bool> {
        for _ in 0..=UNCLEAR {
            let mut seen = self.seen_to_change()?;
            // An earlier heartbeat whose answer was lost may have changed the card. It is still the card of this claim.
            let Some((old, card)) = self.own_card(&seen, task, claim) else { return Ok(false) };
            let card = Card::new(task, &self.id, card.lease_ms, record.unwrap_or(&card.record).clone())?;
            let new = self.tree.branch.make_card(&card)?;
            let name = self.remote.card_ref(&ref_of(task));
            let began_ms = millis_since_boot();
            if self.push(talk, &[Update { name, old: Some(old.clone()), new: Some(new.clone()) }])? {
                seen.put(card, new, began_ms);
                self.keep(&seen)?;
                return Ok(true);
            }
            self.catch_up()?;
            if self.seen()?.card(task).is_some_and(|found| found.oid == new) {
                return Ok(true);
            }
        }
        Err(self.remote.takes_nothing())
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
        Some(Verb::Retry) => format!("{task} is to be tried again"),
        Some(Verb::Edit) => format!("{task} is edited"),
        Some(Verb::Ask) => format!("{task} waits for a person"),
        Some(Verb::Reopen) => format!("{task} was changed and waits for approval again"),
        None => task.to_owned(),
    };
    if step.task == *landing {
        format!("tollgate: {what}")
    } else {
        format!("tollgate: {what}, as {}", landing.stem())
    }
}

/// A random pause, so that clones that were refused together do not come back together: a part of the time that a push
/// takes here, and longer after each try. A push that is refused costs nearly as much as one that is taken.
fn backoff(push: Duration, tried: u32) -> Duration {
    let push_ms = u64::try_from(push.as_millis()).unwrap_or(u64::MAX);
    let most = push_ms.min(2_000) << (tried.min(3) + 1);
    Duration::from_millis(getrandom::u64().unwrap_or(0) % (most + 1))
}
