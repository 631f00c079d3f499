//! The lease of this process, and the held claims that live by it.
//!
//! Each held claim has a key `owner/CLAIM_ID`, written by the same transaction as the claim and bound to this lease. While the
//! key exists, the owner is alive. The key goes with the claim's lock, or with the lease: if this process dies, hangs or is
//! cut off, the lease is not renewed and ends.
//!
//! Invariant: death is final. The key of a held claim is written once and never again, so a process that has seen it gone
//! knows that the owner will not come back.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tollgate_base::error::Result;
use tollgate_base::name::{ClaimId, random_id};

use crate::client::{Called, Client};
use crate::layout::Layout;
use crate::message::{Act, Txn};

/// The longest term of a lease, however long leased claims last. A machine that dies gives its tasks back after this time.
const LONGEST: Duration = Duration::from_secs(60);

/// A claim is made only with a lease that was renewed in this part of its term, so that the work has time.
const FRESH: u32 = 8;

/// The lease of this process, and the claims that live by it.
pub(crate) struct ProcessLease {
    /// How long the lease lasts without being renewed.
    pub(crate) term: Duration,
    inside: Mutex<LeaseState>,
}

#[derive(Default)]
struct LeaseState {
    /// The lease, and when it was certainly alive.
    lease: Option<(i64, Instant)>,
    /// The claims whose locks live. If the key of a claim may exist: the lease that it is bound to.
    held: HashMap<ClaimId, Option<i64>>,
    /// Claims whose locks are gone, and whose keys could not be deleted yet.
    left: Vec<ClaimId>,
}

impl ProcessLease {
    pub(crate) fn new(lease: Duration) -> Self {
        Self { term: lease.min(LONGEST).max(Duration::from_secs(1)), inside: Mutex::default() }
    }

    fn inside(&self) -> MutexGuard<'_, LeaseState> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call about the lease must not take so long that the lease is over before the work is stopped.
    fn patience(&self, client: &Client) -> Duration {
        (self.term / 6).clamp(Duration::from_millis(300), client.deadline)
    }

    /// The lease of this process, which is alive and has most of its term left.
    pub(crate) fn lease(&self, client: &Client) -> Called<i64> {
        let mut inside = self.inside();
        let asked = Instant::now();
        if let Some((lease, heard)) = inside.lease {
            if heard.elapsed() < self.term / FRESH {
                return Ok(lease);
            }
            if client.keep_alive(lease, self.patience(client))? {
                inside.lease = Some((lease, asked));
                return Ok(lease);
            }
        }
        let lease = new_lease_id().map_err(crate::client::CallError::Unsent)?;
        client.grant(lease, self.term)?;
        inside.lease = Some((lease, asked));
        Ok(lease)
    }

    /// Renews the lease. Whether it is alive; if there is none, there is nothing to renew.
    pub(crate) fn renew(&self, client: &Client) -> Called<bool> {
        let Some((lease, _)) = self.inside().lease else { return Ok(false) };
        let asked = Instant::now();
        let is_alive = client.keep_alive(lease, self.patience(client))?;
        let mut inside = self.inside();
        // Another thread may have made a new one in the meantime.
        if inside.lease.is_some_and(|(known, _)| known == lease) {
            inside.lease = is_alive.then_some((lease, asked));
        }
        Ok(is_alive)
    }

    /// When the lease of this process certainly had its whole term left; long ago if it is gone. `None` for a claim that does
    /// not live by it.
    pub(crate) fn proven_at(&self, claim: &ClaimId) -> Option<Instant> {
        let inside = self.inside();
        let bound = inside.held.get(claim)?;
        let lease = inside.lease.filter(|(lease, _)| bound.is_none_or(|bound| bound == *lease));
        lease.map_or_else(|| Instant::now().checked_sub(self.term), |(_, heard)| Some(heard))
    }

    /// The claims that live by the lease of this process. One that was made with an earlier lease is lost.
    pub(crate) fn claims(&self) -> Vec<ClaimId> {
        let inside = self.inside();
        let lease = inside.lease.map(|(lease, _)| lease);
        let lives = |bound: &Option<i64>| bound.is_some() && *bound == lease;
        inside.held.iter().filter(|(_, bound)| lives(bound)).map(|(claim, _)| claim.clone()).collect()
    }

    /// The engine does not know this lease any more.
    pub(crate) fn lost(&self, lease: i64) {
        self.inside().lease.take_if(|(known, _)| *known == lease);
    }

    pub(crate) fn hold(&self, claim: &ClaimId) {
        self.inside().held.insert(claim.clone(), None);
    }

    /// From now on, the key of a claim may exist, bound to this lease; or it cannot exist.
    pub(crate) fn mark(&self, claim: &ClaimId, bound: Option<i64>) {
        if let Some(known) = self.inside().held.get_mut(claim) {
            *known = bound;
        }
    }

    /// The lock of a claim is gone: its key goes, too.
    pub(crate) fn let_go(&self, client: &Client, layout: &Layout, claim: ClaimId) {
        let mut inside = self.inside();
        if inside.held.remove(&claim).flatten().is_some() {
            inside.left.push(claim);
            drop(inside);
            self.clear(client, layout);
        }
    }

    /// Deletes the keys of claims whose locks are gone.
    pub(crate) fn clear(&self, client: &Client, layout: &Layout) {
        let left = std::mem::take(&mut self.inside().left);
        if left.is_empty() {
            return;
        }
        let success = left.iter().map(|claim| Act::delete(layout.owner(claim))).collect();
        let deleted = client.call::<crate::client::Plain>(
            "/v3/kv/txn",
            &Txn { success, ..Txn::default() },
            self.patience(client),
        );
        if deleted.is_err() {
            self.inside().left.extend(left);
        }
    }

    /// Whether this process has a held claim, or keys to delete.
    pub(crate) fn is_busy(&self) -> bool {
        let inside = self.inside();
        !inside.held.is_empty() || !inside.left.is_empty()
    }
}

/// A lease id of our own making, so that a grant whose answer was lost can be asked for again.
fn new_lease_id() -> Result<i64> {
    Ok(lease_id(&random_id()?))
}

/// The lease of a leased claim: made from the claim's id, so that every process finds it.
pub(crate) fn lease_of(claim: &ClaimId) -> i64 {
    lease_id(claim.as_str().trim_start_matches("c-"))
}

/// A positive number from sixteen hex digits.
fn lease_id(hex: &str) -> i64 {
    let bits = u64::from_str_radix(hex, 16).unwrap_or(1) & (i64::MAX as u64);
    (bits as i64).max(1)
}
