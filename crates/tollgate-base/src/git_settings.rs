//! `[git]`: what agents may do with git.

use serde::{Deserialize, Serialize};

/// `[git]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GitSettings {
    /// What an agent may commit.
    pub commit: CommitRule,
    /// Whether the commits of `tollgate commit` name the agent in a trailer.
    pub commit_trailers: bool,
    /// Whether an agent changes files only in the working tree in which it began.
    pub stay: bool,
}

/// What an agent may commit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CommitRule {
    /// Everything.
    #[default]
    Any,
    /// Only what it has seen, on the branch that it knows.
    Seen,
}
