//! The store: looks are answered by the view or the engine, steps by one transaction.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};
use tollgate_base::name::{Agent, ClaimId, StepId};
use tollgate_base::task::TaskName;
use tollgate_vault::checkup::Finding;
use tollgate_vault::claim::Tenure;
use tollgate_vault::claim_lock::Liveness;
use tollgate_vault::event::{Entry, EventPage, Journal};
use tollgate_vault::figures::Tally;
use tollgate_vault::state::{Slot, Verb};
use tollgate_vault::step::TextEdit;
use tollgate_vault::store::{Hint, Landed, Scan, TaskSummary, Wake, Watch};
use tollgate_vault::{Claim, ClaimLock, State, Step, StepOutcome, Store, Task};

use crate::archive::KEEP;
use crate::client::{CallError, Called, Client, Login};
use crate::feed;
use crate::layout::{self, FORMAT, Layout, LineValue, RecordValue, write_task};
use crate::lines::Sums;
use crate::message::{Act, Condition, KeyValue, Range, Txn, TxnAnswer};
use crate::named::{Named, split_version};
use crate::session::{Session, lease_of};
use crate::url::EtcdUrl;
use crate::view::View;

/// The largest text. etcd takes requests of 1.5 MiB, and the claim record and the ledger line need some room.
const MAX_TEXT: usize = 1 << 20;

/// A view that has heard nothing for so long is not used: the thread that feeds it cannot reach the engine. A watch is made
/// again every ten seconds.
const STALE: Duration = Duration::from_secs(20);

/// When a process archives old lines for the first time, and how often. Commands that end at once have other things to do.
const FIRST_ARCHIVE: Duration = Duration::from_secs(60);
const NEXT_ARCHIVE: Duration = Duration::from_secs(600);

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
    /// How long a leased claim lasts. A held claim of a machine that died ends after this time, or after a minute if that is
    /// shorter.
    pub lease: Duration,
    /// How long one call may take.
    pub deadline: Duration,
    /// Where old lines of the ledger go, if this machine is to keep them.
    pub archive: Option<PathBuf>,
    /// Gets a copy of what this process does. The ledger of all machines is in the engine.
    pub journal: Option<Arc<dyn Journal>>,
}

/// Tasks on etcd.
pub struct EtcdStore {
    pub(crate) inside: Arc<Inside>,
}

/// What the store shares with the thread that feeds its view, and with the locks of its claims.
pub(crate) struct Inside {
    pub(crate) client: Client,
    pub(crate) layout: Layout,
    pub(crate) machine: String,
    pub(crate) session: Session,
    pub(crate) sums: Mutex<Sums>,
    /// When a reader of this process last left its place.
    pub(crate) left_place: Mutex<Option<Instant>>,
    lease: Duration,
    archive: Option<PathBuf>,
    archive_at: Mutex<Instant>,
    journal: Option<Arc<dyn Journal>>,
    view: Mutex<Option<View>>,
    /// Whether the layout in the engine is one that we know.
    is_known: AtomicBool,
    wakes: Mutex<BTreeMap<u64, (Vec<State>, Wake)>>,
    watches: AtomicU64,
    /// Whether steps are compared with the engine. Without it tests must fail.
    #[cfg(test)]
    pub(crate) compares: AtomicBool,
}

impl EtcdStore {
    /// Opens the store. Nothing is connected before something is asked for.
    pub fn open(options: EtcdOptions) -> Result<Self> {
        let EtcdOptions { url, login, base, machine, lease, deadline, archive, journal } = options;
        let inside = Inside {
            client: Client::new(&url, login, deadline, &base)?,
            layout: Layout::new(&url.prefix),
            machine,
            session: Session::new(lease),
            sums: Mutex::default(),
            left_place: Mutex::new(None),
            lease,
            archive,
            archive_at: Mutex::new(Instant::now() + FIRST_ARCHIVE),
            journal,
            view: Mutex::new(None),
            is_known: AtomicBool::new(false),
            wakes: Mutex::default(),
            watches: AtomicU64::new(0),
            #[cfg(test)]
            compares: AtomicBool::new(true),
        };
        Ok(Self { inside: Arc::new(inside) })
    }

    /// The engine, in a layout that we know.
    fn known(&self) -> Result<&Inside> {
        self.inside.check_format()?;
        Ok(&self.inside)
    }

