//! Why something was not done: typed, with one sentence for people each. Pure.
//!
//! Invariant: a denial is an answer, not a fault. Nothing was changed.

use std::fmt;
use std::time::Duration;

use crate::brief::Broken;
use crate::claim::ClaimId;
use crate::roles::NotAllowed;
use crate::state::{Slot, State};
use tollgate_base::name::Agent;
use tollgate_base::task::TaskName;

/// Why a task cannot be claimed, as one word for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
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

/// A task could not be claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimDenied {
    /// Which task.
    pub task: TaskName,
    /// Why.
    pub why: Denial,
}

/// Why a task cannot be claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denial {
    /// There is no task of this name.
    Missing,
    /// This agent owns it.
    Owned(Agent),
    /// Another agent was faster.
    RaceLost,
    /// It waits for a person to approve it.
    AwaitsApproval,
    /// It is not what was approved. It waits for a person again.
    NotAsApproved,
    /// It is in this final state.
    Final(State),
    /// Its metadata cannot be read.
    Broken(Broken),
    /// It was written a moment ago and may not be complete before this time has passed.
    Young(Duration),
    /// It has no text.
    Empty,
    /// A program has it open for writing.
    OpenForWriting,
    /// Another task of the same name is here.
    Twin(Slot),
    /// The agent's role does not allow it.
    NotAllowed(NotAllowed),
    /// It waits for this task, which is here, or does not exist.
    WaitsFor(TaskName, Option<Slot>),
    /// It waits for itself.
    WaitsForItself,
}

impl ClaimDenied {
    /// The word for programs.
    pub fn reason(&self) -> Reason {
        match &self.why {
            Denial::Missing => Reason::None,
            Denial::Owned(_) | Denial::RaceLost => Reason::Lost,
            Denial::AwaitsApproval | Denial::NotAsApproved | Denial::Final(_) | Denial::NotAllowed(_) => {
                Reason::NotEligible
            }
            Denial::Broken(_) | Denial::Young(_) | Denial::Empty | Denial::OpenForWriting => {
                Reason::Incomplete
            }
            Denial::Twin(_) | Denial::WaitsFor(..) | Denial::WaitsForItself => Reason::Blocked,
        }
    }

    /// If nothing else changes, the task can be claimed after this time.
    pub fn wait(&self) -> Option<Duration> {
        match self.why {
            Denial::Young(wait) => Some(wait),
            _ => None,
        }
    }
}

impl fmt::Display for ClaimDenied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let task = &self.task;
        match &self.why {
            Denial::Missing => write!(f, "there is no task `{task}`"),
            Denial::Owned(agent) => write!(f, "`{agent}` has claimed `{task}`"),
            Denial::RaceLost => write!(f, "another agent claimed `{task}` first"),
            Denial::AwaitsApproval => write!(f, "`{task}` is waiting for a person to approve it"),
            Denial::NotAsApproved => {
                write!(f, "`{task}` was changed after it was approved; a person must approve it again")
            }
            Denial::Final(state) => write!(f, "`{task}` is in `{state}`"),
            Denial::Broken(broken) => write!(f, "`{task}` cannot be read: {broken}"),
            Denial::Young(_) => write!(f, "`{task}` was written a moment ago and may not be complete"),
            Denial::Empty => write!(f, "`{task}` is empty"),
            Denial::OpenForWriting => write!(f, "a program has `{task}` open for writing"),
            Denial::Twin(slot) => write!(f, "another task named `{task}` is in `{slot}`"),
            Denial::NotAllowed(why) => why.fmt(f),
            Denial::WaitsFor(before, None) => {
                write!(f, "`{task}` waits for `{before}`, which does not exist")
            }
            Denial::WaitsFor(before, Some(slot)) => {
                write!(f, "`{task}` waits for `{before}`, which is in `{slot}`")
            }
            Denial::WaitsForItself => write!(f, "`{task}` waits for itself"),
        }
    }
}

impl std::error::Error for ClaimDenied {}

/// A verb of the owner was used by somebody who does not own the task, or no longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotOwner {
    /// Which task.
    pub task: TaskName,
    /// The claim that was presented.
    pub claim: ClaimId,
    /// Who owns it instead; `None`: nobody works on it.
    pub owner: Option<Agent>,
}

impl fmt::Display for NotOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task, claim, owner } = self;
        match owner {
            Some(owner) => {
                write!(f, "claim `{claim}` does not own `{task}`: `{owner}` does, by another claim")
            }
            None => write!(f, "claim `{claim}` does not own `{task}`: it is not in progress"),
        }
    }
}

impl std::error::Error for NotOwner {}

/// A person's decision could not be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotDecided {
    /// Which task.
    pub task: TaskName,
    /// Why.
    pub why: WhyNotDecided,
}

/// Why a person's decision could not be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhyNotDecided {
    /// There is no task of this name.
    Missing,
    /// It is here, where this decision cannot be made.
    Elsewhere(Slot),
    /// It is not what the person has seen.
    Changed,
}

impl fmt::Display for NotDecided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let task = &self.task;
        match &self.why {
            WhyNotDecided::Missing => write!(f, "there is no task `{task}`"),
            WhyNotDecided::Elsewhere(slot) => write!(f, "`{task}` is in `{slot}`"),
            WhyNotDecided::Changed => write!(f, "`{task}` has just been changed; look at it again"),
        }
    }
}

impl std::error::Error for NotDecided {}
