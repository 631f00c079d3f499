//! Which levels this machine allows.

use std::path::Path;

use crate::{RunLevel, gate, transaction};

/// Whether a level is possible here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Availability {
    /// The level.
    pub level: RunLevel,
    /// Why it is not possible. `None` if it is.
    pub why_not: Option<String>,
}

/// Which levels this machine allows for this workspace, the strongest first. Tries each of them.
pub fn available(workspace: &Path) -> Vec<Availability> {
    levels(workspace).collect()
}

/// The same, but tries a level only when it is asked for.
pub(crate) fn levels(workspace: &Path) -> impl Iterator<Item = Availability> {
    RunLevel::ALL.into_iter().map(|level| Availability { level, why_not: why_not(level, workspace) })
}

/// Why a level is not possible, and what to do.
pub(crate) fn why_not(level: RunLevel, workspace: &Path) -> Option<String> {
    match level {
        RunLevel::Transaction => transaction::why_not(workspace),
        RunLevel::Gate => gate::why_not(),
        // To look at files before and after needs nothing.
        RunLevel::Observe => None,
    }
}
