//! A queue that is read page by page, from a store with an index.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use tollgate_base::error::{Fault, Result};
use tollgate_vault::brief::{Brief, UNREADABLE, sortable};
use tollgate_vault::conformance::{self, Harness};
use tollgate_vault::roles::{Role, Roles};
use tollgate_vault::store::{QueuePage, Scan};
use tollgate_vault::{
    ClaimKind, ClaimQueue, ClaimRequest, Release, State, Store, TaskName, TaskSummary, Terms, Vault,
    forward_store,
};

use crate::memory::MemoryStore;

/// A store in memory with an index of the queue.
#[derive(Default)]
struct Indexed {
    store: MemoryStore,
    /// Whether the index is in the wrong order.
    is_reversed: bool,
    /// Tasks that are not in the index.
    hidden: Mutex<BTreeSet<TaskName>>,
    fails: AtomicBool,
    pages: AtomicUsize,
    scans: AtomicUsize,
}

fn place(task: &TaskSummary) -> String {
    let urgency = task.brief.as_ref().map_or_else(|_| UNREADABLE.to_owned(), Brief::urgency);
    format!("{urgency}/{}/{}\0{}", sortable(task.modified), task.name, task.slot.state())
}

impl Store for Indexed {
    fn queue_page(&self, after: &str, limit: usize, now: Timestamp) -> Result<Option<QueuePage>> {
        if self.fails.load(Ordering::SeqCst) {
            return Err(Fault::invalid("the index cannot be read"));
        }
        self.pages.fetch_add(1, Ordering::SeqCst);
        let hidden = self.hidden.lock().unwrap();
        let mut tasks: Vec<TaskSummary> = Vec::new();
        for state in [State::NeedsAction, State::Approved] {
            tasks.extend(self.store.scan(state, now)?.tasks);
        }
        tasks.retain(|task| place(task).as_str() > after && !hidden.contains(&task.name));
        tasks.sort_by_key(place);
        if self.is_reversed && after.is_empty() {
            tasks.reverse();
        }
        if tasks.is_empty() && !hidden.is_empty() {
            return Ok(None);
        }
        let is_last = tasks.len() <= limit && hidden.is_empty();
        tasks.truncate(limit);
        let next = tasks.last().filter(|_| !is_last).map(place);
        Ok(Some(QueuePage { tasks, unfit: Vec::new(), next }))
    }

    fn scan(&self, state: State, now: Timestamp) -> Result<Scan> {
        self.scans.fetch_add(1, Ordering::SeqCst);
        self.store.scan(state, now)
    }

    forward_store!(store: get, read, apply, add, record, events, hold, liveness);
}

fn harness(store: Indexed) -> Harness {
    let store = Arc::new(store);
    let (killer, person) = (Arc::clone(&store), Arc::clone(&store));
    Harness::new(
        store,
        Box::new(move |claimed| killer.store.kill(&claimed.claim.id)),
        Box::new(move |task, from, to, text| person.store.by_hand(task, from, to, text)),
    )
}

#[test]
fn a_store_with_an_index_conforms() {
    conformance::run(&|| harness(Indexed::default()));
}

