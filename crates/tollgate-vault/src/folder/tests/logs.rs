//! The logs: steps that are under way, interrupted or owed, between processes and on a full disk.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;

use super::{Died, Fate, NOW, World, asked, claimed, later, options, refused};
use crate::DenialReason;
use crate::claim::ClaimId;
use crate::event::{Entry, EventPage, Journal, MemoryJournal};
use crate::figures::Tally;
use crate::folder::log::stripe_of;
use crate::folder::{FolderOptions, FolderStore};
use crate::owner::{ClaimKind, ClaimRequest};
use crate::rules::Terms;
use crate::rules::{self, Release};
use crate::state::{Slot, State};
use crate::step::StepOutcome;
use crate::store::Store;
use crate::vault::Vault;
use tollgate_base::error::Result;
use tollgate_base::name::{Agent, StepId};
use tollgate_base::task::TaskName;

#[test]
fn two_workspaces_share_a_vault() {
    struct Named(&'static str, MemoryJournal);
    impl Journal for Named {
        fn id(&self) -> &str {
            self.0
        }
        fn append(&self, events: &[Entry]) -> Result<()> {
            self.1.append(events)
        }
        fn has(&self, step: &StepId, since: Timestamp) -> Result<bool> {
            self.1.has(step, since)
        }
        fn events(&self, after: &str, limit: usize) -> Result<EventPage> {
            self.1.events(after, limit)
        }
        fn tallies(&self) -> Result<BTreeMap<Agent, Tally>> {
            self.1.tallies()
        }
    }
    let world = World::new();
    let journals = ["one", "two"].map(|name| Arc::new(Named(name, MemoryJournal::default())));
    let [one, two] = journals.clone().map(|journal| {
        let store = FolderOptions { journal, ..options(&world.journal) };
        FolderStore::open(world.folder.path(), store).unwrap()
    });
    let vault = |store: &FolderStore| Vault::new(Arc::new(store.clone()), Terms::default());
    let task: TaskName = "x".parse().unwrap();
    vault(&one).add(&task, b"text", NOW).unwrap();
    let owner = claimed(vault(&one).claim(&task, &asked("a"), later()).unwrap());
    assert_eq!(refused(vault(&two).claim(&task, &asked("a"), later()).unwrap()).reason(), DenialReason::Lost);
    // The first dies between the move and its ledger line; the second settles it, but not into its own ledger.
    struct Deaf(Arc<Named>);
    impl Journal for Deaf {
        fn id(&self) -> &str {
            self.0.id()
        }
        fn append(&self, _events: &[Entry]) -> Result<()> {
            std::panic::resume_unwind(Box::new(Died))
        }
        fn has(&self, step: &StepId, since: Timestamp) -> Result<bool> {
            self.0.has(step, since)
        }
        fn events(&self, after: &str, limit: usize) -> Result<EventPage> {
            self.0.events(after, limit)
        }
        fn tallies(&self) -> Result<BTreeMap<Agent, Tally>> {
            self.0.tallies()
        }
    }
    let mut dying = one.clone();
    dying.options.journal = Arc::new(Deaf(Arc::clone(&journals[0])));
    let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        vault(&dying).release(&task, &owner.claim.id, &Release::success(), later())
    }));
    assert!(died.is_err());
    vault(&two).store().heal().unwrap();
    assert!(world.at("Done/x.md").exists());
    assert_eq!(journals[1].1.all().len(), 0, "not its business");
    assert_eq!(journals[0].1.all().len(), 1);
    let found = |store: &FolderStore| {
        store.checkup().unwrap().into_iter().map(|finding| finding.what).collect::<Vec<_>>()
    };
    assert_eq!(found(&two), ["steps with events for the ledgers of other workspaces: 1"]);
    for _ in 0..2 {
        vault(&one).store().heal().unwrap();
        assert_eq!(journals[0].1.all().len(), 2, "once, when the first comes back");
    }
    assert_eq!(found(&two), Vec::<String>::new());
    fs::write(world.at(".tollgate/vault/owed/s-0123456789abcdef"), "{").unwrap();
    let found = found(&one);
    assert!(
        found.len() == 1 && found[0].ends_with("cannot be read: 1; their events are in no ledger"),
        "{found:?}"
    );
}

