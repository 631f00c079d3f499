//! The owner's verbs: claim, verify, renew, report progress, release.
//!
//! Invariants: eligibility is a filter before the claim, never a reason to reject after it; a lost race is an answer
//! and is neither retried nor called an error; every verb after the claim shows the claim's id, and an old one is
//! refused.

use std::path::PathBuf;

use jiff::Timestamp;

use super::claim::{Claim, ClaimId, Note, Tenure};
use super::figures::Count;
use super::hold::{Hold, Owner};
use super::rules::{self, Asking, Release, lease_until};
use super::state::{Slot, State};
use super::store::{Landed, Outcome, Placed, Step, Taken};
use super::{Not, Reason, TaskName, Vault};
use crate::error::{Fault, Result};
use crate::name::Agent;

/// How often a verb of the owner's starts again because the task was touched at the same moment, by the worker's own
/// editor for example. Each start is a fresh look, so a number this high is only reached if something writes all the time.
const TRIES: u32 = 64;

/// How a claim is to last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// As long as the [`Hold`] that comes with it.
    Held,
    /// For the configured lease, and longer if renewed.
    Leased,
}

/// Who asks for a task, and how.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Who.
    pub agent: Agent,
    /// How the claim is to last.
    pub wish: Wish,
    /// The file is known to have been renamed into place, so it is complete however young it is.
    pub renamed_in: bool,
}

/// A task that is now the agent's.
#[derive(Debug)]
pub struct Claimed {
    /// Its name.
    pub task: TaskName,
    /// Its file, where it has one.
    pub path: Option<PathBuf>,
    /// The claim.
    pub claim: Claim,
    /// The lock of a held claim. When it is dropped and no command has inherited it, the claim is over.
    pub hold: Option<Hold>,
}

/// What came of asking for a task.
#[derive(Debug)]
pub enum Claiming {
    /// It is the agent's.
    Claimed(Box<Claimed>),
    /// It is not.
    Not(Not),
}

/// What came of trying to claim a task that a look has found.
pub(super) enum Tried {
    /// It is not there.
    Gone,
    /// Somebody is busy with it.
    Busy,
    /// This.
    Answer(Claiming),
}

/// What came of a verb that only the owner may use.
#[derive(Debug, PartialEq, Eq)]
pub enum Owned<T> {
    /// Done.
    Yes(T),
    /// Whoever asked is not the owner, or no longer. In a sentence, why.
    No(String),
}

impl Vault {
    /// Takes this task.
    pub fn claim(&self, task: &TaskName, asked: &Asked, now: Timestamp) -> Result<Claiming> {
        self.heal()?;
        Ok(match self.claim_in(None, task, asked, now, false)? {
            Tried::Answer(answer) => answer,
            Tried::Gone => Claiming::Not(Not::new(Reason::None, format!("there is no task `{task}`"))),
            Tried::Busy => Claiming::Not(Not::new(Reason::Lost, format!("somebody is busy with `{task}`"))),
        })
    }

    /// Takes this task, if it is in this state.
    pub(super) fn claim_in(
        &self,
        state: Option<State>,
        task: &TaskName,
        asked: &Asked,
        now: Timestamp,
        hurry: bool,
    ) -> Result<Tried> {
        let tried = self.try_claim(state, task, asked, now, hurry);
        if tried.is_err() {
            // The fault is what the caller must hear of, not that it could not be counted.
            let _ = self.store.count(&asked.agent, Count::Error);
        }
        tried
    }

