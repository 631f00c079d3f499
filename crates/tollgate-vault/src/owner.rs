//! The owner's verbs: claim, verify, renew, report progress, draft, release.
//!
//! Invariants: eligibility is checked before the claim, never after it; a lost race is an answer, not an error, and is not
//! retried; every verb after the claim presents the claim's id, and an old id is refused.

use std::path::PathBuf;

use jiff::Timestamp;

use crate::claim::{Claim, ClaimId, ClaimRecord, Tenure};
use crate::claim_lock::{ClaimLock, Liveness};
use crate::denial::{ClaimDenied, Denial, NotOwner};
use crate::rules::{self, NewClaim, Release, Told, lease_until};
use crate::state::{Slot, State};
use crate::step::{Outcome, Step};
use crate::store::{Landed, Task};
use crate::vault::Vault;
use tollgate_base::error::{Fault, Result};
use tollgate_base::name::Agent;
use tollgate_base::task::TaskName;

/// How often a verb starts again because the task was changed at the same moment, by the worker's own editor for example.
/// Each start is a fresh look, so this number is reached only if something writes all the time.
const TRIES: u32 = 64;

/// How long a claim lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimKind {
    /// As long as the [`ClaimLock`] that comes with it. A store without locks gives a lease instead.
    Held,
    /// For the configured lease, and longer if it is renewed.
    Leased,
}

/// Who asks for a task, and how.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    /// The agent.
    pub agent: Agent,
    /// How long the claim lasts.
    pub kind: ClaimKind,
    /// The file is known to have been renamed into place, so it is complete however recent it is.
    pub renamed_in: bool,
}

/// A task that the agent owns now.
#[derive(Debug)]
pub struct Claimed {
    /// Its name.
    pub task: TaskName,
    /// Its file, if it has one.
    pub path: Option<PathBuf>,
    /// The claim.
    pub claim: Claim,
    /// The lock of a held claim. When it is dropped and no command has inherited it, the claim is over.
    pub lock: Option<ClaimLock>,
}

/// What came of asking for a task.
#[derive(Debug)]
pub enum ClaimOutcome {
    /// The agent owns it.
    Claimed(Box<Claimed>),
    /// It does not.
    Denied(ClaimDenied),
}

/// The answer to a verb that only the owner may use.
pub type Owned<T> = std::result::Result<T, NotOwner>;

impl Vault {
    /// Claims this task.
    pub fn claim(&self, task: &TaskName, request: &ClaimRequest, now: Timestamp) -> Result<ClaimOutcome> {
        self.heal()?;
        let missing = || ClaimOutcome::Denied(ClaimDenied { task: task.clone(), why: Denial::Missing });
        Ok(self.claim_in(None, task, request, now)?.unwrap_or_else(missing))
    }

    /// Claims this task, if it is in this state; `None` if it is not there.
    pub(crate) fn claim_in(
        &self,
        state: Option<State>,
        task: &TaskName,
        request: &ClaimRequest,
        now: Timestamp,
    ) -> Result<Option<ClaimOutcome>> {
        let claimed = self.try_claim(state, task, request, now);
        if let Err(fault) = &claimed {
            // The caller must hear of this fault, not of one that keeps it from being recorded.
            let _ = rules::claim_failed(task, &request.agent, fault, now)
                .and_then(|event| self.store().record(&[event]));
        }
        claimed
    }

    fn try_claim(
        &self,
        state: Option<State>,
        name: &TaskName,
        request: &ClaimRequest,
        now: Timestamp,
    ) -> Result<Option<ClaimOutcome>> {
        let denied = |why| Ok(Some(ClaimOutcome::Denied(ClaimDenied { task: name.clone(), why })));
        let Some(task) = self.store().get(name, state, now)? else { return Ok(None) };
        let mode = match self.judge(&task, &request.agent, request.renamed_in, now)? {
            Ok(mode) => mode,
            Err(why) => return denied(why),
        };
        let ClaimRecord { approval, offered, .. } = &task.record;
        if task.slot == Slot::APPROVED && approval.is_none() && offered.is_none() {
            self.reopen(name, now)?;
            return denied(Denial::NotAsApproved);
        }
        let id = ClaimId::new()?;
        let lock = match request.kind {
            ClaimKind::Held => self.store().hold(&id)?,
            ClaimKind::Leased => None,
        };
        let action = task.brief.as_ref().ok().and_then(|brief| brief.action.as_deref());
        let new = NewClaim {
            id,
            agent: request.agent.clone(),
            tenure: match &lock {
                Some(_) => Tenure::Held,
                None => Tenure::Leased(lease_until(now, self.terms().lease)),
            },
            hold: lock.as_ref().and_then(ClaimLock::token),
            mode,
            sensitive: self.terms().roles.is_sensitive(action),
        };
        let step = rules::claim(&task, new, now)?;
        match self.apply(&step)? {
            Outcome::Done(landed) => {
                let claim = step.record.and_then(|record| record.claim);
                let claim =
                    claim.ok_or_else(|| Fault::invalid("internal error: the claim step has no claim"))?;
                let Landed { task, path, .. } = landed;
                Ok(Some(ClaimOutcome::Claimed(Box::new(Claimed { task, path, claim, lock }))))
            }
            Outcome::Unknown(fault) => Err(fault),
            Outcome::Conflict => {
                let lost = rules::lost(name, task.slot.state(), &request.agent, now)?;
                self.store().record(&[lost])?;
                denied(Denial::RaceLost)
            }
            Outcome::Changed => {
                self.reopen(name, now)?;
                denied(Denial::NotAsApproved)
            }
        }
    }

