//! Death before every file-changing act of every verb, half-made writes, death while healing, and a full disk: nothing
//! is lost, nothing is doubled, and the task can be worked afterwards.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Died, Fate, Fates, NOW};
use crate::claim::Claim;
use crate::event::{Entry, EventPage, Journal, MemoryJournal};
use crate::figures::Tally;
use crate::folder::log_line::LogState;
use crate::folder::{FolderOptions, FolderStore};
use crate::owner::{ClaimKind, ClaimRequest, Claimed};
use crate::roles::{Role, Roles};
use crate::rules::{Release, Terms};
use crate::state::State;
use crate::store::Store;
use crate::vault::Vault;
use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Result};
use tollgate_base::name::{Agent, StepId};
use tollgate_base::settings::Durability;
use tollgate_base::task::TaskName;

const AUTHOR: &str = "---\naction: pay\n---\nten coins, no newline at the end";

/// A journal that one can die before and after writing to.
struct Ledger {
    inner: MemoryJournal,
    fates: Mutex<Option<Fates>>,
}

impl Ledger {
    fn point(&self, act: &'static str) -> Result<()> {
        let fates = self.fates.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match fates.map_or(Fate::Go, |fates| fates(act)) {
            Fate::Go | Fate::DieHalf => Ok(()),
            Fate::Die => resume_unwind(Box::new(Died)),
            Fate::Fail(code) => Err(io::Error::from_raw_os_error(code)).at("append to", "ledger"),
        }
    }
}

impl Journal for Ledger {
    fn id(&self) -> &str {
        "ledger"
    }

    fn append(&self, events: &[Entry]) -> Result<()> {
        self.point("before the ledger")?;
        self.inner.append(events)?;
        self.point("after the ledger")
    }

    fn has(&self, step: &StepId, since: Timestamp) -> Result<bool> {
        self.inner.has(step, since)
    }

    fn events(&self, after: &str, limit: usize) -> Result<EventPage> {
        self.inner.events(after, limit)
    }

    fn tallies(&self) -> Result<BTreeMap<Agent, Tally>> {
        self.inner.tallies()
    }
}

pub(super) struct World {
    pub(super) folder: tempfile::TempDir,
    ledger: Arc<Ledger>,
    pub(super) task: TaskName,
}

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(10_000_000_000 + second).unwrap()
}

pub(super) fn asked(who: &str) -> ClaimRequest {
    ClaimRequest { agent: who.parse().unwrap(), kind: ClaimKind::Held, renamed_in: false }
}

impl World {
    pub(super) fn new() -> Self {
        let ledger = Ledger { inner: MemoryJournal::default(), fates: Mutex::new(None) };
        let world = Self {
            folder: tempfile::tempdir().unwrap(),
            ledger: Arc::new(ledger),
            task: "x".parse().unwrap(),
        };
        world.vault(None).add(&world.task, AUTHOR.as_bytes(), NOW).unwrap();
        world
    }

    fn store(&self, fates: Option<Fates>) -> FolderStore {
        *self.ledger.fates.lock().unwrap_or_else(PoisonError::into_inner) = fates.clone();
        let options = FolderOptions {
            durability: Durability::Fast,
            settle: Duration::from_secs(2),
            journal: Arc::clone(&self.ledger) as Arc<dyn Journal>,
            quiet: None,
        };
        let mut store = FolderStore::open(self.folder.path(), options).unwrap();
        store.disk.fates = fates;
        store
    }

    pub(super) fn vault(&self, fates: Option<Fates>) -> Vault {
        let role = |allowed: &[&str], sensitive: &[&str]| Role {
            role: None,
            allowed: allowed.iter().map(|a| (*a).to_owned()).collect(),
            sensitive: sensitive.iter().map(|a| (*a).to_owned()).collect(),
        };
        let roles = [("cloud", role(&[], &["pay"])), ("local", role(&["pay"], &[]))];
        let roles = Roles::of(roles.into_iter().map(|(name, role)| (name.parse().unwrap(), role)).collect());
        Vault::new(Arc::new(self.store(fates)), Terms { roles, retry: Vec::new(), ..Terms::default() })
    }

