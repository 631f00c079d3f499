//! Reclaiming: tasks of owners that are gone go back to the others, or to a person.
//!
//! Invariant: a task is reclaimed only while the proof that its owner is gone is held.

use jiff::Timestamp;

use crate::claim::{Claim, Tenure};
use crate::claim_lock::{ClaimLock, Liveness};
use crate::rules::{self, lease_until};
use crate::state::State;
use crate::step::Step;
use crate::store::TaskSummary;
use crate::vault::Vault;
use tollgate_base::error::{Fault, Result};
use tollgate_base::name::Agent;
use tollgate_base::task::TaskName;

/// A task that was reclaimed from an owner that is gone, or would be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReclaimedTask {
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
    pub fn reclaim(&self, now: Timestamp) -> Result<(Vec<ReclaimedTask>, Vec<Skipped>)> {
        self.store().heal()?;
        let (mut done, mut skipped) = (Vec::new(), Vec::new());
        for task in self.store().suspects(now)? {
            match self.reclaim_one(&task, now) {
                Ok(reclaimed) => done.extend(reclaimed),
                Err(fault) => skipped.push((task.name, fault)),
            }
        }
        match self.store().sweep(now) {
            // If there is something to tell, this fault waits: it comes again.
            Err(fault) if done.is_empty() && skipped.is_empty() => Err(fault),
            _ => Ok((done, skipped)),
        }
    }

    /// What [`Vault::reclaim`] would do.
    pub fn reclaimable(&self, now: Timestamp) -> Result<Vec<ReclaimedTask>> {
        let suspects = self.store().suspects(now)?;
        let found = suspects.iter().filter_map(|listed| self.abandoned(listed, now).transpose());
        found.map(|found| Ok(found?.2)).collect()
    }

    fn reclaim_one(&self, listed: &TaskSummary, now: Timestamp) -> Result<Option<ReclaimedTask>> {
        // The proof is held until the step is taken, so that nobody else reclaims the task, too.
        let Some((_proof, step, reclaimed)) = self.abandoned(listed, now)? else { return Ok(None) };
        // If it does not land, the owner was not gone after all, or somebody else reclaimed the task.
        Ok(self.apply(&step)?.landed()?.map(|_| reclaimed))
    }

    /// If the owner of a task is gone: the proof of it, the step that reclaims the task, and what comes of that.
    pub(crate) fn abandoned(
        &self,
        listed: &TaskSummary,
        now: Timestamp,
    ) -> Result<Option<(ClaimLock, Step, ReclaimedTask)>> {
        let found = self.store().get(&listed.name, Some(State::InProgress), now)?;
        // Of two tasks of one name only one has the claim. The other comes up when that one is gone.
        let Some(found) = found.filter(|found| found.slot == listed.slot) else { return Ok(None) };
        let proof = match &found.record.claim {
            Some(claim) => self.owner_gone(claim, now)?,
            // A person, or a program that knows only the folders, put it there without a claim. It gets as long as a lease.
            None => self.lease_is_over(found.changed, now),
        };
        let (Some(proof), Some(agent)) = (proof, found.slot.agent().cloned()) else { return Ok(None) };
        let (step, why) = rules::reclaim(&found, self.terms(), now)?;
        let reclaimed =
            ReclaimedTask { task: found.name, agent, to: step.to.state(), reason: why.unwrap_or_default() };
        Ok(Some((proof, step, reclaimed)))
    }

    /// Whether the lease of a claim is over. If it is by our clock, the store is asked: the clock that ends leases may be its own.
    pub fn has_expired(&self, claim: &Claim, now: Timestamp) -> Result<bool> {
        let seems_over = claim.lease_until().is_some_and(|until| until < now);
        Ok(seems_over && self.owner_gone(claim, now)?.is_some())
    }

    /// If the owner is gone: the proof of it.
    fn owner_gone(&self, claim: &Claim, now: Timestamp) -> Result<Option<ClaimLock>> {
        Ok(match (self.store().liveness(claim)?, &claim.tenure) {
            (Liveness::Alive, _) => None,
            (Liveness::Gone(lock), _) => Some(lock),
            (Liveness::Unknown, Tenure::Leased(until)) => (*until < now).then(ClaimLock::nothing),
            // Nobody can tell any more, so the claim gets as long as a lease.
            (Liveness::Unknown, Tenure::Held) => self.lease_is_over(claim.at, now),
        })
    }

    fn lease_is_over(&self, since: Timestamp, now: Timestamp) -> Option<ClaimLock> {
        (lease_until(since, self.terms().lease) < now).then(ClaimLock::nothing)
    }
}
