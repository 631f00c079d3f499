//! A store under the rules: looking at tasks, adding them, and a person's verbs (approve, take back, amend, reject,
//! retry).
//!
//! Data flows one way: a verb looks at a task, the pure [`crate::rules`] make a [`Step`] of it, the store takes the step as
//! one act or says that somebody else was faster. The rules know no store; a store knows no rules.
//!
//! Invariants: an approval is bound to the text that was approved; a decision is made once.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::claim::Mode;
use crate::deadline::ClaimDeadlines;
use crate::decisions;
use crate::denial::{Allowed, Denial};
use crate::figures::{Figures, Tally};
use crate::rules::{self, Terms};
use crate::state::{Slot, State};
use crate::step::{Step, StepOutcome};
use crate::store::{Ready, Store, Task, TaskAfterStep};
use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};
use tollgate_base::name::{Agent, ClaimId, StepId};
use tollgate_base::task::TaskName;

/// How often a step is applied again after its answer was lost. A store that loses four answers in a row is out of reach.
const RETRIES: u32 = 3;

/// How often a verb starts again because the task was changed at the same moment, by the worker's own editor for example.
/// Each start is a fresh look, so this number is reached only if something writes all the time.
pub(crate) const TRIES: u32 = 64;

/// A store under the rules. Cheap to clone.
#[derive(Clone)]
pub struct Vault {
    store: Arc<dyn Store>,
    terms: Arc<Terms>,
    deadlines: Option<ClaimDeadlines>,
}

impl Vault {
    /// These rules over that store.
    pub fn new(store: Arc<dyn Store>, terms: Terms) -> Self {
        Self { store, terms: Arc::new(terms), deadlines: None }
    }

    /// A vault over a store that other machines share: notes on this machine until when each claim lasts.
    #[must_use]
    pub fn with_deadlines(self, deadlines: ClaimDeadlines) -> Self {
        Self { deadlines: Some(deadlines), ..self }
    }

    pub(crate) fn deadlines(&self) -> Option<&ClaimDeadlines> {
        self.deadlines.as_ref()
    }

    /// The store.
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// The terms.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Puts a new task into `Needs_Action`.
    pub fn add(&self, task: &TaskName, text: &[u8], now: Timestamp) -> Result<TaskAfterStep> {
        let added = self.try_add(task, text, now)?;
        added.ok_or_else(|| Fault::invalid(format!("a task named `{task}` already exists")))
    }

    /// Puts a new task into `Needs_Action`; `None` if the name is taken.
    pub(crate) fn try_add(
        &self,
        task: &TaskName,
        text: &[u8],
        now: Timestamp,
    ) -> Result<Option<TaskAfterStep>> {
        if text.is_empty() {
            return Err(Fault::invalid("a task needs some text"));
        }
        let id = StepId::new()?;
        until_answered(|| self.store.add(&id, task, text, now))?.landed()
    }

    /// One task, wherever it is.
    pub fn get(&self, task: &TaskName, now: Timestamp) -> Result<Task> {
        let missing = || Fault::no_task(task);
        self.store.get(task, None, now)?.ok_or_else(missing)
    }

    /// One task and its text, up to a limit.
    pub fn get_with_text(&self, task: &TaskName, limit: u64, now: Timestamp) -> Result<(Task, Vec<u8>)> {
        for _ in 0..TRIES {
            let found = self.get(task, now)?;
            if let Some(text) = self.store.read(&found, limit)? {
                return Ok((found, text));
            }
        }
        Err(restless(task))
    }

    /// The SHA-256 of the text of exactly this version; `None` if the task has changed since.
    pub fn digest(&self, task: &Task) -> Result<Option<Digest>> {
        Ok(self.store.read(task, u64::MAX)?.map(|text| Digest::of(&text)))
    }

    /// The figures of `/health`: of all agents together, and of each.
    pub fn figures(&self, now: Timestamp) -> Result<(Figures, Vec<Figures>)> {
        let tallies = self.store.tallies()?.into_iter();
        let mut parts: BTreeMap<Agent, (u64, Tally)> =
            tallies.map(|(agent, tally)| (agent, (0, tally))).collect();
        for task in self.store.scan(State::InProgress, now)?.tasks {
            if let Slot::InProgress(agent) = task.slot {
                parts.entry(agent).or_default().0 += 1;
            }
        }
        let each = parts.iter().map(|(agent, (active, tally))| {
            Figures::new(agent.as_str(), *active, tally).with_breaker(tally, now)
        });
        Ok((Figures::sum(parts.values()), each.collect()))
    }