    /// What the view says; it is made first if need be, and made again if it is too old.
    fn viewed<T>(&self, look: impl FnOnce(&View) -> T) -> Result<T> {
        let inside = self.known()?;
        let mut view = inside.view.lock().unwrap_or_else(PoisonError::into_inner);
        if view.as_ref().is_none_or(|view| view.heard.elapsed() > STALE) {
            let is_first = view.is_none();
            let view = view.insert(feed::load(inside)?);
            if is_first {
                feed::start(&self.inside);
            }
            return Ok(look(view));
        }
        view.as_ref().map(look).ok_or_else(|| Fault::invalid("the view is gone"))
    }
}

impl Inside {
    /// The answer of a call that changes nothing, or that may be repeated.
    pub(crate) fn called<T>(&self, called: Called<T>) -> Result<T> {
        called.map_err(|error| error.fault(&self.client.shown))
    }

    /// What the view says, if there is one.
    pub(crate) fn with_view<T>(&self, look: impl FnOnce(&mut View) -> T) -> Option<T> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(look)
    }

    pub(crate) fn replace_view(&self, view: View) {
        *self.view.lock().unwrap_or_else(PoisonError::into_inner) = Some(view);
        self.wake(&[Hint::Everything]);
    }

    /// Tells those who watch.
    pub(crate) fn wake(&self, hints: &[Hint]) {
        let wakes: Vec<_> =
            self.wakes.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        for (states, wake) in &wakes {
            for hint in hints {
                if !matches!(hint, Hint::Task(_, state, _) | Hint::State(state) if !states.contains(state)) {
                    wake(hint.clone());
                }
            }
        }
    }

    /// The layout in the engine must be one that we know. The first process writes it.
    pub(crate) fn check_format(&self) -> Result<()> {
        if self.is_known.load(Ordering::Relaxed) {
            return Ok(());
        }
        let key = self.layout.format();
        let found = self.called(self.client.txn(&Txn {
            compare: vec![Condition::absent(&key)],
            success: vec![Act::put(&key, FORMAT.to_string())],
            failure: vec![Act::get(&key)],
        }))?;
        if !found.succeeded {
            let found =
                found.found().next().and_then(|kvs| String::from_utf8(kvs.into_iter().next()?.value).ok());
            match found.as_deref().map(str::parse::<u32>) {
                Some(Ok(FORMAT)) => {}
                Some(Ok(found)) => {
                    return Err(Fault::NewerFormat { path: key.into(), found, known: FORMAT });
                }
                _ => return Err(Fault::damaged(key.as_ref(), "it is not a number")),
            }
        }
        self.is_known.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Everything about one name, from the engine.
    fn ask(&self, name: &TaskName) -> Result<Named> {
        let success = vec![Act::get_all(&self.layout.record(name)), Act::get_all(&self.layout.finals(name))];
        let found = self.called(self.client.txn(&Txn { success, ..Txn::default() }))?;
        Ok(Named::read(&self.layout, found.found().flatten()))
    }

    /// The text of a task at exactly this revision.
    fn text_at(&self, name: &TaskName, slot: &Slot, revision: i64) -> Result<Option<Arc<[u8]>>> {
        if let Some(text) = self.with_view(|view| view.text(name, slot, revision)).flatten() {
            return Ok(Some(text));
        }
        let success = vec![Act::get(self.layout.task(name, slot))];
        let found = self.called(self.client.txn(&Txn { success, ..Txn::default() }))?;
        let kv = found.found().flatten().next().filter(|kv| kv.mod_revision == revision);
        kv.map(|kv| Ok(layout::read_task(&kv.value)?.1.into())).transpose()
    }

    /// Keys as the engine has them, for the view.
    fn learn(&self, put: &[KeyValue], gone: &[String], revision: i64) {
        let hints = self.with_view(|view| {
            let deleted: Vec<_> =
                gone.iter().filter_map(|key| view.delete(&self.layout, key.as_bytes(), revision)).collect();
            deleted
                .into_iter()
                .chain(put.iter().filter_map(|kv| view.put(&self.layout, kv)))
                .collect::<Vec<_>>()
        });
        self.wake(&hints.unwrap_or_default());
    }

    /// The answer to a step that was taken before; else somebody else was faster.
    fn earlier_answer(&self, step: &StepId) -> Result<StepOutcome> {
        let success = vec![Act::get(self.layout.line(step))];
        let found = self.called(self.client.txn(&Txn { success, ..Txn::default() }))?;
        Ok(answer_in(found.found().flatten().next())?.map_or(StepOutcome::Conflict, StepOutcome::Done))
    }

    fn take(&self, step: &Step) -> Result<StepOutcome> {
        let Some(revisions) = split_version(&step.version) else { return Ok(StepOutcome::Conflict) };
        let Some(text) = self.text_at(&step.task, &step.from, revisions.0)? else {
            return self.earlier_answer(&step.id);
        };
        if step.check.is_some_and(|sha256| sha256 != Digest::of(&text)) {
            return Ok(StepOutcome::Changed);
        }
        let text = step.edited(&text);
        check_size(&text)?;
        let mut name = step.task.clone();
        for _ in 0..2 {
            match self.try_step(step, &name, revisions, &text)? {
                Some(outcome) => return Ok(outcome),
                // Its name is taken where it goes.
                None => name = step.fallback_name(),
            }
        }
        Err(Fault::invalid(format!("`{}` and `{name}` are both taken in `{}`", step.task, step.to)))
    }

    /// One transaction. `None`: there is a task of this name where it goes.
    fn try_step(
        &self,
        step: &Step,
        name: &TaskName,
        (task_revision, record_revision): (i64, i64),
        text: &[u8],
    ) -> Result<Option<StepOutcome>> {
        let (from, to) = (self.layout.task(&step.task, &step.from), self.layout.task(name, &step.to));
        let (old_record, line) = (self.layout.record(&step.task), self.layout.line(&step.id));
        let compare = vec![
            Condition::at(&from, task_revision),
            Condition::at(&old_record, record_revision),
            Condition::absent(&line),
        ];
        let mut change = Change { compare, ..Change::default() };
        if to != from {
            change.compare.push(Condition::absent(&to));
            change.delete(from.clone());
        }
        change.put(to.clone(), write_task(step.at, text));
        let new_record = step.record_after(text);
        match &new_record {
            Some(record) => {
                let value = RecordValue { machine: self.machine.clone(), record: record.clone() };
                change.put(self.layout.record(name), layout::write(&value)?);
                if *name != step.task && record_revision != 0 {
                    change.delete(old_record.clone());
                }
            }
            None if record_revision != 0 => change.delete(old_record.clone()),
            None => {}
        }
        let landed = Landed { task: name.clone(), slot: step.to.clone(), path: None };
        let value = LineValue {
            machine: self.machine.clone(),
            landed: Some((name.clone(), step.to.clone())),
            events: step.events.clone(),
        };
        change.success.push(Act::put(&line, layout::write(&value)?));
        let claim = new_record.as_ref().and_then(|record| record.claim.as_ref());
        let ended = match &step.edit {
            TextEdit::Close(claim, _) => Some(&claim.id),
            _ => None,
        };
        if let Some(ended) = ended {
            change.delete(self.layout.owner(ended));
        }
        let lease = match claim {
            Some(claim) => self.keep_owner(&mut change, step, claim)?,
            None => None,
        };
        #[cfg(test)]
        if !self.compares.load(Ordering::SeqCst) {
            change.compare.clear();
        }
        let failure = [&line, &from, &old_record, &to].map(Act::get).to_vec();
        let txn = Txn { compare: change.compare, success: change.success, failure };
        let answer = match self.client.txn(&txn) {
            Ok(answer) => answer,
            Err(CallError::Unanswered(fault)) => return Ok(Some(StepOutcome::Unknown(fault))),
            Err(error) => {
                if let Some(lease) = lease.filter(|_| error.is_lease_gone()) {
                    self.session.lost(lease);
                }
                return Err(error.fault(&self.client.shown));
            }
        };
        if !answer.succeeded {
            return self.not_taken(step, answer, (task_revision, record_revision), claim);
        }
        let revision = answer.header.revision;
        let at = |(key, value): (String, Vec<u8>)| KeyValue {
            key: key.into_bytes(),
            value,
            create_revision: revision,
            mod_revision: revision,
        };
        let put: Vec<_> = change.put.into_iter().map(at).collect();
        self.learn(&put, &change.gone, revision);
        if let Some(ended) = ended {
            self.session.mark(ended, false);
        }
        self.copy_to_journal(&step.events);
        Ok(Some(StepOutcome::Done(landed)))
    }

    /// Adds the key that shows that the owner is alive, if this step needs a new one. The lease that it is bound to.
    fn keep_owner(&self, change: &mut Change, step: &Step, claim: &Claim) -> Result<Option<i64>> {
        let is_new = step.verb == Some(Verb::Claim);
        let key = self.layout.owner(&claim.id);
        let lease = match claim.tenure {
            Tenure::Held if is_new => {
                self.session.mark(&claim.id, true);
                self.called(self.session.lease(&self.client))?
            }
            Tenure::Held => return Ok(None),
            Tenure::Leased(_) => {
                let lease = lease_of(&claim.id);
                if !is_new && self.called(self.client.keep_alive(lease, self.client.deadline))? {
                    return Ok(None);
                }
                self.called(self.client.grant(lease, self.lease))?;
                lease
            }
        };
        change.success.push(Act::put_leased(&key, &self.machine, lease));
        change.put.push((key, self.machine.clone().into_bytes()));
        Ok(Some(lease))
    }

    /// Why a step was not taken. `None`: there is a task of this name where it goes.
    fn not_taken(
        &self,
        step: &Step,
        answer: TxnAnswer,
        revisions: (i64, i64),
        claim: Option<&Claim>,
    ) -> Result<Option<StepOutcome>> {
        let now = answer.header.revision;
        let mut found = answer.found().map(|kvs| kvs.into_iter().next());
        let mut next = || found.next().flatten();
        let (line, from, record) = (next(), next(), next());
        if let Some(landed) = answer_in(line)? {
            return Ok(Some(StepOutcome::Done(landed)));
        }
        let revision = |kv: &Option<KeyValue>| kv.as_ref().map_or(0, |kv| kv.mod_revision);
        if (revision(&from), revision(&record)) == revisions {
            return Ok(None);
        }
        if let Some(claim) = claim.filter(|_| step.verb == Some(Verb::Claim)) {
            self.session.mark(&claim.id, false);
        }
        let keys =
            [(self.layout.task(&step.task, &step.from), &from), (self.layout.record(&step.task), &record)];
        let gone: Vec<_> = keys.into_iter().filter(|(_, kv)| kv.is_none()).map(|(key, _)| key).collect();
        let put: Vec<_> = [from, record].into_iter().flatten().collect();
        self.learn(&put, &gone, now);
        Ok(Some(StepOutcome::Conflict))
    }

    fn put_new(&self, id: &StepId, task: &TaskName, text: &[u8], now: Timestamp) -> Result<StepOutcome> {
        check_size(text)?;
        let slot = Slot::NEEDS_ACTION;
        let (key, line) = (self.layout.task(task, &slot), self.layout.line(id));
        let (value, landed) = (write_task(now, text), Some((task.clone(), slot.clone())));
        let told = layout::write(&LineValue { machine: self.machine.clone(), landed, events: Vec::new() })?;
        let answer = self.client.txn(&Txn {
            compare: vec![Condition::absent(&key), Condition::absent(&line)],
            success: vec![Act::put(&key, &value), Act::put(&line, told)],
            failure: vec![Act::get(&line)],
        });
        match answer {
            Ok(answer) if answer.succeeded => {
                let revision = answer.header.revision;
                let key = key.into_bytes();
                let kv = KeyValue { key, value, create_revision: revision, mod_revision: revision };
                self.learn(&[kv], &[], revision);
                Ok(StepOutcome::Done(Landed { task: task.clone(), slot, path: None }))
            }
            Ok(answer) => {
                Ok(answer_in(answer.found().flatten().next())?
                    .map_or(StepOutcome::Conflict, StepOutcome::Done))
            }
            Err(CallError::Unanswered(fault)) => Ok(StepOutcome::Unknown(fault)),
            Err(error) => Err(error.fault(&self.client.shown)),
        }
    }

    /// This machine's own ledger gets a copy. The engine has the line already, so a fault here must not undo the step.
    fn copy_to_journal(&self, events: &[Entry]) {
        if let Some(journal) = self.journal.as_ref().filter(|_| !events.is_empty()) {
            let _ = journal.append(events);
        }
    }

    /// Final tasks, which are not in the view.
    fn scan_final(&self, state: State) -> Result<Vec<TaskSummary>> {
        let mut range = Range { limit: feed::PAGE, ..Range::all(&self.layout.final_tasks()) };
        let mut tasks = Vec::new();
        loop {
            let answer = self.called(self.client.range(&range))?;
            let last = answer.kvs.last().filter(|_| answer.more).map(|last| last.key.clone());
            let named = Named::read_each(&self.layout, answer.kvs);
            tasks.extend(named.filter(|task| task.slot.state() == state));
            match last {
                Some(last) => range.from = [&last[..], &[0]].concat(),
                None => return Ok(tasks),
            }
        }
    }
}

