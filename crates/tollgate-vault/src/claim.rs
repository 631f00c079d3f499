//! Claims, approvals, and what tollgate remembers about a task beside its text. Pure.
//!
//! A claim is known by its id: random and new each time, so that two agents of one name and two attempts of one agent
//! are told apart. Its epoch is the fencing number for the world outside: larger than every earlier one of the task.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::state::{Slot, State};
use tollgate_base::digest::Digest;
use tollgate_base::name::Agent;
pub use tollgate_base::name::{ClaimId, StepId};
pub use tollgate_base::task::{Mode, Tenure};

/// An agent owns a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Its id: the proof of ownership.
    pub id: ClaimId,
    /// The task's fencing number.
    pub epoch: u64,
    /// Who owns it.
    pub agent: Agent,
    /// Since when.
    pub at: Timestamp,
    /// Until when.
    pub tenure: Tenure,
    /// If it is held: the store's own token, by which it finds the lock again.
    #[serde(rename = "lock", default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<u64>,
    /// What the owner is to do.
    pub mode: Mode,
    /// The action the task names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Arc<str>>,
    /// The digest of the author's text.
    pub author: Digest,
    /// A person must approve this action for some agent. If the owner dies, the action may have happened, so it is never
    /// retried without a person.
    pub sensitive: bool,
    /// Where the task was before.
    pub from: State,
}

impl Claim {
    /// Until when it lasts unless it is renewed; `None` as long as it is held.
    pub fn lease_until(&self) -> Option<Timestamp> {
        match self.tenure {
            Tenure::Leased(until) => Some(until),
            Tenure::Held => None,
        }
    }

    /// What the author asked for at this claim.
    pub fn asked(&self) -> ClaimedBrief {
        ClaimedBrief { action: self.action.clone(), author: self.author, sensitive: self.sensitive }
    }
}

/// What the author of a task asked for at its last claim. Agents must not change it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimedBrief {
    /// The action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Arc<str>>,
    /// The digest of the author's text.
    pub author: Digest,
    /// A person must approve the action for some agent.
    pub sensitive: bool,
}

/// A person approved exactly this text. It is good for one execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// What was approved.
    pub sha256: Digest,
    /// By whom.
    pub by: String,
    /// When.
    pub at: Timestamp,
}

/// Nobody may claim a task whose last attempt failed before this pause is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// When it is over.
    pub until: Timestamp,
    /// The digest of the author's text. Editing that text ends the pause.
    pub author: Digest,
}

/// What tollgate remembers about a task beside its text, from its first claim until it is final.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRecord {
    /// Where tollgate last put the task. If the task is elsewhere, a person moved it.
    pub slot: Slot,
    /// The highest fencing number given so far.
    pub epoch: u64,
    /// How many attempts were begun.
    pub attempts: u32,
    /// Who owns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// Who had it last and released it. The text of a task can claim anything; this is what tollgate itself saw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_by: Option<Agent>,
    /// What the author asked for at the last claim, if that claim has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<ClaimedBrief>,
    /// Who owned the task when somebody moved its file by hand.
    #[serde(skip)]
    pub moved_from: Option<Agent>,
    /// The digest of the text that was first offered for approval, or that a person last approved. It stays until a person
    /// decides or an agent claims the task, so that nobody gets another text approved by moving its file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<Digest>,
    /// The approval, until it is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// Why the task is where it is, if that is not obvious: `interrupted`, `exit status 1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The pause before the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
}

impl ClaimRecord {
    /// Nothing has happened yet.
    pub fn new(slot: Slot) -> Self {
        Self {
            slot,
            epoch: 0,
            attempts: 0,
            claim: None,
            released_by: None,
            asked: None,
            moved_from: None,
            offered: None,
            approval: None,
            reason: None,
            pause: None,
        }
    }

    /// What still holds for a task that was found in `slot`.
    pub fn seen_in(self, slot: &Slot) -> Self {
        if self.slot == *slot {
            return self;
        }
        // A person moved it. Their move stands; the record is void, except for what the move refers to.
        let moved_from = self.claim.as_ref().map(|claim| claim.agent.clone());
        let moved = Self { epoch: self.epoch, moved_from, ..Self::new(slot.clone()) };
        match (slot.state(), self.claim) {
            // The owner itself may have moved it, so what was asked for still holds.
            (State::NeedsAction, Some(claim)) => Self { asked: Some(claim.asked()), ..moved },
            // The person wants a fresh start, so the attempts are counted from zero again.
            (State::NeedsAction, None) => moved,
            (State::Approved, _) if self.slot.state() == State::PendingApproval => {
                Self { offered: self.offered, attempts: self.attempts, ..moved }
            }
            _ => Self { attempts: self.attempts, ..moved },
        }
    }

    /// The next fencing number. It follows the clock, so it grows even if the record was lost or dropped.
    pub fn next_epoch(&self, now: Timestamp) -> u64 {
        u64::try_from(now.as_millisecond()).unwrap_or(0).max(self.epoch + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_epoch_grows_with_and_without_a_record() {
        let slot = Slot::NEEDS_ACTION;
        let now = Timestamp::from_millisecond(1_000).unwrap();
        let first = ClaimRecord::new(slot.clone()).next_epoch(now);
        let noted = ClaimRecord { epoch: first, ..ClaimRecord::new(slot.clone()) };
        assert!(noted.next_epoch(now) > first, "the same millisecond");
        assert!(noted.next_epoch(Timestamp::from_millisecond(1).unwrap()) > first, "the clock was set back");
        let later = Timestamp::from_millisecond(1_001).unwrap();
        assert!(ClaimRecord::new(slot).next_epoch(later) > first, "the record was lost");
    }

    #[test]
    fn a_manual_move_voids_the_rest_of_the_record() {
        let note = ClaimRecord {
            attempts: 2,
            epoch: 7,
            offered: Some(Digest::of(b"x")),
            reason: Some("why".into()),
            ..ClaimRecord::new(Slot::PENDING)
        };
        assert_eq!(note.clone().seen_in(&Slot::PENDING), note);
        let approved = note.clone().seen_in(&Slot::APPROVED);
        assert_eq!((approved.offered, approved.attempts, approved.epoch), (note.offered, 2, 7));
        let again = note.seen_in(&Slot::NEEDS_ACTION);
        assert_eq!((again.offered, again.attempts, again.epoch), (None, 0, 7));
    }
}