    /// A person approves the task as it is. `seen` is the digest of what the person has seen, if that is known.
    pub fn approve(
        &self,
        task: &TaskName,
        by: &str,
        seen: Option<Digest>,
        now: Timestamp,
    ) -> Result<Allowed<TaskAfterStep>> {
        self.decide_pending(task, seen, now, |found, sha256| decisions::approve(found, by, sha256, None, now))
    }

    /// A person changes the task's text to `text` and approves that. `seen` is the digest of the text they started from; if
    /// the task has another text by now, nothing is done.
    pub fn amend(
        &self,
        task: &TaskName,
        by: &str,
        seen: Digest,
        text: &str,
        now: Timestamp,
    ) -> Result<Allowed<TaskAfterStep>> {
        self.decide_pending(task, Some(seen), now, |found, _| decisions::amend(found, by, seen, text, now))
    }

    /// A person takes a rejection back, or an approval that nobody has executed yet. The task waits for a decision again.
    pub fn take_back(&self, task: &TaskName, by: &str, now: Timestamp) -> Result<Allowed<TaskAfterStep>> {
        self.store.heal()?;
        for state in [State::Approved, State::Rejected] {
            if let Some(found) = self.store.get(task, Some(state), now)? {
                return self.decide(&found, decisions::take_back(&found, by, now)?);
            }
        }
        self.elsewhere(task, now)
    }

    /// Moves a task from `Approved` back to `Pending_Approval`, if nobody has approved the text that it has.
    pub fn reopen_unapproved(&self, task: &TaskName, now: Timestamp) -> Result<()> {
        if let Some(found) = self.store.get(task, Some(State::Approved), now)?
            && let Some(sha256) = self.digest(&found)?
            && self.terms.approved(&found.record) != Some(sha256)
        {
            // If somebody changes it at this moment, the next claim does the same.
            let _ = self.decide(&found, rules::reopen(&found, &self.terms, now)?)?;
        }
        Ok(())
    }

    /// A person rejects the task, which needs a reason. Not possible while somebody works on it.
    pub fn reject(
        &self,
        task: &TaskName,
        by: &str,
        reason: &str,
        now: Timestamp,
    ) -> Result<Allowed<TaskAfterStep>> {
        self.store.heal()?;
        match self.store.get(task, None, now)? {
            None => Ok(Err(Denial::Missing(task.clone()))),
            Some(found) if matches!(found.slot, Slot::InProgress(_)) || found.slot.state().is_final() => {
                Ok(Err(Denial::Elsewhere(found.name, found.slot)))
            }
            Some(found) => self.decide(&found, decisions::reject(&found, by, reason, now)?),
        }
    }

    /// A person wants a task to be tried again that was rejected, that pauses after a failed attempt, or whose draft they want
    /// to be different, which needs a reason. Its attempts are counted from zero.
    pub fn retry(
        &self,
        task: &TaskName,
        by: &str,
        reason: Option<&str>,
        now: Timestamp,
    ) -> Result<Allowed<TaskAfterStep>> {
        self.store.heal()?;
        if let Some(found) = self.retryable(task, now)? {
            return self.decide(&found, decisions::retry(&found, by, reason, now)?);
        }
        Ok(Err(match self.store.get(task, None, now)? {
            None => Denial::Missing(task.clone()),
            Some(found) if found.slot == Slot::NEEDS_ACTION => Denial::NothingToRetry(found.name),
            Some(found) => Denial::Elsewhere(found.name, found.slot),
        }))
    }

    /// The task that [`Self::retry`] would bring back.
    pub fn retryable(&self, task: &TaskName, now: Timestamp) -> Result<Option<Task>> {
        let waiting = self.store.get(task, Some(State::NeedsAction), now)?;
        match waiting.filter(|found| rules::pausing_until(found, &self.terms, now).is_some()) {
            Some(pausing) => Ok(Some(pausing)),
            None => match self.store.get(task, Some(State::Rejected), now)? {
                Some(rejected) => Ok(Some(rejected)),
                None => self.store.get(task, Some(State::PendingApproval), now),
            },
        }
    }

