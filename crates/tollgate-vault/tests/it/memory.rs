//! A store in memory that lives outside the library: the proof that others can write one, and the reference for the model
//! test.
//!
//! Invariant: one mutex around everything, so every step is one act.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_vault::claim::Tenure;
use tollgate_vault::claim_lock::Liveness;
use tollgate_vault::conformance::{self, Harness};
use tollgate_vault::event::{self, Entry, EventPage};
use tollgate_vault::state::Slot;
use tollgate_vault::store::{Scan, Version};
use tollgate_vault::{
    Claim, ClaimId, ClaimLock, ClaimRecord, State, Step, StepId, StepOutcome, Store, Task, TaskAfterStep,
    TaskName, forward_store,
};

#[derive(Debug)]
struct Kept {
    version: u64,
    text: Vec<u8>,
    since: Timestamp,
}

#[derive(Debug, Default)]
struct Inside {
    tasks: BTreeMap<(TaskName, Slot), Kept>,
    records: BTreeMap<TaskName, ClaimRecord>,
    answers: HashMap<StepId, TaskAfterStep>,
    events: Vec<Entry>,
    dead: BTreeSet<ClaimId>,
    clock: u64,
}

#[derive(Debug, Default)]
pub(crate) struct MemoryStore(Mutex<Inside>);

impl MemoryStore {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As if everything that holds this claim had been killed.
    pub(crate) fn kill(&self, claim: &ClaimId) {
        self.inside().dead.insert(claim.clone());
    }

    /// As if a person had moved the task, or changed its text.
    pub(crate) fn by_hand(&self, task: &TaskName, from: &Slot, to: &Slot, text: Option<&[u8]>) {
        let mut inside = self.inside();
        if let Some(mut entry) = inside.tasks.remove(&(task.clone(), from.clone())) {
            entry.version = inside.tick();
            entry.text = text.map_or(entry.text, <[u8]>::to_vec);
            inside.tasks.insert((task.clone(), to.clone()), entry);
        }
    }
}

impl Inside {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn task(&self, name: &TaskName, slot: &Slot, entry: &Kept) -> Task {
        let version = Version::from(entry.version.to_le_bytes());
        let record = self.records.get(name);
        let twin = record.map(|record| record.slot.clone());
        let twin = twin.filter(|twin| twin != slot && self.tasks.contains_key(&(name.clone(), twin.clone())));
        let record = record.cloned().unwrap_or_else(|| ClaimRecord::new(slot.clone()));
        let task = Task::new(name.clone(), slot.clone(), version, record, &entry.text, entry.since);
        Task { twin, ..task }
    }

    /// The entry, if it still has this version.
    fn entry(&self, name: &TaskName, slot: &Slot, version: &Version) -> Option<&Kept> {
        let entry = self.tasks.get(&(name.clone(), slot.clone()));
        entry.filter(|entry| **version == entry.version.to_le_bytes())
    }
}

impl Store for MemoryStore {
    fn scan(&self, state: State, _now: Timestamp) -> Result<Scan> {
        let inside = self.inside();
        let here = inside.tasks.iter().filter(|((_, slot), _)| slot.state() == state);
        let tasks = here.map(|((name, slot), entry)| inside.task(name, slot, entry).summary());
        Ok(Scan { tasks: tasks.collect(), unfit: Vec::new() })
    }

    fn get(&self, task: &TaskName, state: Option<State>, _now: Timestamp) -> Result<Option<Task>> {
        let inside = self.inside();
        // The smallest slot.
        let first = (task.clone(), Slot::InProgress("0".parse()?));
        let mut found: Vec<_> =
            inside.tasks.range(first..).take_while(|((name, _), _)| name == task).collect();
        let known = inside.records.get(task).map(|record| &record.slot);
        found.sort_by_key(|((_, slot), _)| (known != Some(slot), slot.state().is_final(), slot.clone()));
        let found = found.into_iter().find(|((_, slot), _)| state.is_none_or(|state| slot.state() == state));
        Ok(found.map(|((name, slot), entry)| inside.task(name, slot, entry)))
    }

    fn read(&self, task: &Task, limit: u64) -> Result<Option<Vec<u8>>> {
        let inside = self.inside();
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let entry = inside.entry(&task.name, &task.slot, &task.version);
        Ok(entry.map(|entry| entry.text[..entry.text.len().min(limit)].to_vec()))
    }

