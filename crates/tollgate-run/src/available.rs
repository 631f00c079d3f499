//! Which levels this machine allows.

use tollgate_base::error::Result;
use tollgate_guard::gate::Gate;

use crate::level::RunLevel;
use crate::transaction;

/// Whether a level is possible here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Availability {
    /// The level.
    pub level: RunLevel,
    /// Why it is not possible. `None` if it is.
    pub why_not: Option<String>,
}

/// Which levels this machine allows for this workspace, the strongest first.
pub fn available(gate: &Gate) -> Result<Vec<Availability>> {
    let why_not = |level| match level {
        RunLevel::Transaction => transaction::why_not(gate),
        RunLevel::Gate | RunLevel::Observe => Ok(Some("not supported yet".to_owned())),
    };
    RunLevel::ALL.into_iter().map(|level| Ok(Availability { level, why_not: why_not(level)? })).collect()
}