/// What a transaction changes, for the engine and for the view.
#[derive(Default)]
struct Change {
    compare: Vec<Condition>,
    success: Vec<Act>,
    put: Vec<(String, Vec<u8>)>,
    gone: Vec<String>,
}

impl Change {
    fn put(&mut self, key: String, value: Vec<u8>) {
        self.success.push(Act::put(&key, &value));
        self.put.push((key, value));
    }

    fn delete(&mut self, key: String) {
        self.success.push(Act::delete(&key));
        self.gone.push(key);
    }
}

/// The answer that a line of the ledger has for its step.
fn answer_in(line: Option<KeyValue>) -> Result<Option<Landed>> {
    line.map_or(Ok(None), |kv| layout::read::<LineValue>(&kv.value).map(|line| line.landed()))
}

fn check_size(text: &[u8]) -> Result<()> {
    if text.len() > MAX_TEXT {
        return Err(Fault::invalid(format!(
            "a task on etcd has at most {MAX_TEXT} bytes, this has {}",
            text.len()
        )));
    }
    Ok(())
}

/// Ends a held claim when its lock is dropped.
struct HeldClaim {
    inside: Weak<Inside>,
    claim: ClaimId,
}

impl Drop for HeldClaim {
    fn drop(&mut self) {
        if let Some(inside) = self.inside.upgrade() {
            inside.session.let_go(&inside.client, &inside.layout, self.claim.clone());
            // Our own view need not wait for the watch. That an owner is gone stays true.
            inside.learn(&[], &[inside.layout.owner(&self.claim)], i64::MAX);
        }
    }
}

