//! The index of the queue: how much a claim reads, vaults of an earlier tollgate, and keys that other programs change.

use std::sync::Arc;

use jiff::Timestamp;
use tollgate_base::task::TaskName;
use tollgate_vault::state::Slot;
use tollgate_vault::{ClaimKind, ClaimRequest, State, StepId, Store, Terms, Vault};

use super::cluster::Cluster;
use super::shared;
use crate::layout::{TaskHead, write_task};
use crate::message::{Act, Range, Txn};
use crate::queue::enter;
use crate::store::EtcdStore;

fn add(store: &EtcdStore, name: &str, text: &str) {
    let name: TaskName = name.parse().unwrap();
    store.add(&StepId::new().unwrap(), &name, text.as_bytes(), Timestamp::now()).unwrap();
}

/// What the next claim of a new process gets, and whether it has read all tasks for that.
fn claim_next(url: &str) -> (Option<String>, bool) {
    let store = shared(url, "next");
    let vault = Vault::new(Arc::clone(&store) as Arc<dyn Store>, Terms::default());
    let request = ClaimRequest { agent: "blue".parse().unwrap(), kind: ClaimKind::Leased, renamed_in: false };
    let (claimed, queue) = vault.claim_next(&request, Timestamp::now()).unwrap();
    assert_eq!((queue.lost, queue.faults.len()), (0, 0), "{queue:?}");
    (claimed.map(|claimed| claimed.task.stem().to_owned()), store.inside.with_view(|_| ()).is_some())
}

fn act(store: &EtcdStore, success: Vec<Act>) {
    store.inside.client.txn(&Txn { success, ..Txn::default() }).unwrap();
}

fn keys(store: &EtcdStore) -> Vec<Vec<u8>> {
    let range = Range::all(&store.inside.layout.queue());
    store.inside.client.range(&range).unwrap().kvs.into_iter().map(|kv| kv.key).collect()
}

/// The key of a task that waits; a new one if there is none.
fn key(store: &EtcdStore, name: &str) -> String {
    let name = name.parse().unwrap();
    let known = store.inside.ask(&name).unwrap();
    let known = known.in_slot(&Slot::NEEDS_ACTION).map(|task| task.seen.id.clone());
    let id = known.unwrap_or_else(|| StepId::new().unwrap());
    store.inside.layout.task(&name, &Slot::NEEDS_ACTION, &id)
}

/// As another program adds or changes a task.
fn put(store: &EtcdStore, name: &str, text: &str) {
    let head = TaskHead::new(Timestamp::now());
    let value = write_task(&Slot::NEEDS_ACTION, &head, text.as_bytes()).unwrap();
    act(store, vec![Act::put(key(store, name), value)]);
}

#[test]
fn a_claim_of_the_next_task_reads_few_of_many_tasks() {
    let cluster = Cluster::start();
    let url = cluster.url();
    let store = shared(&url, "one");
    (0..120).for_each(|n| add(&store, &format!("t{n}"), "text"));
    add(&store, "high", "---\npriority: high\n---\n");
    assert_eq!(claim_next(&url), (Some("high".to_owned()), false));
    assert_eq!(claim_next(&url), (Some("t0".to_owned()), false));
    assert_eq!(keys(&store).len(), 119, "a claim takes the task from the index");
}

#[test]
fn a_page_of_a_long_queue_looks_at_a_small_part_of_it() {
    let cluster = Cluster::start();
    let url = cluster.url();
    let store = shared(&url, "one");
    let (inside, layout) = (&store.inside, &store.inside.layout);
    add(&store, "first", "---\npriority: high\n---\n");
    let key = |n: usize| {
        let since = Timestamp::from_second(n.try_into().unwrap()).unwrap();
        layout.in_queue(&format!("t{n}").parse().unwrap(), &Slot::NEEDS_ACTION, "21", since).unwrap()
    };
    let places: Vec<String> = (0..3000).map(key).collect();
    for some in places.chunks(100) {
        act(&store, some.iter().flat_map(|key| enter(layout, key)).collect());
    }
    let (mut seen, mut after) = (0, String::new());
    loop {
        let (range, marks) = inside.queue_part(&after).unwrap().unwrap();
        let part = inside.client.range(&range).unwrap().kvs;
        assert!(part.len() < 1000, "{} of 3001 keys", part.len());
        seen += part.len();
        let Some(last) = part.last().filter(|_| !marks.is_empty()) else { break };
        after = String::from_utf8(last.key[layout.queue().len()..].to_vec()).unwrap();
    }
    assert_eq!(seen, 3001, "the parts are the whole queue");
    // As an earlier tollgate takes tasks out of the index.
    for some in places.chunks(100) {
        act(&store, some.iter().map(Act::delete).collect());
    }
    assert_eq!(claim_next(&url), (Some("first".to_owned()), false));
    assert!(inside.queue_page("", 10).unwrap().is_none());
    let left = inside.client.range(&Range::all(&layout.marks())).unwrap().kvs.len();
    assert!(left < 4, "{left} marks of nothing");
}

#[test]
fn the_index_of_a_vault_of_an_earlier_tollgate_is_made_once() {
    let cluster = Cluster::start();
    let url = cluster.url();
    let store = shared(&url, "one");
    // As if a process that made the index had died before it was complete.
    add(&store, "low", "---\npriority: low\n---\n");
    act(&store, vec![Act::delete(store.inside.layout.queued())]);
    for n in 0..270 {
        put(&store, &format!("t{n}"), "text");
    }
    put(&store, "first", "---\npriority: high\n---\n");
    act(&store, vec![Act::put(format!("{}21/0/gone.md\0Needs_Action", store.inside.layout.queue()), b"")]);
    assert_eq!(claim_next(&url), (Some("first".to_owned()), false));
    assert_eq!(claim_next(&url), (Some("t0".to_owned()), false));
    let places = keys(&store);
    assert_eq!(places.len(), 270, "what is not there is dropped");
    let marks = Range::all(&store.inside.layout.marks());
    let marks: Vec<_> = store.inside.client.range(&marks).unwrap().kvs.into_iter().map(|kv| kv.key).collect();
    let marked = |key: &Vec<u8>| store.inside.layout.mark_of(str::from_utf8(key).unwrap());
    assert_eq!(marks, places.iter().filter_map(marked).map(String::into_bytes).collect::<Vec<_>>());
}

#[test]
fn what_other_programs_do_to_the_queue_is_found_and_corrected() {
    let cluster = Cluster::start();
    let url = cluster.url();
    let store = shared(&url, "one");
    for name in ["a", "b", "c"] {
        add(&store, name, "text");
    }
    act(&store, vec![Act::delete(key(&store, "a"))]);
    put(&store, "b", "---\npriority: low\n---\n");
    put(&store, "new", "---\npriority: high\n---\n");
    assert_eq!(claim_next(&url).0.as_deref(), Some("c"), "the index proposes what it has");
    assert_eq!(claim_next(&url).0.as_deref(), Some("b"));
    assert_eq!(claim_next(&url), (Some("new".to_owned()), true), "a scan finds the rest");
    assert_eq!(claim_next(&url).0, None);
    assert_eq!(keys(&store), Vec::<Vec<u8>>::new());
    assert_eq!(store.scan(State::InProgress, Timestamp::now()).unwrap().tasks.len(), 3);
}
