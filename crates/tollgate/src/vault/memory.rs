//! A store in memory: the reference that the conformance suite was written against, and a vault for tests.
//!
//! Invariant: one mutex around everything, so each step is trivially one act.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

use super::claim::{Claim, ClaimId, Note};
use super::edit::edited;
use super::event::Event;
use super::figures::{Count, Tally};
use super::hold::{Hold, Owner};
use super::name::TaskName;
use super::state::{Slot, State, Verb};
use super::store::{Healed, Landed, Listed, Outcome, Placed, Ready, Scan, Step, Store, Stored, Version};
use super::task::{Brief, HEAD};
use crate::digest::Digest;
use crate::error::{Fault, Result};
use crate::name::Agent;

#[derive(Debug)]
struct Entry {
    version: u64,
    bytes: Vec<u8>,
    since: Timestamp,
}

#[derive(Debug, Default)]
struct Inside {
    tasks: BTreeMap<(TaskName, Slot), Entry>,
    notes: BTreeMap<TaskName, Note>,
    events: Vec<Event>,
    tallies: BTreeMap<Agent, Tally>,
    gone: Vec<ClaimId>,
    clock: u64,
}

/// The store.
#[derive(Debug, Default)]
pub struct MemoryStore(Mutex<Inside>);

impl MemoryStore {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that was written down.
    pub fn events(&self) -> Vec<Event> {
        self.inside().events.clone()
    }

    /// As if everything that holds this claim had been killed.
    pub fn kill(&self, claim: &ClaimId) {
        self.inside().gone.push(claim.clone());
    }

    /// As if a person had changed the task's bytes, or moved it, with an editor or a file manager.
    pub fn meddle(&self, task: &TaskName, from: &Slot, to: &Slot, bytes: Option<&[u8]>) {
        let mut inside = self.inside();
        inside.clock += 1;
        let version = inside.clock;
        if let Some(mut entry) = inside.tasks.remove(&(task.clone(), from.clone())) {
            entry.version = version;
            entry.bytes = bytes.map_or(entry.bytes, <[u8]>::to_vec);
            inside.tasks.insert((task.clone(), to.clone()), entry);
        }
    }
}

impl Inside {
    fn note(&self, task: &TaskName, slot: &Slot) -> Note {
        self.notes.get(task).map_or_else(|| Note::new(slot.clone()), |note| note.clone().seen_in(slot))
    }

    fn stored(&self, task: &TaskName, slot: &Slot, entry: &Entry) -> Stored {
        let head = &entry.bytes[..entry.bytes.len().min(HEAD)];
        let twin = self.notes.get(task).map(|note| &note.slot);
        let twin =
            twin.filter(|other| *other != slot && self.tasks.contains_key(&(task.clone(), (*other).clone())));
        Stored {
            placed: Placed {
                task: task.clone(),
                slot: slot.clone(),
                version: Version { bytes: [entry.version, 0, 0, 0], ..Version::default() },
                note: self.note(task, slot),
                changed: entry.since,
                len: entry.bytes.len() as u64,
                path: None,
            },
            brief: Brief::read(head),
            ready: if entry.bytes.is_empty() { Ready::Empty } else { Ready::Now },
            twin: twin.cloned(),
            modified: entry.since,
        }
    }
}

impl Store for MemoryStore {
    fn scan(&self, state: State, _now: Timestamp) -> Result<Scan> {
        let inside = self.inside();
        let here = inside.tasks.iter().filter(|((_, slot), _)| slot.state() == state);
        let tasks = here.map(|((task, slot), entry)| {
            let stored = inside.stored(task, slot, entry);
            Listed {
                task: stored.placed.task,
                slot: stored.placed.slot,
                brief: stored.brief,
                ready: stored.ready,
                modified: entry.since,
            }
        });
        Ok(Scan { tasks: tasks.collect(), unfit: Vec::new() })
    }

    fn get(&self, task: &TaskName, state: Option<State>, _now: Timestamp) -> Result<Option<Stored>> {
        let inside = self.inside();
        let mut places: Vec<_> = inside.tasks.iter().filter(|((name, _), _)| name == task).collect();
        let noted = inside.notes.get(task).map(|note| &note.slot);
        places.sort_by_key(|((_, slot), _)| (noted != Some(slot), slot.state().is_final(), slot.clone()));
        let found = places.into_iter().find(|((_, slot), _)| state.is_none_or(|state| slot.state() == state));
        Ok(found.map(|((task, slot), entry)| inside.stored(task, slot, entry)))
    }

