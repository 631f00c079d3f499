//! The held claims of this process. A held claim lasts as long as its lock lives and the database hears a heartbeat.
//!
//! Invariant: this process never takes a claim of its own for dead while its lock lives, and takes it for dead at once when
//! the lock is gone. About claims of other processes, only the database's clock decides.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tollgate_base::error::{Fault, Result};
use tollgate_vault::{ClaimId, ClaimLock};

/// The held claims of this process.
#[derive(Debug)]
pub(crate) struct HeldClaims {
    /// What claims of this process are marked with.
    token: u64,
    alive: Arc<Mutex<BTreeSet<ClaimId>>>,
}

/// Ends a held claim when it is dropped.
struct HeldGuard(ClaimId, Arc<Mutex<BTreeSet<ClaimId>>>);

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

    pub(crate) fn token(&self) -> u64 {
        self.token
    }

    pub(crate) fn hold(&self, claim: &ClaimId) -> ClaimLock {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner).insert(claim.clone());
        ClaimLock::of_guard(self.token, HeldGuard(claim.clone(), Arc::clone(&self.alive)))
    }

    /// Whether this claim lives; `None` if it is not one of this process.
    pub(crate) fn lives(&self, claim: &ClaimId, token: Option<u64>) -> Option<bool> {
        (token == Some(self.token))
            .then(|| self.alive.lock().unwrap_or_else(PoisonError::into_inner).contains(claim))
    }

    pub(crate) fn all(&self) -> Vec<String> {
        let alive = self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        alive.iter().map(|claim| claim.as_str().to_owned()).collect()
    }
}
