//! Until when a claim is certainly its owner's: written by every verb of the owner, for any store.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use tollgate_base::boot_clock::millis_since_boot;
use tollgate_base::error::Result;
use tollgate_vault::{
    ClaimDeadlines, ClaimKind, ClaimRequest, Claimed, Release, Step, StepId, StepOutcome, Store, TaskName,
    Terms, Vault, forward_store,
};

use crate::memory::{MemoryStore, Simple};

struct World {
    keep: tempfile::TempDir,
    vault: Vault,
    deadlines: ClaimDeadlines,
}

impl World {
    fn new(store: Arc<dyn Store>, lease: Duration) -> Self {
        let keep = tempfile::tempdir().unwrap();
        let deadlines = ClaimDeadlines::new(keep.path().join("deadlines"));
        let vault = Vault::new(store, Terms { lease, ..Terms::default() }).with_deadlines(deadlines.clone());
        vault.add(&"x".parse().unwrap(), b"do it", Timestamp::now()).unwrap();
        Self { keep, vault, deadlines }
    }

    /// A store without locks: every claim has a lease.
    fn leased(lease: Duration) -> Self {
        Self::new(Arc::new(Simple(MemoryStore::default())), lease)
    }

    fn claim(&self, now: Timestamp) -> Claimed {
        let request =
            ClaimRequest { agent: "blue".parse().unwrap(), kind: ClaimKind::Held, renamed_in: false };
        self.vault.claim(&"x".parse().unwrap(), &request, now).unwrap().unwrap()
    }

    fn lasts(&self, claimed: &Claimed) -> bool {
        self.deadlines.is_before(&claimed.claim.id).unwrap()
    }

    fn path(&self, claimed: &Claimed) -> std::path::PathBuf {
        self.keep.path().join("deadlines").join(claimed.claim.id.as_str())
    }

    /// The file of a claim, changed.
    fn rewrite(&self, claimed: &Claimed, change: impl FnOnce(&mut serde_json::Value)) {
        let mut file = serde_json::from_slice(&fs::read(self.path(claimed)).unwrap()).unwrap();
        change(&mut file);
        fs::write(self.path(claimed), file.to_string()).unwrap();
    }
}

const LONG: Duration = Duration::from_secs(1800);

#[test]
fn every_beat_gives_a_claim_its_whole_lease_and_records_nothing() {
    let world = World::leased(LONG);
    let start = Timestamp::now();
    let claimed = world.claim(start);
    assert_eq!(world.vault.heartbeat_interval(&claimed.claim), Some(LONG / 3));
    let recorded = || world.vault.store().events("", 100).unwrap().0.len();
    let before = recorded();
    for minutes in [10, 20, 45] {
        let now = start + SignedDuration::from_mins(minutes);
        assert!(world.vault.beat(&claimed.task, &claimed.claim, now).unwrap());
        let claim = world.vault.store().claim_of(&claimed.task, now).unwrap().unwrap();
        assert_eq!(claim.lease_until(), Some(now + LONG), "after {minutes} minutes");
    }
    assert_eq!(recorded(), before);
    let returned = Release::give_back("stopped");
    world.vault.release(&claimed.task, &claimed.claim.id, &returned, start).unwrap().unwrap();
    assert!(!world.vault.beat(&claimed.task, &claimed.claim, start).unwrap());
}

