//! One round with the remote, and the person's working tree, which follows by a fast-forward that git itself allows.
//!
//! Invariants: the working tree follows only while the person is on the branch and has no commit that the remote lacks. Git
//! refuses if a file that would change is edited, staged or in the way; then nothing is changed. Nothing is ever stashed,
//! merged or rebased for a person.

use super::clone::{Conversation, LocalClone};
use super::process::Given;
use crate::checkup::{Followed, Synced};
use tollgate_base::error::Result;

impl LocalClone {
    /// Settles what was interrupted, looks at the remote, and brings the tree and the working tree up to date.
    pub(super) fn sync(&self, talk: &Conversation) -> Result<Synced> {
        let (aside, imported) = (self.tree.kept_aside(), self.seen()?.imported);
        self.settle(talk)?;
        self.look(talk)?;
        let seen = self.seen()?;
        let followed = self.options.follow.then(|| self.follow(&seen.tip)).transpose()?;
        Ok(Synced {
            news: seen.imported != imported,
            aside: self.tree.kept_aside().into_iter().filter(|path| !aside.contains(path)).collect(),
            tip: seen.tip,
            followed,
        })
    }

    fn follow(&self, tip: &str) -> Result<Followed> {
        let (git, branch) = (&self.remote.git, &self.tree.branch);
        let head = git.local(&["rev-parse", "--verify", "--quiet", "HEAD"], &Given::Nothing)?;
        let name = git.local(&["symbolic-ref", "--quiet", "HEAD"], &Given::Nothing)?;
        if !head.ok || name.text() != self.remote.branch_ref() {
            return Ok(Followed::OtherBranch);
        }
        let head = head.text();
        if head == tip {
            return Ok(Followed::UpToDate);
        }
        if !branch.is_ancestor(&head, tip)? {
            let is_ahead = branch.is_ancestor(tip, &head)?;
            return Ok(if is_ahead { Followed::Ahead } else { Followed::Diverged });
        }
        let merge = ["-c", "merge.autoStash=false", "merge", "--ff-only", "--quiet", "--no-stat", tip];
        let ran = git.local(&merge, &Given::Nothing)?;
        if ran.ok {
            return Ok(Followed::Forward);
        }
        let line = ran.err.lines().find(|line| !line.starts_with("hint:") && !line.starts_with("Updating "));
        Ok(Followed::InTheWay(line.unwrap_or("git gave no reason").trim_start_matches("error: ").to_owned()))
    }
}