/// Ends the wake-ups when it is dropped.
struct Waking {
    inside: Weak<Inside>,
    number: u64,
}

impl Drop for Waking {
    fn drop(&mut self) {
        if let Some(inside) = self.inside.upgrade() {
            inside.wakes.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
        }
    }
}

impl Store for EtcdStore {
    fn scan(&self, state: State, _now: Timestamp) -> Result<Scan> {
        let tasks = match state.is_final() {
            true => self.known()?.scan_final(state)?,
            false => self.viewed(|view| view.scan(state))?,
        };
        Ok(Scan { tasks, unfit: Vec::new() })
    }

    fn get(&self, task: &TaskName, state: Option<State>, _now: Timestamp) -> Result<Option<Task>> {
        let inside = self.known()?;
        // A claim of what the view proposes: the step is compared with the engine. Everything else must be certain.
        if matches!(state, Some(State::NeedsAction | State::Approved)) {
            let find = |view: &mut View| view.named(task)?.find(state, &inside.machine);
            if let Some(found) = inside.with_view(find).flatten() {
                return Ok(Some(found));
            }
        }
        Ok(inside.ask(task)?.find(state, &inside.machine))
    }

    fn read(&self, task: &Task, limit: u64) -> Result<Option<Vec<u8>>> {
        let inside = self.known()?;
        let Some((revision, _)) = split_version(&task.version) else { return Ok(None) };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let text = inside.text_at(&task.name, &task.slot, revision)?;
        Ok(text.map(|text| text[..text.len().min(limit)].to_vec()))
    }