#[test]
fn another_format_is_refused() {
    let world = World::new();
    let path = world.at(".tollgate/vault/format");
    let refused = |format: &str| {
        fs::write(&path, format).unwrap();
        let error = FolderStore::open(world.folder.path(), options(&world.journal)).map(|_| ()).unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), format, "it is left alone");
        error
    };
    assert_eq!(refused("3\n").code(), "NEWER_FORMAT");
    assert!(refused("1\n").to_string().contains("has format 1, from before the first release"));
}

/// Twenty tasks in the hands of one agent, all of the stripe 7, so that one log grows.
fn one_long_log(world: &World, now: Timestamp) -> (PathBuf, Vec<TaskName>, Vec<ClaimId>) {
    let names = (0..).map(|number| format!("task {number}").parse::<TaskName>().unwrap());
    let tasks: Vec<TaskName> = names.filter(|name| stripe_of(name) == 7).take(20).collect();
    let asked = ClaimRequest { agent: "blue".parse().unwrap(), kind: ClaimKind::Leased, renamed_in: true };
    let mut claims = Vec::new();
    for task in &tasks {
        world.vault.add(task, b"x\n", NOW).unwrap();
        claims.push(claimed(world.vault.claim(task, &asked, now).unwrap()).claim.id);
    }
    (world.folder.path().join(".tollgate/vault/logs/07"), tasks, claims)
}

#[test]
fn a_log_that_cannot_be_rewritten_goes_on() {
    for act in ["create", "replace"] {
        let (world, now) = (World::new(), Timestamp::now());
        let (log, tasks, claims) = one_long_log(&world, now);
        let full = world.with(|store| {
            let fate = move |at| if at == act { Fate::Fail(libc::ENOSPC) } else { Fate::Go };
            store.set_fates(Arc::new(fate));
        });
        let before = fs::metadata(&log).unwrap().ino();
        for round in 0..200 {
            let (task, id) = (&tasks[round % 20], &claims[round % 20]);
            assert_eq!(full.progress(task, id, "on the way", now).unwrap(), Ok(()));
        }
        let found = fs::metadata(&log).unwrap();
        assert!(found.ino() == before && found.len() > 100 << 10, "{act}: {} bytes", found.len());
        // There is room again.
        assert_eq!(world.vault.progress(&tasks[0], &claims[0], "on the way", now).unwrap(), Ok(()));
        assert!(fs::metadata(&log).unwrap().len() < 64 << 10, "{act}");
        for (task, id) in tasks.iter().zip(&claims) {
            assert!(full.verify(task, id, now).unwrap() && world.vault.verify(task, id, now).unwrap());
        }
    }
}

#[test]
fn processes_see_each_others_logs_while_they_are_rewritten() {
    let (world, now) = (World::new(), Timestamp::now());
    let other = FolderStore::open(world.folder.path(), options(&world.journal)).unwrap();
    let other = Vault::new(Arc::new(other), Terms::default());
    let vaults = [&world.vault, &other];
    // It is read in parts and rewritten several times.
    let (log, tasks, claims) = one_long_log(&world, now);
    let mut rewritten = 0;
    for round in 0..300 {
        let before = fs::metadata(&log).unwrap().ino();
        let (task, id) = (&tasks[round % 20], &claims[round % 20]);
        assert_eq!(vaults[round % 2].progress(task, id, "on the way", now).unwrap(), Ok(()));
        rewritten += u32::from(fs::metadata(&log).unwrap().ino() != before);
        for vault in vaults {
            assert!(vault.verify(task, id, now).unwrap(), "round {round}");
        }
    }
    assert!(rewritten > 2, "rewritten {rewritten} times");
    for (number, (task, id)) in tasks.iter().zip(&claims).enumerate() {
        let released = vaults[number % 2].release(task, id, &Release::success(), now).unwrap();
        assert!(released.is_ok());
        assert!(vaults.iter().all(|vault| !vault.verify(task, id, now).unwrap()));
    }
    assert!(world.store.read_log(7).unwrap().notes.is_empty());
}

#[test]
fn another_process_recognises_a_step_that_was_taken() {
    let world = World::new();
    let other = FolderStore::open(world.folder.path(), options(&world.journal)).unwrap();
    for (name, to) in [("x", State::Done), ("y", State::PendingApproval)] {
        let task: TaskName = name.parse().unwrap();
        world.vault.add(&task, b"text", NOW).unwrap();
        let owner = claimed(world.vault.claim(&task, &asked("a"), later()).unwrap());
        let found = world.store.get(&task, None, later()).unwrap().unwrap();
        let how = Release { to: Some(to), ..Release::success() };
        let step = rules::release(&found, &owner.claim, &how, &Terms::default(), later()).unwrap();
        let before = world.journal.all().len();
        for store in [&world.store, &other, &world.store] {
            let outcome = store.apply(&step).unwrap();
            assert!(
                matches!(outcome, StepOutcome::Done(landed) if landed.task == task && landed.slot == Slot::Free(to))
            );
            assert_eq!(world.journal.all().len(), before + 1, "one effect, one event");
        }
    }
}