    /// A person returns a task that an agent has claimed. The claim ends, and the attempt does not count. If the task is
    /// sensitive and may have been executed, it goes to `Pending_Approval`. `seen` is the claim that the person wants to end,
    /// if there was one; if there is another by now, nothing is done.
    pub fn give_back(
        &self,
        task: &TaskName,
        by: &str,
        seen: Option<&ClaimId>,
        now: Timestamp,
    ) -> Result<Allowed<TaskAfterStep>> {
        self.store.heal()?;
        match self.store.get(task, Some(State::InProgress), now)? {
            Some(found) if found.record.claim.as_ref().map(|claim| &claim.id) != seen => {
                Ok(Err(Denial::Changed(found.name)))
            }
            Some(found) => self.decide(&found, decisions::give_back(&found, by, &self.terms, now)?),
            None => self.elsewhere(task, now),
        }
    }

    /// A person changes the text of a task in `Needs_Action` or `Pending_Approval`. `seen` is the digest of the text they started
    /// from; if the task has another text by now, nothing is done.
    pub fn edit(
        &self,
        task: &TaskName,
        by: &str,
        seen: Digest,
        text: &str,
        now: Timestamp,
    ) -> Result<Allowed<TaskAfterStep>> {
        self.store.heal()?;
        for state in [State::NeedsAction, State::PendingApproval] {
            match self.store.get(task, Some(state), now)? {
                Some(found) if self.digest(&found)? == Some(seen) => {
                    return self.decide(&found, decisions::edit(&found, by, seen, text, now)?);
                }
                Some(found) => return Ok(Err(Denial::Changed(found.name))),
                None => {}
            }
        }
        self.elsewhere(task, now)
    }

    /// Why nothing can be done: there is no such task, or it is in another state.
    fn elsewhere<T>(&self, task: &TaskName, now: Timestamp) -> Result<Allowed<T>> {
        let slot = self.store.get(task, None, now)?.map(|found| found.slot);
        let missing = || Denial::Missing(task.clone());
        Ok(Err(slot.map_or_else(missing, |slot| Denial::Elsewhere(task.clone(), slot))))
    }

    /// A decision about a task in `Pending_Approval` that has the text with the digest `seen`, if that is known.
    fn decide_pending(
        &self,
        task: &TaskName,
        seen: Option<Digest>,
        now: Timestamp,
        next: impl FnOnce(&Task, Digest) -> Result<Step>,
    ) -> Result<Allowed<TaskAfterStep>> {
        self.store.heal()?;
        let Some(found) = self.store.get(task, Some(State::PendingApproval), now)? else {
            return self.elsewhere(task, now);
        };
        match self.digest(&found)? {
            Some(sha256) if seen.is_none_or(|seen| seen == sha256) => {
                self.decide(&found, next(&found, sha256)?)
            }
            _ => Ok(Err(Denial::Changed(found.name))),
        }
    }

    pub(crate) fn decide(&self, found: &Task, step: Step) -> Result<Allowed<TaskAfterStep>> {
        if let Some(twin) = &found.twin {
            // The record of this name belongs to the other task. The step would take its owner's claim away.
            return Ok(Err(Denial::Twin(step.task, twin.clone())));
        }
        let landed = self.apply(&step)?.landed()?;
        if let (Some(_), Some(claim), Some(deadlines)) = (&landed, &found.record.claim, &self.deadlines) {
            // If it fails, the claim ends at its deadline.
            let _ = deadlines.end(&claim.id);
        }
        Ok(landed.ok_or(Denial::Changed(step.task)))
    }

    /// Applies a step. If its answer is lost, applies the same step again: the store sees by its id whether it was taken.
    pub(crate) fn apply(&self, step: &Step) -> Result<StepOutcome> {
        until_answered(|| self.store.apply(step))
    }

