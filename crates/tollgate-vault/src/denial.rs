//! The vault's no: why a task was not claimed, a decision not carried out, a step of the owner not taken. Pure.
//!
//! Invariant: a denial is an answer, not a fault. Nothing was changed.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::brief::UnreadableTask;
use crate::claim::ClaimId;
use crate::roles::NotAllowed;
use crate::state::{Slot, State};
use tollgate_base::name::Agent;
use tollgate_base::task::TaskName;

/// The answer to a claim, or to a person's decision.
pub type Allowed<T> = Result<T, Denial>;

/// The answer to a verb that only the owner may use.
pub type Owned<T> = Result<T, NotOwner>;

/// Why a task cannot be claimed, as one word for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DenialReason {
    /// Another agent was faster, or has it.
    Lost,
    /// Not by this agent, or not in this state.
    NotEligible,
    /// Another task must be done first.
    Blocked,
    /// The task is not complete, or cannot be read.
    Incomplete,
    /// There is no such task.
    None,
}

/// Why a task cannot be claimed, or a person's decision not be carried out. The task comes first.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Denial {
    #[error("there is no task `{0}`")]
    Missing(TaskName),
    #[error("`{1}` has claimed `{0}`")]
    Owned(TaskName, Agent),
    #[error(
        "`{0}` is in `In_Progress/{1}` without a claim: it was moved or renamed by hand, and is reclaimed after a lease"
    )]
    NoClaim(TaskName, Agent),
    #[error("another agent claimed `{0}` first")]
    RaceLost(TaskName),
    #[error("`{1}`, the owner of `{0}`, is gone; the next claim moves the task to `{2}`")]
    OwnerGone(TaskName, Agent, Slot),
    #[error("`{0}` is waiting for a person to approve it")]
    AwaitsApproval(TaskName),
    #[error("`{0}` goes to `Pending_Approval`, because a person must look at it: {1}")]
    InDoubt(TaskName, String),
    #[error("nobody approved `{0}`: it was put into `Approved` by hand, and a person must approve it")]
    NeverApproved(TaskName),
    #[error("`{0}` was changed after it was approved; a person must approve it again")]
    NotAsApproved(TaskName),
    #[error("`{0}` has just been changed; look at it again")]
    Changed(TaskName),
    #[error("`{0}` is in `{1}`")]
    Elsewhere(TaskName, Slot),
    #[error("`{0}` cannot be read: {1}")]
    Broken(TaskName, UnreadableTask),
    #[error("`{0}` was written a moment ago and may not be complete")]
    Young(TaskName, Duration),
    #[error("`{0}` is empty")]
    Empty(TaskName),
    #[error("a program has `{0}` open for writing")]
    OpenForWriting(TaskName),
    #[error("another task named `{0}` is in `{1}`")]
    Twin(TaskName, Slot),
    #[error("{0}")]
    NotAllowed(NotAllowed),
    #[error("`{0}` waits for `{1}`, which does not exist")]
    WaitsForMissing(TaskName, TaskName),
    #[error("`{0}` waits for `{1}`, which {fate}", fate = fate(.2))]
    WaitsFor(TaskName, TaskName, Slot),
    #[error("`{0}` may be claimed again at {1:.0}, because its last attempt failed")]
    Pausing(TaskName, Timestamp),
    #[error("`{0}` was not rejected and is not paused after a failed attempt")]
    NothingToRetry(TaskName),
    #[error("`{0}` waits for {circle}", circle = in_words(.0, .1))]
    Circle(TaskName, Circle),
    #[error("no agent {why}", why = nobody_may(.0, .1.as_deref()))]
    NobodyMay(TaskName, Option<Arc<str>>),
}

/// Tasks that wait for each other: each for the next, and the last is the first again.
pub type Circle = Vec<TaskName>;

fn fate(slot: &Slot) -> String {
    match slot {
        Slot::Free(State::Rejected) => "was rejected".to_owned(),
        slot => format!("is in `{slot}`"),
    }
}

fn nobody_may(task: &TaskName, action: Option<&str>) -> String {
    match action {
        Some(action) => {
            format!("in the configuration may do `{task}`: no `[agent.NAME]` has the action `{action}`")
        }
        None => format!("may do `{task}`: the configuration has no `[agent.NAME]`"),
    }
}

fn in_words(task: &TaskName, circle: &Circle) -> String {
    let who = if circle.contains(task) { "itself" } else { "tasks that wait for each other" };
    let arrows: Vec<_> = circle.iter().map(|task| format!("`{task}`")).collect();
    format!("{who}: {}", arrows.join(" -> "))
}

impl Denial {
    /// When the task may be claimed again, if that is known.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Pausing(_, until) => Some(*until),
            _ => None,
        }
    }

    /// Whether another agent's claim kept this agent from getting the task. Then a `CLAIM_LOST` is recorded.
    pub fn is_lost_by(&self, agent: &Agent) -> bool {
        match self {
            Self::Owned(_, owner) => owner != agent,
            Self::RaceLost(_) => true,
            _ => false,
        }
    }

    /// The word for programs.
    pub fn reason(&self) -> DenialReason {
        match self {
            Self::Missing(_) => DenialReason::None,
            Self::Owned(..) | Self::NoClaim(..) | Self::RaceLost(_) => DenialReason::Lost,
            Self::AwaitsApproval(_)
            | Self::NotAsApproved(_)
            | Self::InDoubt(..)
            | Self::NeverApproved(_)
            | Self::OwnerGone(..)
            | Self::NobodyMay(..)
            | Self::Changed(_)
            | Self::Elsewhere(..)
            | Self::Pausing(..)
            | Self::NothingToRetry(_)
            | Self::NotAllowed(_) => DenialReason::NotEligible,
            Self::Broken(..) | Self::Young(..) | Self::Empty(_) | Self::OpenForWriting(_) => {
                DenialReason::Incomplete
            }
            Self::Twin(..) | Self::WaitsForMissing(..) | Self::WaitsFor(..) | Self::Circle(..) => {
                DenialReason::Blocked
            }
        }
    }
}

/// A verb of the owner was used by somebody who does not own the task, or no longer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("claim `{claim}` does not own `{task}`: {}", .owner.as_ref().map_or_else(
    || "the task is not in progress".to_owned(),
    |owner| format!("`{owner}` owns it, under another claim"),
))]
pub struct NotOwner {
    /// Which task.
    pub task: TaskName,
    /// The claim that was presented.
    pub claim: ClaimId,
    /// Who owns it instead; `None`: nobody works on it.
    pub owner: Option<Agent>,
}
