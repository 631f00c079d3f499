//! Reclaiming: tasks of owners that are gone go back to the others, or to a person.
//!
//! Invariant: a task is reclaimed only while the proof that its owner is gone is held.

use jiff::Timestamp;

use crate::claim::{Claim, Tenure};
use crate::claim_lock::{ClaimLock, Liveness};
use crate::event::Event;
use crate::rules::{self, lease_until};
use crate::state::State;
use crate::step::Step;
use crate::store::{Task, TaskSummary};
use crate::vault::Vault;
use tollgate_base::error::{Fault, Result};
use tollgate_base::name::Agent;
use tollgate_base::task::TaskName;

/// A task that was reclaimed from an owner that is gone, or would be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reclaimed {
    /// The task.
    pub task: TaskName,
    /// The former owner.
    pub agent: Agent,
    /// Where the task goes.
    pub to: State,
    /// Why it goes there.
    pub reason: String,
}

/// A task that was skipped, and the fault because of which.
pub type Skipped = (TaskName, Fault);

impl Vault {
    /// Reclaims the tasks of all owners that are gone. A task that cannot be looked at is skipped.
    pub fn reclaim(&self, now: Timestamp) -> Result<(Vec<Reclaimed>, Vec<Skipped>)> {
        self.store().heal()?;
        let (mut done, mut skipped) = (Vec::new(), Vec::new());
        for task in self.store().scan(State::InProgress, now)?.tasks {
            match self.reclaim_one(&task, now) {
                Ok(reclaimed) => done.extend(reclaimed),
                Err(fault) => skipped.push((task.name, fault)),
            }
        }
        self.store().sweep(now)?;
        Ok((done, skipped))
    }

    /// What [`Vault::reclaim`] would do.
    pub fn reclaimable(&self, now: Timestamp) -> Result<Vec<Reclaimed>> {
        let mut would = Vec::new();
        for task in self.store().scan(State::InProgress, now)?.tasks {
            let Some(task) = self.store().get(&task.name, Some(State::InProgress), now)? else { continue };
            would.extend(self.proof_and_step(&task, now)?.and_then(|(_, step)| told(&task, &step)));
        }
        Ok(would)
    }

    fn reclaim_one(&self, listed: &TaskSummary, now: Timestamp) -> Result<Option<Reclaimed>> {
        let found = self.store().get(&listed.name, Some(State::InProgress), now)?;
        // Elsewhere there are two tasks of one name: the other has the claim. This one comes up when that one is gone.
        let Some(task) = found.filter(|task| task.slot == listed.slot) else { return Ok(None) };
        // The proof is held until the step is taken, so that nobody else reclaims the task, too.
        let Some((_proof, step)) = self.proof_and_step(&task, now)? else { return Ok(None) };
        // If it does not land, the owner was not gone after all, or somebody else reclaimed the task.
        Ok(self.apply(&step)?.landed()?.and_then(|_| told(&task, &step)))
    }

    fn proof_and_step(&self, task: &Task, now: Timestamp) -> Result<Option<(ClaimLock, Step)>> {
        let proof = match &task.record.claim {
            Some(claim) => self.owner_gone(claim, now)?,
            // A person, or a program that knows only the folders, put it there without a claim. It gets as long as a lease.
            None => self.lease_is_over(task.changed, now),
        };
        let Some(proof) = proof else { return Ok(None) };
        Ok(Some((proof, rules::reclaim(task, self.terms().max_attempts, now)?)))
    }

    /// If the owner is gone: the proof of it.
    fn owner_gone(&self, claim: &Claim, now: Timestamp) -> Result<Option<ClaimLock>> {
        Ok(match claim.tenure {
            Tenure::Leased(until) => (until < now).then(ClaimLock::nothing),
            Tenure::Held => match self.store().liveness(claim)? {
                Liveness::Alive => None,
                Liveness::Gone(lock) => Some(lock),
                // Nobody can tell any more, so the claim gets as long as a lease.
                Liveness::Unknown => self.lease_is_over(claim.at, now),
            },
        })
    }

    fn lease_is_over(&self, since: Timestamp, now: Timestamp) -> Option<ClaimLock> {
        (lease_until(since, self.terms().lease) < now).then(ClaimLock::nothing)
    }
}

fn told(task: &Task, step: &Step) -> Option<Reclaimed> {
    let reason = step.events.iter().find_map(|entry| match &entry.event {
        Event::Reclaim(reclaimed, _) => reclaimed.reason.clone(),
        _ => None,
    });
    Some(Reclaimed {
        task: task.name.clone(),
        agent: task.slot.agent()?.clone(),
        to: step.to.state(),
        reason: reason.unwrap_or_default(),
    })
}
