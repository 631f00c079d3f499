//! Which levels this machine allows.

use tollgate_base::error::Result;
use tollgate_guard::gate::Gate;

use crate::level::RunLevel;
use crate::{gate, transaction};

/// Whether a level is possible here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Availability {
    /// The level.
    pub level: RunLevel,
    /// Why it is not possible, and what to do. `None` if it is.
    pub why_not: Option<String>,
}

/// Which levels this machine allows for this workspace, the strongest first. Tries each of them.
pub fn available(gate: &Gate) -> Result<Vec<Availability>> {
    let why_not = |level| match level {
        RunLevel::Transaction => transaction::why_not(gate),
        RunLevel::Gate => Ok(gate::why_not()),
        // To execute a command needs nothing.
        RunLevel::Observe => Ok(None),
    };
    RunLevel::ALL.into_iter().map(|level| Ok(Availability { level, why_not: why_not(level)? })).collect()
}
