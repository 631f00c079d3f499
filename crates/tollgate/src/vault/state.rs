//! Where a task can be, and which ways lead from there. Pure.
//!
//! Invariant: [`may_go`] is the whole map. A step that is not on it is never made by tollgate; a person may put a file
//! anywhere, and is then taken at their word.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Fault;
use crate::name::Agent;

/// The states of a task. Each is a folder of the vault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum State {
    /// Waits for somebody to take it.
    #[serde(rename = "Needs_Action")]
    NeedsAction,
    /// Somebody works on it.
    #[serde(rename = "In_Progress")]
    InProgress,
    /// Waits for a person's decision.
    #[serde(rename = "Pending_Approval")]
    PendingApproval,
    /// A person said yes; waits for an agent that may execute it.
    Approved,
    /// Finished.
    Done,
    /// Will not be done, by a person's word or after too many attempts.
    Rejected,
}

impl State {
    /// All of them, in the order in which a task passes through.
    pub const ALL: [Self; 6] = [
        Self::NeedsAction,
        Self::InProgress,
        Self::PendingApproval,
        Self::Approved,
        Self::Done,
        Self::Rejected,
    ];

    /// The name of its folder, and of the state in everything that is printed.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NeedsAction => "Needs_Action",
            Self::InProgress => "In_Progress",
            Self::PendingApproval => "Pending_Approval",
            Self::Approved => "Approved",
            Self::Done => "Done",
            Self::Rejected => "Rejected",
        }
    }

    /// Nothing more happens to a task here unless a person moves it.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Rejected)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for State {
    type Err = Fault;

    /// Spelled like the folder; case and `_`, `-` do not matter.
    fn from_str(text: &str) -> Result<Self, Fault> {
        let plain = |text: &str| text.replace(['_', '-', ' '], "").to_ascii_lowercase();
        let wanted = plain(text);
        Self::ALL.into_iter().find(|state| plain(state.as_str()) == wanted).ok_or_else(|| {
            let all: Vec<_> = Self::ALL.iter().map(|state| format!("`{state}`")).collect();
            Fault::invalid(format!("`{}` is not a state: use {}", text.escape_debug(), all.join(", ")))
        })
    }
}

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
    /// It is taken from an owner who is gone.
    Reclaim,
    /// It was changed after the yes, so the yes is void.
    Reopen,
}

/// Whether this verb leads from here to there.
pub fn may_go(from: State, verb: Verb, to: State) -> bool {
    use State::{Approved, Done, InProgress, NeedsAction, PendingApproval, Rejected};
    match verb {
        Verb::Claim => matches!((from, to), (NeedsAction | Approved, InProgress)),
        Verb::Release => matches!((from, to), (InProgress, NeedsAction | PendingApproval | Done | Rejected)),
        Verb::Approve => matches!((from, to), (PendingApproval, Approved)),
        Verb::Reject => matches!((from, to), (NeedsAction | PendingApproval | Approved, Rejected)),
        // Never to Done: nobody saw it finished. Never to Approved: it may have been executed.
        Verb::Reclaim => matches!((from, to), (InProgress, NeedsAction | PendingApproval | Rejected)),
        Verb::Reopen => matches!((from, to), (Approved, PendingApproval)),
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
        ];
        let verbs = [Verb::Claim, Verb::Release, Verb::Approve, Verb::Reject, Verb::Reclaim, Verb::Reopen];
        for from in State::ALL {
            for verb in verbs {
                for to in State::ALL {
                    let expected = allowed.contains(&(from, verb, to));
                    assert_eq!(may_go(from, verb, to), expected, "{from} {verb:?} {to}");
                    assert!(!(from.is_final() && expected), "nothing leads out of {from}");
                }
            }
        }
    }

    #[test]
    fn states_are_read_as_people_write_them() {
        for (text, state) in [
            ("Needs_Action", State::NeedsAction),
            ("needs-action", State::NeedsAction),
            ("DONE", State::Done),
            ("pending_approval", State::PendingApproval),
        ] {
            assert_eq!(text.parse::<State>().unwrap(), state);
        }
        assert!("gone\n".parse::<State>().unwrap_err().to_string().contains("gone\\n"));
    }
}