    /// The filter before every claim.
    pub(crate) fn judge(
        &self,
        task: &Task,
        agent: &Agent,
        renamed_in: bool,
        now: Timestamp,
    ) -> Result<Allowed<Mode>> {
        let allowed = self.judge_alone(task, agent, renamed_in).and_then(|mode| {
            let pause = rules::pausing_until(task, &self.terms, now);
            pause.map_or(Ok(mode), |until| Err(Denial::Pausing(task.name.clone(), until)))
        });
        for before in task.brief.iter().flat_map(|brief| &brief.after).filter(|_| allowed.is_ok()) {
            let name = task.name.clone();
            if *before == name {
                return Ok(Err(Denial::Circle(name.clone(), vec![name.clone(), name])));
            }
            if self.store.get(before, Some(State::Done), now)?.is_none() {
                return Ok(Err(match self.store.get(before, None, now)? {
                    Some(found) => Denial::WaitsFor(name, before.clone(), found.slot),
                    None => Denial::WaitsForMissing(name, before.clone()),
                }));
            }
        }
        Ok(allowed)
    }

    /// Whether an agent may claim a task, as far as the task alone decides, without the tasks that it waits for.
    fn judge_alone(&self, task: &Task, agent: &Agent, renamed_in: bool) -> Allowed<Mode> {
        let name = task.name.clone();
        let state = match &task.slot {
            Slot::InProgress(owner) if task.record.claim.is_none() => {
                return Err(Denial::NoClaim(name, owner.clone()));
            }
            Slot::InProgress(owner) => return Err(Denial::Owned(name, owner.clone())),
            Slot::Free(State::PendingApproval) => return Err(Denial::AwaitsApproval(name)),
            Slot::Free(state) if state.is_final() => return Err(Denial::Elsewhere(name, task.slot.clone())),
            Slot::Free(state) => *state,
        };
        let brief = task.brief.as_ref().map_err(|broken| Denial::Broken(name.clone(), broken.clone()))?;
        match task.ready {
            Ready::After(wait) if !renamed_in => return Err(Denial::Young(name, wait)),
            Ready::Empty => return Err(Denial::Empty(name)),
            Ready::Open => return Err(Denial::OpenForWriting(name)),
            Ready::Now | Ready::After(_) => {}
        }
        if let Some(twin) = &task.twin {
            return Err(Denial::Twin(name, twin.clone()));
        }
        if state == State::Approved && self.terms.approved(&task.record).is_none() {
            return Err(Denial::NeverApproved(name));
        }
        if let Some(doubt) = rules::doubt(task) {
            return Err(Denial::InDoubt(name, doubt));
        }
        self.terms.roles.mode(agent, brief.action.as_deref(), state).map_err(Denial::NotAllowed)
    }
}

/// Asks again as long as the answer is lost. After that, no fault says that nothing was changed.
pub(crate) fn until_answered(apply: impl Fn() -> Result<StepOutcome>) -> Result<StepOutcome> {
    let mut answer = apply();
    for _ in 0..RETRIES {
        let Ok(StepOutcome::Unknown(_)) = answer else { break };
        answer = apply().or_else(|fault| Ok(StepOutcome::Unknown(fault)));
    }
    answer
}

/// Something changes a task faster than it can be read or changed.
pub(crate) fn restless(task: &TaskName) -> Fault {
    Fault::invalid_with_hint(
        format!("`{task}` changes all the time: stop the program that writes to it"),
        "stop the program that writes to it, then try again",
    )
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[derive(Clone, Copy)]
    enum Answer {
        Lost,
        Unreachable,
        Conflict,
    }

    /// What comes of a step, if the store gives these answers, and the last one for ever.
    fn after(answers: &[Answer]) -> Result<StepOutcome> {
        let fault = || Fault::Unreachable { remote: "db".into(), what: "no network".into() };
        let asked = Cell::new(0);
        until_answered(|| {
            let answer = answers[asked.replace(asked.get() + 1).min(answers.len() - 1)];
            match answer {
                Answer::Lost => Ok(StepOutcome::Unknown(fault())),
                Answer::Unreachable => Err(fault()),
                Answer::Conflict => Ok(StepOutcome::Conflict),
            }
        })
    }

    #[test]
    fn once_an_answer_was_lost_a_fault_does_not_say_that_nothing_was_changed() {
        use Answer::{Conflict, Lost, Unreachable};
        assert!(after(&[Unreachable]).is_err());
        assert!(matches!(after(&[Lost]), Ok(StepOutcome::Unknown(_))));
        assert!(matches!(after(&[Lost, Unreachable]), Ok(StepOutcome::Unknown(_))));
        assert!(matches!(after(&[Lost, Unreachable, Conflict]), Ok(StepOutcome::Conflict)));
    }
}