#[test]
fn the_suite_notices_an_index_in_the_wrong_order() {
    let run = || conformance::run(&|| harness(Indexed { is_reversed: true, ..Indexed::default() }));
    let said = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_err();
    let said = said.downcast_ref::<String>().map_or("", |said| said.as_str());
    assert!(said.contains("in pages of 1") || said.contains("[\"due\""), "{said}");
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

fn request() -> ClaimRequest {
    ClaimRequest { agent: "blue".parse().unwrap(), kind: ClaimKind::Leased, renamed_in: false }
}

/// A vault in which `blue` may only do what has no action, with this many tasks that are a second apart.
fn vault(tasks: i64) -> (Arc<Indexed>, Vault) {
    let role = Role { role: None, allowed: Default::default(), sensitive: Default::default() };
    let roles = Roles::of([("blue".parse().unwrap(), role)].into());
    let store = Arc::new(Indexed::default());
    let vault = Vault::new(Arc::clone(&store) as Arc<dyn Store>, Terms { roles, ..Terms::default() });
    for n in 0..tasks {
        add(&vault, n, "text");
    }
    (store, vault)
}

fn name(n: i64) -> TaskName {
    format!("t{n:05}").parse().unwrap()
}

fn add(vault: &Vault, n: i64, text: &str) {
    vault.add(&name(n), text.as_bytes(), at(n)).unwrap();
}

fn drain(vault: &Vault, queue: &mut ClaimQueue) -> Vec<TaskName> {
    std::iter::from_fn(|| vault.next(queue, &request(), at(0))).map(|claimed| claimed.task).collect()
}

#[test]
fn a_claim_reads_one_page_however_many_tasks_there_are() {
    let (store, vault) = vault(2_000);
    let (claimed, _) = vault.claim_next(&request(), at(0)).unwrap();
    assert_eq!(claimed.unwrap().task, name(0));
    let read = |what: &AtomicUsize| what.load(Ordering::SeqCst);
    assert_eq!((read(&store.pages), read(&store.scans)), (1, 0));
}

#[test]
fn pages_are_read_until_a_task_can_be_claimed_or_nothing_is_left() {
    let (store, vault) = vault(0);
    (0..700).for_each(|n| add(&vault, n, "---\naction: pay\n---\n"));
    (700..1_300).for_each(|n| add(&vault, n, "---\nafter: nowhere\n---\n"));
    add(&vault, 1_300, "text");
    let (claimed, _) = vault.claim_next(&request(), at(0)).unwrap();
    assert_eq!(claimed.unwrap().task, name(1_300));
    let (claimed, queue) = vault.claim_next(&request(), at(0)).unwrap();
    assert!(claimed.is_none() && queue.is_empty());
    assert_eq!((queue.foreign, queue.blocked, queue.lost), (700, 600, 0));
    assert_eq!(store.scans.load(Ordering::SeqCst), 0);
}

#[test]
fn what_the_index_does_not_have_is_found_by_a_scan_and_nothing_is_counted_twice() {
    let (store, vault) = vault(0);
    (0..30).for_each(|n| add(&vault, n, "---\naction: pay\n---\n"));
    (30..60).for_each(|n| add(&vault, n, "text"));
    store.hidden.lock().unwrap().insert(name(40));
    let mut queue = vault.queue(&request(), at(0)).unwrap();
    let order: Vec<_> = (30..60).filter(|n| *n != 40).chain([40]).map(name).collect();
    assert_eq!(drain(&vault, &mut queue), order);
    assert_eq!((queue.foreign, queue.lost, queue.is_empty()), (30, 0, true));
}

#[test]
fn a_task_that_arrives_while_pages_are_left_comes_in_its_place_and_once() {
    let (_, vault) = vault(40);
    let mut queue = vault.queue(&request(), at(0)).unwrap();
    let claimed = vault.next(&mut queue, &request(), at(0)).unwrap();
    add(&vault, 50, "text");
    vault.add(&"first".parse().unwrap(), b"---\npriority: high\n---\n", at(0)).unwrap();
    // One that the queue has proposed comes back, later than the pages that were read.
    let back = Release::give_back("stopped");
    vault.release(&claimed.task, &claimed.claim.id, &back, at(45)).unwrap().unwrap();
    for task in [name(50), "first".parse().unwrap(), name(0), name(20), name(3)] {
        assert!(vault.push(&mut queue, &task, &request(), at(0)).unwrap());
    }
    let order: Vec<_> =
        ["first".parse().unwrap()].into_iter().chain((1..40).chain([0, 50]).map(name)).collect();
    assert_eq!(drain(&vault, &mut queue), order);
    assert_eq!(queue.lost, 0);
}

#[test]
fn a_page_that_cannot_be_read_is_a_fault_and_is_read_again() {
    let (store, vault) = vault(20);
    let mut queue = vault.queue(&request(), at(0)).unwrap();
    store.fails.store(true, Ordering::SeqCst);
    assert_eq!(drain(&vault, &mut queue).len(), 16, "the first page");
    assert!(queue.unread.take().is_some() && !queue.is_empty());
    assert!(vault.claim_next(&request(), at(0)).is_err());
    store.fails.store(false, Ordering::SeqCst);
    assert_eq!(drain(&vault, &mut queue), (16..20).map(name).collect::<Vec<_>>());
    assert!(queue.unread.is_none() && queue.is_empty());
}