    fn apply(&self, step: &Step) -> Result<StepOutcome> {
        self.known()?.take(step)
    }

    fn add(&self, id: &StepId, task: &TaskName, text: &[u8], now: Timestamp) -> Result<StepOutcome> {
        self.known()?.put_new(id, task, text, now)
    }

    fn record(&self, events: &[Entry]) -> Result<()> {
        let inside = self.known()?;
        inside.record_events(events)?;
        inside.copy_to_journal(events);
        Ok(())
    }

    fn events(&self, after: &str, limit: usize) -> Result<EventPage> {
        self.known()?.events_after(after, limit)
    }

    fn tallies(&self) -> Result<BTreeMap<Agent, Tally>> {
        self.known()?.sum_up()
    }

    fn watch(&self, states: &[State], wake: Wake) -> Result<Option<Watch>> {
        self.viewed(|_| ())?;
        let number = self.inside.watches.fetch_add(1, Ordering::Relaxed);
        let mut wakes = self.inside.wakes.lock().unwrap_or_else(PoisonError::into_inner);
        wakes.insert(number, (states.to_vec(), wake));
        Ok(Some(Box::new(Waking { inside: Arc::downgrade(&self.inside), number })))
    }

    fn hold(&self, claim: &ClaimId) -> Result<Option<ClaimLock>> {
        let inside = self.known()?;
        let lease = inside.called(inside.session.lease(&inside.client))?;
        inside.session.hold(claim);
        let held = HeldClaim { inside: Arc::downgrade(&self.inside), claim: claim.clone() };
        Ok(Some(ClaimLock::of_guard(lease.cast_unsigned(), held)))
    }

