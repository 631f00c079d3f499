//! The tasks that a server offers, and whose they are.

use std::time::Duration;

use tollgate::vault::Vault;
use tollgate::vault::claim::{Claim, ClaimId, Tenure};

use super::connection::Connection;

/// The vault behind a server.
pub struct Tasks {
    pub(crate) vault: Vault,
    /// After what time a file that was written in place is complete.
    pub(crate) settle: Duration,
    given: Option<ClaimId>,
}

impl Tasks {
    /// The tasks in this vault. `settle`: after what time a file that was written in place is complete.
    pub fn new(vault: Vault, settle: Duration) -> Self {
        Self { vault, settle, given: None }
    }

    /// With a claim that whoever started the server holds on behalf of its agent.
    #[must_use]
    pub fn given(self, claim: Option<ClaimId>) -> Self {
        Self { given: claim, ..self }
    }

    /// Whether a client of this connection may speak for the claim.
    ///
    /// The id of a claim stands in the task's file, so showing it proves nothing to strangers. A lease belongs to the agent,
    /// who may come back over another connection; what is held belongs to the connection that holds it.
    pub(crate) fn is_own(&self, claim: &Claim, connection: &Connection) -> bool {
        let held = || connection.holds(&claim.id) || self.given.as_ref() == Some(&claim.id);
        claim.agent == connection.server.0.agent
            && match claim.tenure {
                Tenure::Leased(_) => true,
                Tenure::Held => held(),
            }
    }
}
