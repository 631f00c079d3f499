//! What a store reports about a round with its remote, and about its own health, in words that its callers only print.

use std::path::PathBuf;

use serde::Serialize;

/// What one round with a remote brought.
#[derive(Debug, Default)]
pub struct SyncRound {
    /// The position of the remote: for git, the commit of the branch.
    pub tip: String,
    /// Whether anything was new.
    pub news: bool,
    /// Files that were set aside for a person to look at.
    pub aside: Vec<PathBuf>,
    /// Whether the person's own copy of the tasks, if there is one, shows what the remote has.
    pub followed: Option<LocalCopy>,
}

/// What became of the person's own copy of the tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalCopy {
    /// One word for programs, such as `up_to_date`.
    pub word: &'static str,
    /// If the copy could not be brought up to date: why, and what to do.
    pub why_not: Option<String>,
}

/// What a checkup found, and fixed if that is possible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What was found. May contain names from the outside; whoever prints it makes them safe.
    pub what: String,
    /// What a person can do about it.
    pub fix: Option<String>,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// All is well.
    Ok,
    /// Something was fixed, or a person should look at it.
    Warning,
    /// The store cannot be used as it is.
    Problem,
}

impl Finding {
    /// Something that is as it should be.
    pub fn ok(what: impl Into<String>) -> Self {
        Self { level: Level::Ok, what: what.into(), fix: None }
    }

    /// Something that was fixed, or that a person should look at.
    pub fn warning(what: impl Into<String>) -> Self {
        Self { level: Level::Warning, what: what.into(), fix: None }
    }

    /// Something because of which the store cannot be used.
    pub fn problem(what: impl Into<String>) -> Self {
        Self { level: Level::Problem, what: what.into(), fix: None }
    }

    /// This finding, with what a person can do about it.
    #[must_use]
    pub fn fix(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }
}
