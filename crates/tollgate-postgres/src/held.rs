//! The held claims of this process. A held claim lasts as long as its lock lives and the database hears a heartbeat.
//!
//! Invariant: this process never takes a claim of its own for dead while its lock lives, and takes it for dead at once when
//! the lock is gone. About claims of other processes, only the database's clock decides.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate_base::boot_clock::millis_since_boot;
use tollgate_base::error::{Fault, Result};
use tollgate_vault::{ClaimId, ClaimLock, StepId};

/// The held claims of this process.
#[derive(Debug)]
pub(crate) struct HeldClaims {
    /// What claims of this process are marked with.
    token: u64,
    alive: LiveClaims,
}

/// The claims whose locks live.
type LiveClaims = Arc<Mutex<BTreeMap<ClaimId, HeldLease>>>;

/// What is known about the lease of a held claim. Times are in milliseconds since the machine was started: the lease goes on while
/// the machine sleeps.
#[derive(Debug, Default)]
struct HeldLease {
    /// Since when it is certain that a whole lease is left.
    proven: Option<u64>,
    /// The last step under the claim, and when it was first sent. If its answer is lost, it is sent again, and the lease may have
    /// begun at the first time.
    step: Option<(StepId, u64)>,
}

/// Ends a held claim when it is dropped.
struct HeldGuard(ClaimId, LiveClaims);

impl Drop for HeldGuard {
    fn drop(&mut self) {
        self.1.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

impl HeldClaims {
    pub(crate) fn new() -> Result<Self> {
        let token =
            getrandom::u64().map_err(|error| Fault::invalid(format!("no random numbers: {error}")))?;
        Ok(Self { token, alive: Arc::default() })
    }

    fn alive(&self) -> MutexGuard<'_, BTreeMap<ClaimId, HeldLease>> {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A step that gives the claim a whole lease is sent now, perhaps again.
    pub(crate) fn sent(&self, claim: &ClaimId, step: &StepId) {
        if let Some(lease) = self.alive().get_mut(claim)
            && lease.step.as_ref().is_none_or(|(known, _)| known != step)
        {
            lease.step = Some((step.clone(), millis_since_boot()));
        }
    }

    /// The step was taken, at one of the times when it was sent.
    pub(crate) fn taken(&self, claim: &ClaimId, step: &StepId) {
        if let Some(lease) = self.alive().get_mut(claim)
            && let Some((_, first)) = lease.step.as_ref().filter(|(known, _)| known == step)
        {
            lease.proven = Some(*first);
        }
    }

    pub(crate) fn proven_at(&self, claim: &ClaimId) -> Option<u64> {
        self.alive().get(claim)?.proven
    }

    pub(crate) fn token(&self) -> u64 {
        self.token
    }

    pub(crate) fn hold(&self, claim: &ClaimId) -> ClaimLock {
        self.alive().insert(claim.clone(), HeldLease::default());
        ClaimLock::of_guard(self.token, HeldGuard(claim.clone(), Arc::clone(&self.alive)))
    }

    /// Whether this claim lives; `None` if it is not one of this process.
    pub(crate) fn lives(&self, claim: &ClaimId, token: Option<u64>) -> Option<bool> {
        (token == Some(self.token)).then(|| self.alive().contains_key(claim))
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.alive().keys().map(|claim| claim.as_str().to_owned()).collect()
    }
}
