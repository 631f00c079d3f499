//! The store: looks are answered by the view or the engine, steps by one transaction.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tollgate_base::error::{Fault, Result};
use tollgate_base::name::{Agent, ClaimId, StepId};
use tollgate_base::task::TaskName;
use tollgate_vault::checkup::Finding;
use tollgate_vault::claim::Tenure;
use tollgate_vault::claim_lock::Liveness;
use tollgate_vault::event::{Entry, EventPage, Journal};
use tollgate_vault::figures::Tally;
use tollgate_vault::journal_copy::JournalCopy;
use tollgate_vault::store::{Hint, Scan, TaskSummary, Wake, Watch};
use tollgate_vault::{Claim, ClaimLock, State, Step, StepOutcome, Store, Task};

use crate::client::Client;
use crate::feed;
use crate::layout::Layout;
use crate::message::{KeyValue, TxnOperation};
use crate::process_lease::{ProcessLease, Renewal};
use crate::shared_store::SharedStore;
use crate::tasks_of_name::{CachedTask, SeenTask, TasksOfName};
use crate::tls::Login;
use crate::trim::FIRST_TRIM;
use crate::url::EtcdUrl;
use crate::view::View;

/// A view that has heard nothing for so long is not used: the thread that feeds it cannot reach the engine. A watch is made
/// again every ten seconds.
const STALE: Duration = Duration::from_secs(20);

/// How a store is opened.
pub struct EtcdOptions {
    /// Where the engine is.
    pub url: EtcdUrl,
    /// The user, if the engine wants one.
    pub login: Option<Login>,
    /// Relative paths in the address begin here.
    pub base: PathBuf,
    /// The name of this machine: the same for all its processes, and for no other machine.
    pub machine: String,
    /// How long a leased claim lasts. A held claim of a machine that died ends after twice this time, or after two minutes if
    /// that is shorter.
    pub lease: Duration,
    /// How long one call may take.
    pub deadline: Duration,
    /// Gets a copy of what this process does. The ledger of all machines is in the engine.
    pub journal: Option<Arc<dyn Journal>>,
}

/// Tasks on etcd.
pub struct EtcdStore {
    pub(crate) shared: Arc<SharedStore>,
}

impl EtcdStore {
    /// Opens the store. Nothing is connected before something is asked for.
    pub fn open(options: EtcdOptions) -> Result<Self> {
        let EtcdOptions { url, login, base, machine, lease, deadline, journal } = options;
        let shared = SharedStore {
            client: Client::new(&url, login, deadline, &base)?,
            layout: Layout::new(&url.prefix),
            process_lease: ProcessLease::new(lease, &machine),
            machine,
            sums: Mutex::default(),
            lease,
            trim_at: Mutex::new(Instant::now() + FIRST_TRIM),
            journal: JournalCopy::to(journal),
            view: Mutex::new(None),
            is_known: AtomicBool::new(false),
            wakes: Mutex::default(),
            watches: AtomicU64::new(0),
            #[cfg(test)]
            compares: AtomicBool::new(true),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The engine, in a layout that we know.
    fn known(&self) -> Result<&SharedStore> {
        self.shared.check_format()?;
        Ok(&self.shared)
    }

    /// What the view says; it is made first if need be, and made again if it is too old.
    fn viewed<T>(&self, look: impl FnOnce(&View) -> T) -> Result<T> {
        let shared = self.known()?;
        let mut view = shared.view.lock().unwrap_or_else(PoisonError::into_inner);
        if view.as_ref().is_none_or(|view| view.heard.elapsed() > STALE) {
            let (loaded, is_first) = (feed::load(shared)?, view.is_none());
            if is_first {
                // Before there is a view: one that nobody feeds would never change.
                feed::start(&self.shared)?;
            }
            let found = look(view.insert(loaded));
            drop(view);
            if !is_first {
                // What happened while nothing was heard is in the view now, so no watch will tell it.
                shared.wake(&[Hint::Everything]);
            }
            return Ok(found);
        }
        view.as_ref().map(look).ok_or_else(|| Fault::invalid("the view is gone"))
    }
}

/// Ends a held claim when its lock is dropped.
struct HeldClaim {
    shared: Weak<SharedStore>,
    claim: ClaimId,
}

impl Drop for HeldClaim {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            let ended = shared.process_lease.let_go(&shared.client, &shared.layout, self.claim.clone());
            // Our own view need not wait for the watch. That an owner is gone stays true.
            let left = |claim: &ClaimId| KeyValue {
                key: shared.layout.left(claim).into_bytes(),
                ..KeyValue::default()
            };
            shared.learn(&ended.iter().map(left).collect::<Vec<_>>(), &[], 0);
        }
    }
}