    /// The text in `Approved` is not what was approved: a person decides again.
    fn reopen(&self, task: &TaskName, now: Timestamp) -> Result<()> {
        for _ in 0..TRIES {
            let Some(task) = self.store().get(task, Some(State::Approved), now)? else { break };
            match self.apply(&rules::reopen(&task, now)?)? {
                Outcome::Done(_) => break,
                Outcome::Unknown(fault) => return Err(fault),
                Outcome::Conflict | Outcome::Changed => {}
            }
        }
        Ok(())
    }

    /// Whether this claim still owns the task. Also extends its lease when half of it is over.
    pub fn verify(&self, task: &TaskName, id: &ClaimId, now: Timestamp) -> Result<bool> {
        let Ok(found) = self.owned(task, id, now)? else { return Ok(false) };
        let half_over = |claim: &Claim| match claim.tenure {
            Tenure::Held => false,
            Tenure::Leased(until) => until < lease_until(now, self.terms().lease / 2),
        };
        if !found.record.claim.as_ref().is_some_and(half_over) {
            return Ok(true);
        }
        let renewed =
            self.as_owner(task, id, now, |task| rules::renew(task, self.terms().lease, now, Told::No))?;
        Ok(renewed.is_ok())
    }

    /// Extends a lease. The answer is the claim as it is now.
    pub fn renew(&self, task: &TaskName, id: &ClaimId, now: Timestamp) -> Result<Owned<Claim>> {
        let renewed =
            self.as_owner(task, id, now, |task| rules::renew(task, self.terms().lease, now, Told::Yes))?;
        Ok(match renewed {
            Err(not_owner) => Err(not_owner),
            Ok((step, _)) => {
                let claim = step.record.and_then(|record| record.claim);
                Ok(claim.ok_or_else(|| Fault::invalid("internal error: the renewal has no claim"))?)
            }
        })
    }

    /// Adds the owner's progress note to the task's text.
    pub fn progress(&self, task: &TaskName, id: &ClaimId, text: &str, now: Timestamp) -> Result<Owned<()>> {
        let next = |task: &Task| rules::progress(task, text, self.terms().lease, now);
        Ok(self.as_owner(task, id, now, next)?.map(drop))
    }

    /// Adds the owner's draft to the task's text, for a person to approve. Owners of a task with a file may write it there
    /// themselves.
    pub fn draft(&self, task: &TaskName, id: &ClaimId, text: &str, now: Timestamp) -> Result<Owned<()>> {
        let next = |task: &Task| rules::draft(task, text, self.terms().lease, now);
        Ok(self.as_owner(task, id, now, next)?.map(drop))
    }

    /// Releases the task: its block is closed, then it moves.
    pub fn release(
        &self,
        task: &TaskName,
        id: &ClaimId,
        how: &Release,
        now: Timestamp,
    ) -> Result<Owned<Landed>> {
        let limit = self.terms().max_attempts;
        let released = self.as_owner(task, id, now, |task| rules::release(task, how, limit, now))?;
        Ok(released.map(|(_, landed)| landed))
    }

    /// Returns the task without having worked on it. It does not count as an attempt.
    pub fn give_back(
        &self,
        task: &TaskName,
        id: &ClaimId,
        why: &str,
        now: Timestamp,
    ) -> Result<Owned<Landed>> {
        let returned = self.as_owner(task, id, now, |task| rules::give_back(task, why, now))?;
        Ok(returned.map(|(_, landed)| landed))
    }

    /// The task, if this claim owns it.
    fn owned(&self, task: &TaskName, id: &ClaimId, now: Timestamp) -> Result<Owned<Task>> {
        let found = self.store().get(task, Some(State::InProgress), now)?;
        let claim = found.as_ref().and_then(|task| task.record.claim.as_ref());
        let not_owner = |owner| NotOwner { task: task.clone(), claim: id.clone(), owner };
        Ok(match (found.as_ref(), claim) {
            (Some(found), Some(claim)) if claim.id == *id => Ok(found.clone()),
            (_, claim) => Err(not_owner(claim.map(|claim| claim.agent.clone()))),
        })
    }

    /// One step of the owner. Starts again if the task was changed in the meantime, as long as the claim owns it.
    fn as_owner(
        &self,
        task: &TaskName,
        id: &ClaimId,
        now: Timestamp,
        next: impl Fn(&Task) -> Result<Step>,
    ) -> Result<Owned<(Step, Landed)>> {
        for _ in 0..TRIES {
            let found = match self.owned(task, id, now)? {
                Ok(found) => found,
                Err(not_owner) => return Ok(Err(not_owner)),
            };
            let step = next(&found)?;
            match self.apply(&step)? {
                Outcome::Done(landed) => return Ok(Ok((step, landed))),
                Outcome::Unknown(fault) => return Err(fault),
                Outcome::Conflict | Outcome::Changed => {}
            }
        }
        Err(Fault::invalid(format!("`{task}` changes all the time: stop the program that writes to it")))
    }

    /// If the owner is gone: the proof of it.
    pub(crate) fn owner_gone(&self, claim: &Claim, now: Timestamp) -> Result<Option<ClaimLock>> {
        match claim.tenure {
            Tenure::Leased(_) => Ok(claim.lapsed(now).then(ClaimLock::nothing)),
            Tenure::Held => Ok(match self.store().liveness(claim, now)? {
                Liveness::Alive => None,
                Liveness::Gone(lock) => Some(lock),
                // Nobody can tell any more, so the claim gets as long as a lease.
                Liveness::Unknown => {
                    (lease_until(claim.at, self.terms().lease) < now).then(ClaimLock::nothing)
                }
            }),
        }
    }
}