#[test]
fn a_claim_lasts_until_a_moment_before_its_lease_is_over_and_longer_if_it_is_renewed() {
    let lease = Duration::from_millis(1200);
    let world = World::leased(lease);
    let began = Instant::now();
    let claimed = world.claim(Timestamp::now());
    let over = || {
        while world.lasts(&claimed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Instant::now()
    };
    assert!(over() - began >= Duration::from_millis(1090), "eleven twelfths, less a rounded millisecond");
    let renewed = Instant::now();
    world.vault.renew(&claimed.task, &claimed.claim.id, Timestamp::now()).unwrap().unwrap();
    assert!(world.lasts(&claimed) || renewed.elapsed() > Duration::from_millis(1000), "renewed");
    let until = over();
    assert!(until - renewed >= Duration::from_millis(1090));
}

#[test]
fn a_claim_ends_at_once_when_it_is_released() {
    let world = World::leased(LONG);
    let claimed = world.claim(Timestamp::now());
    assert!(world.lasts(&claimed));
    world
        .vault
        .release(&claimed.task, &claimed.claim.id, &Release::success(), Timestamp::now())
        .unwrap()
        .unwrap();
    assert!(!world.lasts(&claimed));
}

#[test]
fn every_verb_of_the_owner_extends_the_deadline() {
    let world = World::leased(LONG);
    let claimed = world.claim(Timestamp::now());
    let (task, id) = (&claimed.task, &claimed.claim.id);
    let over = || {
        world.rewrite(&claimed, |file| file["until_ms"] = (file["heard_ms"].as_u64().unwrap() + 1).into());
    };
    let now = Timestamp::now();
    let half_over = now + SignedDuration::from_secs(1000);
    let verbs: [(&str, &dyn Fn()); 4] = [
        ("renew", &|| drop(world.vault.renew(task, id, now).unwrap().unwrap())),
        ("progress", &|| world.vault.progress(task, id, "half", now).unwrap().unwrap()),
        ("draft", &|| world.vault.draft(task, id, "so", now).unwrap().unwrap()),
        ("verify", &|| assert!(world.vault.verify(task, id, half_over).unwrap())),
    ];
    for (name, verb) in verbs {
        // A deadline that was written in this millisecond stays.
        let written = millis_since_boot();
        while millis_since_boot() <= written + 1 {}
        over();
        assert!(!world.lasts(&claimed), "{name}");
        verb();
        assert!(world.lasts(&claimed), "{name}");
    }
}

#[test]
fn a_renewal_that_is_written_late_does_not_bring_an_ended_claim_back() {
    let world = World::leased(LONG);
    let claimed = world.claim(Timestamp::now());
    // As a release does that overtakes a renewal: the store was asked later than the renewal is.
    world.rewrite(&claimed, |file| {
        file["until_ms"] = 0.into();
        file["heard_ms"] = (millis_since_boot() + 1_000_000).into();
    });
    world.vault.renew(&claimed.task, &claimed.claim.id, Timestamp::now()).unwrap().unwrap();
    assert!(!world.lasts(&claimed));
}

#[test]
fn a_held_claim_ends_with_its_lock() {
    let world = World::new(Arc::new(MemoryStore::default()), LONG);
    let mut claimed = world.claim(Timestamp::now());
    assert!(world.lasts(&claimed));
    drop(claimed.lock.take());
    assert!(!world.lasts(&claimed));
}

/// A store in which somebody else is always faster.
struct Faster(Simple);

impl Store for Faster {
    fn apply(&self, _step: &Step) -> Result<StepOutcome> {
        Ok(StepOutcome::Conflict)
    }

    forward_store!(0: scan, get, read, add, record, events);
}

#[test]
fn a_claim_that_was_not_made_leaves_no_deadline() {
    let world = World::new(Arc::new(Faster(Simple(MemoryStore::default()))), LONG);
    let request = ClaimRequest { agent: "red".parse().unwrap(), kind: ClaimKind::Leased, renamed_in: false };
    world.vault.claim(&"x".parse().unwrap(), &request, Timestamp::now()).unwrap().unwrap_err();
    let claims = fs::read_dir(world.keep.path().join("deadlines")).unwrap();
    let claims =
        claims.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("c-"));
    assert_eq!(claims.count(), 0);
}

#[test]
fn the_time_of_day_does_not_matter() {
    for now in ["1970-01-02T00:00:00Z", "2200-01-01T00:00:00Z"] {
        let world = World::leased(LONG);
        let claimed = world.claim(now.parse().unwrap());
        assert!(world.lasts(&claimed), "{now}");
    }
}

#[test]
fn without_a_file_or_with_one_from_before_a_restart_the_claim_has_ended() {
    let world = World::leased(LONG);
    let claimed = world.claim(Timestamp::now());
    world.rewrite(&claimed, |file| file["boot"] = "another".into());
    assert!(!world.lasts(&claimed));
    fs::remove_file(world.path(&claimed)).unwrap();
    assert!(!world.lasts(&claimed));
    world.vault.renew(&claimed.task, &claimed.claim.id, Timestamp::now()).unwrap().unwrap();
    assert!(world.lasts(&claimed), "the store still knows the claim");
}

#[test]
fn a_file_that_cannot_be_understood_is_a_fault() {
    let world = World::leased(LONG);
    let claimed = world.claim(Timestamp::now());
    world.rewrite(&claimed, |file| file["format"] = 99.into());
    assert!(world.deadlines.is_before(&claimed.claim.id).is_err());
    fs::write(world.path(&claimed), "{").unwrap();
    assert!(world.deadlines.is_before(&claimed.claim.id).is_err());
}

/// Makes a claim after which needless files are due to be deleted.
fn sweep(world: &World) {
    fs::remove_file(world.keep.path().join("deadlines").join("swept")).unwrap();
    claim_another(world);
}

fn claim_another(world: &World) -> Claimed {
    let task: TaskName = StepId::new().unwrap().as_str().parse().unwrap();
    world.vault.add(&task, b"do it", Timestamp::now()).unwrap();
    let request = ClaimRequest { agent: "red".parse().unwrap(), kind: ClaimKind::Leased, renamed_in: false };
    world.vault.claim(&task, &request, Timestamp::now()).unwrap().unwrap()
}

