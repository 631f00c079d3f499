//! Machines that fight over the same tasks; and the same without the comparison, to show that the test would notice.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use tollgate_base::event::ClaimLost;
use tollgate_base::name::StepId;
use tollgate_base::task::TaskName;
use tollgate_testing::etcd::Cluster;
use tollgate_vault::{ClaimKind, ClaimRequest, Store, Terms, Vault};

use super::open;

const MACHINES: usize = 8;
const TASKS: usize = 30;

/// All machines walk through all tasks in the same order and claim what they can. Who was told that it owns what.
fn race(cluster: &Cluster, compares: bool) -> BTreeMap<String, Vec<usize>> {
    let url = cluster.url();
    let now = Timestamp::now();
    let vaults: Vec<Vault> = (0..MACHINES)
        .map(|n| {
            let store = open(&url, &format!("m{n}"), Duration::from_secs(600));
            store.shared.compares.store(compares, Ordering::SeqCst);
            Vault::new(std::sync::Arc::new(store), Terms::default())
        })
        .collect();
    for n in 0..TASKS {
        vaults[0].add(&format!("t{n}").parse().unwrap(), b"text", now).unwrap();
    }
    // Everybody knows all tasks before anybody claims one.
    for vault in &vaults {
        assert_eq!(vault.store().scan(tollgate_vault::State::NeedsAction, now).unwrap().tasks.len(), TASKS);
    }
    let owners: Mutex<BTreeMap<String, Vec<usize>>> = Mutex::default();
    std::thread::scope(|scope| {
        for (n, vault) in vaults.iter().enumerate() {
            let owners = &owners;
            scope.spawn(move || {
                let agent = format!("a{n}").parse().unwrap();
                let request = ClaimRequest { agent, kind: ClaimKind::Held, renamed_in: false };
                let mut queue = vault.queue(&request, now).unwrap();
                while let Some(claimed) = vault.next(&mut queue, &request, now) {
                    owners.lock().unwrap().entry(claimed.task.to_string()).or_default().push(n);
                    std::mem::forget(claimed.lock);
                }
            });
        }
    });
    owners.into_inner().unwrap()
}

#[test]
fn of_eight_machines_that_claim_the_same_tasks_one_gets_each() {
    let cluster = Cluster::shared();
    let owners = race(&cluster, true);
    assert_eq!(owners.len(), TASKS);
    assert!(owners.values().all(|owners| owners.len() == 1), "{owners:?}");
    // The control: the same race would show a store that does not compare.
    let control = race(&cluster, false);
    assert!(control.values().any(|owners| owners.len() > 1), "{control:?}");
}

#[test]
fn the_ledger_has_one_order_for_all_machines_and_no_line_twice() {
    let cluster = Cluster::shared();
    let url = cluster.url();
    let now = Timestamp::now();
    let stores: Vec<_> = (0..4).map(|n| open(&url, &format!("m{n}"), Duration::from_secs(600))).collect();
    std::thread::scope(|scope| {
        for (n, store) in stores.iter().enumerate() {
            scope.spawn(move || {
                for task in 0..10 {
                    let name: TaskName = format!("t{n}-{task}").parse().unwrap();
                    let id = StepId::new().unwrap();
                    store.add(&id, &name, b"text", now).unwrap();
                    let (from, step) = (tollgate_vault::State::NeedsAction, StepId::new().unwrap());
                    let lost = ClaimLost { task: name, from, step };
                    let event = tollgate_vault::event::Event::ClaimLost(lost);
                    let agent = Some("blue".parse().unwrap());
                    store
                        .record(&[tollgate_vault::event::Entry { time: now, agent, turn: None, event }])
                        .unwrap();
                }
            });
        }
    });
    let all: Vec<_> = stores.iter().map(|store| store.events("", usize::MAX).unwrap()).collect();
    assert_eq!(all[0].0.len(), 40);
    assert!(all.iter().all(|read| *read == all[0]), "every machine reads the same");
}
