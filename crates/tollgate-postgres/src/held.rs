//! The held claims of this process. A held claim lasts as long as its lock lives and the database hears a heartbeat.
//!
//! Invariant: this process never takes a claim of its own for dead while its lock lives, and takes it for dead at once when
//! the lock is gone. About claims of other processes, only the database's clock decides.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tollgate_base::error::{Fault, Result};
use tollgate_vault::{ClaimId, ClaimLock};

/// The held claims of this process.
#[derive(Debug)]
pub(crate) struct HeldClaims {
    /// What claims of this process are marked with.
    token: u64,
    alive: Alive,
}

/// The claims whose locks live, and since when it is certain that each has a whole lease left.
type Alive = Arc<Mutex<BTreeMap<ClaimId, Option<Instant>>>>;

/// Ends a held claim when it is dropped.
struct HeldGuard(ClaimId, Alive);

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

    fn alive(&self) -> MutexGuard<'_, BTreeMap<ClaimId, Option<Instant>>> {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A step that was sent after this moment gave the claim a whole lease.
    pub(crate) fn proven(&self, claim: &ClaimId, at: Instant) {
        if let Some(proven) = self.alive().get_mut(claim) {
            *proven = Some(at);
        }
    }

    pub(crate) fn proven_at(&self, claim: &ClaimId) -> Option<Instant> {
        self.alive().get(claim).copied().flatten()
    }

    pub(crate) fn token(&self) -> u64 {
        self.token
    }

    pub(crate) fn hold(&self, claim: &ClaimId) -> ClaimLock {
        self.alive().insert(claim.clone(), None);
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