/// Ends the wake-ups when it is dropped.
struct WakeGuard {
    shared: Weak<SharedStore>,
    number: u64,
}

impl Drop for WakeGuard {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.wakes.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
        }
    }
}

impl Store for EtcdStore {
    fn scan(&self, state: State, _now: Timestamp) -> Result<Scan> {
        let tasks = match state.is_final() {
            true => feed::scan_final(self.known()?, state)?,
            false => self.viewed(|view| view.scan(state))?,
        };
        Ok(Scan { tasks, unfit: Vec::new() })
    }

    fn get(&self, task: &TaskName, state: Option<State>, _now: Timestamp) -> Result<Option<Task>> {
        let shared = self.known()?;
        // A claim of what the view proposes: the step is compared with the engine. Everything else must be certain.
        if state.is_some_and(State::is_claimable) {
            let find = |view: &mut View| view.named(task)?.find(state);
            if let Some(found) = shared.with_view(find).flatten() {
                return Ok(Some(found));
            }
        }
        Ok(shared.ask(task)?.find(state))
    }

    fn read(&self, task: &Task, limit: u64) -> Result<Option<Vec<u8>>> {
        let shared = self.known()?;
        let Some(seen) = SeenTask::of(&task.version) else { return Ok(None) };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let text = shared.text_at(&task.name, &task.slot, &seen)?;
        Ok(text.map(|text| text[..text.len().min(limit)].to_vec()))
    }

    /// The engine ends leases, so it is asked how much time a lease has left.
    fn claim_of(&self, task: &TaskName, now: Timestamp) -> Result<Option<Claim>> {
        let mut claim = self.get(task, Some(State::InProgress), now)?.and_then(|task| task.record.claim);
        if let Some(Claim { id, tenure: Tenure::Leased(until), .. }) = &mut claim {
            let left = self.shared.time_left(id)?;
            *until = now.checked_add(left).unwrap_or(Timestamp::MAX);
        }
        Ok(claim)
    }

    fn apply(&self, step: &Step) -> Result<StepOutcome> {
        self.known()?.take(step)
    }

    fn add(&self, id: &StepId, task: &TaskName, text: &[u8], now: Timestamp) -> Result<StepOutcome> {
        self.known()?.put_new(id, task, text, now)
    }

    fn record(&self, events: &[Entry]) -> Result<()> {
        let shared = self.known()?;
        shared.record_events(events)?;
        shared.journal.append(events);
        Ok(())
    }

    fn events(&self, after: &str, limit: usize) -> Result<EventPage> {
        self.known()?.events_after(after, limit)
    }

    fn oldest_cursor(&self) -> Result<String> {
        self.known()?.oldest_cursor()
    }

    fn cursor_before(&self, time: Timestamp) -> Result<String> {
        self.known()?.cursor_before(time)
    }

    fn keep_after(&self, reader: &str, cursor: &str) -> Result<()> {
        self.known()?.keep_after(reader, cursor)
    }

    fn tallies(&self) -> Result<BTreeMap<Agent, Tally>> {
        self.known()?.sum_up()
    }