#[test]
fn needless_files_are_deleted_from_time_to_time_and_not_looked_for_by_every_claim() {
    let world = World::leased(LONG);
    let claimed = world.claim(Timestamp::now());
    world.rewrite(&claimed, |file| file["boot"] = "another".into());
    claim_another(&world);
    assert!(world.path(&claimed).exists(), "the claim before has just looked");
    let swept = world.keep.path().join("deadlines").join("swept");
    let mut mark: serde_json::Value = serde_json::from_slice(&fs::read(&swept).unwrap()).unwrap();
    mark["swept_ms"] = millis_since_boot().saturating_sub(6 * 60 * 1000).into();
    fs::write(&swept, mark.to_string()).unwrap();
    let other = claim_another(&world);
    assert!(!world.path(&claimed).exists() && world.lasts(&other));
    world.rewrite(&other, |file| file["boot"] = "another".into());
    claim_another(&world);
    assert!(world.path(&other).exists(), "and notes that it has looked");
}

#[test]
fn an_ended_claim_is_forgotten_only_after_the_longest_renewal_that_can_still_be_written() {
    let world = World::leased(LONG);
    let claimed = world.claim(Timestamp::now());
    let (task, id) = (&claimed.task, &claimed.claim.id);
    world.vault.release(task, id, &Release::success(), Timestamp::now()).unwrap().unwrap();
    assert!(!world.vault.confirm(task, id, Timestamp::now()).unwrap(), "which ends it once more");
    sweep(&world);
    assert!(world.path(&claimed).exists(), "a late renewal would last for half an hour");
    world.rewrite(&claimed, |file| {
        let latest = millis_since_boot() + 1_800_000;
        assert!(file["kept_ms"].as_u64().unwrap() <= latest, "not longer than a lease");
        // As if it had ended when the machine was started.
        ["heard_ms", "until_ms", "kept_ms"].iter().for_each(|key| file[*key] = 0.into());
    });
    sweep(&world);
    assert!(!world.path(&claimed).exists());
}

#[test]
fn a_claim_that_a_person_ends_has_ended_on_this_machine_at_once() {
    let world = World::leased(LONG);
    let claimed = world.claim(Timestamp::now());
    let (task, id) = (&claimed.task, &claimed.claim.id);
    world.vault.give_back(task, "ada", Some(id), Timestamp::now()).unwrap().unwrap();
    assert!(!world.lasts(&claimed));
    assert!(world.vault.renew(task, id, Timestamp::now()).unwrap().is_err());
    assert!(!world.vault.verify(task, id, Timestamp::now()).unwrap() && !world.lasts(&claimed));
}

#[test]
fn the_store_is_asked_from_time_to_time_whether_a_person_has_ended_a_claim() {
    let world = World::leased(LONG);
    let claimed = world.claim(Timestamp::now());
    let (task, id) = (&claimed.task, &claimed.claim.id);
    let is_due = || world.deadlines.is_due(id).unwrap();
    let earlier = |key: &str, seconds: u64| {
        let time = millis_since_boot().saturating_sub(seconds * 1000);
        world.rewrite(&claimed, |file| file[key] = time.into());
    };
    assert!(!is_due(), "it was just heard");
    earlier("heard_ms", 31);
    assert!(is_due());
    assert!(!is_due(), "it is being asked");
    earlier("asked_ms", 6);
    assert!(is_due(), "it did not answer");
    assert!(world.vault.confirm(task, id, Timestamp::now()).unwrap());
    earlier("asked_ms", 6);
    assert!(!is_due(), "it answered");
    earlier("confirmed_ms", 31);
    assert!(is_due());
    // Another task of the same agent tells nothing about this claim.
    world.vault.add(&"y".parse().unwrap(), b"do it", Timestamp::now()).unwrap();
    assert!(!world.vault.verify(&"y".parse().unwrap(), id, Timestamp::now()).unwrap());
    assert!(world.lasts(&claimed));
}

#[test]
fn a_question_that_cannot_be_noted_refuses_nothing() {
    let world = World::leased(LONG);
    let claimed = world.claim(Timestamp::now());
    world.rewrite(&claimed, |file| file["heard_ms"] = millis_since_boot().saturating_sub(31_000).into());
    // As on a disk that takes no more files.
    let lock = world.keep.path().join("deadlines").join("lock");
    let _ = fs::remove_file(&lock);
    fs::create_dir(&lock).unwrap();
    assert!(!world.deadlines.is_due(&claimed.claim.id).unwrap());
    assert!(world.lasts(&claimed));
}

#[test]
fn what_the_store_answers_counts_even_if_it_cannot_be_noted() {
    let world = World::leased(LONG);
    let claimed = world.claim(Timestamp::now());
    let (task, id) = (&claimed.task, &claimed.claim.id);
    // As on a disk that takes no more files.
    let lock = world.keep.path().join("deadlines").join("lock");
    fs::remove_file(&lock).unwrap();
    fs::create_dir(&lock).unwrap();
    assert!(world.vault.heartbeat(task, id).unwrap());
    world.vault.renew(task, id, Timestamp::now()).unwrap().unwrap();
    assert!(world.lasts(&claimed), "until the deadline that was noted before");
}
