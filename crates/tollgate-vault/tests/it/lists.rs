//! Lists of tasks, and new tasks whose names are made from titles, on a store that fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::Timestamp;
use tollgate_base::error::{Fault, Result};
use tollgate_vault::{
    ClaimKind, ClaimRequest, FolderOptions, FolderStore, State, StepId, StepOutcome, Store, Task, TaskName,
    Terms, Vault, forward_store,
};

use crate::memory::MemoryStore;

/// A store in memory that counts calls, and fails when it is asked for some tasks.
#[derive(Default)]
struct Counted {
    store: MemoryStore,
    gets: AtomicUsize,
    adds: AtomicUsize,
}

impl Store for Counted {
    fn get(&self, task: &TaskName, state: Option<State>, now: Timestamp) -> Result<Option<Task>> {
        self.gets.fetch_add(1, Ordering::SeqCst);
        match task.stem() {
            "damaged" => Err(Fault::Damaged { path: "row 7".into(), what: "no claim".into() }),
            "outage" => Err(Fault::Unreachable { remote: "db".into(), what: "no network".into() }),
            "deleted" => Ok(None),
            _ => self.store.get(task, state, now),
        }
    }

    fn add(&self, id: &StepId, task: &TaskName, text: &[u8], now: Timestamp) -> Result<StepOutcome> {
        self.adds.fetch_add(1, Ordering::SeqCst);
        match text.len() {
            0..1000 => self.store.add(id, task, text, now),
            _ => Err(Fault::invalid("a text may have 1,000 bytes")),
        }
    }

    forward_store!(store: scan, read, apply, record, events, hold, liveness);
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

fn vault() -> (Arc<Counted>, Vault) {
    let store = Arc::new(Counted::default());
    (Arc::clone(&store), Vault::new(store, Terms::default()))
}

fn add(vault: &Vault, names: &[&str]) {
    for (second, name) in (0..).zip(names) {
        vault.add(&name.parse().unwrap(), b"text", at(second)).unwrap();
    }
}

#[test]
fn a_task_that_cannot_be_read_is_shown_as_broken_and_hides_no_other() {
    let (_, vault) = vault();
    add(&vault, &["a", "damaged", "deleted", "z"]);
    let rows = vault.rows(State::NeedsAction, at(9)).unwrap().0;
    let shown: Vec<_> = rows.iter().map(|row| (row.task.name.stem(), row.json()["broken"].clone())).collect();
    let broken = "`row 7` is damaged: no claim".into();
    assert_eq!(shown, [("a", ().into()), ("damaged", broken), ("z", ().into())]);
}

/// The folder store tells of it when it lists the folder.
#[test]
fn a_file_without_permission_to_read_is_shown_as_broken() {
    use std::os::unix::fs::PermissionsExt;
    let keep = tempfile::tempdir().unwrap();
    let journal = Arc::new(tollgate_vault::event::MemoryJournal::default());
    let store = FolderStore::open(keep.path(), FolderOptions::new(journal)).unwrap();
    let vault = Vault::new(Arc::new(store), Terms::default());
    add(&vault, &["a", "b"]);
    let path = keep.path().join("Needs_Action/a.md");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
    if std::fs::read(&path).is_ok() {
        // For `root` there is no such file.
        return;
    }
    let rows = vault.rows(State::NeedsAction, Timestamp::now()).unwrap().0;
    let shown: Vec<_> = rows.iter().map(|row| (row.task.name.stem(), row.task.brief.is_ok())).collect();
    assert_eq!(shown, [("a", false), ("b", true)]);
}

#[test]
fn a_list_during_an_outage_is_a_fault() {
    let (_, vault) = vault();
    add(&vault, &["a", "outage"]);
    let fault = vault.rows(State::NeedsAction, at(9)).unwrap_err();
    assert_eq!(fault.code(), "REMOTE_UNREACHABLE");
}

#[test]
fn the_first_tasks_of_a_list_cost_as_many_questions() {
    let (store, vault) = vault();
    let names: Vec<String> = (0..50).map(|n| format!("t{n:02}")).collect();
    add(&vault, &names.iter().map(String::as_str).collect::<Vec<_>>());
    let first = vault.first_rows(State::NeedsAction, 3, at(90)).unwrap();
    let shown: Vec<_> = first.rows.iter().map(|row| row.task.name.stem()).collect();
    assert_eq!((shown.as_slice(), first.total), (["t00", "t01", "t02"].as_slice(), 50));
    assert_eq!(store.gets.load(Ordering::SeqCst), 3);
    // The oldest claim comes first, and only the claim record knows how old it is.
    for (second, task) in [(60, "t30"), (61, "t10"), (62, "t20")] {
        let request =
            ClaimRequest { agent: "blue".parse().unwrap(), kind: ClaimKind::Leased, renamed_in: false };
        vault.claim(&task.parse().unwrap(), &request, at(second)).unwrap().unwrap();
    }
    let first = vault.first_rows(State::InProgress, 2, at(90)).unwrap();
    let shown: Vec<_> = first.rows.iter().map(|row| row.task.name.stem()).collect();
    assert_eq!((shown.as_slice(), first.total), (["t30", "t10"].as_slice(), 3));
}

#[test]
fn a_new_task_gets_the_next_free_name_and_a_fault_is_reported_at_once() {
    let (store, vault) = vault();
    let add = |text: &[u8]| vault.add_titled("Pay the rent", &[], text, at(0));
    for name in ["pay-the-rent", "pay-the-rent-2", "pay-the-rent-3"] {
        assert_eq!(add(b"text").unwrap().unwrap().task.stem(), name);
    }
    let before = store.adds.load(Ordering::SeqCst);
    let fault = add(&[b'x'; 1000]).unwrap_err();
    assert_eq!(fault.to_string(), "a text may have 1,000 bytes");
    assert_eq!(store.adds.load(Ordering::SeqCst), before + 1);
    // Another process takes the name between the look and the step: here, `get` does not find it.
    for name in ["deleted", "deleted-2"] {
        let landed = vault.add_titled("Deleted", &[], b"text", at(0)).unwrap().unwrap();
        assert_eq!(landed.task.stem(), name);
    }
}

#[test]
fn tasks_that_all_wait_for_each_other_are_explained_in_a_moment() {
    let vault = Vault::new(Arc::new(MemoryStore::default()), Terms::default());
    let name = |number: usize| -> TaskName { format!("t{number}").parse().unwrap() };
    for number in 0..60 {
        let after: Vec<String> = (1..=50).map(|more| format!("t{}", (number + more) % 60)).collect();
        let text = format!("---\nafter: [{}]\n---\n", after.join(","));
        vault.add(&name(number), text.as_bytes(), at(0)).unwrap();
    }
    // There are more circles than anybody could read.
    assert_eq!(vault.stuck(at(1)).unwrap().0.len(), 100);
    let new: TaskName = "new".parse().unwrap();
    assert_eq!(vault.circle(&new, &[name(0)], at(1)).unwrap(), None);
    let closed = vault.circle(&name(7), &[name(8)], at(1)).unwrap().unwrap();
    assert_eq!((&closed[0], closed.last().unwrap()), (&name(7), &name(7)));
    assert!(vault.why(&name(7), &"blue".parse().unwrap(), at(1)).unwrap().is_err());
}