    pub(super) fn claim(&self, who: &str) -> Claimed {
        match self.vault(None).claim(&self.task, &asked(who), at(1)).unwrap() {
            Ok(claimed) => claimed,
            Err(not) => panic!("{not:?}"),
        }
    }

    fn draft(&self) {
        let claimed = self.claim("cloud");
        let done =
            self.vault(None).release(&self.task, &claimed.claim.id, &Release::success(), at(2)).unwrap();
        assert!(done.is_ok());
    }

    fn approve(&self) {
        self.draft();
        let yes = self.vault(None).approve(&self.task, "me", None, at(3)).unwrap();
        assert!(yes.is_ok());
    }

    /// Every file that is, or was, the task; wherever it is.
    pub(super) fn files(&self) -> Vec<(String, Vec<u8>)> {
        let mut files = Vec::new();
        let mut folders = vec![self.folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() && !path.ends_with(".tollgate") {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "md") {
                    let shown = path.strip_prefix(self.folder.path()).unwrap().display().to_string();
                    files.push((shown, fs::read(&path).unwrap()));
                }
            }
        }
        files
    }

    /// Heals without dying. A process that another test is just starting has a copy of every lock for an instant, in
    /// which a lock looks held; so it is tried until nothing is under way.
    pub(super) fn heal(&self) {
        let mut pauses = tollgate_base::lock::Pauses::lasting(Duration::from_secs(10));
        loop {
            self.store(None).heal().unwrap();
            if self.pending() == 0 || !pauses.pause() {
                return;
            }
        }
    }

    fn logs(&self) -> Vec<Arc<LogState>> {
        let store = self.store(None);
        (0..=u8::MAX).map(|stripe| store.read_log(stripe).unwrap()).collect()
    }

    fn pending(&self) -> usize {
        self.logs().iter().filter(|known| known.pending.is_some()).count()
    }

    fn kinds(&self) -> Vec<String> {
        self.ledger.inner.all().iter().map(|event| event.event.action_type().to_owned()).collect()
    }

    /// What must hold once everything is settled, wherever it died.
    pub(super) fn check(&self, told: &str) -> String {
        let files = self.files();
        assert_eq!(
            files.len(),
            1,
            "{told}: exactly one file: {:?}",
            files.iter().map(|f| &f.0).collect::<Vec<_>>()
        );
        let (place, bytes) = files.into_iter().next().unwrap();
        assert!(bytes.starts_with(AUTHOR.as_bytes()), "{told}: the author's bytes stay");
        assert_eq!(self.pending(), 0, "{told}: nothing is under way");
        for folder in ["stage", "owed"] {
            let left = fs::read_dir(self.folder.path().join(".tollgate/vault").join(folder)).unwrap().count();
            assert_eq!(left, 0, "{told}: nothing is left in {folder}");
        }
        let text = String::from_utf8(bytes).unwrap();
        assert!(!text.contains('\0'), "{told}: {text:?}");
        let events = self.ledger.inner.all();
        let claims = events.iter().filter(|event| event.event.action_type() == "CLAIM").count();
        let ends = |kind| events.iter().filter(|event| event.event.action_type() == kind).count();
        let open = usize::from(place.starts_with("In_Progress"));
        assert_eq!(
            claims,
            ends("RELEASE") + ends("RECLAIM") + open,
            "{told}: every claim has its end: {events:?}"
        );
        let (figures, _) = self.vault(None).figures(NOW).unwrap();
        assert_eq!(figures.total_claims, claims as u64, "{told}: every claim is counted once");
        assert_eq!(text.matches("**Status**: processing").count(), open, "{told}: {text}");
        assert_eq!(
            text.matches("<!-- tollgate c-").count(),
            text.matches("## Progress").count(),
            "{told}: {text}"
        );
        assert_eq!(
            text.matches("## Completion").count() + open,
            text.matches("<!-- tollgate c-").count(),
            "{told}"
        );
        place
    }
}

