//! The lease of this process, and the held claims that live by it.
//!
//! The key `owner/process/LEASE` is bound to this lease. While it exists, the process is alive, and so are its held claims. The
//! transaction of a claim compares that it exists. If this process dies, hangs or is cut off, the lease is not renewed and
//! ends, and the key goes with it; [`crate::liveness`] says when others may take its tasks then. If only the lock of a claim
//! goes, the key `owner/left/CLAIM_ID` says so.
//!
//! Invariant: death is final. A lease has a new random id and is granted once, the key of the process is written once, and the
//! key of a claim that was let go lasts as long as that. So a process that has seen an owner gone knows that it will not
//! come back.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tollgate_base::boot_clock::{millis, millis_since_boot};
use tollgate_base::error::{Fault, Result};
use tollgate_base::name::{ClaimId, random_id};
use tollgate_vault::state::Slot;

use crate::call_error::{CallError, CallResult};
use crate::client::Client;
use crate::layout::Layout;
use crate::message::{Condition, KeyValue, Txn, TxnAnswer, TxnOperation};

/// The longest term of a lease, however long leased claims last. The tasks of a machine that dies come back after twice this
/// time, or three times if the leader dies as well.
const LONGEST: Duration = Duration::from_secs(60);

/// The lowest bits of the lease of a process are its term in seconds. So a machine that finds that the lease has ended knows how
/// long its owner may still work, whatever its own settings are.
pub(crate) const TERM_BITS: u32 = 6;

/// A claim is made only with a lease that was renewed in this part of its term, so that the work has time.
const FRESH: u32 = 8;

/// The lease of this process, and the claims that live by it.
pub(crate) struct ProcessLease {
    /// How long the lease lasts without being renewed.
    pub(crate) term: Duration,
    machine: String,
    shared: Mutex<LeaseState>,
}

/// What a renewal shows.
pub(crate) struct Renewal {
    /// The lease.
    pub(crate) lease: u64,
    /// What the acts have found.
    pub(crate) found: Vec<Vec<KeyValue>>,
}

/// What the engine may know of a held claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HeldMark {
    /// Nothing: it was not made, or it has ended.
    Nothing,
    /// It was sent, and may be made at any moment.
    Sent,
    /// It was made: the key of its task, and where the task is.
    Made(String, Slot),
}

#[derive(Default)]
struct LeaseState {
    /// The lease, and when it certainly had its whole term left, in milliseconds since the machine was started: the lease goes on
    /// while the machine sleeps.
    lease: Option<(i64, u64)>,
    /// The claims whose locks live, and their leases.
    held: HashMap<ClaimId, (i64, HeldMark)>,
    /// Claims whose locks are gone, which the engine does not know yet.
    left: Vec<(ClaimId, i64, HeldMark)>,
}

impl ProcessLease {
    pub(crate) fn new(lease: Duration, machine: &str) -> Self {
        let term = lease.min(LONGEST).max(Duration::from_secs(1));
        Self { term, machine: machine.to_owned(), shared: Mutex::default() }
    }

    fn shared(&self) -> MutexGuard<'_, LeaseState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call about the lease must not take so long that the lease is over before the work is stopped.
    fn patience(&self, client: &Client) -> Duration {
        (self.term / 6).max(Duration::from_millis(300)).min(client.deadline)
    }

    /// The lease of this process, which is alive and has most of its term left.
    pub(crate) fn lease(&self, client: &Client, layout: &Layout) -> CallResult<i64> {
        let known = self.shared().lease;
        if let Some((lease, _)) = known.filter(|(_, heard)| is_fresh(*heard, millis_since_boot(), self.term))
        {
            return Ok(lease);
        }
        if let Some(Renewal { lease, .. }) = self.renew(client, layout, Vec::new())? {
            return Ok(lease.cast_signed());
        }
        let mut shared = self.shared();
        let asked = millis_since_boot();
        // Another thread may have made one in the meantime.
        if let Some((lease, _)) = shared.lease.filter(|(_, heard)| is_fresh(*heard, asked, self.term)) {
            return Ok(lease);
        }
        let lease = with_term(new_lease_id().map_err(CallError::Unsent)?, self.term);
        client.grant(lease, self.term)?;
        let key = layout.process(lease.cast_unsigned());
        client.txn(&Txn {
            success: vec![TxnOperation::put_leased(key, &self.machine, lease)],
            ..Txn::default()
        })?;
        shared.lease = Some((lease, asked));
        Ok(lease)
    }

