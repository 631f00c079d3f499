//! The folder store under the conformance suite.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::disk;
use super::layout::{FolderOptions, FolderStore};
use super::log::stripe_of;
use crate::claim::ClaimId;
use crate::claim_lock::Liveness;
use crate::conformance::{self, Harness, Interrupted};
use crate::event::{Cursor, Entry, EventPage, Journal, MemoryJournal};
use crate::figures::Tally;
use crate::owner::{ClaimKind, ClaimOutcome, ClaimRequest, Claimed};
use crate::queue::Next;
use crate::rules::Release;
use crate::state::{Slot, State};
use crate::step::Step;
use crate::store::Store;
use crate::vault::{Terms, Vault};
use crate::{ClaimDenied, Reason};
use tollgate_base::error::Result;
use tollgate_base::name::{Agent, StepId};
use tollgate_base::settings::Durability;
use tollgate_base::task::TaskName;

/// Stores in folders take the time from the files.
pub(super) const NOW: Timestamp = Timestamp::UNIX_EPOCH;

pub(super) fn options(journal: &Arc<MemoryJournal>) -> FolderOptions {
    FolderOptions {
        durability: Durability::Fast,
        settle: Duration::from_secs(2),
        journal: Arc::clone(journal) as Arc<dyn Journal>,
        quiet: None,
    }
}

fn harness() -> Harness {
    let folder = tempfile::tempdir().unwrap();
    let journal = Arc::new(MemoryJournal::default());
    let store = FolderStore::open(folder.path(), options(&journal)).unwrap();
    let (person, killer, dying) = (store.clone(), store.clone(), folder.path().to_owned());
    let kill = move |claimed: Claimed| {
        let claim = claimed.claim.clone();
        drop(claimed);
        // A process that another test is just starting has a copy of every lock for an instant.
        let mut pauses = tollgate_base::lock::Pauses::lasting(Duration::from_secs(10));
        while matches!(killer.liveness(&claim, NOW).unwrap(), Liveness::Alive) && pauses.pause() {}
    };
    let by_hand = move |task: &TaskName, from: &Slot, to: &Slot, text: Option<&[u8]>| {
        let _keep = &folder;
        let (from, to) = (person.path(task, from), person.path(task, to));
        if from != to {
            fs::rename(&from, &to).unwrap();
        }
        if let Some(text) = text {
            fs::write(&to, text).unwrap();
        }
    };
    let interrupt = move |step: &Step, act: usize| {
        // Another process: it shares nothing but the folder.
        let mut dying = FolderStore::open(&dying, options(&journal)).unwrap();
        let acts = std::sync::atomic::AtomicUsize::new(0);
        dying.set_fates(Arc::new(move |_| {
            let number = acts.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            if number == act { disk::Fate::Die } else { disk::Fate::Go }
        }));
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| dying.apply(step).map(drop))) {
            Ok(_) => Interrupted::No,
            Err(_) => Interrupted::Died,
        }
    };
    Harness {
        interrupt: Some(Box::new(interrupt)),
        ..Harness::new(Arc::new(store), Box::new(kill), Box::new(by_hand))
    }
}

#[test]
fn folders_conform() {
    conformance::run(&harness);
}

/// A store that heals nothing, to see that the suite notices.
#[test]
#[should_panic(expected = "verb 0, act")]
fn a_store_that_heals_nothing_does_not_conform() {
    conformance::check_interrupted_steps(&|| {
        let harness = harness();
        Harness { store: conformance::without_healing(harness.store), ..harness }
    });
}

/// A vault in a fresh folder, with the doors a test needs.
struct World {
    folder: tempfile::TempDir,
    journal: Arc<MemoryJournal>,
    store: FolderStore,
    vault: Vault,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let journal = Arc::new(MemoryJournal::default());
        let store = FolderStore::open(folder.path(), options(&journal)).unwrap();
        let vault = Vault::new(Arc::new(store.clone()), Terms::default());
        Self { folder, journal, store, vault }
    }

    fn with(&self, change: impl FnOnce(&mut FolderStore)) -> Vault {
        let mut store = self.store.clone();
        change(&mut store);
        Vault::new(Arc::new(store), Terms::default())
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }
}

/// Long after everything the tests write.
fn later() -> Timestamp {
    Timestamp::now() + jiff::SignedDuration::from_hours(1)
}

fn asked(who: &str) -> ClaimRequest {
    ClaimRequest { agent: who.parse().unwrap(), kind: ClaimKind::Leased, renamed_in: false }
}

