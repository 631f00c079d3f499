//! What this clone last saw of the remote, and since when: one small file.
//!
//! If a card has not changed for a whole lease since this clone first saw it, its owner is gone. The time is measured by a
//! clock that nobody can set ([`millis_since_boot`]). After a restart of the machine the measurement starts from zero, so it is
//! never longer than the true time. No clock of another machine is trusted.
//!
//! Invariant: the file is replaced only under the lock of the conversation. It is read without the lock.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::card::{Card, ref_of};
use super::remote::RemoteView;
use super::tree::read;
use crate::claim::ClaimId;
use crate::folder::disk::{Disk, fingerprint};
use tollgate_base::boot_clock::millis_since_boot;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::private;
use tollgate_base::task::TaskName;

/// The version of this file, and of all files beside it.
const FORMAT: u32 = 1;

/// What this clone last saw.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct SeenRemote {
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

/// The file, and what it said when this process last read it: a list of tasks asks for it once for each task. Cheap to
/// clone.
#[derive(Clone)]
pub(super) struct LastSeen {
    path: PathBuf,
    last: Arc<Mutex<Option<LastRead>>>,
}

struct LastRead {
    /// Open, so that no later file gets its inode. The file is never changed, only replaced.
    _file: File,
    fingerprint: [u8; 32],
    says: Arc<SeenRemote>,
}

impl LastSeen {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, last: Arc::default() }
    }

    pub(super) fn read(&self) -> Result<Arc<SeenRemote>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let found = fs::symlink_metadata(&self.path).map(|found| fingerprint(&found));
        if let (Some(last), Ok(found)) = (last.as_ref(), &found)
            && last.fingerprint == *found
        {
            return Ok(Arc::clone(&last.says));
        }
        *last = None;
        let mut file = match private::open(&self.path, OFlags::RDONLY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return SeenRemote::parse(&[], &self.path).map(Arc::new);
            }
            file => file.at("open", &self.path)?,
        };
        let found = file.metadata().at("look at", &self.path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).at("read", &self.path)?;
        let says = Arc::new(SeenRemote::parse(&bytes, &self.path)?);
        *last = Some(LastRead { _file: file, fingerprint: fingerprint(&found), says: Arc::clone(&says) });
        Ok(says)
    }

    pub(super) fn write(&self, disk: &Disk, seen: &SeenRemote) -> Result<()> {
        let bytes = serde_json::to_vec(seen).map_err(|error| Fault::invalid(error.to_string()))?;
        if read(&self.path)?.as_ref() == Some(&bytes) {
            return Ok(());
        }
        // Flushed: otherwise nobody would know after a power cut which commit the tree shows. All files that agents are
        // working on would count as changed by somebody else, and be set aside.
        disk.replace_file(&self.path, &bytes, disk.durability)
    }
}

impl SeenRemote {
    fn parse(bytes: &[u8], path: &Path) -> Result<Self> {
        let document = serde_json::from_slice::<Value>(bytes).ok();
        // Not there, or, if the vault is not durable, cut short by a power cut. Then nothing was seen.
        let Some(document) = document else { return Ok(Self { format: FORMAT, ..Self::default() }) };
        let seen: Self = serde_json::from_value(document).map_err(|error| Fault::damaged(path, error))?;
        if seen.format > FORMAT {
            return Err(Fault::NewerFormat { path: path.to_owned(), found: seen.format, known: FORMAT });
        }
        Ok(seen)
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
    use tollgate_base::settings::Durability;

    #[test]
    fn an_owner_is_silent_only_after_a_whole_lease() {
        let task: TaskName = "x".parse().unwrap();
        let card = Card::new(&task, "there", 40_000, ClaimRecord::new(Slot::NEEDS_ACTION)).unwrap();
        for (seconds, is_silent) in [(0, false), (20, false), (30, false), (41, true)] {
            let since_ms = millis_since_boot() - seconds * 1000;
            let seen = SeenCard { oid: "1".into(), card: None, since_ms };
            assert_eq!(seen.is_silent(&card), is_silent, "after {seconds} of 40 seconds");
            // At every beat.
            assert_eq!(seen.is_due(&card), seconds > 0, "after {seconds} of 40 seconds");
        }
    }

    /// Another process may replace the file by one of the same length, several times within one tick of the clock of files.
    #[test]
    fn what_another_process_wrote_is_seen_at_once_and_a_file_is_parsed_once() {
        let keep = tempfile::tempdir().unwrap();
        let [here, there] = [0; 2].map(|_| LastSeen::new(keep.path().join("seen.json")));
        assert_eq!(here.read().unwrap().tip, "", "there is no file yet");
        let disk = Disk::new(Durability::Fast);
        for number in 1000..1200 {
            for tip in [format!("{number} a"), format!("{number} b"), format!("{number} c")] {
                there.write(&disk, &SeenRemote { tip, ..SeenRemote::default() }).unwrap();
            }
            let seen = here.read().unwrap();
            assert_eq!(seen.tip, format!("{number} c"));
            assert!(Arc::ptr_eq(&seen, &here.read().unwrap()), "not parsed again");
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
        let mut seen = SeenRemote::default();
        seen.learn(view("1"));
        let since = |seen: &mut SeenRemote, ms| seen.cards.get_mut(&ref_of(&task)).unwrap().since_ms -= ms;
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
