//! The queue, with tasks that other programs change.

use std::sync::Arc;

use jiff::Timestamp;
use tollgate_base::task::TaskName;
use tollgate_testing::etcd::Cluster;
use tollgate_vault::state::Slot;
use tollgate_vault::{ClaimKind, ClaimRequest, State, StepId, Store, Terms, Vault};

use super::opened;
use crate::layout::{TaskHead, write_task};
use crate::message::TxnOperation;

#[test]
fn what_other_programs_do_to_the_queue_counts() {
    let cluster = Cluster::shared();
    let url = cluster.url();
    let store = opened(&url, "one");
    let name = |name: &str| name.parse::<TaskName>().unwrap();
    for task in ["a", "b", "c"] {
        store.add(&StepId::new().unwrap(), &name(task), b"text", Timestamp::now()).unwrap();
    }
    let shared = &store.shared;
    let key = |task: &str| {
        let known = shared.ask(&name(task)).unwrap();
        let known = known.in_slot(&Slot::NEEDS_ACTION).map(|task| task.seen.id.clone());
        shared.layout.task(&name(task), &Slot::NEEDS_ACTION, &known.unwrap_or_else(|| StepId::new().unwrap()))
    };
    let put = |task: &str, priority: &str| {
        let text = format!("---\npriority: {priority}\n---\n");
        let head = TaskHead::new(Timestamp::now());
        TxnOperation::put(key(task), write_task(&Slot::NEEDS_ACTION, &head, text.as_bytes()).unwrap())
    };
    shared.act(vec![TxnOperation::delete(key("a")), put("b", "low"), put("new", "high")]).unwrap();
    let next = || {
        let vault = Vault::new(opened(&url, "next") as Arc<dyn Store>, Terms::default());
        let agent = "blue".parse().unwrap();
        let request = ClaimRequest { agent, kind: ClaimKind::Leased, renamed_in: false };
        let (claimed, queue) = vault.claim_next(&request, Timestamp::now()).unwrap();
        assert_eq!((queue.lost, queue.faults.len()), (0, 0), "{queue:?}");
        claimed.map(|claimed| claimed.task.stem().to_owned())
    };
    assert_eq!([next(), next(), next()].map(Option::unwrap), ["new", "c", "b"]);
    assert_eq!(next(), None);
    assert_eq!(store.scan(State::InProgress, Timestamp::now()).unwrap().tasks.len(), 3);
}
