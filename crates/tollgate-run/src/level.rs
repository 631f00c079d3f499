//! How well a run is guarded: what the caller asks for, and what is reached.

use serde::{Deserialize, Serialize};

/// The variable that tells a command in which level it runs. For people and scripts: tollgate itself asks the kernel, because anybody
/// can set a variable.
pub const LEVEL_VARIABLE: &str = "TOLLGATE_RUN";

/// The level that the caller asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RunMode {
    /// The strongest level that the machine allows.
    #[default]
    Auto,
    /// A transaction, or a fault.
    Transaction,
    /// The gate, or a fault.
    Gate,
    /// Only execute the command.
    Observe,
}

impl RunMode {
    pub(crate) fn allows(self, level: RunLevel) -> bool {
        match self {
            Self::Auto => true,
            Self::Transaction => level == RunLevel::Transaction,
            Self::Gate => level == RunLevel::Gate,
            Self::Observe => level == RunLevel::Observe,
        }
    }
}

/// The level that a run has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunLevel {
    /// The command is only executed. Nothing is prevented or recorded.
    Observe,
    /// A system call that would destroy a foreign change fails.
    Gate,
    /// All changes are committed when the command ends, or none.
    Transaction,
}

impl RunLevel {
    /// All levels, the strongest first.
    pub const ALL: [Self; 3] = [Self::Transaction, Self::Gate, Self::Observe];

    /// The word for it, in the ledger, in records and in [`LEVEL_VARIABLE`].
    pub fn word(self) -> &'static str {
        match self {
            Self::Transaction => "transaction",
            Self::Gate => "gate",
            Self::Observe => "observe",
        }
    }
}
