//! What this clone has last seen of the remote, and since when: one small file.
//!
//! A card that has not changed for a whole lease since it was first seen here belongs to an owner who is gone. "Since"
//! is counted by a clock of this machine that nobody can set and that goes on while it sleeps; after a restart it begins
//! anew, so a time that is told is never longer than the true one. No clock of another machine is believed.
//!
//! Invariant: written only under the lock of the conversation, by rename; read without it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::card::{Card, ref_of};
use super::talk::View;
use crate::error::{At, Fault, Result};
use crate::vault::claim::ClaimId;
use crate::vault::name::TaskName;

/// The version of this file, and of all beside it.
const FORMAT: u32 = 1;

/// What was last seen.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Seen {
    format: u32,
    /// The branch of the remote.
    pub(super) tip: String,
    /// The commit that the tree is brought up to.
    pub(super) imported: Option<String>,
    /// By the last part of the ref's name.
    cards: BTreeMap<String, SeenCard>,
}

/// A card, as it was last seen.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SeenCard {
    pub(super) oid: String,
    /// `None` if it cannot be understood.
    pub(super) card: Option<Card>,
    /// Since when it is this one, in milliseconds of [`clock`].
    since_ms: u64,
}

impl SeenCard {
    /// For how long it is known to be this one.
    pub(super) fn unchanged_for(&self) -> Duration {
        Duration::from_millis(clock().saturating_sub(self.since_ms))
    }
}

impl Seen {
    pub(super) fn read(path: &Path) -> Result<Self> {
        match fs::read(path) {
            Ok(bytes) => {
                let seen: Self =
                    serde_json::from_slice(&bytes).map_err(|error| Fault::damaged(path, error))?;
                if seen.format > FORMAT {
                    return Err(Fault::NewerFormat {
                        path: path.to_owned(),
                        found: seen.format,
                        known: FORMAT,
                    });
                }
                Ok(seen)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Self { format: FORMAT, ..Self::default() })
            }
            Err(error) => Err(error).at("read", path),
        }
    }

    /// Nothing depends on its surviving a power cut: what is lost is seen again, and waited for anew.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let bytes = serde_json::to_vec(self).map_err(|error| Fault::invalid(error.to_string()))?;
        let stage = path.with_extension("new");
        fs::write(&stage, bytes).at("write", &stage)?;
        fs::rename(&stage, path).at("rename", &stage)
    }

    /// What a look has found. What has not changed keeps its time.
    pub(super) fn learn(&mut self, view: View) {
        self.tip = view.tip;
        let mut old = std::mem::take(&mut self.cards);
        for (name, oid, card) in view.cards {
            let seen = match old.remove(&name) {
                // A time in the future is from before the machine was started anew.
                Some(seen) if seen.oid == oid && seen.since_ms <= clock() => seen,
                _ => SeenCard { oid, card, since_ms: clock() },
            };
            self.cards.insert(name, seen);
        }
    }

    /// Whether the remote looks the same.
    pub(super) fn same_as(&self, other: &Self) -> bool {
        let oids = |seen: &Self| seen.cards.values().map(|card| card.oid.clone()).collect::<Vec<_>>();
        self.tip == other.tip && oids(self) == oids(other)
    }

    pub(super) fn card(&self, task: &TaskName) -> Option<&SeenCard> {
        self.cards.get(&ref_of(task))
    }

    /// A card of ours that the remote has taken.
    pub(super) fn put(&mut self, card: Card, oid: String) {
        self.cards.insert(ref_of(&card.task), SeenCard { oid, card: Some(card), since_ms: clock() });
    }

    pub(super) fn remove(&mut self, task: &TaskName) {
        self.cards.remove(&ref_of(task));
    }

    pub(super) fn of_claim(&self, claim: &ClaimId) -> Option<(&SeenCard, &Card)> {
        self.cards.values().find_map(|seen| {
            let card = seen.card.as_ref()?;
            card.note.claim.as_ref().filter(|found| found.id == *claim).map(|_| (seen, card))
        })
    }

    pub(super) fn cards(&self) -> impl Iterator<Item = (&String, &SeenCard)> {
        self.cards.iter()
    }
}

/// Milliseconds since this machine was started. Never set back while it runs.
pub(super) fn clock() -> u64 {
    #[cfg(target_os = "linux")]
    const ID: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const ID: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
    let now = rustix::time::clock_gettime(ID);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vault::claim::Note;
    use crate::vault::state::Slot;

    #[test]
    fn what_does_not_change_keeps_its_time() {
        let task: TaskName = "x".parse().unwrap();
        let card = || Card::new(&task, "there", 1, Note::new(Slot::NEEDS_ACTION)).unwrap();
        let view =
            |oid: &str| View { tip: "t".into(), cards: vec![(ref_of(&task), oid.into(), Some(card()))] };
        let mut seen = Seen::default();
        seen.learn(view("1"));
        let since = |seen: &mut Seen, ms| seen.cards.get_mut(&ref_of(&task)).unwrap().since_ms -= ms;
        since(&mut seen, 60_000);
        seen.learn(view("1"));
        assert!(seen.card(&task).unwrap().unchanged_for() >= Duration::from_secs(60));
        seen.learn(view("2"));
        assert!(seen.card(&task).unwrap().unchanged_for() < Duration::from_secs(60));
        // The machine was started anew: the time begins anew too.
        seen.cards.get_mut(&ref_of(&task)).unwrap().since_ms = u64::MAX;
        assert_eq!(seen.card(&task).unwrap().unchanged_for(), Duration::ZERO);
        seen.learn(view("2"));
        assert!(seen.card(&task).unwrap().since_ms <= clock());
        seen.learn(View { tip: "t".into(), cards: Vec::new() });
        assert!(seen.card(&task).is_none());
    }
}
