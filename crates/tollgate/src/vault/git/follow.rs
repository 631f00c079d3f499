//! How the person's working tree follows the branch: by a fast-forward that git itself finds harmless, or not at all.
//!
//! Invariants: it only follows while the person is on the branch and has no commit of their own that the remote lacks. Git
//! refuses if a file that would change is edited, staged or in the way; then nothing is changed. Nothing is ever stashed,
//! merged or rebased for a person.

use super::GitStore;
use super::run::Given;
use crate::error::Result;

/// What became of the person's working tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Followed {
    /// It shows the branch as it is on the remote.
    UpToDate,
    /// It was brought forward.
    Forward,
    /// Another branch is checked out, or none.
    OtherBranch,
    /// It has commits that are not on the remote yet; nothing is missing from it.
    Ahead,
    /// It has commits that are not on the remote, and lacks some that are.
    Diverged,
    /// Something that a person has edited, staged or put there is in the way. In git's words.
    InTheWay(String),
}

impl GitStore {
    pub(super) fn follow(&self, tip: &str) -> Result<Followed> {
        let git = &self.remote.git;
        let head = git.local(&["rev-parse", "--verify", "--quiet", "HEAD"], &Given::Nothing)?;
        let name = git.local(&["symbolic-ref", "--quiet", "HEAD"], &Given::Nothing)?;
        if !head.ok || name.text() != self.remote.branch_ref() {
            return Ok(Followed::OtherBranch);
        }
        let head = head.text();
        if head == tip {
            return Ok(Followed::UpToDate);
        }
        let is_behind = |old: &str, new: &str| {
            git.local(&["merge-base", "--is-ancestor", old, new], &Given::Nothing).map(|ran| ran.ok)
        };
        if !is_behind(&head, tip)? {
            return Ok(if is_behind(tip, &head)? { Followed::Ahead } else { Followed::Diverged });
        }
        let merge = ["-c", "merge.autoStash=false", "merge", "--ff-only", "--quiet", "--no-stat", tip];
        let ran = git.local(&merge, &Given::Nothing)?;
        if ran.ok {
            return Ok(Followed::Forward);
        }
        let line = ran.err.lines().find(|line| !line.starts_with("hint:") && !line.starts_with("Updating "));
        Ok(Followed::InTheWay(
            line.unwrap_or("git did not say what").trim_start_matches("error: ").to_owned(),
        ))
    }
}
