//! What this clone last saw of the remote, and since when: one small file.
//!
//! If a card has not changed for a whole lease since this clone first saw it, its owner is gone. The time is measured by a
//! clock that nobody can set ([`millis_since_boot`]). After a restart of the machine the measurement starts from zero, so it is
//! never longer than the true time. No clock of another machine is trusted.
//!
//! Invariant: the file is replaced only under the lock of the conversation. It is read without the lock.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::card::{Card, ref_of};
use super::remote::RemoteView;
use super::tree::read;
use crate::claim::ClaimId;
use crate::folder::disk::Disk;
use tollgate_base::boot_clock::millis_since_boot;
use tollgate_base::error::{Fault, Result};
use tollgate_base::task::TaskName;

/// The version of this file, and of all files beside it.
const FORMAT: u32 = 1;

/// What this clone last saw.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Seen {
    format: u32,
    /// The commit of the remote's branch.
    pub(super) tip: String,
    /// The commit that the tree shows.
    pub(super) imported: Option<String>,
    /// The cards, by the last part of the names of their refs.
    pub(super) cards: BTreeMap<String, SeenCard>,
}

/// A card, as it was last seen.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SeenCard {
    pub(super) oid: String,
    /// `None` if it cannot be read.
    pub(super) card: Option<Card>,
    /// When this clone first saw it, in milliseconds since the machine was started.
    pub(super) since_ms: u64,
}

impl SeenCard {
    /// How long this clone has known it.
    pub(super) fn unchanged_for(&self) -> Duration {
        Duration::from_millis(millis_since_boot().saturating_sub(self.since_ms))
    }

    /// Whether its owner should be heard again. Twice as often as [`Store::heartbeat_interval`] asks for, so that a caller who
    /// looks at intervals of that length finds it due every time.
    ///
    /// [`Store::heartbeat_interval`]: crate::store::Store::heartbeat_interval
    pub(super) fn is_due(&self, card: &Card) -> bool {
        self.unchanged_for() >= Duration::from_millis(card.lease_ms) / 6
    }

    /// Whether its owner was not heard for a whole lease.
    pub(super) fn is_silent(&self, card: &Card) -> bool {
        self.unchanged_for() >= Duration::from_millis(card.lease_ms)
    }
}

impl Seen {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let document = read(path)?.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        // Not there, or, if the vault is not durable, cut short by a power cut. Then nothing was seen.
        let Some(document) = document else { return Ok(Self { format: FORMAT, ..Self::default() }) };
        let seen: Self = serde_json::from_value(document).map_err(|error| Fault::damaged(path, error))?;
        if seen.format > FORMAT {
            return Err(Fault::NewerFormat { path: path.to_owned(), found: seen.format, known: FORMAT });
        }
        Ok(seen)
    }

    pub(super) fn write(&self, disk: &Disk, path: &Path) -> Result<()> {
        let bytes = serde_json::to_vec(self).map_err(|error| Fault::invalid(error.to_string()))?;
        if read(path)?.as_ref() == Some(&bytes) {
            return Ok(());
        }
        // Flushed: otherwise nobody would know after a power cut which commit the tree shows. All files that agents are
        // working on would count as changed by somebody else, and be set aside.
        disk.replace_file(path, &bytes, disk.durability)
    }

    /// Takes over what a look found. A card that has not changed keeps its time.
    pub(super) fn learn(&mut self, view: RemoteView) {
        self.tip = view.tip;
        let mut old = std::mem::take(&mut self.cards);
        for (name, oid, card) in view.cards {
            let seen = match old.remove(&name) {
                // A time in the future is from before a restart of the machine.
                Some(seen) if seen.oid == oid && seen.since_ms <= millis_since_boot() => seen,
                _ => SeenCard { oid, card, since_ms: millis_since_boot() },
            };
            self.cards.insert(name, seen);
        }
    }

    /// Whether both saw the same branch and the same cards.
    pub(super) fn same_as(&self, other: &Self) -> bool {
        let oids = |seen: &Self| seen.cards.values().map(|card| card.oid.clone()).collect::<Vec<_>>();
        self.tip == other.tip && oids(self) == oids(other)
    }

    pub(super) fn card(&self, task: &TaskName) -> Option<&SeenCard> {
        self.cards.get(&ref_of(task))
    }

    /// A card of this clone that the remote took. The push of it began at `since_ms`.
    pub(super) fn put(&mut self, card: Card, oid: String, since_ms: u64) {
        self.cards.insert(ref_of(&card.task), SeenCard { oid, card: Some(card), since_ms });
    }

    /// The card of a claim.
    pub(super) fn of_claim(&self, claim: &ClaimId) -> Option<(&SeenCard, &Card)> {
        self.cards.values().find_map(|seen| {
            let card = seen.card.as_ref()?;
            card.record.claim.as_ref().filter(|found| found.id == *claim).map(|_| (seen, card))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::ClaimRecord;
    use crate::state::Slot;

    #[test]
    fn an_owner_is_silent_only_after_a_whole_lease() {
        let task: TaskName = "x".parse().unwrap();
        let card = Card::new(&task, "there", 40_000, ClaimRecord::new(Slot::NEEDS_ACTION)).unwrap();
        for (seconds, is_silent) in [(0, false), (20, false), (30, false), (41, true)] {
            let since_ms = millis_since_boot() - seconds * 1000;
            let seen = SeenCard { oid: "1".into(), card: None, since_ms };
            assert_eq!(seen.is_silent(&card), is_silent, "after {seconds} of 40 seconds");
            // Every third of the lease.
            assert_eq!(seen.is_due(&card), seconds > 0, "after {seconds} of 40 seconds");
        }
    }

    #[test]
    fn a_card_that_does_not_change_keeps_its_time() {
        let task: TaskName = "x".parse().unwrap();
        let card = || Card::new(&task, "there", 1, ClaimRecord::new(Slot::NEEDS_ACTION)).unwrap();
        let view = |oid: &str| RemoteView {
            tip: "t".into(),
            cards: vec![(ref_of(&task), oid.into(), Some(card()))],
        };
        let mut seen = Seen::default();
        seen.learn(view("1"));
        let since = |seen: &mut Seen, ms| seen.cards.get_mut(&ref_of(&task)).unwrap().since_ms -= ms;
        since(&mut seen, 60_000);
        seen.learn(view("1"));
        assert!(seen.card(&task).unwrap().unchanged_for() >= Duration::from_secs(60));
        seen.learn(view("2"));
        assert!(seen.card(&task).unwrap().unchanged_for() < Duration::from_secs(60));
        // The machine was restarted, so the time starts from zero.
        seen.cards.get_mut(&ref_of(&task)).unwrap().since_ms = u64::MAX;
        assert_eq!(seen.card(&task).unwrap().unchanged_for(), Duration::ZERO);
        seen.learn(view("2"));
        assert!(seen.card(&task).unwrap().since_ms <= millis_since_boot());
        seen.learn(RemoteView { tip: "t".into(), cards: Vec::new() });
        assert!(seen.card(&task).is_none());
    }
}