    /// Renews the lease. If it is alive: the lease, and what these acts find.
    pub(crate) fn renew(
        &self,
        client: &Client,
        layout: &Layout,
        acts: Vec<TxnOperation>,
    ) -> CallResult<Option<Renewal>> {
        let Some((lease, _)) = self.shared().lease else { return Ok(None) };
        let asked = millis_since_boot();
        let found = self.prove(client, layout, lease, acts)?;
        let mut shared = self.shared();
        // Another thread may have made a new one in the meantime.
        if shared.lease.is_some_and(|(known, _)| known == lease) {
            shared.lease = found.is_some().then_some((lease, asked));
        }
        Ok(found.map(|found| Renewal { lease: lease.cast_unsigned(), found }))
    }

    /// Renews a lease and sees to it that the renewal counts. If the lease is alive: what these acts find.
    ///
    /// A leader whose disk hangs does not know that it has a successor. It still renews leases, and the successor ends them. A
    /// read shows the term of the leader that the others follow.
    fn prove(
        &self,
        client: &Client,
        layout: &Layout,
        lease: i64,
        acts: Vec<TxnOperation>,
    ) -> CallResult<Option<Vec<Vec<KeyValue>>>> {
        let process = TxnOperation::get(layout.process(lease.cast_unsigned()));
        let txn = Txn { success: [process].into_iter().chain(acts).collect(), ..Txn::default() };
        let patience = self.patience(client);
        let over = Instant::now() + patience;
        loop {
            let Some(term) = client.keep_alive(lease, patience)? else { return Ok(None) };
            let answer: TxnAnswer = client.call("/v3/kv/txn", &txn, patience)?;
            if answer.header.raft_term == term {
                let mut found: Vec<_> = answer.found().collect();
                let is_alive = !found.is_empty() && !found.remove(0).is_empty();
                return Ok(is_alive.then_some(found));
            }
            if over <= Instant::now() {
                let what = "the leader has changed while the lease was renewed".to_owned();
                return Err(CallError::Unanswered(Fault::Unreachable { remote: client.shown.clone(), what }));
            }
        }
    }

    /// When the lease of this process certainly had its whole term left; long ago if it is gone. `None` for a claim that does
    /// not live by it.
    pub(crate) fn proven_at(&self, claim: &ClaimId) -> Option<u64> {
        let shared = self.shared();
        let (bound, _) = shared.held.get(claim)?;
        let lease = shared.lease.filter(|(lease, _)| lease == bound);
        let long_ago = || millis_since_boot().saturating_sub(millis(self.term));
        Some(lease.map_or_else(long_ago, |(_, heard)| heard))
    }

    /// The claims that live by the lease of this process. One that was made with an earlier lease is lost.
    pub(crate) fn claims(&self) -> Vec<ClaimId> {
        let shared = self.shared();
        let lives = |(bound, mark): &(i64, HeldMark)| {
            *mark != HeldMark::Nothing && shared.lease.is_some_and(|(lease, _)| lease == *bound)
        };
        shared.held.iter().filter(|(_, held)| lives(held)).map(|(claim, _)| claim.clone()).collect()
    }

    /// The engine does not know this lease any more.
    pub(crate) fn lost(&self, lease: i64) {
        self.shared().lease.take_if(|(known, _)| *known == lease);
    }

    pub(crate) fn hold(&self, claim: &ClaimId, lease: i64) {
        self.shared().held.insert(claim.clone(), (lease, HeldMark::Nothing));
    }

    /// What the engine may know of a claim from now on.
    pub(crate) fn mark(&self, claim: &ClaimId, mark: HeldMark) {
        if let Some((_, known)) = self.shared().held.get_mut(claim) {
            *known = mark;
        }
    }

