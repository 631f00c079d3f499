//! Whether what was acknowledged survives a power failure: for files and for tasks.

use serde::{Deserialize, Serialize};

/// Whether an acknowledged write survives a power failure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Data and folders are flushed before the answer.
    #[default]
    Durable,
    /// The write survives the death of the process, but not of the machine.
    Fast,
}
