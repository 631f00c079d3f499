//! Vaults in an earlier format.

use std::sync::Arc;

use jiff::Timestamp;
use tollgate_base::error::Fault;
use tollgate_base::task::TaskName;
use tollgate_vault::{ClaimKind, ClaimRequest, State, Store, Terms, Vault};

use super::cluster::Cluster;
use super::shared;
use crate::message::{Act, Range, Txn};
use crate::store::EtcdStore;

fn put(store: &EtcdStore, key: &str, value: &str) {
    let key = store.inside.layout.format().replace("/format", &format!("/{key}"));
    store.inside.client.txn(&Txn { success: vec![Act::put(key, value)], ..Txn::default() }).unwrap();
}

const HEAD: &str = "{\"since\":\"2026-11-16T00:00:00Z\"}\n";

/// A vault of format 1: 300 tasks that wait, one that is in three slots, and three that are as large as they may be.
fn of_format_1(url: &str) {
    let store = shared(url, "old");
    put(&store, "format", "1");
    for n in 0..300 {
        put(&store, &format!("task/open/t{n}.md/Needs_Action"), &format!("{HEAD}text {n}"));
    }
    for (part, slot) in [("open", "Needs_Action"), ("open", "Pending_Approval"), ("final", "Done")] {
        put(&store, &format!("task/{part}/twin.md/{slot}"), &format!("{HEAD}{slot}"));
    }
    for n in 0..3 {
        let text = "x".repeat(1 << 20);
        put(&store, &format!("task/open/large{n}.md/Pending_Approval"), &format!("{HEAD}{text}"));
    }
}

#[test]
fn a_vault_of_an_earlier_format_is_brought_to_the_format_of_today() {
    let cluster = Cluster::start();
    let url = cluster.url();
    of_format_1(&url);
    // Several processes at the same time.
    let stores: Vec<_> = (0..3).map(|n| shared(&url, &format!("m{n}"))).collect();
    std::thread::scope(|scope| {
        for store in &stores {
            scope.spawn(|| {
                assert_eq!(store.scan(State::NeedsAction, Timestamp::now()).unwrap().tasks.len(), 301);
            });
        }
    });
    let store = &stores[0];
    let twin: TaskName = "twin".parse().unwrap();
    for state in [State::NeedsAction, State::PendingApproval, State::Done] {
        let task = store.get(&twin, Some(state), Timestamp::now()).unwrap().unwrap();
        let text = store.read(&task, u64::MAX).unwrap().unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), state.as_str());
    }
    let layout = &store.inside.layout;
    for (prefix, number) in [(layout.open_tasks(), 305), (layout.final_tasks(), 1)] {
        let found = store.inside.client.range(&Range::all(&prefix)).unwrap().kvs;
        assert_eq!(found.len(), number, "each once");
        assert!(found.iter().all(|kv| layout.read(&kv.key).is_some()));
    }
    // Tasks of one name are told apart by their revisions.
    let named = store.inside.ask(&twin).unwrap();
    let revisions: std::collections::BTreeSet<_> =
        named.tasks.values().map(|task| task.seen.revision).collect();
    assert_eq!(revisions.len(), 3);
    let request = ClaimRequest { agent: "blue".parse().unwrap(), kind: ClaimKind::Leased, renamed_in: false };
    let vault = Vault::new(Arc::clone(store) as Arc<dyn Store>, Terms::default());
    assert!(vault.claim(&twin, &request, Timestamp::now()).unwrap().is_ok());
    assert_eq!(converting(store), 0);
}

/// How many keys say that tasks are being converted.
fn converting(store: &EtcdStore) -> usize {
    let success = vec![Act::get(store.inside.layout.converting())];
    store.inside.client.txn(&Txn { success, ..Txn::default() }).unwrap().found().flatten().count()
}

#[test]
fn a_conversion_whose_process_has_died_is_finished_by_another() {
    let cluster = Cluster::start();
    let url = cluster.url();
    of_format_1(&url);
    let died = shared(&url, "died");
    put(&died, "format", "2");
    put(&died, "converting", "");
    let store = shared(&url, "next");
    assert_eq!(store.scan(State::NeedsAction, Timestamp::now()).unwrap().tasks.len(), 301);
    assert_eq!(converting(&store), 0);
}

#[test]
fn a_later_format_is_refused() {
    let cluster = Cluster::start();
    let url = cluster.url();
    put(&shared(&url, "new"), "format", "3");
    let answer = shared(&url, "old").scan(State::NeedsAction, Timestamp::now());
    assert!(matches!(answer, Err(Fault::NewerFormat { found: 3, known: 2, .. })), "{answer:?}");
}