fn claimed(claiming: ClaimOutcome) -> Claimed {
    match claiming {
        ClaimOutcome::Claimed(claimed) => *claimed,
        ClaimOutcome::Denied(not) => panic!("{not:?}"),
    }
}

fn refused(claiming: ClaimOutcome) -> ClaimDenied {
    match claiming {
        ClaimOutcome::Claimed(claimed) => panic!("{claimed:?}"),
        ClaimOutcome::Denied(not) => not,
    }
}

#[test]
fn a_task_that_is_being_written_is_not_claimed() {
    let world = World::new();
    let task: TaskName = "x".parse().unwrap();
    let path = world.at("Needs_Action/x.md");
    let written = Timestamp::now();
    fs::write(&path, "half of").unwrap();
    let not = refused(world.vault.claim(&task, &asked("a"), written).unwrap());
    assert!(
        not.reason() == Reason::Incomplete && not.wait().is_some_and(|wait| wait <= Duration::from_secs(3)),
        "{not:?}"
    );
    let (next, queue) = world.vault.claim_next(&asked("a"), written).unwrap();
    assert!(matches!(next, Next::Nothing(Some(_))) && queue.unfit.is_empty(), "it is worth waiting for");
    // Somebody has it open, however old it is.
    let open = world.with(|store| store.options.quiet = Some(|_| Ok(false)));
    let not = refused(open.claim(&task, &asked("a"), later()).unwrap());
    assert!(not.reason() == Reason::Incomplete && not.to_string().contains("open for writing"), "{not:?}");
    // Who saw the rename knows better than the dates.
    let hint = ClaimRequest { renamed_in: true, ..asked("a") };
    claimed(world.vault.claim(&task, &hint, written).unwrap());

    fs::write(world.at("y"), "whole").unwrap();
    filetime_back(&world.at("y"));
    fs::rename(world.at("y"), world.at("Needs_Action/y.md")).unwrap();
    claimed(world.vault.claim(&"y".parse().unwrap(), &asked("a"), Timestamp::now()).unwrap());

    fs::write(world.at("Needs_Action/z.md"), "").unwrap();
    let not = refused(world.vault.claim(&"z".parse().unwrap(), &asked("a"), later()).unwrap());
    assert!(not.to_string().contains("empty"));

    world.vault.add(&"added".parse().unwrap(), b"text", NOW).unwrap();
    claimed(world.vault.claim(&"added".parse().unwrap(), &asked("a"), Timestamp::now()).unwrap());

    fs::write(world.at("Needs_Action/old.md"), "text").unwrap();
    claimed(world.vault.claim(&"old".parse().unwrap(), &asked("a"), later()).unwrap());
}

/// As if it had been written a while ago.
fn filetime_back(path: &Path) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(std::time::SystemTime::now() - Duration::from_secs(1)).unwrap();
}

