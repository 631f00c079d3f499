//! What this process knows of all tasks that are not final: a copy, fed by a watch and by our own steps. Pure.
//!
//! Invariant: the view only proposes. A step is compared with the engine, so a view that is behind costs time, never
//! correctness. What must be certain (does this claim still own its task?) is asked of the engine.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Instant;

use tollgate_base::name::ClaimId;
use tollgate_base::task::TaskName;
use tollgate_vault::claim::Tenure;
use tollgate_vault::state::Slot;
use tollgate_vault::store::{Hint, Noticed, TaskSummary};
use tollgate_vault::{Claim, State};

use crate::layout::{KeyOf, Layout};
use crate::message::KeyValue;
use crate::named::{CachedTask, Named, TextSince};

/// How many bytes of tasks are kept. Texts beyond that are asked for when they are needed.
const ROOM: usize = 64 << 20;

/// All tasks that are not final, as of a revision.
#[derive(Debug)]
pub(crate) struct View {
    /// Everything up to here is in the view.
    pub(crate) revision: i64,
    /// When the engine last told us something, or that there is nothing to tell.
    pub(crate) heard: Instant,
    names: BTreeMap<TaskName, Named>,
    states: BTreeMap<State, BTreeSet<(TaskName, Slot)>>,
    /// The leased claims whose owners are alive.
    owners: HashSet<ClaimId>,
    /// The leases of the processes that are alive.
    processes: HashSet<u64>,
    /// The held claims that have ended before their processes.
    left: HashSet<ClaimId>,
    room: usize,
}

impl View {
    pub(crate) fn new(revision: i64) -> Self {
        Self {
            revision,
            heard: Instant::now(),
            names: BTreeMap::new(),
            states: BTreeMap::new(),
            owners: HashSet::new(),
            processes: HashSet::new(),
            left: HashSet::new(),
            room: ROOM,
        }
    }

    /// A key has this value since this revision. What may be new.
    pub(crate) fn put(&mut self, layout: &Layout, kv: &KeyValue) -> Option<Hint> {
        match layout.read(&kv.key)? {
            KeyOf::Owner(claim) => {
                self.owners.insert(claim);
                None
            }
            KeyOf::Process(lease) => {
                self.processes.insert(lease);
                None
            }
            KeyOf::Left(claim) => self.left.insert(claim).then_some(Hint::OwnerGone),
            KeyOf::Task(name, slot) => {
                let hint = Hint::Task(name.clone(), slot.state(), Noticed::MovedIn);
                if slot.state().is_final() {
                    return Some(hint);
                }
                let named = self.names.entry(name.clone()).or_default();
                if named.tasks.get(&slot).is_some_and(|task| task.revision >= kv.mod_revision) {
                    return None;
                }
                let task = CachedTask::new(&name, &slot, kv.mod_revision, &kv.value, self.room);
                self.room -= task.kept();
                self.states.entry(slot.state()).or_default().insert((name, slot.clone()));
                let old = named.tasks.insert(slot, task);
                self.room += room_of(old);
                Some(hint)
            }
        }
    }

    /// A key is gone since this revision. What may be new.
    pub(crate) fn delete(&mut self, layout: &Layout, key: &[u8], revision: i64) -> Option<Hint> {
        match layout.read(key)? {
            KeyOf::Owner(claim) => self.owners.remove(&claim).then_some(Hint::OwnerGone),
            KeyOf::Process(lease) => self.processes.remove(&lease).then_some(Hint::OwnerGone),
            KeyOf::Left(claim) => {
                self.left.remove(&claim);
                None
            }
            KeyOf::Task(name, slot) => {
                let hint = Hint::Task(name.clone(), slot.state(), Noticed::Touched);
                let Some(named) = self.names.get_mut(&name) else { return Some(hint) };
                if named.tasks.get(&slot).is_some_and(|task| task.revision <= revision) {
                    self.room += room_of(named.tasks.remove(&slot));
                    let state = slot.state();
                    let entry = (name, slot);
                    self.states.entry(state).or_default().remove(&entry);
                    self.forget_if_empty(&entry.0);
                }
                Some(hint)
            }
        }
    }

    fn forget_if_empty(&mut self, name: &TaskName) {
        if self.names.get(name).is_some_and(|named| named.tasks.is_empty()) {
            self.names.remove(name);
        }
    }

    pub(crate) fn named(&self, name: &TaskName) -> Option<&Named> {
        self.names.get(name)
    }

    /// The text of a task, if it has this revision and there was room for it.
    pub(crate) fn text(&self, name: &TaskName, slot: &Slot, revision: i64) -> Option<TextSince> {
        let task = self.names.get(name)?.tasks.get(slot)?;
        if task.revision == revision { task.text() } else { None }
    }

    /// All tasks in one state that is not final.
    pub(crate) fn scan(&self, state: State) -> Vec<TaskSummary> {
        self.listed(state).map(CachedTask::summary).collect()
    }

    /// The tasks in progress whose owners are not known to be alive.
    pub(crate) fn suspects(&self, machine: &str) -> Vec<TaskSummary> {
        let is_alive = |task: &CachedTask| {
            task.claim().is_some_and(|claim| match claim.tenure {
                // By our own clock.
                Tenure::Leased(_) if task.is_of(machine) => false,
                _ => self.is_alive(claim),
            })
        };
        self.listed(State::InProgress).filter(|task| !is_alive(task)).map(CachedTask::summary).collect()
    }

    fn is_alive(&self, claim: &Claim) -> bool {
        match claim.hold {
            Some(lease) => self.processes.contains(&lease) && !self.left.contains(&claim.id),
            None => self.owners.contains(&claim.id),
        }
    }

    /// Whether this held claim is known to have ended before its process.
    pub(crate) fn has_left(&self, claim: &ClaimId) -> bool {
        self.left.contains(claim)
    }

    fn listed(&self, state: State) -> impl Iterator<Item = &CachedTask> {
        let listed = self.states.get(&state).into_iter().flatten();
        listed.filter_map(|(name, slot)| self.names.get(name)?.tasks.get(slot))
    }
}

fn room_of(task: Option<CachedTask>) -> usize {
    task.map_or(0, |task| task.kept())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{TaskHead, write_task};
    use jiff::Timestamp;

    fn kv(key: String, revision: i64) -> KeyValue {
        let value = write_task(&TaskHead::new(Timestamp::UNIX_EPOCH), b"text").unwrap();
        KeyValue { key: key.into_bytes(), value, mod_revision: revision, create_revision: revision }
    }

    #[test]
    fn what_is_older_changes_nothing() {
        let layout = Layout::new("p");
        let name: TaskName = "x".parse().unwrap();
        let key = layout.task(&name, &Slot::NEEDS_ACTION);
        let mut view = View::new(1);
        assert!(view.put(&layout, &kv(key.clone(), 5)).is_some());
        assert!(view.put(&layout, &kv(key.clone(), 4)).is_none(), "an older put");
        view.delete(&layout, key.as_bytes(), 4);
        assert_eq!(view.scan(State::NeedsAction).len(), 1, "an older deletion");
        view.delete(&layout, key.as_bytes(), 6);
        assert!(view.scan(State::NeedsAction).is_empty() && view.names.is_empty());
        assert_eq!(view.room, ROOM, "nothing is kept of what is gone");
    }
}
