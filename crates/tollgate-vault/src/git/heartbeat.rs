//! Heartbeats and leases: an owner that is alive replaces its card.
//!
//! Invariants: a heartbeat never touches the branch, so it does not make the history longer. Only the claim whose id is on
//! the card can replace it.

use super::answers::Fate;
use super::card::ref_of;
use super::clone::{Conversation, LocalClone};
use super::remote::{Pushed, Update};
use crate::claim::{ClaimId, ClaimRecord, Tenure};
use crate::claim_lock::Liveness;
use crate::step::{Edit, Step, StepOutcome};
use crate::store::{Store, Version};
use tollgate_base::error::{Fault, Result};
use tollgate_base::task::TaskName;

/// How often a push without a clear answer is tried again, if a look shows that nothing happened.
pub(super) const UNCLEAR: u32 = 3;

impl LocalClone {
    /// Tells the remote that the owner of a claim is alive; false if it is no longer the owner.
    pub(super) fn heartbeat(&self, task: &TaskName, claim: &ClaimId) -> Result<bool> {
        let talk = self.converse()?;
        self.settle(&talk)?;
        self.replace_card(&talk, task, claim, None)
    }

    /// The same for every claim of this clone whose lock is held, by any process of this machine.
    pub(super) fn heartbeat_all(&self) -> Result<()> {
        for (_, found) in self.seen()?.cards() {
            if let Some(card) = found.card.as_ref().filter(|card| card.clone == self.id)
                && let Some(claim) = &card.record.claim
                && claim.tenure == Tenure::Held
                && matches!(self.folder().liveness(claim)?, Liveness::Alive)
            {
                self.heartbeat(&card.task, &claim.id)?;
            }
        }
        Ok(())
    }

    /// Takes a step of the owner that moves nothing: a renewal, a progress note, a draft. It replaces the card if that is
    /// due, so that the remote is not asked all the time. The text reaches the branch with the release.
    pub(super) fn renew(&self, talk: &Conversation, step: &Step, version: Version) -> Result<StepOutcome> {
        let seen = self.seen()?;
        let is_due = seen
            .card(&step.task)
            .is_some_and(|found| found.card.is_some() && found.unchanged_for() >= self.options.lease / 6);
        if let Some(record) = step.record.as_ref().filter(|_| is_due)
            && let Some(claim) = &record.claim
            && self.answers.get(&step.id) != Some(Fate::Renewed)
        {
            match self.replace_card(talk, &step.task, &claim.id, Some(record)) {
                Ok(true) => self.answers.set(&step.id, Fate::Renewed),
                Ok(false) => return Ok(StepOutcome::Conflict),
                // The owner's text is kept all the same. It does not extend the claim on the remote.
                Err(Fault::Unreachable { .. })
                    if matches!(step.edit, Edit::Progress(..) | Edit::Draft(..)) => {}
                Err(fault) => return Err(fault),
            }
        }
        let outcome = self.folder().apply(&Step { version, ..step.clone() })?;
        if let StepOutcome::Done(landed) = &outcome {
            self.answers.set(&step.id, Fate::Taken(landed.clone()));
        }
        Ok(outcome)
    }

    /// Replaces the card of this claim by a new one, with this record or with the old one.
    fn replace_card(
        &self,
        talk: &Conversation,
        task: &TaskName,
        claim: &ClaimId,
        record: Option<&ClaimRecord>,
    ) -> Result<bool> {
        for _ in 0..=UNCLEAR {
            let mut seen = self.seen()?;
            // An earlier heartbeat whose answer was lost may have changed the card. It is still the card of this claim.
            let Some((old, card)) = self.own_card(&seen, task, claim) else { return Ok(false) };
            let card = card.renewed(record.unwrap_or(&card.record).clone())?;
            let new = self.maker.make_card(&card)?;
            let name = self.remote.card_ref(&ref_of(task));
            let update = Update { name, old: Some(old.clone()), new: Some(new.clone()) };
            match self.remote.push(&[update], &talk.0)? {
                Pushed::Taken => {
                    seen.put(card, new);
                    self.keep(&seen)?;
                    return Ok(true);
                }
                Pushed::Refused(what) => return Err(self.refused(&what)),
                Pushed::Moved(_) => drop(self.look(talk)?),
                Pushed::Unclear(what) => drop(self.look(talk).map_err(|_| self.remote.unreachable(&what))?),
            }
            if self.seen()?.card(task).is_some_and(|found| found.oid == new) {
                return Ok(true);
            }
        }
        Err(self.remote.unreachable("it does not take a push and gives no reason"))
    }
}
