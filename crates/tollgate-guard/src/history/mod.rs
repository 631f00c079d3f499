//! History: what every agent did to the files, between the commits of git.
//!
//! The ledger has, for each change of a file, the hash before and after, the agent, the turn and the time ([`step`]). The bytes are
//! found by their hash ([`content`]). A file is followed through moves, and what others saved between two guarded changes is seen by
//! a hash that no change has left ([`trail`]). Everything else is made of these three: who wrote which line ([`blame`]), and what
//! must be written to undo a change ([`undo`]) or to make a refused one ([`refused`]), lists of changes with their diffs ([`listing`]), and
//! the changes of a line, a turn or a task ([`chosen`]).
//! What an agent had read is in the record of its turn ([`turn`]).
//!
//! Nothing here writes: a plan to undo becomes one guarded write of the gate.

pub mod blame;
pub mod chosen;
pub mod content;
pub mod listing;
pub mod refused;
pub mod step;
pub mod trail;
pub mod turn;
pub mod undo;

use crate::path::FilePath;
use crate::workspace::Workspace;

/// What the ledger calls a file: the path relative to the workspace if it is in it.
pub fn ledger_name(workspace: &Workspace, path: &FilePath) -> String {
    workspace.key(path).display().to_string()
}

#[cfg(test)]
mod tests;