    fn try_claim(
        &self,
        state: Option<State>,
        task: &TaskName,
        asked: &Asked,
        now: Timestamp,
        hurry: bool,
    ) -> Result<Tried> {
        let (mut refused, mut hold, mut from) = (None, None, State::NeedsAction);
        let taken = self.store.take(task, state, now, hurry, &mut |stored| {
            from = stored.slot.state();
            let mode = match self.judge(stored, &asked.agent, asked.renamed_in, now)? {
                Ok(mode) => mode,
                Err(not) => {
                    refused = Some(not);
                    return Ok(None);
                }
            };
            let Note { approval, offered, .. } = &stored.note;
            if stored.slot == Slot::APPROVED && approval.is_none() && offered.is_none() {
                return Ok(None);
            }
            let id = ClaimId::new()?;
            let tenure = match asked.wish {
                Wish::Held => {
                    hold = Some(self.store.hold(&id)?);
                    Tenure::Held
                }
                Wish::Leased => Tenure::Leased(lease_until(now, self.terms.lease)),
            };
            let action = stored.brief.as_ref().ok().and_then(|brief| brief.action.as_deref());
            let sensitive = self.terms.roles.is_sensitive(action);
            let lock = hold.as_ref().and_then(Hold::file);
            let asking = Asking { id, agent: asked.agent.clone(), tenure, lock, mode, sensitive };
            rules::claim(stored, asking, now).map(Some)
        })?;
        let (step, landed) = match taken {
            Taken::Gone => return Ok(Tried::Gone),
            Taken::Busy | Taken::Step(_, Outcome::Busy) => return Ok(Tried::Busy),
            Taken::Step(step, Outcome::Done(landed)) => (step, landed),
            Taken::Step(_, Outcome::Unknown(fault)) => return Err(fault),
            Taken::Step(_, Outcome::Conflict) => {
                return self.lost(task, from, &asked.agent, now).map(Tried::Answer);
            }
            Taken::Left | Taken::Step(_, Outcome::Changed) => {
                let answer = refused.map_or_else(|| self.reopen(task, now), |not| Ok(Claiming::Not(not)));
                return answer.map(Tried::Answer);
            }
        };
        let claim = step.note.and_then(|note| note.claim);
        let claim = claim.ok_or_else(|| Fault::invalid("a claim without a claim"))?;
        let claimed = Claimed { task: landed.task, path: landed.path, claim, hold };
        Ok(Tried::Answer(Claiming::Claimed(Box::new(claimed))))
    }

    fn lost(&self, task: &TaskName, from: State, agent: &Agent, now: Timestamp) -> Result<Claiming> {
        self.store.tell(&[rules::lost(task, from, agent, now)?])?;
        self.store.count(agent, Count::Lost)?;
        Ok(Claiming::Not(Not::new(Reason::Lost, format!("another was quicker to take `{task}`"))))
    }

    /// What lies in `Approved` is not what was approved: a person decides again.
    fn reopen(&self, task: &TaskName, now: Timestamp) -> Result<Claiming> {
        for _ in 0..TRIES {
            // A fresh look: the claim that found it out has moved the file and put it back.
            let Some(stored) = self.store.get(task, Some(State::Approved), now)? else { break };
            match self.store.apply(&rules::reopen(&stored, now)?)? {
                Outcome::Done(_) => break,
                Outcome::Unknown(fault) => return Err(fault),
                Outcome::Conflict | Outcome::Changed | Outcome::Busy => {}
            }
        }
        let sentence = format!("`{task}` is not what was approved; it waits for a person again");
        Ok(Claiming::Not(Not::new(Reason::NotEligible, sentence)))
    }

    /// Whether this claim still owns the task. Also extends its lease when half of it is over.
    pub fn verify(&self, task: &TaskName, id: &ClaimId, now: Timestamp) -> Result<bool> {
        let placed = self.store.in_progress(task, now)?;
        let Owned::Yes(placed) = owned(placed.as_ref(), task, id) else { return Ok(false) };
        let half_over = |claim: &Claim| match claim.tenure {
            Tenure::Held => false,
            Tenure::Leased(until) => until < lease_until(now, self.terms.lease / 2),
        };
        if !placed.note.claim.as_ref().is_some_and(half_over) {
            return Ok(true);
        }
        let renewed =
            self.as_owner(task, id, now, |stored| rules::renew(stored, self.terms.lease, now, false))?;
        Ok(matches!(renewed, Owned::Yes(_)))
    }

    /// Extends a lease. The answer is the claim as it is now.
    pub fn renew(&self, task: &TaskName, id: &ClaimId, now: Timestamp) -> Result<Owned<Claim>> {
        let done =
            self.as_owner(task, id, now, |stored| rules::renew(stored, self.terms.lease, now, true))?;
        Ok(match done {
            Owned::No(why) => Owned::No(why),
            Owned::Yes((step, _)) => match step.note.and_then(|note| note.claim) {
                Some(claim) => Owned::Yes(claim),
                None => Owned::No(format!("`{task}` is no longer claimed")),
            },
        })
    }

