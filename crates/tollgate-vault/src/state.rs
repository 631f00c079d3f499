//! Where a task can be, and which ways lead from there. Pure.
//!
//! Invariant: [`may_go`] is the whole map. A step that is not on it is never made by tollgate; a person may put a file
//! anywhere, and is then taken at their word.

use std::fmt;

use serde::{Deserialize, Serialize};

use tollgate_base::name::Agent;
pub use tollgate_base::task::State;

/// A state, and in whose hands the task is if somebody works on it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Slot {
    /// In the hands of this agent.
    InProgress(Agent),
    /// In nobody's hands. Never [`State::InProgress`].
    Free(State),
}

impl Slot {
    /// Waiting for somebody.
    pub const NEEDS_ACTION: Self = Self::Free(State::NeedsAction);
    /// Waiting for a decision.
    pub const PENDING: Self = Self::Free(State::PendingApproval);
    /// Waiting for execution.
    pub const APPROVED: Self = Self::Free(State::Approved);

    /// The state alone.
    pub fn state(&self) -> State {
        match self {
            Self::InProgress(_) => State::InProgress,
            Self::Free(state) => *state,
        }
    }

    /// Who has it.
    pub fn agent(&self) -> Option<&Agent> {
        match self {
            Self::InProgress(agent) => Some(agent),
            Self::Free(_) => None,
        }
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InProgress(agent) => write!(f, "In_Progress/{agent}"),
            Self::Free(state) => f.write_str(state.as_str()),
        }
    }
}

/// What is done to a task, as a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// An agent takes it.
    Claim,
    /// Its owner lets it go.
    Release,
    /// A person says yes.
    Approve,
    /// A person says no.
    Reject,
    /// The task is taken from an owner who is gone.
    Reclaim,
    /// It was changed after the yes, so the yes is void.
    Reopen,
    /// What its author asked for is in doubt, or a person took a rejection back, so a person must look at it.
    Ask,
    /// A person wants it to be tried again, with its attempts counted from zero.
    Retry,
    /// A person changes its text while nobody has claimed it, or while it waits for a decision.
    Edit,
}

/// Whether this verb leads from here to there.
pub fn may_go(from: State, verb: Verb, to: State) -> bool {
    use State::{Approved, Done, InProgress, NeedsAction, PendingApproval, Rejected};
    match verb {
        Verb::Claim => from.is_claimable() && to == InProgress,
        Verb::Release => matches!((from, to), (InProgress, NeedsAction | PendingApproval | Done | Rejected)),
        Verb::Approve => matches!((from, to), (PendingApproval, Approved)),
        Verb::Reject => matches!((from, to), (NeedsAction | PendingApproval | Approved, Rejected)),
        // Never to Done: nobody saw it finished. Never to Approved: it may have been executed.
        Verb::Reclaim => matches!((from, to), (InProgress, NeedsAction | PendingApproval | Rejected)),
        Verb::Reopen => matches!((from, to), (Approved, PendingApproval)),
        Verb::Ask => matches!((from, to), (NeedsAction | Rejected, PendingApproval)),
        Verb::Retry => matches!((from, to), (NeedsAction | PendingApproval | Rejected, NeedsAction)),
        Verb::Edit => matches!((from, to), (NeedsAction, NeedsAction) | (PendingApproval, PendingApproval)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_map() {
        use State::{Approved, Done, InProgress, NeedsAction, PendingApproval, Rejected};
        let allowed = [
            (NeedsAction, Verb::Claim, InProgress),
            (Approved, Verb::Claim, InProgress),
            (InProgress, Verb::Release, NeedsAction),
            (InProgress, Verb::Release, PendingApproval),
            (InProgress, Verb::Release, Done),
            (InProgress, Verb::Release, Rejected),
            (PendingApproval, Verb::Approve, Approved),
            (NeedsAction, Verb::Reject, Rejected),
            (PendingApproval, Verb::Reject, Rejected),
            (Approved, Verb::Reject, Rejected),
            (InProgress, Verb::Reclaim, NeedsAction),
            (InProgress, Verb::Reclaim, PendingApproval),
            (InProgress, Verb::Reclaim, Rejected),
            (Approved, Verb::Reopen, PendingApproval),
            (NeedsAction, Verb::Ask, PendingApproval),
            (Rejected, Verb::Ask, PendingApproval),
            (NeedsAction, Verb::Retry, NeedsAction),
            (PendingApproval, Verb::Retry, NeedsAction),
            (Rejected, Verb::Retry, NeedsAction),
            (NeedsAction, Verb::Edit, NeedsAction),
            (PendingApproval, Verb::Edit, PendingApproval),
        ];
        let verbs = [
            Verb::Claim,
            Verb::Release,
            Verb::Approve,
            Verb::Reject,
            Verb::Reclaim,
            Verb::Reopen,
            Verb::Ask,
            Verb::Retry,
            Verb::Edit,
        ];
        for from in State::ALL {
            for verb in verbs {
                for to in State::ALL {
                    let expected = allowed.contains(&(from, verb, to));
                    assert_eq!(may_go(from, verb, to), expected, "{from} {verb:?} {to}");
                    let leads_out = from.is_final() && expected;
                    let by_person = matches!(verb, Verb::Retry | Verb::Ask);
                    assert!(!leads_out || by_person, "only a person leads out of {from}");
                }
            }
        }
    }
}
