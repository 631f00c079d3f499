//! What this process knows of all tasks that are not final: a copy, fed by a watch and by our own steps. Pure.
//!
//! Invariant: the view only proposes. A step is compared with the engine, so a view that is behind costs time, never
//! correctness. What must be certain (does this claim still own its task?) is asked of the engine.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Instant;

use tollgate_base::name::{ClaimId, StepId};
use tollgate_base::task::TaskName;
use tollgate_vault::state::Slot;
use tollgate_vault::store::{Hint, NoticedChange, TaskSummary};
use tollgate_vault::{Claim, State};

use crate::layout::{KeyKind, Layout};
use crate::message::KeyValue;
use crate::tasks_of_name::{CachedTask, SeenTask, TasksOfName};

/// How many bytes of tasks are kept. Texts beyond that are asked for when they are needed.
const ROOM: usize = 64 << 20;

/// All tasks that are not final, as of a revision.
#[derive(Debug)]
pub(crate) struct View {
    /// Everything up to here is in the view.
    pub(crate) revision: i64,
    /// When the engine last told us something, or that there is nothing to tell.
    pub(crate) heard: Instant,
    names: BTreeMap<TaskName, TasksOfName>,
    states: BTreeMap<State, BTreeSet<(TaskName, StepId)>>,
    /// The leased claims whose owners are alive.
    owners: HashSet<ClaimId>,
    /// The leases of the processes that are alive.
    processes: HashSet<u64>,
    /// The leases of the processes whose grace period runs.
    grace: HashSet<u64>,
    /// The held claims that have ended before their processes.
    left: HashSet<ClaimId>,
    /// The open tasks that our own steps have deleted, and when. The watch may still bring what was there before.
    deleted: BTreeMap<StepId, i64>,
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
            grace: HashSet::new(),
            left: HashSet::new(),
            deleted: BTreeMap::new(),
            room: ROOM,
        }
    }

    /// A key has this value since this revision. Adds what may be new.
    pub(crate) fn put(&mut self, layout: &Layout, kv: &KeyValue, hints: &mut Vec<Hint>) {
        match layout.read(&kv.key) {
            None => {}
            Some(KeyKind::Owner(claim)) => {
                self.owners.insert(claim);
            }
            Some(KeyKind::Process(lease)) => {
                self.processes.insert(lease);
            }
            Some(KeyKind::Grace(lease)) => {
                self.grace.insert(lease);
            }
            Some(KeyKind::Left(claim)) => {
                hints.extend(self.left.insert(claim).then_some(Hint::OwnerGone));
            }
            Some(KeyKind::Task(name, id, _)) => {
                let known = self.names.get(&name).and_then(|named| named.tasks.get(&id));
                let deleted = self.deleted.get(&id).is_some_and(|revision| *revision > kv.mod_revision);
                if deleted || known.is_some_and(|task| task.seen.revision >= kv.mod_revision) {
                    return;
                }
                let left = self.forget(&name, &id);
                let task = CachedTask::new(layout, kv, self.room);
                let state = task.as_ref().map(|task| task.slot.state());
                let touched = left.filter(|left| Some(*left) != state);
                hints.extend(touched.map(|left| Hint::Task(name.clone(), left, NoticedChange::Touched)));
                hints.extend(state.map(|state| Hint::Task(name.clone(), state, NoticedChange::MovedIn)));
                let Some(task) = task.filter(|task| !task.slot.state().is_final()) else { return };
                self.room -= task.kept();
                self.states.entry(task.slot.state()).or_default().insert((name.clone(), id.clone()));
                self.names.entry(name).or_default().tasks.insert(id, task);
            }
        }
    }

    /// Takes in a key that this process has read or written, if it is a task and newer than the view. The watch has brought all tasks up to the view's revision, so
    /// a task that is older may be gone since.
    pub(crate) fn put_if_new(&mut self, layout: &Layout, kv: &KeyValue, hints: &mut Vec<Hint>) {
        let is_task = matches!(layout.read(&kv.key), Some(KeyKind::Task(..)));
        if !is_task || kv.mod_revision > self.revision {
            self.put(layout, kv, hints);
        }
    }

    /// A key is gone since this revision. Adds what may be new.
    pub(crate) fn delete(&mut self, layout: &Layout, key: &[u8], revision: i64, hints: &mut Vec<Hint>) {
        match layout.read(key) {
            None => {}
            Some(KeyKind::Owner(claim)) => {
                hints.extend(self.owners.remove(&claim).then_some(Hint::OwnerGone));
            }
            Some(KeyKind::Process(lease)) => {
                hints.extend(self.processes.remove(&lease).then_some(Hint::OwnerGone));
            }
            Some(KeyKind::Grace(lease)) => {
                hints.extend(self.grace.remove(&lease).then_some(Hint::OwnerGone));
            }
            Some(KeyKind::Left(claim)) => {
                self.left.remove(&claim);
            }
            // Which of the final states it had is not known here.
            Some(KeyKind::Task(name, _, true)) => {
                let states = State::ALL.into_iter().filter(|state| state.is_final());
                hints.extend(states.map(|state| Hint::Task(name.clone(), state, NoticedChange::Touched)));
            }
            Some(KeyKind::Task(name, id, false)) => {
                if revision > self.revision {
                    self.deleted.insert(id.clone(), revision);
                }
                let known = self.names.get(&name).and_then(|named| named.tasks.get(&id));
                if known.is_some_and(|task| task.seen.revision <= revision) {
                    let left = self.forget(&name, &id);
                    hints.extend(left.map(|left| Hint::Task(name, left, NoticedChange::Touched)));
                }
            }
        }
    }

    /// The watch has brought everything up to here.
    pub(crate) fn is_complete_to(&mut self, revision: i64) {
        self.revision = self.revision.max(revision);
        self.deleted.retain(|_, deleted| *deleted > self.revision);
    }

    /// The state that the task was in, if it was known.
    fn forget(&mut self, name: &TaskName, id: &StepId) -> Option<State> {
        let named = self.names.get_mut(name)?;
        let task = named.tasks.remove(id)?;
        if named.tasks.is_empty() {
            self.names.remove(name);
        }
        self.room += task.kept();
        let state = task.slot.state();
        self.states.entry(state).or_default().remove(&(name.clone(), id.clone()));
        Some(state)
    }

    pub(crate) fn named(&self, name: &TaskName) -> Option<&TasksOfName> {
        self.names.get(name)
    }

    /// The text of a task in this slot as it was seen, if it still is so and there was room for it.
    pub(crate) fn text(&self, name: &TaskName, slot: &Slot, seen: &SeenTask) -> Option<Arc<[u8]>> {
        let task = self.names.get(name)?.tasks.get(&seen.id)?;
        if task.seen == *seen && task.slot == *slot { task.text() } else { None }
    }

    /// All tasks in one state that is not final.
    pub(crate) fn scan(&self, state: State) -> Vec<TaskSummary> {
        self.listed(state).map(CachedTask::summary).collect()
    }

    /// The tasks in progress whose owners are not known to be alive, or to have time left.
    pub(crate) fn suspects(&self) -> Vec<TaskSummary> {
        let is_alive = |task: &CachedTask| task.claim().is_some_and(|claim| self.is_alive(claim));
        self.listed(State::InProgress).filter(|task| !is_alive(task)).map(CachedTask::summary).collect()
    }

    /// The claims that own a task.
    pub(crate) fn owning_claims(&self) -> HashSet<ClaimId> {
        self.listed(State::InProgress).filter_map(|task| task.claim().map(|claim| claim.id.clone())).collect()
    }

    fn is_alive(&self, claim: &Claim) -> bool {
        match claim.hold {
            Some(lease) => {
                let has_time = self.processes.contains(&lease) || self.grace.contains(&lease);
                has_time && !self.left.contains(&claim.id)
            }
            None => self.owners.contains(&claim.id),
        }
    }

    /// Whether this held claim is known to have ended before its process.
    pub(crate) fn has_left(&self, claim: &ClaimId) -> bool {
        self.left.contains(claim)
    }

    fn listed(&self, state: State) -> impl Iterator<Item = &CachedTask> {
        let listed = self.states.get(&state).into_iter().flatten();
        listed.filter_map(|(name, id)| self.names.get(name)?.tasks.get(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{TaskHead, write_task};
    use jiff::Timestamp;

    fn kv(key: &str, slot: &Slot, revision: i64) -> KeyValue {
        let value = write_task(slot, &TaskHead::new(Timestamp::UNIX_EPOCH), b"text").unwrap();
        KeyValue::new(key, value, revision)
    }

    #[test]
    fn those_who_watch_hear_of_the_end_of_a_process_and_of_the_end_of_its_grace_period() {
        let (layout, mut view) = (Layout::new("p"), View::new(1));
        let mut heard = |put: Option<String>, gone: Option<String>| {
            let mut hints = Vec::new();
            put.into_iter().for_each(|key| view.put(&layout, &KeyValue::new(key, Vec::new(), 2), &mut hints));
            gone.iter().for_each(|key| view.delete(&layout, key.as_bytes(), 3, &mut hints));
            hints
        };
        let (process, grace) = (|| Some(Layout::new("p").process(7)), || Some(Layout::new("p").grace(7)));
        assert_eq!(heard(process(), None), []);
        assert_eq!(heard(None, process()), [Hint::OwnerGone]);
        assert_eq!(heard(grace(), None), []);
        assert_eq!(heard(None, grace()), [Hint::OwnerGone]);
    }

    #[test]
    fn what_is_older_changes_nothing() {
        let layout = Layout::new("p");
        let (name, id): (TaskName, _) = ("x".parse().unwrap(), StepId::new().unwrap());
        let key = layout.task(&name, &Slot::NEEDS_ACTION, &id);
        let (mut view, mut hints) = (View::new(1), Vec::new());
        view.put(&layout, &kv(&key, &Slot::NEEDS_ACTION, 5), &mut hints);
        assert_eq!(hints, [Hint::Task(name.clone(), State::NeedsAction, NoticedChange::MovedIn)]);
        hints.clear();
        view.put(&layout, &kv(&key, &Slot::APPROVED, 4), &mut hints);
        view.delete(&layout, key.as_bytes(), 4, &mut hints);
        assert_eq!((hints.len(), view.scan(State::NeedsAction).len()), (0, 1), "an older put and deletion");
        view.put(&layout, &kv(&key, &Slot::APPROVED, 6), &mut hints);
        let moved = [(State::NeedsAction, NoticedChange::Touched), (State::Approved, NoticedChange::MovedIn)];
        assert_eq!(hints, moved.map(|(state, noticed)| Hint::Task(name.clone(), state, noticed)));
        assert!(view.scan(State::NeedsAction).is_empty() && view.scan(State::Approved).len() == 1);
        let ended = layout.task(&name, &Slot::Free(State::Done), &id);
        view.delete(&layout, ended.as_bytes(), 7, &mut hints);
        assert_eq!(view.scan(State::Approved).len(), 1, "it was final before");
        view.delete(&layout, key.as_bytes(), 7, &mut hints);
        assert!(view.scan(State::Approved).is_empty() && view.names.is_empty());
        assert_eq!(view.room, ROOM, "nothing is kept of what is gone");
        view.put(&layout, &kv(&key, &Slot::APPROVED, 6), &mut hints);
        assert!(view.names.is_empty(), "the watch is behind our own deletion");
        view.is_complete_to(7);
        assert!(view.deleted.is_empty());
        // A read that was answered before the task was gone, and arrives when the watch has told that.
        view.put_if_new(&layout, &kv(&key, &Slot::APPROVED, 6), &mut hints);
        assert_eq!(view.scan(State::Approved).len(), 0);
        view.put(&layout, &kv(&key, &Slot::APPROVED, 8), &mut hints);
        assert_eq!(view.scan(State::Approved).len(), 1, "it was opened again");
    }

    #[test]
    fn what_another_program_made_of_a_task_is_no_task() {
        let layout = Layout::new("p");
        let key = layout.task(&"x".parse().unwrap(), &Slot::NEEDS_ACTION, &StepId::new().unwrap());
        let (mut view, mut hints) = (View::new(1), Vec::new());
        view.put(&layout, &kv(&key, &Slot::NEEDS_ACTION, 5), &mut hints);
        let foreign = KeyValue { value: b"foreign".to_vec(), ..kv(&key, &Slot::NEEDS_ACTION, 6) };
        view.put(&layout, &foreign, &mut hints);
        assert!(view.scan(State::NeedsAction).is_empty() && view.names.is_empty());
    }
}
