//! Everything that is known about the tasks of one name. Pure.
//!
//! A version is the revision of the task's key, so it changes with everything that happens to the task.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use tollgate_base::task::TaskName;
use tollgate_vault::brief::Broken;
use tollgate_vault::claim::Tenure;
use tollgate_vault::state::Slot;
use tollgate_vault::store::{TaskSummary, Version};
use tollgate_vault::{Claim, ClaimRecord, State, Task};

use crate::layout::{KeyOf, Layout, TaskHead, read_task};
use crate::message::KeyValue;

/// A text, and since when it is where it is.
pub(crate) type TextSince = (Arc<[u8]>, Timestamp);

/// The tasks of one name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Named {
    pub(crate) tasks: BTreeMap<Slot, CachedTask>,
}

/// A task as it was at a revision. It is read when somebody asks: most of what other machines do is of no interest here.
#[derive(Debug, Clone)]
pub(crate) struct CachedTask {
    pub(crate) revision: i64,
    name: TaskName,
    slot: Slot,
    /// As the engine has it, if there is room for it.
    value: Option<Arc<[u8]>>,
    read: OnceCell<ReadTask>,
}

/// What the value of a task says.
#[derive(Debug, Clone)]
struct ReadTask {
    task: Task,
    /// On which machine its last step was taken.
    machine: String,
    /// Whether tollgate put it where it is.
    is_known: bool,
    /// Where in the value its text begins.
    text_at: usize,
}

impl CachedTask {
    /// The value is kept if it has at most `room` bytes.
    pub(crate) fn new(name: &TaskName, slot: &Slot, revision: i64, value: &[u8], room: usize) -> Self {
        let (name, slot) = (name.clone(), slot.clone());
        let mut task = Self { revision, name, slot, value: Some(value.into()), read: OnceCell::new() };
        if value.len() > room {
            task.read();
            task.value = None;
        }
        task
    }

    fn read(&self) -> &ReadTask {
        self.read.get_or_init(|| {
            let value = self.value.as_deref().unwrap_or_default();
            let (head, text, broken) = match read_task(value) {
                Ok((head, text)) => (head, text, None),
                Err(fault) => (TaskHead::new(Timestamp::UNIX_EPOCH), value, Some(Broken(fault.to_string()))),
            };
            let is_known = head.record.as_ref().is_some_and(|record| record.slot == self.slot);
            let record = head.record.unwrap_or_else(|| ClaimRecord::new(self.slot.clone()));
            let version = Version::from(self.revision.to_le_bytes());
            let mut task = Task::new(self.name.clone(), self.slot.clone(), version, record, text, head.since);
            if let Some(broken) = broken {
                task.brief = Err(broken);
            }
            ReadTask { task, machine: head.machine, is_known, text_at: value.len() - text.len() }
        })
    }

    /// How many bytes of it are kept.
    pub(crate) fn kept(&self) -> usize {
        self.value.as_ref().map_or(0, |value| value.len())
    }

    /// Its text, if there was room for it.
    pub(crate) fn text(&self) -> Option<TextSince> {
        let read = self.read();
        Some((self.value.as_ref()?[read.text_at..].into(), read.task.modified))
    }

    pub(crate) fn summary(&self) -> TaskSummary {
        self.read().task.clone().summary()
    }

    /// The claim that owns it.
    pub(crate) fn claim(&self) -> Option<&Claim> {
        self.read().task.record.claim.as_ref()
    }

    /// Whether its last step was taken on this machine.
    pub(crate) fn is_of(&self, machine: &str) -> bool {
        self.read().machine == machine
    }
}

impl Named {
    /// From what the engine has of this name.
    pub(crate) fn read(layout: &Layout, found: impl IntoIterator<Item = KeyValue>) -> Self {
        let mut named = Self::default();
        for kv in found {
            if let Some(KeyOf::Task(name, slot)) = layout.read(&kv.key) {
                let task = CachedTask::new(&name, &slot, kv.mod_revision, &kv.value, usize::MAX);
                named.tasks.insert(slot, task);
            }
        }
        named
    }

    /// One summary for each task among these keys.
    pub(crate) fn read_each(layout: &Layout, found: Vec<KeyValue>) -> impl Iterator<Item = TaskSummary> {
        found.into_iter().filter_map(|kv| match layout.read(&kv.key)? {
            KeyOf::Task(name, slot) => {
                Some(CachedTask::new(&name, &slot, kv.mod_revision, &kv.value, usize::MAX).summary())
            }
            _ => None,
        })
    }

    /// The task in this state, or wherever it is; then the one that tollgate deals with comes first, and final ones last.
    /// `machine` is ours: no clock of another machine is trusted, so only silence shows that its owner is gone.
    pub(crate) fn find(&self, state: Option<State>, machine: &str) -> Option<Task> {
        let fits = |slot: &Slot| state.is_none_or(|state| slot.state() == state);
        let found = self.tasks.iter().filter(|(slot, _)| fits(slot));
        let (slot, cached) = found.min_by_key(|(slot, cached)| {
            (!cached.read().is_known, slot.state().is_final(), (*slot).clone())
        })?;
        let mut task = cached.read().task.clone();
        let twin = self.tasks.iter().find(|(other, cached)| *other != slot && cached.read().is_known);
        task.twin = twin.map(|(other, _)| other.clone());
        if let Some(claim) = task.record.claim.as_mut().filter(|_| !cached.is_of(machine)) {
            claim.tenure = Tenure::Held;
        }
        Some(task)
    }
}

/// The revision of the task that a version stands for.
pub(crate) fn revision_of(version: &Version) -> Option<i64> {
    Some(i64::from_le_bytes(version.as_ref().try_into().ok()?))
}
