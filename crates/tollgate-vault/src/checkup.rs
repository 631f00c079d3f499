//! What a store reports about a round with its remote, and about its own health.

use std::path::PathBuf;

use crate::state::Slot;
use tollgate_base::task::TaskName;

/// What one round with a remote brought.
#[derive(Debug, Default)]
pub struct Synced {
    /// The position of the remote: for git, the commit of the branch.
    pub tip: String,
    /// Whether anything was new.
    pub news: bool,
    /// Files that were set aside for a person to look at.
    pub aside: Vec<PathBuf>,
    /// Whether the person's working tree could be brought up to date, if there is one.
    pub followed: Option<TreeStatus>,
}

/// What became of the person's working tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeStatus {
    /// It shows the remote's branch.
    UpToDate,
    /// It was fast-forwarded.
    Forward,
    /// Another branch is checked out, or none.
    OtherBranch,
    /// It has commits that are not on the remote yet; it lacks none.
    Ahead,
    /// It has commits that are not on the remote, and lacks some that are.
    Diverged,
    /// Something that a person has edited, staged or put there is in the way. In git's words.
    InTheWay(String),
}

/// A problem that a checkup found, and fixed if that is possible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// All is well: what was checked, for people.
    Fine(String),
    /// The remote does not allow what a claim needs. In its own words, and where.
    RefusesClaims {
        /// What the remote refuses.
        what: String,
        /// Its own words.
        said: String,
    },
    /// One task was in several folders. It stays in the first; the other copies are set aside.
    Twice {
        /// The task.
        task: TaskName,
        /// Where it stays.
        kept: Slot,
        /// Where the copies were.
        removed: Vec<Slot>,
    },
    /// The remote had a claim of a task that is no longer where the claim says, and the owner is gone. Deleted.
    OrphanedClaim(TaskName),
    /// The remote has a claim that this version cannot read. Left alone.
    UnreadableClaim(String),
    /// The person's working tree cannot follow the remote.
    NotFollowing(TreeStatus),
    /// Files that were set aside and that a person should look at.
    Aside(Vec<PathBuf>),
}
