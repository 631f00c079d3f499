//! HEAD, as the turn of the agent knows it.

use super::answer::{CommitAnswer, OwnCommit};
use crate::path::FilePath;
use crate::refusal::Reason;
use crate::turn::{Extent, FileState, TurnState};
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_base::working_tree::WorkingTree;

/// HEAD as turns know it: the file that names the branch or the commit. In a linked working tree, git keeps it elsewhere.
pub(super) fn head_path(tree: &WorkingTree) -> FilePath {
    FilePath::trusted(tree.top.join(".git").join("HEAD"))
}

pub(super) fn head_state(tree: &WorkingTree) -> FileState {
    std::fs::read(tree.git_dir.join("HEAD")).ok().map(|bytes| Digest::of(&bytes)).into()
}

/// The reason against it, if HEAD is not what the turn knows: somebody else has switched the branch.
pub(super) fn foreign_switch(tree: &WorkingTree, turn: &dyn TurnState) -> Result<Option<Reason>> {
    let Some(sighting) = turn.get(&head_path(tree))? else { return Ok(None) };
    let (known, actual) = (sighting.baseline(Extent::Whole), head_state(tree));
    Ok((known != actual).then(|| Reason::stale(known, actual)))
}

/// The agent's own commit moves HEAD if HEAD names no branch. On a branch, HEAD stays, and what it is now may be somebody else's switch.
pub(super) fn remember_head(tree: &WorkingTree, turn: &dyn TurnState, answer: &CommitAnswer) -> Result<()> {
    let CommitAnswer::Commit(OwnCommit { branch: None, commit: Some(commit), .. }) = answer else {
        return Ok(());
    };
    match turn.get(&head_path(tree))? {
        Some(_) => {
            turn.wrote(&head_path(tree), FileState::Present(Digest::of(format!("{commit}\n").as_bytes())))
        }
        None => Ok(()),
    }
}
