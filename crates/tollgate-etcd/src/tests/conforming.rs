//! The conformance suite on three nodes.

use std::sync::Arc;
use std::time::Duration;

use tollgate_base::lock::Pauses;
use tollgate_base::task::TaskName;
use tollgate_vault::conformance::{self, Harness};
use tollgate_vault::state::Slot;

use super::cluster::Cluster;
use super::shared;
use crate::layout::{read_task, split_slot, write_task};
use crate::message::{Act, Txn};
use crate::store::EtcdStore;

/// As if another program had moved the task, or changed its text. Returns when the store has heard of it.
fn by_hand(store: &EtcdStore, task: &TaskName, from: &Slot, to: &Slot, text: Option<&[u8]>) {
    let (inside, layout) = (&store.inside, &store.inside.layout);
    let id = &inside.ask(task).unwrap().in_slot(from).expect("it is there").seen.id.clone();
    let (old, new) = (layout.task(task, from, id), layout.task(task, to, id));
    let found = inside.client.txn(&Txn { success: vec![Act::get(&old)], ..Txn::default() }).unwrap();
    let kv = found.found().flatten().next().expect("it is there");
    let (head, before) = read_task(split_slot(&kv.value).unwrap().1).unwrap();
    let mut success = vec![Act::put(&new, write_task(to, &head, text.unwrap_or(before)).unwrap())];
    if old != new {
        success.push(Act::delete(&old));
    }
    let revision = inside.client.txn(&Txn { success, ..Txn::default() }).unwrap().header.revision;
    let mut pauses = Pauses::lasting(Duration::from_secs(30));
    while inside.with_view(|view| view.revision).is_some_and(|seen| seen < revision) {
        assert!(pauses.pause(), "the view did not hear of revision {revision}");
    }
}

fn harness(cluster: &Cluster) -> Harness {
    let store = shared(&cluster.url(), "here");
    let person = Arc::clone(&store);
    let by_hand = move |task: &TaskName, from: &Slot, to: &Slot, text: Option<&[u8]>| {
        by_hand(&person, task, from, to, text);
    };
    // The lock is all that shows that the owner lives, so dropping it is its death. Killed processes are another test.
    Harness { race: 100, ..Harness::new(store, Box::new(drop), Box::new(by_hand)) }
}

#[test]
fn a_store_on_three_etcd_nodes_conforms() {
    let cluster = Cluster::start();
    conformance::run(&|| harness(&cluster));
}