    /// Writes a note of the worker's into the task.
    pub fn progress(&self, task: &TaskName, id: &ClaimId, text: &str, now: Timestamp) -> Result<Owned<()>> {
        let done =
            self.as_owner(task, id, now, |stored| rules::progress(stored, text, self.terms.lease, now))?;
        Ok(match done {
            Owned::Yes(_) => Owned::Yes(()),
            Owned::No(why) => Owned::No(why),
        })
    }

    /// Lets the task go: its block is closed, then it moves.
    pub fn release(
        &self,
        task: &TaskName,
        id: &ClaimId,
        how: &Release,
        now: Timestamp,
    ) -> Result<Owned<Landed>> {
        let limit = self.terms.max_attempts;
        self.leave(task, id, now, |stored| rules::release(stored, how, limit, now))
    }

    /// Gives the task back unworked. It does not count as an attempt.
    pub fn give_back(
        &self,
        task: &TaskName,
        id: &ClaimId,
        why: &str,
        now: Timestamp,
    ) -> Result<Owned<Landed>> {
        self.leave(task, id, now, |stored| rules::give_back(stored, why, now))
    }

    fn leave(
        &self,
        task: &TaskName,
        id: &ClaimId,
        now: Timestamp,
        next: impl Fn(&Placed) -> Result<Step>,
    ) -> Result<Owned<Landed>> {
        Ok(match self.as_owner(task, id, now, next)? {
            Owned::Yes((_, landed)) => Owned::Yes(landed),
            Owned::No(why) => Owned::No(why),
        })
    }

    /// One step of the owner's. Starts again if the task was touched meanwhile, as long as it is the owner's.
    fn as_owner(
        &self,
        task: &TaskName,
        id: &ClaimId,
        now: Timestamp,
        next: impl Fn(&Placed) -> Result<Step>,
    ) -> Result<Owned<(Step, Landed)>> {
        for _ in 0..TRIES {
            let mut why = String::new();
            let taken = self.store.advance(task, now, &mut |placed| match owned(placed, task, id) {
                Owned::Yes(placed) => next(placed).map(Some),
                Owned::No(not) => {
                    why = not;
                    Ok(None)
                }
            })?;
            match taken {
                None => return Ok(Owned::No(why)),
                Some((step, Outcome::Done(landed))) => return Ok(Owned::Yes((step, landed))),
                Some((_, Outcome::Unknown(fault))) => return Err(fault),
                Some((_, Outcome::Conflict | Outcome::Changed | Outcome::Busy)) => {}
            }
        }
        Err(Fault::invalid(format!("`{task}` is being written to all the time")))
    }

    /// Whether the owner is gone: then with the proof of it.
    pub(super) fn owner_gone(&self, claim: &Claim, now: Timestamp) -> Result<Option<Hold>> {
        match claim.tenure {
            Tenure::Leased(_) => Ok(claim.lapsed(now).then(Hold::nothing)),
            Tenure::Held => Ok(match self.store.owner(claim, now)? {
                Owner::Alive => None,
                Owner::Gone(hold) => Some(hold),
                // The lock file was removed by somebody. Time must tell.
                Owner::Unknown => (lease_until(claim.at, self.terms.lease) < now).then(Hold::nothing),
            }),
        }
    }
}

/// Whether a task that is here, if it is, is owned by this claim.
fn owned<'a>(placed: Option<&'a Placed>, task: &TaskName, id: &ClaimId) -> Owned<&'a Placed> {
    let Some(placed) = placed else { return Owned::No(format!("`{task}` is not in progress")) };
    match &placed.note.claim {
        Some(claim) if claim.id == *id => Owned::Yes(placed),
        Some(claim) => Owned::No(format!("`{task}` was claimed anew by `{}`", claim.agent)),
        None => Owned::No(format!("`{task}` is not claimed")),
    }
}
