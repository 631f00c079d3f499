//! The tasks that a server offers.

use std::time::Duration;

use tollgate::vault::Vault;
use tollgate::vault::claim::ClaimId;

/// The vault behind a server.
pub struct ServedVault {
    pub(super) vault: Vault,
    /// A file that was written in place counts as complete after this time without a change.
    pub(super) settle: Duration,
    /// The claim that the process which started the server holds for the server's agent.
    pub(super) given: Option<ClaimId>,
}

impl ServedVault {
    /// The tasks in this vault. A file that was written in place counts as complete after `settle` without a change.
    pub fn new(vault: Vault, settle: Duration) -> Self {
        Self { vault, settle, given: None }
    }

    /// Lets the server's clients act on a claim that the process which started the server holds for its agent.
    #[must_use]
    pub fn given(self, claim: Option<ClaimId>) -> Self {
        Self { given: claim, ..self }
    }
}