/// Runs `act` after `setup`, with a fate at its Nth file change, for every N; heals, dying once more while healing;
/// checks; and then lets the task be worked to its end.
fn every_death(
    name: &str,
    fate: Fate,
    setup: impl Fn(&World) -> Option<Claimed>,
    act: impl Fn(&Vault, &World, Option<&Claimed>) -> Result<()>,
    places: &[&str],
) {
    let mut seen = Vec::new();
    for n in 0.. {
        // And while healing, at its Mth change.
        for m in 0.. {
            let world = World::new();
            let owner = setup(&world);
            let acts = Arc::new(AtomicUsize::new(0));
            let fates = |stop: usize, acts: &Arc<AtomicUsize>| -> Fates {
                let acts = Arc::clone(acts);
                Arc::new(move |_| if acts.fetch_add(1, Ordering::SeqCst) == stop { fate } else { Fate::Go })
            };
            let vault = world.vault(Some(fates(n, &acts)));
            let result = catch_unwind(AssertUnwindSafe(|| act(&vault, &world, owner.as_ref())));
            let finished = acts.load(Ordering::SeqCst) <= n;
            if finished {
                assert!(matches!(result, Ok(Ok(()))), "{name}: {:?}", result.map_err(|_| "died"));
            }
            drop((vault, owner));
            let acts = Arc::new(AtomicUsize::new(0));
            let healer = world.store(Some(fates(m, &acts)));
            let _ = catch_unwind(AssertUnwindSafe(|| healer.heal()));
            let healed_undisturbed = acts.load(Ordering::SeqCst) <= m;
            world.heal();
            let told = format!("{name}, {fate:?} at {n}, then at {m}");
            let place = world.check(&told);
            assert!(places.contains(&place.as_str()), "{told}: it is in {place}, not one of {places:?}");
            finish(&world, &told);
            if !seen.contains(&place) {
                seen.push(place);
            }
            if healed_undisturbed {
                break;
            }
        }
        let world = World::new();
        let owner = setup(&world);
        let acts = Arc::new(AtomicUsize::new(0));
        let counter: Fates = {
            let acts = Arc::clone(&acts);
            Arc::new(move |_| {
                acts.fetch_add(1, Ordering::SeqCst);
                Fate::Go
            })
        };
        act(&world.vault(Some(counter)), &world, owner.as_ref()).unwrap();
        if acts.load(Ordering::SeqCst) <= n {
            break;
        }
    }
    assert!(
        seen.iter().any(|place| *place == places[places.len() - 1]),
        "{name} was never finished: {seen:?}"
    );
}

/// Whatever happened, the task can be worked to its end.
pub(super) fn finish(world: &World, told: &str) {
    let vault = world.vault(None);
    let mut pauses = tollgate_base::lock::Pauses::lasting(Duration::from_secs(10));
    // Until everything that nobody holds is taken back; see `World::heal`.
    while {
        vault.reclaim(at(1_000_000)).unwrap();
        let state = vault.get(&world.task, at(5)).unwrap().slot.state();
        state == State::InProgress && pauses.pause()
    } {}
    for _ in 0..3 {
        let stored = vault.get(&world.task, at(5)).unwrap();
        match stored.slot.state() {
            State::Done | State::Rejected => break,
            State::PendingApproval => {
                let yes = vault.approve(&world.task, "me", None, at(6)).unwrap();
                assert!(yes.is_ok(), "{told}");
            }
            State::NeedsAction | State::Approved => {
                let Ok(claimed) = vault.claim(&world.task, &asked("local"), at(7)).unwrap() else {
                    panic!("{told}: it cannot be claimed")
                };
                let done = vault.release(&world.task, &claimed.claim.id, &Release::success(), at(8)).unwrap();
                assert!(done.is_ok(), "{told}");
            }
            State::InProgress => panic!("{told}: stuck behind a dead owner"),
        }
    }
    let place = world.check(told);
    assert!(place.starts_with("Done") || place.starts_with("Rejected"), "{told}: {place}");
    let notes: usize = world.logs().iter().map(|known| known.notes.len()).sum();
    assert_eq!(notes, 0, "{told}: nothing is kept of a task that is final");
}

