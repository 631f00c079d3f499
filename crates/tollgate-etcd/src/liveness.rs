//! Whether the owner of a claim is alive.
//!
//! The end of its lease alone does not show that the owner of a held claim is gone. A leader that was paused, together with its
//! virtual machine for example, does not know which leases were renewed at its successor. If it goes on before it hears of the
//! successor, it may end them all, and their owners work until their next heartbeats. So a process whose lease has ended gets a
//! grace period: another term, in which it hears of the end, or stops its commands because it hears nothing.
//!
//! The first machine that finds the lease ended begins the grace period, and the engine measures it: the key `owner/grace/LEASE` is
//! bound to a lease of its own, which nobody renews. Such a lease never ends too early. The key `ended/LEASE` remembers that the grace
//! period has begun. A leased claim needs none: each of its renewals binds its key to a new lease.

use std::time::Duration;

use tollgate_base::error::Result;
use tollgate_base::name::ClaimId;
use tollgate_vault::Claim;

use crate::call_error::CallResult;
use crate::message::{Condition, KeyValue, Txn, TxnOperation};
use crate::process_lease::{TERM_BITS, term_of};
use crate::shared_store::SharedStore;

/// How long the engine remembers that a grace period has begun. If nobody looks again in this time, another one begins.
const REMEMBERED: Duration = Duration::from_secs(7 * 24 * 3600);

impl SharedStore {
    /// Whether the owner of a claim is gone for good.
    pub(crate) fn is_owner_gone(&self, claim: &Claim) -> Result<bool> {
        let Some(lease) = claim.hold else {
            return Ok(self.keys([self.layout.owner(&claim.id)])?[0].is_none());
        };
        let layout = &self.layout;
        let keys = [layout.left(&claim.id), layout.process(lease), layout.grace(lease), layout.ended(lease)];
        match self.keys(keys)?.map(|found| found.is_some()) {
            [true, ..] => Ok(true),
            [_, true, ..] | [_, _, true, _] => Ok(false),
            [.., has_begun] => {
                if !has_begun {
                    // If the engine takes no writes, nobody can reclaim anything either, and those who only look go on.
                    let _ = self.begin_grace(lease);
                }
                Ok(has_begun)
            }
        }
    }

    fn begin_grace(&self, lease: u64) -> CallResult<()> {
        let [grace, ended] = [self.layout.grace(lease), self.layout.ended(lease)];
        // Everybody derives the same two leases, so those who look at the same time do not make more of them.
        let [for_grace, for_ended] = timers(lease);
        self.client.grant(for_grace, term_of(lease).max(self.process_lease.term))?;
        self.client.grant(for_ended, REMEMBERED)?;
        let absent = [&self.layout.process(lease), &grace, &ended].map(Condition::absent);
        let success = vec![
            TxnOperation::put_leased(&grace, &self.machine, for_grace),
            TxnOperation::put_leased(&ended, &self.machine, for_ended),
        ];
        let answer = self.client.txn(&Txn { compare: absent.to_vec(), success, failure: Vec::new() })?;
        if answer.succeeded {
            // Our own view need not wait for the watch.
            let revision = answer.header.revision;
            let begun = KeyValue { key: grace.into_bytes(), ..KeyValue::default() };
            // Unless the watch was faster, which may have brought the end of the grace period, too.
            if self.with_view(|view| view.revision < revision).unwrap_or(false) {
                self.learn(&[begun], &[], revision);
            }
        }
        Ok(())
    }

    /// How much of the lease of a leased claim is left; nothing if it has ended.
    pub(crate) fn time_left(&self, claim: &ClaimId) -> Result<Duration> {
        match self.lease_of(claim)? {
            Some(lease) => self.called(self.client.time_left(lease)),
            None => Ok(Duration::ZERO),
        }
    }

    /// The lease to which the key of a leased claim is bound.
    pub(crate) fn lease_of(&self, claim: &ClaimId) -> Result<Option<i64>> {
        let [owner] = self.keys([self.layout.owner(claim)])?;
        Ok(owner.map(|owner| owner.lease))
    }

    /// These keys, as the engine has them at one moment.
    fn keys<const COUNT: usize>(&self, keys: [String; COUNT]) -> Result<[Option<KeyValue>; COUNT]> {
        let mut found = self.act(keys.iter().map(TxnOperation::get).collect())?.found();
        Ok(keys.map(|_| found.next().and_then(|mut kvs| kvs.pop())))
    }
}

/// The leases that measure the grace period of a process with this lease, and how long it is remembered.
fn timers(lease: u64) -> [i64; 2] {
    [1, 2].map(|number| (lease ^ (number << TERM_BITS)).cast_signed())
}