    fn digest(&self, stored: &Stored) -> Result<Option<Digest>> {
        let inside = self.inside();
        let entry = inside.tasks.get(&(stored.task.clone(), stored.slot.clone()));
        let same = entry.filter(|entry| entry.version == stored.version.bytes[0]);
        Ok(same.map(|entry| Digest::of(&entry.bytes)))
    }

    fn read(&self, stored: &Stored, limit: u64) -> Result<Vec<u8>> {
        let inside = self.inside();
        let entry = inside.tasks.get(&(stored.task.clone(), stored.slot.clone()));
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        entry
            .map(|entry| entry.bytes[..entry.bytes.len().min(limit)].to_vec())
            .ok_or_else(|| Fault::Missing { what: format!("`{}`", stored.task) })
    }

    fn apply(&self, step: &Step) -> Result<Outcome> {
        let mut inside = self.inside();
        let place = (step.task.clone(), step.from.clone());
        let Some(entry) = inside.tasks.get(&place).filter(|entry| entry.version == step.version.bytes[0])
        else {
            return Ok(Outcome::Conflict);
        };
        if step.check.is_some_and(|sha256| sha256 != Digest::of(&entry.bytes)) {
            return Ok(Outcome::Changed);
        }
        let bytes = edited(&entry.bytes, step);
        inside.clock += 1;
        let version = inside.clock;
        inside.tasks.remove(&place);
        let mut task = step.task.clone();
        if inside.tasks.contains_key(&(task.clone(), step.to.clone())) {
            task = task.beside(&step.beside);
        }
        inside.notes.remove(&step.task);
        if let Some(mut note) = step.note.clone() {
            if step.offer {
                note.offered = Some(Digest::of(&bytes));
            }
            inside.notes.insert(task.clone(), note);
        }
        inside.tasks.insert((task.clone(), step.to.clone()), Entry { version, bytes, since: step.at });
        inside.events.extend_from_slice(&step.events);
        if let (Some(Verb::Claim), Slot::InProgress(agent)) = (step.verb, &step.to) {
            inside.tallies.entry(agent.clone()).or_default().add(&Count::Claim(step.id.clone()));
        }
        Ok(Outcome::Done(Landed { task, slot: step.to.clone(), path: None }))
    }

    fn add(&self, task: &TaskName, bytes: &[u8]) -> Result<Option<Landed>> {
        let mut inside = self.inside();
        let place = (task.clone(), Slot::NEEDS_ACTION);
        if inside.tasks.contains_key(&place) {
            return Ok(None);
        }
        inside.clock += 1;
        let version = inside.clock;
        inside.tasks.insert(place, Entry { version, bytes: bytes.to_vec(), since: Timestamp::UNIX_EPOCH });
        Ok(Some(Landed { task: task.clone(), slot: Slot::NEEDS_ACTION, path: None }))
    }

    fn hold(&self, _claim: &ClaimId) -> Result<Hold> {
        Ok(Hold::nothing())
    }

    fn owner(&self, claim: &Claim, _now: Timestamp) -> Result<Owner> {
        let gone = self.inside().gone.contains(&claim.id);
        Ok(if gone { Owner::Gone(Hold::nothing()) } else { Owner::Alive })
    }

    fn tell(&self, events: &[Event]) -> Result<()> {
        self.inside().events.extend_from_slice(events);
        Ok(())
    }

    fn count(&self, agent: &Agent, what: Count) -> Result<()> {
        self.inside().tallies.entry(agent.clone()).or_default().add(&what);
        Ok(())
    }

    fn figures(&self) -> Result<BTreeMap<Agent, (u64, Tally)>> {
        let inside = self.inside();
        let mut all: BTreeMap<_, _> =
            inside.tallies.iter().map(|(agent, tally)| (agent.clone(), (0, tally.clone()))).collect();
        for agent in inside.tasks.keys().filter_map(|(_, slot)| slot.agent()) {
            all.entry(agent.clone()).or_default().0 += 1;
        }
        Ok(all)
    }

    fn heal(&self) -> Result<Vec<Healed>> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vault::conformance::{self, Bench};
    use std::sync::Arc;

    #[test]
    fn memory_conforms() {
        conformance::run(&|| Bench::memory(&Arc::new(MemoryStore::new())));
    }
}