fn all_verbs(fate: Fate) {
    every_death(
        "claim",
        fate,
        |_| None,
        |vault, world, _| vault.claim(&world.task, &asked("local"), at(1)).map(drop),
        &["Needs_Action/x.md", "In_Progress/local/x.md"],
    );
    every_death(
        "claim what was approved",
        fate,
        |world| {
            world.approve();
            None
        },
        |vault, world, _| vault.claim(&world.task, &asked("local"), at(4)).map(drop),
        &["Approved/x.md", "In_Progress/local/x.md"],
    );
    for (name, how, to) in [
        ("release", Release::success(), "Done/x.md"),
        (
            "release to approval",
            Release { to: Some(State::PendingApproval), ..Release::success() },
            "Pending_Approval/x.md",
        ),
        (
            "release to rejected",
            Release { to: Some(State::Rejected), ..Release::failure("no") },
            "Rejected/x.md",
        ),
    ] {
        every_death(
            name,
            fate,
            |world| Some(world.claim("local")),
            |vault, world, owner| {
                let id = &owner.unwrap().claim.id;
                assert_eq!(vault.progress(&world.task, id, "half way", at(2))?, Ok(()));
                vault.release(&world.task, id, &how, at(2)).map(drop)
            },
            &["In_Progress/local/x.md", to],
        );
    }
    every_death(
        "approve",
        fate,
        |world| {
            world.draft();
            None
        },
        |vault, world, _| vault.approve(&world.task, "me", None, at(3)).map(drop),
        &["Pending_Approval/x.md", "Approved/x.md"],
    );
    every_death(
        "edit and approve",
        fate,
        |world| {
            world.draft();
            None
        },
        |vault, world, _| {
            let text = String::from_utf8(world.files().remove(0).1).unwrap();
            let seen = Digest::of(text.as_bytes());
            let text = text.replace("**Result**: success", "**Result**: ok");
            vault.amend(&world.task, "me", seen, &text, at(3)).map(drop)
        },
        &["Pending_Approval/x.md", "Approved/x.md"],
    );
    every_death(
        "reject",
        fate,
        |world| {
            world.draft();
            None
        },
        |vault, world, _| vault.reject(&world.task, "me", "no", at(3)).map(drop),
        &["Pending_Approval/x.md", "Rejected/x.md"],
    );
    every_death(
        "reclaim",
        fate,
        |world| {
            drop(world.claim("cloud"));
            None
        },
        |vault, _, _| match vault.reclaim(at(3))? {
            (_, mut faults) if !faults.is_empty() => Err(faults.remove(0).1),
            _ => Ok(()),
        },
        &["In_Progress/cloud/x.md", "Needs_Action/x.md"],
    );
}

#[test]
fn killed_before_every_act() {
    all_verbs(Fate::Die);
}

#[test]
fn killed_in_the_middle_of_every_write() {
    all_verbs(Fate::DieHalf);
}

#[test]
fn the_disk_is_full_at_every_act() {
    all_verbs(Fate::Fail(libc::ENOSPC));
}

#[test]
fn what_was_approved_is_still_approved_after_a_cut_claim() {
    let world = World::new();
    world.approve();
    let before = world.files();
    for n in 0..6 {
        let acts = AtomicUsize::new(0);
        let fates: Fates =
            Arc::new(move |_| if acts.fetch_add(1, Ordering::SeqCst) == n { Fate::Die } else { Fate::Go });
        let vault = world.vault(Some(fates));
        assert!(catch_unwind(AssertUnwindSafe(|| vault.claim(&world.task, &asked("local"), at(4)))).is_err());
        world.heal();
        assert_eq!(world.files(), before, "killed at {n}");
    }
    let claimed = world.claim("local");
    assert_eq!(claimed.claim.attempts_from(&world), 2, "a claim that nobody was told of is no attempt");
    let kinds = world.kinds();
    assert_eq!(
        kinds.iter().filter(|kind| **kind == "CLAIM").count(),
        kinds.iter().filter(|kind| matches!(kind.as_str(), "RECLAIM" | "RELEASE")).count() + 1
    );
}

impl Claim {
    fn attempts_from(&self, world: &World) -> u32 {
        world.vault(None).get(&world.task, at(9)).unwrap().record.attempts
    }
}
