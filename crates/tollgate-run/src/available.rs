//! Which levels this machine allows.

use std::path::Path;

use crate::RunLevel;

/// Whether a level is possible here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Availability {
    /// The level.
    pub level: RunLevel,
    /// Why it is not possible. `None` if it is.
    pub why_not: Option<String>,
}

/// Which levels this machine allows for this workspace, the strongest first.
pub fn available(workspace: &Path) -> Vec<Availability> {
    let why_not = |level| match level {
        RunLevel::Transaction => crate::transaction::why_not(workspace),
        RunLevel::Gate | RunLevel::Observe => Some("not supported yet".to_owned()),
    };
    RunLevel::ALL.into_iter().map(|level| Availability { level, why_not: why_not(level) }).collect()
}
