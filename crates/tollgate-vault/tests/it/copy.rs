//! A vault is copied between any two stores: what arrives, what is refused, and what an interruption leaves.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use tempfile::TempDir;
use tollgate_base::error::{Fault, Result};
use tollgate_vault::copy::{CopiedHistory, CopyDenial, CopyReport, copy};
use tollgate_vault::event::{Entry, MemoryJournal};
use tollgate_vault::roles::{Role, Roles};
use tollgate_vault::state::Slot;
use tollgate_vault::{
    ClaimKind, ClaimRequest, FolderOptions, FolderStore, GitOptions, GitStore, Release, State, Step, StepId,
    StepOutcome, Store, TaskName, Terms, Vault, forward_store,
};

use crate::memory::MemoryStore;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(10_000_000_000 + second).unwrap()
}

fn name(text: &str) -> TaskName {
    text.parse().unwrap()
}

fn request(agent: &str) -> ClaimRequest {
    ClaimRequest { agent: agent.parse().unwrap(), kind: ClaimKind::Leased, renamed_in: true }
}

fn terms() -> Terms {
    let role = Role { role: None, allowed: vec!["pay".into()], sensitive: vec!["pay".into()] };
    Terms { roles: Roles::of([("blue".parse().unwrap(), role)].into()), ..Terms::default() }
}

/// A vault with a task in every state in which nobody works, two of them of one name, and attempts and approvals to remember.
fn filled(store: Arc<dyn Store>) -> Vault {
    let vault = Vault::new(store, terms());
    let claim =
        |task: &str, now| vault.claim(&name(task), &request("blue"), at(now)).unwrap().unwrap().claim.id;
    let release = |task: &str, how: &Release, now| {
        let id = claim(task, now);
        vault.release(&name(task), &id, how, at(now)).unwrap().unwrap();
    };
    let pay = "---\naction: pay\n---\nten coins\n";
    for (task, text) in
        [("new", "text\n"), ("failed", "x"), ("done", "text\n"), ("no", "text\n"), ("ask", pay), ("yes", pay)]
    {
        vault.add(&name(task), text.as_bytes(), at(0)).unwrap();
    }
    release("failed", &Release::failure("exit status 1"), 1);
    release("done", &Release::success(), 2);
    vault.add(&name("done"), b"once more\n", at(3)).unwrap();
    vault.reject(&name("no"), "ada", "not now", at(4)).unwrap().unwrap();
    release("ask", &Release::success(), 5);
    release("yes", &Release::success(), 6);
    vault.approve(&name("yes"), "ada", None, at(7)).unwrap().unwrap();
    vault
}

fn copied(from: &dyn Store, to: &dyn Store) -> Result<CopyReport, CopyDenial> {
    copy(from, to, at(100), &mut |_, _| ()).unwrap()
}

fn folder() -> (TempDir, Arc<dyn Store>) {
    let keep = tempfile::tempdir().unwrap();
    let options = FolderOptions::new(Arc::new(MemoryJournal::default()));
    let store = FolderStore::open(keep.path(), options).unwrap();
    (keep, Arc::new(store))
}

fn git(folder: &Path, arguments: &[&str]) {
    let ran = Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=a@b"])
        .args(arguments)
        .current_dir(folder)
        .output();
    let ran = ran.unwrap();
    assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
}

fn over_git() -> (TempDir, Arc<dyn Store>) {
    let keep = tempfile::tempdir().unwrap();
    let (remote, clone) = (keep.path().join("remote"), keep.path().join("clone"));
    git(keep.path(), &["init", "--quiet", "--bare", "--initial-branch=main", "remote"]);
    git(keep.path(), &["clone", "--quiet", remote.to_str().unwrap(), "clone"]);
    git(&clone, &["checkout", "--quiet", "-b", "main"]);
    git(&clone, &["commit", "--quiet", "--allow-empty", "-m", "begin"]);
    git(&clone, &["push", "--quiet", "origin", "main"]);
    let options = GitOptions {
        program: "git".into(),
        remote: "origin".into(),
        branch: "main".into(),
        claim_refs: "refs/tollgate/claims".into(),
        lease: Duration::from_secs(600),
        patience: Duration::from_secs(60),
        follow: false,
        plain_ssh: true,
        folder: FolderOptions::new(Arc::new(MemoryJournal::default())),
    };
    let store = GitStore::open(&clone, options).unwrap();
    (keep, Arc::new(store))
}