#[test]
fn unfit_files_do_not_stop_the_others() {
    use std::os::unix::ffi::OsStrExt;
    let world = World::new();
    let folder = world.at("Needs_Action");
    fs::write(folder.join(std::ffi::OsStr::from_bytes(b"\xff.md")), "x").unwrap();
    fs::write(folder.join("a\x1b[31m\n.md"), "x").unwrap();
    fs::create_dir(folder.join("folder.md")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", folder.join("link.md")).unwrap();
    let fifo = folder.join("pipe.md");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    fs::write(folder.join("broken.md"), "---\naction: pay\n").unwrap();
    fs::write(folder.join("notes.txt"), "x").unwrap();
    fs::write(folder.join(".hidden.md"), "x").unwrap();
    fs::write(folder.join("good.md"), "x").unwrap();
    let (next, queue) = world.vault.claim_next(&asked("a"), later()).unwrap();
    let Next::Claimed(claimed) = next else { panic!("{queue:?}") };
    assert_eq!(claimed.task.as_str(), "good.md");
    let mut names: Vec<_> = queue.unfit.iter().map(|unfit| unfit.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["a\\u{1b}[31m\\n.md", "broken.md", "folder.md", "link.md", "pipe.md", "\u{fffd}.md"]);
    for name in ["folder", "link", "pipe"] {
        let fault = world.vault.claim(&name.parse().unwrap(), &asked("a"), later()).unwrap_err();
        assert!(fault.to_string().contains("not a plain file"), "{fault}");
    }
    assert!(fs::symlink_metadata(&fifo).is_ok(), "and nothing was moved");
}

#[test]
fn names_and_sizes_at_the_limit() {
    let world = World::new();
    let long = TaskName::of_file(&format!("{}.md", "ö".repeat(126))).unwrap();
    for round in 0..2 {
        fs::write(world.at("Needs_Action").join(long.as_str()), format!("round {round}")).unwrap();
        let owner = claimed(world.vault.claim(&long, &asked("a"), later()).unwrap());
        let done = world.vault.release(&owner.task, &owner.claim.id, &Release::success(), later()).unwrap();
        let Ok(landed) = done else { panic!("{done:?}") };
        assert!(fs::read(landed.path.unwrap()).unwrap().starts_with(format!("round {round}").as_bytes()));
        assert_eq!(landed.task == long, round == 0, "the second gets a name beside the first");
    }
    assert_eq!(fs::read_dir(world.at("Done")).unwrap().count(), 2);

    let size = 100 << 20;
    File::create(world.at("Needs_Action/big.md")).unwrap().set_len(size).unwrap();
    let task = "big".parse().unwrap();
    let owner = claimed(world.vault.claim(&task, &asked("a"), later()).unwrap());
    world.vault.release(&task, &owner.claim.id, &Release::success(), later()).unwrap().unwrap();
    let meta = fs::metadata(world.at("Done/big.md")).unwrap();
    assert!(
        meta.len() > size && meta.blocks() * 512 < size,
        "its holes are still holes: it was never copied"
    );
}

#[test]
fn the_owner_may_rewrite_the_file() {
    let world = World::new();
    let task: TaskName = "x".parse().unwrap();
    world.vault.add(&task, b"text", NOW).unwrap();
    let owner = claimed(world.vault.claim(&task, &asked("a"), later()).unwrap());
    let path = owner.path.unwrap();
    // As editors save: another inode, and here without the block.
    fs::write(world.at("new"), "my own words, no block").unwrap();
    fs::rename(world.at("new"), &path).unwrap();
    let done = world.vault.release(&task, &owner.claim.id, &Release::success(), later()).unwrap();
    assert!(done.is_ok());
    let text = fs::read_to_string(world.at("Done/x.md")).unwrap();
    assert!(text.starts_with("my own words, no block\n<!-- tollgate c-"), "{text}");
    assert!(text.ends_with("**Next State**: Done\n"));
}

#[test]
fn a_claim_does_not_bring_back_a_file_that_a_person_moved_away() {
    let world = World::new();
    let task: TaskName = "x".parse().unwrap();
    for act in ["move", "write", "note"] {
        world.vault.add(&task, b"text", NOW).unwrap();
        let (here, there, away) =
            (world.at("Needs_Action/x.md"), world.at("In_Progress/a/x.md"), world.at("away.md"));
        let gone = away.clone();
        let vault = world.with(|store| {
            store.disk.fates = Some(Arc::new(move |at| {
                let source = if there.exists() { &there } else { &here };
                if at == act && source.exists() && (act == "move" || there.exists()) {
                    fs::rename(source, &gone).unwrap();
                }
                disk::Fate::Go
            }));
        });
        let answer = vault.claim(&task, &asked("a"), later()).unwrap();
        assert!(away.exists() && !world.at("In_Progress/a/x.md").exists(), "{act}");
        assert!(!world.at("Needs_Action/x.md").exists(), "{act}");
        if let ClaimOutcome::Claimed(owner) = answer {
            assert_eq!(act, "note", "taken away after the claim was made");
            assert!(!world.vault.verify(&task, &owner.claim.id, later()).unwrap());
            let done = world.vault.release(&task, &owner.claim.id, &Release::success(), later()).unwrap();
            assert!(done.is_err());
        }
        assert!(world.vault.reclaim(later()).unwrap().1.is_empty());
        assert!(world.store.logs.read(stripe_of(&task)).unwrap().notes.is_empty(), "{act}: swept");
        fs::remove_file(&away).unwrap();
    }
}

#[test]
fn a_fault_is_not_a_lost_race() {
    let world = World::new();
    for name in ["a", "b"] {
        world.vault.add(&name.parse().unwrap(), b"text", NOW).unwrap();
    }
    fs::write(world.at("In_Progress/blue"), "not a folder").unwrap();
    let (next, queue) = world.vault.claim_next(&asked("blue"), later()).unwrap();
    assert!(matches!(next, Next::Nothing(_)) && queue.faults.len() == 2, "{queue:?}");
    assert!(world.vault.claim(&"a".parse().unwrap(), &asked("blue"), later()).is_err());
    let failed = |event: &Entry| event.event.action_type() == "CLAIM_FAILED";
    assert!(world.journal.all().iter().all(failed), "nothing happened but failures");
    let (next, _) = world.vault.claim_next(&asked("red"), later()).unwrap();
    assert!(matches!(next, Next::Claimed(_)), "what one cannot do, another can");
    let (all, each) = world.vault.figures(NOW).unwrap();
    assert!((all.claim_success_rate - 0.25).abs() < 1e-9, "{all:?}");
    assert_eq!((all.claim_conflicts_avoided, each.len()), (0, 2));
}

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
        fn events(&self, after: &Cursor, limit: usize) -> Result<EventPage> {
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
    assert_eq!(refused(vault(&two).claim(&task, &asked("a"), later()).unwrap()).reason(), Reason::Lost);
    // The first dies between the move and its ledger line; the second settles it, but not into its own ledger.
    struct Deaf(Arc<Named>);
    impl Journal for Deaf {
        fn id(&self) -> &str {
            self.0.id()
        }
        fn append(&self, _events: &[Entry]) -> Result<()> {
            std::panic::resume_unwind(Box::new(disk::Died))
        }
        fn has(&self, step: &StepId, since: Timestamp) -> Result<bool> {
            self.0.has(step, since)
        }
        fn events(&self, after: &Cursor, limit: usize) -> Result<EventPage> {
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
    vault(&two).heal().unwrap();
    assert!(world.at("Done/x.md").exists());
    assert_eq!(journals[1].1.all().len(), 0, "not its business");
    assert_eq!(journals[0].1.all().len(), 1);
    for _ in 0..2 {
        vault(&one).heal().unwrap();
        assert_eq!(journals[0].1.all().len(), 2, "once, when the first comes back");
    }
}

#[test]
fn a_later_format_is_refused() {
    let world = World::new();
    fs::write(world.at(".tollgate/vault/format"), "3\n").unwrap();
    let error = FolderStore::open(world.folder.path(), options(&world.journal)).map(|_| ()).unwrap_err();
    assert_eq!(error.code(), "NEWER_FORMAT");
}

#[test]
fn the_cache_notices_every_change() {
    let world = World::new();
    for n in 0..100 {
        world.vault.add(&format!("t{n}").parse().unwrap(), b"---\npriority: normal\n---\n", NOW).unwrap();
    }
    let first = |vault: &Vault| {
        let line = vault.list(State::NeedsAction, later()).unwrap();
        let mut ranked: Vec<_> =
            line.tasks.iter().map(|l| (l.brief.clone().unwrap().priority, l.name.clone())).collect();
        ranked.sort();
        ranked[0].1.to_string()
    };
    first(&world.vault);
    let cache = world.at(".tollgate/vault/cache/Needs_Action");
    assert!(fs::metadata(&cache).unwrap().len() > 100 * 36);
    // The same size, in place.
    fs::write(world.at("Needs_Action/t7.md"), "---\npriority: urgent\n---\n").unwrap();
    assert_eq!(first(&world.vault), "t7.md");
    // A file that was written a moment ago may change again unseen, so it is read again.
    let recent = World::new();
    for n in 0..100 {
        recent.vault.add(&format!("t{n}").parse().unwrap(), b"x", NOW).unwrap();
    }
    assert_eq!(recent.vault.list(State::NeedsAction, Timestamp::now()).unwrap().tasks.len(), 100);
    assert!(!recent.at(".tollgate/vault/cache/Needs_Action").exists());
    fs::remove_file(&cache).unwrap();
    assert_eq!(first(&world.vault), "t7.md");
}

#[test]
fn durable_steps_do_the_same() {
    let world = World::new();
    let vault = world.with(|store| store.disk.durability = Durability::Durable);
    let task: TaskName = "x".parse().unwrap();
    vault.add(&task, b"text", NOW).unwrap();
    let owner = claimed(vault.claim(&task, &asked("a"), later()).unwrap());
    vault.progress(&task, &owner.claim.id, "on it", later()).unwrap().unwrap();
    let done = vault.release(&task, &owner.claim.id, &Release::success(), later()).unwrap();
    assert!(done.is_ok());
    assert!(fs::read_to_string(world.at("Done/x.md")).unwrap().ends_with("**Next State**: Done\n"));
}

#[test]
fn a_task_stays_if_both_of_its_names_are_taken() {
    let world = World::new();
    let task: TaskName = "x".parse().unwrap();
    world.vault.add(&task, b"x\n", NOW).unwrap();
    let id = claimed(world.vault.claim(&task, &asked("blue"), later()).unwrap()).claim.id;
    let others = [world.at("Done/x.md"), world.at(&format!("Done/x.{id}.md"))];
    others.iter().for_each(|other| fs::write(other, "another").unwrap());
    let release = || world.vault.release(&task, &id, &Release::success(), later());
    assert!(release().unwrap_err().to_string().contains("move one of the files away"));
    assert!(world.at("In_Progress/blue/x.md").exists() && world.vault.verify(&task, &id, later()).unwrap());
    fs::remove_file(&others[1]).unwrap();
    assert!(release().unwrap().is_ok());
    assert_eq!(fs::read_to_string(&others[0]).unwrap(), "another");
    assert!(fs::read_to_string(&others[1]).unwrap().contains("## Completion"));
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
            let fate = move |at| if at == act { disk::Fate::Fail(libc::ENOSPC) } else { disk::Fate::Go };
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
    // It is read in parts, and written anew again and again.
    let (log, tasks, claims) = one_long_log(&world, now);
    let mut anew = 0;
    for round in 0..300 {
        let before = fs::metadata(&log).unwrap().ino();
        let (task, id) = (&tasks[round % 20], &claims[round % 20]);
        assert_eq!(vaults[round % 2].progress(task, id, "on the way", now).unwrap(), Ok(()));
        anew += u32::from(fs::metadata(&log).unwrap().ino() != before);
        for vault in vaults {
            assert!(vault.verify(task, id, now).unwrap(), "round {round}");
        }
    }
    assert!(anew > 2, "written anew {anew} times");
    for (number, (task, id)) in tasks.iter().zip(&claims).enumerate() {
        let released = vaults[number % 2].release(task, id, &Release::success(), now).unwrap();
        assert!(released.is_ok());
        assert!(vaults.iter().all(|vault| !vault.verify(task, id, now).unwrap()));
    }
    assert!(world.store.logs.read(7).unwrap().notes.is_empty());
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
    // What was written down is finished by whoever asks for this task, not only by those who heal all.
    let other = FolderStore::open(world.folder.path(), options(&world.journal)).unwrap();
    assert!(!Vault::new(Arc::new(other), Terms::default()).verify(&task, &id, now).unwrap());
    assert!(world.at("Done/x.md").exists());
}

/// A vault whose user dies before this act.
fn dying(world: &World, act: &'static str) -> Vault {
    world.with(|store| {
        store.set_fates(Arc::new(move |at| if at == act { disk::Fate::Die } else { disk::Fate::Go }));
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
fn a_claim_first_heals_its_stripe() {
    let world = World::new();
    let [first, second] = neighbours(&world);
    let mut queue = world.vault.queue(&asked("blue"), later()).unwrap();
    // After the move: the file is in nobody's hands.
    dies(|| dying(&world, "write").claim(&first, &asked("red"), later()));
    assert!(world.at("In_Progress/red").join(first.as_str()).exists());
    let Next::Claimed(taken) = world.vault.next(&mut queue, &asked("blue"), later()).unwrap() else {
        panic!("the other one is there")
    };
    assert_eq!(taken.task, first, "its claim was rolled back, so it can be claimed");
    let Next::Claimed(taken) = world.vault.next(&mut queue, &asked("blue"), later()).unwrap() else {
        panic!("the other one is there")
    };
    assert_eq!(taken.task, second);
    assert!(world.store.logs.read(7).unwrap().pending.is_none());
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
    assert!(world.store.logs.read(7).unwrap().pending.is_none());
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
                // The mark, blanking its half line, and the mark of the rollback.
                let fails = number == failing || failing == 2 && (1..=3).contains(&number);
                if fails { disk::Fate::Fail(libc::ENOSPC) } else { disk::Fate::Go }
            }));
        });
        let asked =
            ClaimRequest { agent: "blue".parse().unwrap(), kind: ClaimKind::Leased, renamed_in: true };
        assert!(full.claim(&task, &asked, Timestamp::now()).is_err());
        let state = world.store.logs.read(stripe_of(&task)).unwrap();
        assert_eq!((state.notes.len(), state.pending.is_some()), (0, failing == 2), "{failing}");
        assert!(world.at("Needs_Action/x.md").exists());
        claimed(world.vault.claim(&task, &asked, Timestamp::now()).unwrap());
    }
}
