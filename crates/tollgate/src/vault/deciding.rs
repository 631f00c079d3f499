//! A person's verbs, approve and reject, and what nobody decides: taking tasks from owners who are gone.
//!
//! Invariants: an approval is bound to the bytes that were approved; a decision is made once; a task is reclaimed only
//! while the proof that its owner is gone is held.

use jiff::Timestamp;

use super::rules::{self, lease_until};
use super::state::{Slot, State};
use super::store::{Landed, Outcome, Step, Stored};
use super::{TaskName, Vault};
use crate::digest::Digest;
use crate::error::{Fault, Result};
use crate::name::Agent;

/// What came of a person's decision.
#[derive(Debug)]
pub enum Decided {
    /// It is made.
    Yes(Landed),
    /// It cannot be made. In a sentence, why.
    No(String),
}

/// A task that was taken from an owner who is gone, or would be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reclaimed {
    /// The task.
    pub task: TaskName,
    /// The owner.
    pub agent: Agent,
    /// Where it goes.
    pub to: State,
    /// Why there.
    pub reason: String,
}

/// A task that could not be looked at, and why.
pub type Passed = (TaskName, Fault);

impl Vault {
    /// A person's yes. `seen` is the digest of what the person has looked at, where that is known.
    pub fn approve(
        &self,
        task: &TaskName,
        by: &str,
        seen: Option<Digest>,
        now: Timestamp,
    ) -> Result<Decided> {
        self.heal()?;
        let Some(stored) = self.store.get(task, Some(State::PendingApproval), now)? else {
            return Ok(Decided::No(self.not_there(task, State::PendingApproval, now)?));
        };
        let changed = || Ok(Decided::No(format!("`{task}` has just been changed; look at it again")));
        let Some(sha256) = self.store.digest(&stored)? else { return changed() };
        if seen.is_some_and(|seen| seen != sha256) {
            return changed();
        }
        match self.store.apply(&rules::approve(&stored, by, sha256, now)?)? {
            Outcome::Done(landed) => Ok(Decided::Yes(landed)),
            Outcome::Unknown(fault) => Err(fault),
            Outcome::Conflict | Outcome::Changed | Outcome::Busy => changed(),
        }
    }

    /// A person's yes to what they made of the task: its text becomes `text`, and that is what is approved. `seen` is the
    /// digest of what they began with; if it is no longer that, nothing is done.
    pub fn amend(
        &self,
        task: &TaskName,
        by: &str,
        seen: Digest,
        text: &str,
        now: Timestamp,
    ) -> Result<Decided> {
        self.heal()?;
        let Some(stored) = self.store.get(task, Some(State::PendingApproval), now)? else {
            return Ok(Decided::No(self.not_there(task, State::PendingApproval, now)?));
        };
        let changed = || Ok(Decided::No(format!("`{task}` has just been changed; look at it again")));
        let bytes = self.store.read(&stored, u64::MAX)?;
        if Digest::of(&bytes) != seen {
            return changed();
        }
        match self.store.apply(&rules::amend(&stored, by, &bytes, text, now)?)? {
            Outcome::Done(landed) => Ok(Decided::Yes(landed)),
            Outcome::Unknown(fault) => Err(fault),
            Outcome::Conflict | Outcome::Changed | Outcome::Busy => changed(),
        }
    }

    /// A person's no, which needs a reason. Not for a task that somebody works on.
    pub fn reject(&self, task: &TaskName, by: &str, reason: &str, now: Timestamp) -> Result<Decided> {
        self.heal()?;
        let Some(stored) = self.store.get(task, None, now)? else {
            return Ok(Decided::No(format!("there is no task `{task}`")));
        };
        if matches!(stored.slot, Slot::InProgress(_)) || stored.slot.state().is_final() {
            return Ok(Decided::No(format!("`{task}` is in `{}`", stored.slot)));
        }
        match self.store.apply(&rules::reject(&stored, by, reason, now)?)? {
            Outcome::Done(landed) => Ok(Decided::Yes(landed)),
            Outcome::Unknown(fault) => Err(fault),
            Outcome::Conflict | Outcome::Changed | Outcome::Busy => {
                Ok(Decided::No(format!("`{task}` has just been changed or moved; look at it again")))
            }
        }
    }

    fn not_there(&self, task: &TaskName, state: State, now: Timestamp) -> Result<String> {
        Ok(match self.store.get(task, None, now)? {
            Some(found) => format!("`{task}` is in `{}`, not in `{state}`", found.slot),
            None => format!("there is no task `{task}`"),
        })
    }

    /// Takes back the tasks of all owners who are gone. What cannot be looked at is passed over and told.
    pub fn reclaim(&self, now: Timestamp) -> Result<(Vec<Reclaimed>, Vec<Passed>)> {
        self.heal()?;
        let (mut done, mut faults) = (Vec::new(), Vec::new());
        for listed in self.store.scan(State::InProgress, now)?.tasks {
            match self.reclaim_one(&listed.task, &listed.slot, now) {
                Ok(reclaimed) => done.extend(reclaimed),
                Err(fault) => faults.push((listed.task, fault)),
            }
        }
        self.store.sweep(now)?;
        Ok((done, faults))
    }

    /// What [`Vault::reclaim`] would do.
    pub fn reclaimable(&self, now: Timestamp) -> Result<Vec<Reclaimed>> {
        let mut would = Vec::new();
        for listed in self.store.scan(State::InProgress, now)?.tasks {
            let Some(stored) = self.store.get(&listed.task, Some(State::InProgress), now)? else { continue };
            would.extend(self.proof_and_step(&stored, now)?.map(|(_, step)| told(&stored, &step)));
        }
        Ok(would)
    }

    fn reclaim_one(&self, task: &TaskName, slot: &Slot, now: Timestamp) -> Result<Option<Reclaimed>> {
        let Some(stored) = self.store.get(task, Some(State::InProgress), now)? else { return Ok(None) };
        if stored.slot != *slot {
            // Two of one name: the other has the claim. This one is looked at when that one is gone.
            return Ok(None);
        }
        // Held until the step is taken, so that nobody else reclaims it too.
        let Some((_proof, step)) = self.proof_and_step(&stored, now)? else { return Ok(None) };
        let outcome = self.store.apply(&step)?;
        match outcome {
            Outcome::Done(_) => Ok(Some(told(&stored, &step))),
            Outcome::Unknown(fault) => Err(fault),
            // Its owner was not gone after all, or another reclaimed it.
            Outcome::Conflict | Outcome::Changed | Outcome::Busy => Ok(None),
        }
    }

    fn proof_and_step(&self, stored: &Stored, now: Timestamp) -> Result<Option<(super::hold::Hold, Step)>> {
        let proof = match &stored.note.claim {
            Some(claim) => self.owner_gone(claim, now)?,
            // No claim: put there by hand, or by a program that only knows the folders. It gets as long as a lease.
            None => (lease_until(stored.changed, self.terms.lease) < now).then(super::hold::Hold::nothing),
        };
        let Some(proof) = proof else { return Ok(None) };
        Ok(Some((proof, rules::reclaim(stored, self.terms.max_attempts, now)?)))
    }
}

fn told(stored: &Stored, step: &Step) -> Reclaimed {
    let agent = stored.slot.agent().cloned();
    let reason = step.events.iter().find_map(|event| event.payload.reason.clone());
    Reclaimed {
        task: stored.task.clone(),
        agent: agent.unwrap_or_else(|| unreachable!("only tasks in progress are reclaimed")),
        to: step.to.state(),
        reason: reason.unwrap_or_default(),
    }
}