    fn suspects(&self, _now: Timestamp) -> Result<Vec<TaskSummary>> {
        self.viewed(|view| view.suspects(&self.inside.machine))
    }

    fn liveness(&self, claim: &Claim) -> Result<Liveness> {
        let inside = self.known()?;
        let success = vec![Act::get(inside.layout.owner(&claim.id))];
        let found = inside.called(inside.client.txn(&Txn { success, ..Txn::default() }))?;
        let is_alive = found.found().flatten().next().is_some();
        Ok(if is_alive { Liveness::Alive } else { Liveness::Gone(ClaimLock::nothing()) })
    }

    /// A third of the lease: two heartbeats may get lost.
    fn heartbeat_interval(&self) -> Option<Duration> {
        Some(self.inside.session.term / 3)
    }

    fn heartbeat(&self, task: &TaskName, claim: &ClaimId) -> Result<bool> {
        let inside = self.known()?;
        if !inside.called(inside.session.renew(&inside.client))? {
            return Ok(false);
        }
        let success = vec![Act::get(inside.layout.record(task)), Act::get(inside.layout.owner(claim))];
        let answer = inside.called(inside.client.txn(&Txn { success, ..Txn::default() }))?;
        let found: Vec<_> = answer.found().flatten().collect();
        let [record, _owner] = &found[..] else { return Ok(false) };
        let record: RecordValue = layout::read(&record.value)?;
        Ok(record.record.claim.is_some_and(|known| known.id == *claim))
    }

    fn proven_at(&self, _claim: &ClaimId) -> Option<Instant> {
        self.inside.session.proven_at()
    }

    fn heartbeat_all(&self) -> Result<()> {
        let inside = self.known()?;
        if inside.session.is_busy() {
            inside.called(inside.session.renew(&inside.client))?;
            inside.session.clear(&inside.client, &inside.layout);
        }
        Ok(())
    }

    fn checkup(&self) -> Result<Vec<Finding>> {
        self.inside.look_for_problems()
    }

    fn problems(&self) -> Vec<String> {
        let silence = self.inside.with_view(|view| view.heard.elapsed()).filter(|silence| *silence > STALE);
        let seconds = silence.map(|silence| silence.as_secs());
        seconds
            .map(|s| format!("`{}` has not been heard for {s} s", self.inside.client.shown))
            .into_iter()
            .collect()
    }

    fn sweep(&self, _now: Timestamp) -> Result<()> {
        let inside = &self.inside;
        inside.session.clear(&inside.client, &inside.layout);
        if let Some(folder) = &inside.archive {
            let mut at = inside.archive_at.lock().unwrap_or_else(PoisonError::into_inner);
            if *at <= Instant::now() {
                *at = Instant::now() + NEXT_ARCHIVE;
                drop(at);
                inside.archive(folder, KEEP)?;
            }
        }
        Ok(())
    }
}