#[test]
fn state_that_is_deleted_while_in_use_is_reported() {
    let world = World::new();
    let (now, task) = (Timestamp::now(), "x".parse::<TaskName>().unwrap());
    let asked = ClaimRequest { agent: "blue".parse().unwrap(), kind: ClaimKind::Leased, renamed_in: true };
    world.vault.add(&task, b"x\n", NOW).unwrap();
    claimed(world.vault.claim(&task, &asked, now).unwrap());
    fs::remove_dir_all(world.folder.path().join(".tollgate")).unwrap();
    let fault = world.vault.queue(&asked, now).unwrap_err().to_string();
    assert!(fault.contains("start tollgate again"), "{fault}");
    let after = FolderStore::open(world.folder.path(), options(&world.journal)).unwrap();
    assert!(Vault::new(Arc::new(after), Terms::default()).queue(&asked, now).unwrap().is_empty());
}

#[test]
fn a_release_that_was_interrupted_is_finished_by_the_next_look() {
    let world = World::new();
    let (now, task) = (Timestamp::now(), "x".parse::<TaskName>().unwrap());
    let asked = ClaimRequest { agent: "blue".parse().unwrap(), kind: ClaimKind::Leased, renamed_in: true };
    world.vault.add(&task, b"x\n", NOW).unwrap();
    let id = claimed(world.vault.claim(&task, &asked, now).unwrap()).claim.id;
    dies(|| dying(&world, "move").release(&task, &id, &Release::success(), now));
    assert!(world.at("In_Progress/blue/x.md").exists());
    // Every process that asks for this task finishes its pending step, not only one that heals all of them.
    let other = FolderStore::open(world.folder.path(), options(&world.journal)).unwrap();
    assert!(!Vault::new(Arc::new(other), Terms::default()).verify(&task, &id, now).unwrap());
    assert!(world.at("Done/x.md").exists());
}

/// A vault whose user dies before this act.
fn dying(world: &World, act: &'static str) -> Vault {
    world.with(|store| {
        store.set_fates(Arc::new(move |at| if at == act { Fate::Die } else { Fate::Go }));
    })
}

fn dies<T>(act: impl FnOnce() -> T) {
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(act)).is_err());
}

/// Two tasks of one stripe.
fn neighbours(world: &World) -> [TaskName; 2] {
    let names = (0..).map(|number| format!("task {number}").parse::<TaskName>().unwrap());
    let mut names = names.filter(|name| stripe_of(name) == 7);
    std::array::from_fn(|_| {
        let name = names.next().unwrap();
        world.vault.add(&name, b"x\n", NOW).unwrap();
        name
    })
}

#[test]
fn a_claim_and_a_queue_heal_first() {
    let world = World::new();
    let [first, second] = neighbours(&world);
    let mut queue = world.vault.queue(&asked("blue"), later()).unwrap();
    // After the move: the file is in nobody's hands.
    dies(|| dying(&world, "write").claim(&first, &asked("red"), later()));
    assert!(world.at("In_Progress/red").join(first.as_str()).exists());
    let Some(taken) = world.vault.next(&mut queue, &asked("blue"), later()) else {
        panic!("the other one is there")
    };
    assert_eq!(taken.task, second);
    assert!(world.store.read_log(7).unwrap().pending.is_none(), "the claim of its neighbour healed it");
    assert!(world.at("Needs_Action").join(first.as_str()).exists());
    dies(|| dying(&world, "write").claim(&first, &asked("red"), later()));
    let (taken, _) = world.vault.claim_next(&asked("blue"), later()).unwrap();
    assert_eq!(taken.unwrap().task, first, "its claim was rolled back, so it can be claimed");
}

#[test]
fn an_owners_step_first_heals_its_stripe() {
    let world = World::new();
    let [first, second] = neighbours(&world);
    let mine = claimed(world.vault.claim(&second, &asked("blue"), later()).unwrap());
    dies(|| dying(&world, "write").claim(&first, &asked("red"), later()));
    let done = world.vault.release(&second, &mine.claim.id, &Release::success(), later()).unwrap();
    assert!(done.is_ok());
    assert!(world.at("Needs_Action").join(first.as_str()).exists());
    assert!(world.store.read_log(7).unwrap().pending.is_none());
}