#[test]
fn a_vault_goes_from_memory_to_folders_to_git_and_back() {
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::default());
    filled(Arc::clone(&memory));
    let (_keep, folders) = folder();
    let (_keep, repository) = over_git();
    let back: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let report = copied(&*memory, &*folders).unwrap();
    let counts = [
        (State::NeedsAction, 3),
        (State::PendingApproval, 1),
        (State::Approved, 1),
        (State::Done, 1),
        (State::Rejected, 1),
    ];
    assert_eq!(report.tasks, counts.into_iter().collect());
    let events = memory.events("", 1000).unwrap().0;
    assert_eq!(report.history, CopiedHistory::Added(events.len()));
    for (from, to) in [(&folders, &repository), (&repository, &back)] {
        assert_eq!(copied(&**from, &**to).unwrap(), report);
    }
    assert_eq!(back.events("", 1000).unwrap().0, events);
    // What is known came along: the approval can be used, the attempt was counted, the pause lasts.
    let vault = Vault::new(back, terms());
    assert_eq!(vault.get(&name("failed"), at(8)).unwrap().record.attempts, 1);
    assert!(vault.claim(&name("failed"), &request("blue"), at(8)).unwrap().is_err(), "it pauses");
    let claimed = vault.claim(&name("yes"), &request("blue"), at(8)).unwrap().unwrap();
    assert_eq!(claimed.claim.from, State::Approved);
    // A second time there is nothing to do.
    let again = copied(&*memory, &*folders).unwrap();
    assert_eq!((again.digest, again.history), (report.digest, CopiedHistory::Added(0)));
}

#[test]
fn nothing_is_copied_while_an_agent_works() {
    let busy = MemoryStore::default();
    let vault = filled(Arc::new(busy));
    vault.claim(&name("new"), &request("blue"), at(9)).unwrap().unwrap();
    let (empty, slot) = (MemoryStore::default(), Slot::InProgress("blue".parse().unwrap()));
    let denied = Err(CopyDenial::Working(vec![(name("new"), slot)]));
    assert_eq!(copied(vault.store(), &empty), denied);
    assert_eq!(copied(&empty, vault.store()), denied);
    assert!(empty.scan(State::Done, at(9)).unwrap().tasks.is_empty());
}

#[test]
fn a_task_of_the_target_is_never_replaced() {
    let source = filled(Arc::new(MemoryStore::default()));
    let other_text = Vault::new(Arc::new(MemoryStore::default()), terms());
    other_text.add(&name("new"), b"another text\n", at(0)).unwrap();
    let denied = CopyDenial::Occupied(name("new"), Slot::NEEDS_ACTION);
    assert_eq!(copied(source.store(), other_text.store()), Err(denied));
    assert_eq!(other_text.get_with_text(&name("new"), 100, at(1)).unwrap().1, b"another text\n");
    let other_task = Vault::new(Arc::new(MemoryStore::default()), terms());
    other_task.add(&name("mine"), b"text\n", at(0)).unwrap();
    let denied = CopyDenial::Occupied(name("mine"), Slot::NEEDS_ACTION);
    assert_eq!(copied(source.store(), other_task.store()), Err(denied));
}

#[test]
fn a_history_that_is_not_the_beginning_of_the_other_stays_as_it_is() {
    let source = filled(Arc::new(MemoryStore::default()));
    let target = MemoryStore::default();
    let mut other = source.store().events("", 1).unwrap().0;
    other[0].time = at(77);
    target.record(&other).unwrap();
    assert_eq!(copied(source.store(), &target).unwrap().history, CopiedHistory::OwnHistory);
    assert_eq!(target.events("", 100).unwrap().0, other);
    let later = MemoryStore::default();
    later.record(&source.store().events("", 3).unwrap().0).unwrap();
    let all = source.store().events("", 100).unwrap().0;
    assert_eq!(copied(source.store(), &later).unwrap().history, CopiedHistory::Added(all.len() - 3));
    assert_eq!(later.events("", 100).unwrap().0, all);
}

/// A store that fails after this number of changes.
struct Failing<'s> {
    store: &'s dyn Store,
    left: AtomicUsize,
    /// The most bytes of events that it had to record at once.
    largest: AtomicUsize,
    /// The tasks that were added, in order.
    added: Mutex<Vec<String>>,
    /// Whether it loses one event of each record.
    loses: bool,
}

impl<'s> Failing<'s> {
    fn after(left: usize, store: &'s dyn Store) -> Self {
        Self { store, left: left.into(), largest: 0.into(), added: Mutex::default(), loses: false }
    }
}

impl Failing<'_> {
    fn change(&self) -> Result<()> {
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        left.map(drop).map_err(|_| Fault::invalid("the cable is cut"))
    }
}

impl Store for Failing<'_> {
    fn apply(&self, step: &Step) -> Result<StepOutcome> {
        self.change()?;
        self.store.apply(step)
    }

    fn add(&self, id: &StepId, task: &TaskName, text: &[u8], now: Timestamp) -> Result<StepOutcome> {
        self.change()?;
        self.added.lock().unwrap().push(task.stem().to_owned());
        self.store.add(id, task, text, now)
    }

    fn record(&self, events: &[Entry]) -> Result<()> {
        self.change()?;
        self.largest.fetch_max(serde_json::to_vec(events).unwrap().len(), Ordering::SeqCst);
        self.store.record(&events[usize::from(self.loses)..])
    }

    forward_store!(store: scan, get, read, events);
}