    fn apply(&self, step: &Step) -> Result<StepOutcome> {
        let mut inside = self.inside();
        if let Some(landed) = inside.answers.get(&step.id) {
            return Ok(StepOutcome::Done(landed.clone()));
        }
        let Some(entry) = inside.entry(&step.task, &step.from, &step.version) else {
            return Ok(StepOutcome::Conflict);
        };
        if step.check.is_some_and(|sha256| sha256 != Digest::of(&entry.text)) {
            return Ok(StepOutcome::Changed);
        }
        let text = step.edited(&entry.text);
        inside.tasks.remove(&(step.task.clone(), step.from.clone()));
        let is_taken = inside.tasks.contains_key(&(step.task.clone(), step.to.clone()));
        let task = if is_taken { step.fallback_name() } else { step.task.clone() };
        inside.records.remove(&step.task);
        if let Some(record) = step.record_after(&text) {
            inside.records.insert(task.clone(), record);
        }
        let entry = Kept { version: inside.tick(), text, since: step.at };
        inside.tasks.insert((task.clone(), step.to.clone()), entry);
        inside.events.extend_from_slice(&step.events);
        let landed = TaskAfterStep { task, slot: step.to.clone(), path: None };
        inside.answers.insert(step.id.clone(), landed.clone());
        Ok(StepOutcome::Done(landed))
    }

    fn add(&self, id: &StepId, task: &TaskName, text: &[u8], now: Timestamp) -> Result<StepOutcome> {
        let mut inside = self.inside();
        if let Some(landed) = inside.answers.get(id) {
            return Ok(StepOutcome::Done(landed.clone()));
        }
        let slot = Slot::NEEDS_ACTION;
        if inside.tasks.contains_key(&(task.clone(), slot.clone())) {
            return Ok(StepOutcome::Conflict);
        }
        let entry = Kept { version: inside.tick(), text: text.to_vec(), since: now };
        inside.tasks.insert((task.clone(), slot.clone()), entry);
        let landed = TaskAfterStep { task: task.clone(), slot, path: None };
        inside.answers.insert(id.clone(), landed.clone());
        Ok(StepOutcome::Done(landed))
    }

    fn record(&self, events: &[Entry]) -> Result<()> {
        self.inside().events.extend_from_slice(events);
        Ok(())
    }

    fn events(&self, after: &str, limit: usize) -> Result<EventPage> {
        event::page(&self.inside().events, after, limit)
    }

    fn hold(&self, _claim: &ClaimId) -> Result<Option<ClaimLock>> {
        Ok(Some(ClaimLock::nothing()))
    }

    fn liveness(&self, claim: &Claim) -> Result<Liveness> {
        Ok(match claim.tenure {
            Tenure::Leased(_) => Liveness::Unknown,
            Tenure::Held if self.inside().dead.contains(&claim.id) => Liveness::Gone(ClaimLock::nothing()),
            Tenure::Held => Liveness::Alive,
        })
    }
}

fn harness() -> Harness {
    let store = Arc::new(MemoryStore::default());
    let (killer, person) = (Arc::clone(&store), Arc::clone(&store));
    Harness::new(
        store,
        Box::new(move |claimed| killer.kill(&claimed.claim.id)),
        Box::new(move |task, from, to, text| person.by_hand(task, from, to, text)),
    )
}

#[test]
fn a_store_outside_the_library_conforms() {
    conformance::run(&harness);
}

/// The same store without locks and without anything else that has a default.
pub(crate) struct Simple(pub(crate) MemoryStore);

impl Store for Simple {
    forward_store!(0: scan, get, read, apply, add, record, events);
}

#[test]
fn a_store_with_nothing_but_the_required_methods_conforms() {
    conformance::run(&|| {
        let store = Arc::new(Simple(MemoryStore::default()));
        let person = Arc::clone(&store);
        let by_hand = move |task: &TaskName, from: &Slot, to: &Slot, text: Option<&[u8]>| {
            person.0.by_hand(task, from, to, text);
        };
        Harness::new(store, Box::new(drop), Box::new(by_hand))
    });
}