#[test]
fn a_log_that_has_grown_loses_nothing_when_it_is_rewritten() {
    let world = World::new();
    let [first, second] = neighbours(&world);
    let asked = ClaimRequest { kind: ClaimKind::Leased, ..asked("blue") };
    let mine = claimed(world.vault.claim(&first, &asked, later()).unwrap()).claim.id;
    let log = world.at(".tollgate/vault/logs/07");
    let (mut len, mut rewritten) = (0, 0);
    for _ in 0..60 {
        // Healing and a step under the same lock, at every size of the log.
        dies(|| dying(&world, "write").claim(&second, &asked, later()));
        assert!(world.vault.renew(&first, &mine, later()).unwrap().is_ok());
        assert!(world.vault.verify(&first, &mine, later()).unwrap());
        let now = fs::metadata(&log).unwrap().len();
        rewritten += usize::from(now < len);
        len = now;
    }
    assert!(rewritten > 0, "it has {len} bytes");
    assert!(world.at("Needs_Action").join(second.as_str()).exists());
    assert!(world.vault.release(&first, &mine, &Release::success(), later()).unwrap().is_ok());
    assert!(world.store.read_log(7).unwrap().notes.is_empty());
}

#[test]
fn a_full_disk_leaves_the_log_readable() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    // Of a claim: the plan, the mark that it was done. Then the mark that it was taken back.
    for failing in 0..3 {
        let world = World::new();
        let task: TaskName = "x".parse().unwrap();
        world.vault.add(&task, b"x\n", NOW).unwrap();
        let written = AtomicUsize::new(0);
        let full = world.with(|store| {
            store.set_fates(Arc::new(move |act| {
                let number = if act == "note" { written.fetch_add(1, Ordering::SeqCst) } else { usize::MAX };
                // The mark, and the mark of the rollback.
                let fails = number == failing || failing == 2 && number == 1;
                if fails { Fate::Fail(libc::ENOSPC) } else { Fate::Go }
            }));
        });
        let asked =
            ClaimRequest { agent: "blue".parse().unwrap(), kind: ClaimKind::Leased, renamed_in: true };
        assert!(full.claim(&task, &asked, Timestamp::now()).is_err());
        let state = world.store.read_log(stripe_of(&task)).unwrap();
        assert_eq!((state.notes.len(), state.pending.is_some()), (0, failing == 2), "{failing}");
        assert!(world.at("Needs_Action/x.md").exists());
        claimed(world.vault.claim(&task, &asked, Timestamp::now()).unwrap());
    }
}

#[test]
fn a_log_is_locked_by_one_thread_at_a_time() {
    let world = World::new();
    let lock = |store: &FolderStore| store.lock_log(7, Duration::ZERO).unwrap();
    let clone = world.store.clone();
    // The second time its file is still open.
    for _ in 0..2 {
        let first = lock(&world.store);
        assert!(first.is_some());
        assert!(lock(&clone).is_none());
        drop(first);
    }
}

#[test]
fn a_task_that_somebody_is_claiming_is_no_longer_there() {
    let world = World::new();
    let [task, neighbour] = neighbours(&world);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (others, told, names) = (world.store.clone(), Arc::clone(&seen), [task.clone(), neighbour]);
    let claiming = world.with(|store| {
        store.set_fates(Arc::new(move |act| {
            if act == "move" {
                let is_there = |name: &TaskName, state| others.get(name, state, later()).unwrap().is_some();
                let free = Some(State::NeedsAction);
                let [task, neighbour] = &names;
                let found = [is_there(task, free), is_there(task, None), is_there(neighbour, free)];
                told.lock().unwrap().push(found);
            }
            Fate::Go
        }));
    });
    claimed(claiming.claim(&task, &asked("red"), later()).unwrap());
    assert_eq!(*seen.lock().unwrap(), [[false, true, true]]);
}

#[test]
fn an_interrupted_step_with_a_long_plan_is_found() {
    let world = World::new();
    let [task, _] = neighbours(&world);
    let mine = claimed(world.vault.claim(&task, &asked("blue"), later()).unwrap());
    dies(|| dying(&world, "write").progress(&task, &mine.claim.id, &"long ".repeat(1000), later()));
    assert_eq!(world.store.heal().unwrap(), 1);
    assert_eq!(world.store.heal().unwrap(), 0);
}
