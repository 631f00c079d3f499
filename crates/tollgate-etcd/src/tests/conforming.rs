//! The conformance suite on three nodes.
//!
//! The checks say what time it is, and the clock of the engine ends leases. So the tests end those that would be over by then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tollgate_base::error::Result;
use tollgate_base::lock::Pauses;
use tollgate_base::name::StepId;
use tollgate_base::task::TaskName;
use tollgate_testing::etcd::Cluster;
use tollgate_vault::claim_lock::Liveness;
use tollgate_vault::conformance::{self, Harness};
use tollgate_vault::event::{Entry, EventPage};
use tollgate_vault::figures::Tally;
use tollgate_vault::state::Slot;
use tollgate_vault::store::{Scan, TaskSummary, Wake, Watch};
use tollgate_vault::{Agent, Claim, ClaimId, ClaimLock, State, Step, StepOutcome, Store, Task};

use super::opened;
use crate::layout::{read_task, split_slot, write_task};
use crate::message::{Txn, TxnOperation};
use crate::store::EtcdStore;

/// A store whose leased claims end at the time that the check says.
struct LeasesOnTestClock(Arc<EtcdStore>);

impl LeasesOnTestClock {
    /// Ends the lease of this claim, if it is over, and returns when the store has heard of it.
    fn end_if_over(&self, task: &TaskName, now: Timestamp) -> Result<()> {
        let claim = self.claim_of(task, now)?;
        let Some(claim) = claim.filter(|claim| claim.lease_until().is_some_and(|until| until < now)) else {
            return Ok(());
        };
        let client = &self.0.shared.client;
        let lease = self.0.shared.lease_of(&claim.id)?.unwrap_or_default();
        let body = json!({ "ID": lease.to_string() });
        // It may have ended before.
        let _ = client.call::<Value>("/v3/lease/revoke", &body, client.deadline);
        let mut pauses = Pauses::lasting(Duration::from_secs(30));
        while !self.0.suspects(now)?.iter().any(|suspect| suspect.name == *task) {
            assert!(pauses.pause(), "the view did not hear of the end of the lease of `{task}`");
        }
        Ok(())
    }
}

impl Store for LeasesOnTestClock {
    fn suspects(&self, now: Timestamp) -> Result<Vec<TaskSummary>> {
        self.scan(State::InProgress, now)?;
        self.0.suspects(now)
    }

    fn scan(&self, state: State, now: Timestamp) -> Result<Scan> {
        let found = self.0.scan(state, now)?;
        let mut owned = found.tasks.iter().filter(|task| task.slot.state() == State::InProgress);
        owned.try_for_each(|task| self.end_if_over(&task.name, now))?;
        Ok(found)
    }

    fn get(&self, task: &TaskName, state: Option<State>, now: Timestamp) -> Result<Option<Task>> {
        self.0.get(task, state, now)
    }

    fn read(&self, task: &Task, limit: u64) -> Result<Option<Vec<u8>>> {
        self.0.read(task, limit)
    }

    fn apply(&self, step: &Step) -> Result<StepOutcome> {
        self.0.apply(step)
    }

    fn add(&self, id: &StepId, task: &TaskName, text: &[u8], now: Timestamp) -> Result<StepOutcome> {
        self.0.add(id, task, text, now)
    }

    fn record(&self, events: &[Entry]) -> Result<()> {
        self.0.record(events)
    }

    fn events(&self, after: &str, limit: usize) -> Result<EventPage> {
        self.0.events(after, limit)
    }

    fn tallies(&self) -> Result<BTreeMap<Agent, Tally>> {
        self.0.tallies()
    }

    fn hold(&self, claim: &ClaimId) -> Result<Option<ClaimLock>> {
        self.0.hold(claim)
    }

    fn liveness(&self, claim: &Claim) -> Result<Liveness> {
        self.0.liveness(claim)
    }

    fn cursor_before(&self, time: Timestamp) -> Result<String> {
        self.0.cursor_before(time)
    }

    fn keep_after(&self, reader: &str, cursor: &str) -> Result<()> {
        self.0.keep_after(reader, cursor)
    }

    fn watch(&self, states: &[State], wake: Wake) -> Result<Option<Watch>> {
        self.0.watch(states, wake)
    }

    fn heartbeat_interval(&self) -> Option<Duration> {
        self.0.heartbeat_interval()
    }

    fn heartbeat(&self, task: &TaskName, claim: &ClaimId) -> Result<bool> {
        self.0.heartbeat(task, claim)
    }

    fn heartbeat_all(&self) -> Result<Vec<ClaimId>> {
        self.0.heartbeat_all()
    }

    fn proven_at(&self, claim: &ClaimId) -> Option<u64> {
        self.0.proven_at(claim)
    }

    fn sweep(&self, now: Timestamp) -> Result<()> {
        self.0.sweep(now)
    }
}

/// As if another program had moved the task, or changed its text. Returns when the store has heard of it.
fn by_hand(store: &EtcdStore, task: &TaskName, from: &Slot, to: &Slot, text: Option<&[u8]>) {
    let (shared, layout) = (&store.shared, &store.shared.layout);
    let id = &shared.ask(task).unwrap().in_slot(from).expect("it is there").seen.id.clone();
    let (old, new) = (layout.task(task, from, id), layout.task(task, to, id));
    let found = shared.client.txn(&Txn { success: vec![TxnOperation::get(&old)], ..Txn::default() }).unwrap();
    let kv = found.found().flatten().next().expect("it is there");
    let (head, before) = read_task(split_slot(&kv.value).unwrap().1).unwrap();
    let mut success = vec![TxnOperation::put(&new, write_task(to, &head, text.unwrap_or(before)).unwrap())];
    if old != new {
        success.push(TxnOperation::delete(&old));
    }
    let revision = shared.client.txn(&Txn { success, ..Txn::default() }).unwrap().header.revision;
    let mut pauses = Pauses::lasting(Duration::from_secs(30));
    while shared.with_view(|view| view.revision).is_some_and(|seen| seen < revision) {
        assert!(pauses.pause(), "the view did not hear of revision {revision}");
    }
}

fn harness(cluster: &Cluster) -> Harness {
    let store = opened(&cluster.url(), "here");
    let person = Arc::clone(&store);
    let by_hand = move |task: &TaskName, from: &Slot, to: &Slot, text: Option<&[u8]>| {
        by_hand(&person, task, from, to, text);
    };
    // The lock is all that shows that the owner lives, so dropping it is its death. Killed processes are another test.
    let store = Arc::new(LeasesOnTestClock(store));
    Harness { race: 100, ..Harness::new(store, Box::new(drop), Box::new(by_hand)) }
}

#[test]
fn a_store_on_three_etcd_nodes_conforms() {
    let cluster = Cluster::shared();
    conformance::run(&|| harness(&cluster));
}
