//! The fence: an agent that works on a task writes only while its claim is its own.
//!
//! The guard knows no vault. The caller that opens the gate says how to find out whether a claim was lost, and the guard asks while it
//! holds the locks of the files.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tollgate_base::error::Result;
use tollgate_base::name::ClaimId;
use tollgate_base::task::TaskName;

/// A claim that is no longer the agent's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostClaim {
    /// The task.
    pub task: TaskName,
    /// The claim.
    pub claim: ClaimId,
}

/// Looks for a claim under which the agent works and that it has lost. Called for every write while files are locked, so it
/// must be quick, and may use the network only now and then. A fault prevents the write.
pub type WriteFence = Arc<dyn Fn() -> Result<Option<LostClaim>> + Send + Sync>;
