//! The conformance suite on a real server.
//!
//! The checks say what time it is. Leases are measured with the database's clock, so the tests set that clock to the time
//! that the check says before every call.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use postgres::Client;
use tollgate_base::error::Result;
use tollgate_base::task::{State, TaskName};
use tollgate_postgres::PostgresStore;
use tollgate_testing::postgres::{Server, is_installed};
use tollgate_vault::claim_lock::Liveness;
use tollgate_vault::conformance::{self, Harness};
use tollgate_vault::event::{Entry, EventPage};
use tollgate_vault::figures::Tally;
use tollgate_vault::state::Slot;
use tollgate_vault::store::{QueuePage, Scan, Version};
use tollgate_vault::{Agent, Claim, ClaimId, ClaimLock, Step, StepId, StepOutcome, Store, Task, TaskSummary};

use crate::stores::Stores;

/// The store, on a database whose clock says what the check says.
struct OnTestClock {
    store: PostgresStore,
    clock: Mutex<(Client, Option<Timestamp>)>,
}

impl OnTestClock {
    fn new(server: &Server, schema: &str) -> Self {
        let store = server.store(schema);
        store.events("", 1).expect("the schema is there");
        let mut sql = server.sql();
        let script = "create table test_clock (at timestamptz not null);
            insert into test_clock values (now());
            create or replace function lease_clock() returns timestamptz language sql volatile
            set search_path from current as 'select at from test_clock'";
        sql.batch_execute(&format!("set search_path = {schema}; set synchronous_commit = off; {script}"))
            .unwrap();
        Self { store, clock: Mutex::new((sql, None)) }
    }

    fn at(&self, now: Timestamp) -> &PostgresStore {
        let mut clock = self.clock.lock().unwrap();
        if clock.1 != Some(now) {
            clock.0.batch_execute(&format!("update test_clock set at = '{now}'")).unwrap();
            clock.1 = Some(now);
        }
        &self.store
    }

    /// As if a person had moved the task, or changed its text.
    fn by_hand(&self, task: &TaskName, from: &Slot, to: &Slot, text: Option<&[u8]>) {
        let column =
            |slot: &Slot| (slot.state().to_string(), slot.agent().map_or(String::new(), Agent::to_string));
        let (from, to) = (column(from), column(to));
        let mut clock = self.clock.lock().unwrap();
        let sql = "update tasks set state = $1, agent = $2, text = coalesce($3, text) where name = $4 and state = $5 and agent = $6";
        clock.0.execute(sql, &[&to.0, &to.1, &text, &task.as_str(), &from.0, &from.1]).unwrap();
    }
}

impl Store for OnTestClock {
    fn scan(&self, state: State, now: Timestamp) -> Result<Scan> {
        self.at(now).scan(state, now)
    }

    fn queue_page(&self, after: &str, limit: usize, now: Timestamp) -> Result<Option<QueuePage>> {
        self.at(now).queue_page(after, limit, now)
    }

    fn get(&self, task: &TaskName, state: Option<State>, now: Timestamp) -> Result<Option<Task>> {
        self.at(now).get(task, state, now)
    }

    fn read(&self, task: &Task, limit: u64) -> Result<Option<Vec<u8>>> {
        self.store.read(task, limit)
    }

    fn apply(&self, step: &Step) -> Result<StepOutcome> {
        self.at(step.at).apply(step)
    }

    fn add(&self, id: &StepId, task: &TaskName, text: &[u8], now: Timestamp) -> Result<StepOutcome> {
        self.at(now).add(id, task, text, now)
    }

    fn record(&self, events: &[Entry]) -> Result<()> {
        self.store.record(events)
    }

    fn events(&self, after: &str, limit: usize) -> Result<EventPage> {
        self.store.events(after, limit)
    }

    fn tallies(&self) -> Result<BTreeMap<Agent, Tally>> {
        self.store.tallies()
    }

    fn hold(&self, claim: &ClaimId) -> Result<Option<ClaimLock>> {
        self.store.hold(claim)
    }

    fn suspects(&self, now: Timestamp) -> Result<Vec<TaskSummary>> {
        self.at(now).suspects(now)
    }

    fn liveness(&self, claim: &Claim) -> Result<Liveness> {
        self.store.liveness(claim)
    }

    fn sweep(&self, now: Timestamp) -> Result<()> {
        self.at(now).sweep(now)
    }
}

fn harness(server: &Server, wrap: &dyn Fn(Arc<dyn Store>) -> Arc<dyn Store>) -> Harness {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let schema = format!("vault_{}", NUMBER.fetch_add(1, Ordering::SeqCst));
    let store = Arc::new(OnTestClock::new(server, &schema));
    let person = Arc::clone(&store);
    Harness::new(
        wrap(store),
        Box::new(drop),
        Box::new(move |task, from, to, text| person.by_hand(task, from, to, text)),
    )
}

#[test]
fn the_store_conforms_on_a_real_postgresql() {
    if !is_installed() {
        return;
    }
    let server = Server::shared();
    conformance::run(&|| harness(&server, &|store| store));
}

/// The control: a store that does not compare versions.
struct Overwriting(Arc<dyn Store>);

impl Store for Overwriting {
    fn apply(&self, step: &Step) -> Result<StepOutcome> {
        let mut step = step.clone();
        if let Some(found) = self.0.get(&step.task, Some(step.from.state()), step.at)? {
            step.version = Version::clone(&found.version);
        }
        self.0.apply(&step)
    }

    fn scan(&self, state: State, now: Timestamp) -> Result<Scan> {
        self.0.scan(state, now)
    }

    fn get(&self, task: &TaskName, state: Option<State>, now: Timestamp) -> Result<Option<Task>> {
        self.0.get(task, state, now)
    }

    fn read(&self, task: &Task, limit: u64) -> Result<Option<Vec<u8>>> {
        self.0.read(task, limit)
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
}

#[test]
fn the_suite_notices_a_store_that_does_not_compare_versions() {
    if !is_installed() {
        return;
    }
    let server = Server::shared();
    let run = || conformance::run(&|| harness(&server, &|store| Arc::new(Overwriting(store))));
    let said = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_err();
    let said = said.downcast_ref::<String>().map_or("", |said| said.as_str());
    assert!(said.starts_with("a renewed claim is not reclaimed: Done"), "{said}");
}