    fn watch(&self, states: &[State], wake: Wake) -> Result<Option<Watch>> {
        let number = self.shared.watches.fetch_add(1, Ordering::Relaxed);
        let mut wakes = self.shared.wakes.lock().unwrap_or_else(PoisonError::into_inner);
        wakes.insert(number, (states.to_vec(), wake));
        drop(wakes);
        let waking = WakeGuard { shared: Arc::downgrade(&self.shared), number };
        match self.viewed(|_| ()) {
            // A process that starts in an outage hears of its end.
            Err(Fault::Unreachable { .. }) => {
                let look = |shared| EtcdStore { shared }.viewed(|_| ());
                feed::begin_later(&self.shared, number, look)?;
            }
            looked => looked?,
        }
        Ok(Some(Box::new(waking)))
    }

    fn hold(&self, claim: &ClaimId) -> Result<Option<ClaimLock>> {
        let shared = self.known()?;
        let lease = shared.called(shared.process_lease.lease(&shared.client, &shared.layout))?;
        shared.process_lease.hold(claim, lease);
        let held = HeldClaim { shared: Arc::downgrade(&self.shared), claim: claim.clone() };
        Ok(Some(ClaimLock::of_guard(lease.cast_unsigned(), held)))
    }

    fn suspects(&self, _now: Timestamp) -> Result<Vec<TaskSummary>> {
        self.viewed(View::suspects)
    }

    fn liveness(&self, claim: &Claim) -> Result<Liveness> {
        let is_gone = self.known()?.is_owner_gone(claim)?;
        Ok(if is_gone { Liveness::Gone(ClaimLock::nothing()) } else { Liveness::Alive })
    }

    /// A third of the lease: two heartbeats may get lost.
    fn heartbeat_interval(&self) -> Option<Duration> {
        Some(self.shared.process_lease.term / 3)
    }

    fn heartbeat(&self, task: &TaskName, claim: &ClaimId) -> Result<bool> {
        let shared = self.known()?;
        let layout = &shared.layout;
        let tasks = vec![TxnOperation::get_all(&layout.opens(task))];
        let renewed = shared.called(shared.process_lease.renew(&shared.client, layout, tasks))?;
        let Some(Renewal { lease, found }) = renewed else { return Ok(false) };
        let named = TasksOfName::read(layout, found.into_iter().flatten());
        let is_ours = |known: &Claim| known.id == *claim && known.hold == Some(lease);
        Ok(named.tasks.values().filter_map(CachedTask::claim).any(is_ours))
    }

    fn proven_at(&self, claim: &ClaimId) -> Option<u64> {
        self.shared.process_lease.proven_at(claim)
    }

    fn heartbeat_all(&self) -> Result<Vec<ClaimId>> {
        let shared = self.known()?;
        if !shared.process_lease.is_busy() {
            return Ok(Vec::new());
        }
        let renewed =
            shared.called(shared.process_lease.renew(&shared.client, &shared.layout, Vec::new()))?;
        shared.process_lease.clear(&shared.client, &shared.layout);
        if renewed.is_none() {
            return Ok(Vec::new());
        }
        // A person may have taken the task of one of them back.
        let owning = self.viewed(View::owning_claims)?;
        Ok(shared.process_lease.claims().into_iter().filter(|claim| owning.contains(claim)).collect())
    }

    fn checkup(&self) -> Result<Vec<Finding>> {
        self.shared.look_for_problems()
    }

    fn problems(&self) -> Vec<String> {
        let silence = self.shared.with_view(|view| view.heard.elapsed()).filter(|silence| *silence > STALE);
        let seconds = silence.map(|silence| silence.as_secs());
        let silent = seconds.map(|s| format!("`{}` has not been heard for {s} s", self.shared.client.shown));
        silent.into_iter().chain(self.shared.journal.problem()).collect()
    }

    fn sweep(&self, _now: Timestamp) -> Result<()> {
        let shared = &self.shared;
        shared.process_lease.clear(&shared.client, &shared.layout);
        Ok(())
    }
}