#[test]
fn a_copy_that_was_interrupted_anywhere_is_finished_by_the_next() {
    let source = filled(Arc::new(MemoryStore::default()));
    let whole = MemoryStore::default();
    let report = copied(source.store(), &whole).unwrap();
    for changes in 0.. {
        let target = MemoryStore::default();
        let failing = Failing::after(changes, &target);
        let interrupted = copy(source.store(), &failing, at(100), &mut |_, _| ());
        let is_whole = interrupted.is_ok();
        let finished = copied(source.store(), &target).unwrap();
        assert_eq!(
            (finished.digest, &finished.tasks),
            (report.digest, &report.tasks),
            "after {changes} changes"
        );
        assert_eq!(target.events("", 1000).unwrap().0, whole.events("", 1000).unwrap().0);
        if is_whole {
            assert!(changes > 10, "{changes}");
            break;
        }
    }
}

#[test]
fn a_change_during_the_copy_is_noticed() {
    for is_source in [true, false] {
        let source = filled(Arc::new(MemoryStore::default()));
        let target = MemoryStore::default();
        let mut changed = false;
        let denied = copy(source.store(), &target, at(100), &mut |done, _| {
            if done == 3 && !changed {
                changed = true;
                let (vault, id) = (if is_source { source.store() } else { &target }, StepId::new().unwrap());
                vault.add(&id, &name("late"), b"text", at(100)).unwrap();
            }
        });
        assert_eq!(denied.unwrap(), Err(CopyDenial::Changed), "{is_source}");
    }
}

/// The tasks that wait, in the order of the queue.
fn queue(store: &dyn Store) -> Vec<String> {
    let now = Timestamp::now();
    let states = [State::NeedsAction, State::Approved];
    let mut tasks: Vec<_> = states.iter().flat_map(|state| store.scan(*state, now).unwrap().tasks).collect();
    tasks.sort_by_key(|task| (task.modified, task.name.clone()));
    tasks.into_iter().map(|task| format!("{}/{}", task.slot, task.name)).collect()
}

#[test]
fn tasks_that_wait_keep_their_order_in_the_queue() {
    let source = MemoryStore::default();
    let then = |second: i64| Timestamp::from_second(1_000_000 + second).unwrap();
    for (second, task) in ["z", "done", "m", "a", "k", "b"].into_iter().enumerate() {
        let id = StepId::new().unwrap();
        source.add(&id, &name(task), b"text\n", then(second.try_into().unwrap())).unwrap();
    }
    source.by_hand(&name("m"), &Slot::NEEDS_ACTION, &Slot::APPROVED, None);
    source.by_hand(&name("done"), &Slot::NEEDS_ACTION, &Slot::Free(State::Done), None);
    // Two of one name: on the way, the approved one is in the first state, too.
    source.add(&StepId::new().unwrap(), &name("m"), b"another\n", then(-1)).unwrap();
    let expected = ["m", "z", "m", "a", "k", "b"];
    let names = |store: &dyn Store| -> Vec<String> {
        queue(store).iter().map(|task| task.rsplit('/').next().unwrap().replace(".md", "")).collect()
    };
    assert_eq!(names(&source), expected);
    let (_keep, folders) = folder();
    let back = MemoryStore::default();
    let into_folders = Failing::after(usize::MAX, &*folders);
    copied(&source, &into_folders).unwrap();
    // Stores that date tasks themselves get them in this order. Of two of one name, the one that moves on comes first.
    assert_eq!(*into_folders.added.lock().unwrap(), ["done", "z", "m", "a", "k", "b", "m"]);
    copied(&*folders, &back).unwrap();
    assert_eq!([queue(&*folders), queue(&back)], [queue(&source), queue(&source)]);
}

#[test]
fn long_events_are_recorded_in_pages_that_every_store_takes() {
    let source = filled(Arc::new(MemoryStore::default()));
    let mut long = source.store().events("", 2).unwrap().0.pop().unwrap();
    let mut written = serde_json::to_value(&long).unwrap();
    written["payload"]["reason"] = "x".repeat(100_000).into();
    long = serde_json::from_value(written).unwrap();
    source.store().record(&vec![long; 40]).unwrap();
    let target = MemoryStore::default();
    let sized = Failing::after(usize::MAX, &target);
    copied(source.store(), &sized).unwrap();
    let largest = sized.largest.into_inner();
    assert!((100_000..3 << 19).contains(&largest), "etcd takes 1.5 MiB: {largest}");
    assert_eq!(target.events("", 1000).unwrap(), source.store().events("", 1000).unwrap());
}

#[test]
fn a_copy_of_the_history_that_lacks_an_event_is_noticed() {
    let source = filled(Arc::new(MemoryStore::default()));
    let target = MemoryStore::default();
    let lossy = Failing { loses: true, ..Failing::after(usize::MAX, &target) };
    assert_eq!(copied(source.store(), &lossy), Err(CopyDenial::Changed));
}
