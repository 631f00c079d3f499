//! What an agent asks to be committed, and what comes of it.

use std::path::{Path, PathBuf};

use super::plan::Left;
use crate::turn::TurnState;

/// The trailer that names the agent.
pub const TRAILER: &str = "Tollgate-Agent";

/// What an agent wants to commit.
pub struct CommitRequest<'a> {
    /// The agent's turn.
    pub turn: &'a dyn TurnState,
    /// More turns in which texts may be found: of this agent and of others.
    pub turns: &'a [&'a dyn TurnState],
    /// A folder in the working tree.
    pub folder: &'a Path,
    /// Only these files and folders, absolute; all if there are none.
    pub paths: &'a [PathBuf],
    /// The message; `None` for git's editor.
    pub message: Option<&'a str>,
    /// Only say what would be committed.
    pub dry_run: bool,
    /// Where git and the hooks print.
    pub output: HookOutput,
    /// Whether the hooks of the repository run.
    pub hooks: RepositoryHooks,
}

/// Whether the hooks of the repository run. A hook may call what agents have written, so it runs only where the agent's own commands
/// run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepositoryHooks {
    /// They run as for `git commit`.
    Run,
    /// They do not run: the commit is made outside of the run of the agent that asks for it.
    Skip,
}

/// Where git and the repository's hooks print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookOutput {
    /// To standard error of this process.
    Stderr,
    /// Into the answer, if the commit fails.
    Answer,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitAnswer {
    /// The commit was made, or would be made.
    Commit(OwnCommit),
    /// There is nothing of the agent that could be committed. These changes were left.
    Nothing(Vec<Left>),
    /// It was not made.
    Cannot(CannotCommit),
}

/// A commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnCommit {
    /// Its name in git; `None` if it was not to be made.
    pub commit: Option<String>,
    /// The branch; `None` if HEAD names no branch.
    pub branch: Option<String>,
    /// What it changes, as the ledger names files: relative to the workspace.
    pub paths: Vec<String>,
    /// Changes of the agent that it does not have.
    pub left: Vec<Left>,
}

/// Why there is no commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CannotCommit {
    /// git is in the middle of this: `merge`, `rebase`, and so on.
    InProgress(&'static str),
    /// Others committed, switched the branch or saved the files, again and again.
    Moved,
    /// Another git, or one that was killed, holds the lock of the index at this path.
    IndexLocked(PathBuf),
    /// git or a hook of the repository said no. What it printed, if it was kept.
    Git(String),
}

impl CannotCommit {
    /// The word in JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Self::InProgress(_) => "in_progress",
            Self::Moved => "moved",
            Self::IndexLocked(_) => "index_locked",
            Self::Git(_) => "git_refused",
        }
    }
}