    /// The lock of a claim is gone. The claims that have ended before this process.
    pub(crate) fn let_go(&self, client: &Client, layout: &Layout, claim: ClaimId) -> Vec<ClaimId> {
        let mut shared = self.shared();
        match shared.held.remove(&claim) {
            None | Some((_, HeldMark::Nothing)) => Vec::new(),
            Some((lease, mark)) => {
                shared.left.push((claim, lease, mark));
                drop(shared);
                self.clear(client, layout)
            }
        }
    }

    /// Tells the engine which claims have ended before this process, and returns them.
    pub(crate) fn clear(&self, client: &Client, layout: &Layout) -> Vec<ClaimId> {
        let left = std::mem::take(&mut self.shared().left);
        let mut ended = Vec::new();
        for (claim, lease, mark) in left {
            // If its task is not there any more, there is nothing to tell.
            let compare = match &mark {
                HeldMark::Made(task, slot) => Condition::begins(task, &format!("{slot}\n")).to_vec(),
                HeldMark::Nothing | HeldMark::Sent => Vec::new(),
            };
            let success = vec![TxnOperation::put_leased(layout.left(&claim), &self.machine, lease)];
            let txn = Txn { compare, success, failure: Vec::new() };
            match client.call::<TxnAnswer>("/v3/kv/txn", &txn, self.patience(client)) {
                Ok(answer) if !answer.succeeded => continue,
                // Without its lease the claim has no owner anyway.
                Ok(_) => {}
                Err(error) if error.is_lease_gone() => {}
                Err(_) => self.shared().left.push((claim.clone(), lease, mark)),
            }
            ended.push(claim);
        }
        ended
    }

    /// Whether this process has a held claim, or claims that the engine must hear of.
    pub(crate) fn is_busy(&self) -> bool {
        let shared = self.shared();
        !shared.held.is_empty() || !shared.left.is_empty()
    }
}

/// Whether a lease that was renewed at `heard` has most of its term left.
fn is_fresh(heard: u64, now: u64, term: Duration) -> bool {
    now.saturating_sub(heard) < millis(term / FRESH)
}

/// A lease id of our own making, so that a grant whose answer was lost can be asked for again.
pub(crate) fn new_lease_id() -> Result<i64> {
    Ok(lease_id(&random_id()?))
}

fn with_term(lease: i64, term: Duration) -> i64 {
    let seconds = term.as_secs() + u64::from(term.subsec_nanos() > 0);
    lease >> TERM_BITS << TERM_BITS | seconds.cast_signed()
}

/// How long the lease of a process lasts.
pub(crate) fn term_of(lease: u64) -> Duration {
    Duration::from_secs(lease & ((1 << TERM_BITS) - 1))
}

/// A positive number from sixteen hex digits.
pub(crate) fn lease_id(hex: &str) -> i64 {
    let bits = u64::from_str_radix(hex, 16).unwrap_or(1) & (i64::MAX as u64);
    (bits as i64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::url::EtcdUrl;

    #[test]
    fn the_term_of_a_process_is_read_from_its_lease() {
        for seconds in [1, 2, 60] {
            let lease = with_term(new_lease_id().unwrap(), Duration::from_secs(seconds));
            assert!(lease > 0);
            assert_eq!(term_of(lease.cast_unsigned()), Duration::from_secs(seconds));
        }
        assert_eq!(term_of(with_term(1 << 40, Duration::from_millis(1500)).cast_unsigned()).as_secs(), 2);
    }

    #[test]
    fn a_call_about_the_lease_is_shorter_than_the_lease_and_than_any_other_call() {
        let url = EtcdUrl::parse("etcd://127.0.0.1:1/x").unwrap();
        let ms = Duration::from_millis;
        for (lease, deadline, patience) in
            [(60_000, 10_000, 10_000), (12_000, 10_000, 2_000), (1_000, 10_000, 300), (60_000, 200, 200)]
        {
            let client = Client::new(&url, None, ms(deadline), std::path::Path::new(".")).unwrap();
            assert_eq!(ProcessLease::new(ms(lease), "here").patience(&client), ms(patience), "{lease}");
        }
    }
}
