//! The payloads of what happens to tasks. Each names the step that it records: a step is recorded once.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::name::{ClaimId, StepId};
use crate::task::{Mode, State, TaskName, Tenure, Verdict};

/// A task was claimed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskClaimed {
    /// The task.
    pub task: TaskName,
    /// The claim.
    pub claim_id: ClaimId,
    /// Its fencing number.
    pub epoch: u64,
    /// What the owner is to do.
    pub mode: Mode,
    /// Where the task was.
    pub from: State,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// How long the task had waited.
    pub waited_ms: i64,
    /// The step.
    pub step: StepId,
}

/// Another agent claimed the task first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimLost {
    /// The task.
    pub task: TaskName,
    /// Where the task was.
    pub from: State,
    /// The step.
    pub step: StepId,
}

/// A claim ended in an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimFailed {
    /// The task.
    pub task: TaskName,
    /// The error.
    pub error: String,
    /// The step.
    pub step: StepId,
}

/// The lease of a claim was extended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRenewed {
    /// The task.
    pub task: TaskName,
    /// The claim.
    pub claim_id: ClaimId,
    /// How long the claim lasts now.
    pub tenure: Tenure,
    /// The step.
    pub step: StepId,
}

/// One attempt, from its claim to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedAttempt {
    /// The claim.
    pub claim_id: ClaimId,
    /// Its fencing number.
    pub epoch: u64,
    /// How it ended.
    pub result: Verdict,
    /// How long it took.
    pub duration_s: u64,
}

/// The owner released a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskReleased {
    /// The task.
    pub task: TaskName,
    /// The attempt that this ends.
    #[serde(flatten)]
    pub attempt: EndedAttempt,
    /// Why, if the owner said so or the attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The step.
    pub step: StepId,
}

/// A task was taken from an owner who is gone, or a claim was rolled back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskReclaimed {
    /// The task.
    pub task: TaskName,
    /// The attempt that this ends. `None` if the task had no claim, or its claim was rolled back.
    #[serde(flatten)]
    pub attempt: Option<EndedAttempt>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The step.
    pub step: StepId,
}

/// A person decided about a task, or an approval became void.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskDecided {
    /// The task.
    pub task: TaskName,
    /// The decision.
    #[serde(flatten)]
    pub decision: Decision,
    /// The step.
    pub step: StepId,
}

impl TaskDecided {
    pub(super) fn status(&self) -> &'static str {
        match self.decision {
            Decision::Approve { .. } => "APPROVED",
            Decision::Reject { .. } => "REJECTED",
            Decision::Void { .. } => State::PendingApproval.as_str(),
        }
    }
}

/// What was decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "lowercase")]
pub enum Decision {
    /// A person approved exactly these bytes.
    Approve {
        /// The person; `hand` if they moved the file instead of using tollgate.
        by: String,
        /// The bytes that were approved.
        sha256: Digest,
        /// The bytes that the person was shown, if they edited them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        edited_from: Option<Digest>,
    },
    /// A person rejected the task.
    Reject {
        /// The person.
        by: String,
        /// Why.
        reason: String,
    },
    /// The approval is void: the task is not what was approved.
    Void {
        /// Why.
        reason: String,
    },
}

impl Decision {
    /// As it stands in the ledger.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Approve { .. } => "approve",
            Self::Reject { .. } => "reject",
            Self::Void { .. } => "void",
        }
    }
}
