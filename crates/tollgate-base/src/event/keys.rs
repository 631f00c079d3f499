//! The names by which a line of the ledger is found again.

use super::list::Event;
use super::payload::*;

impl Event {
    /// The names by which a line is found again.
    pub fn keys(&self) -> Keys<'_> {
        match self {
            Self::Claim(TaskClaimed { task, step, .. })
            | Self::ClaimLost(ClaimLost { task, step, .. })
            | Self::ClaimFailed(ClaimFailed { task, step, .. })
            | Self::Renew(ClaimRenewed { task, step, .. })
            | Self::Release(TaskReleased { task, step, .. }, _)
            | Self::Approval(TaskDecided { task, step, .. })
            | Self::Reclaim(TaskReclaimed { task, step, .. }, _) => {
                Keys { change: None, task: Some(task.as_str()), step: Some(step.as_str()) }
            }
            Self::Mutation(
                Mutation::File(FileChanged { id, .. }) | Mutation::Folder(FolderMoved { id, .. }),
                _,
            ) => Keys { change: Some(id), task: None, step: None },
            Self::Other { payload, .. } => Keys {
                change: payload["id"].as_str(),
                task: payload["task"].as_str(),
                step: payload["step"].as_str(),
            },
            _ => Keys { change: None, task: None, step: None },
        }
    }
}

/// The names by which a line is found again. A line of a later version has those that are where ours would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keys<'a> {
    /// The id of a change of a file or folder.
    pub change: Option<&'a str>,
    /// The task, by the name of its file.
    pub task: Option<&'a str>,
    /// The step of the task.
    pub step: Option<&'a str>,
}
