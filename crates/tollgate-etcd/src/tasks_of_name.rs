//! Everything that is known about the tasks of one name. Pure.
//!
//! A version is the revision of the task's key, so it changes with everything that happens to the task, and the id in that key.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use tollgate_base::name::StepId;
use tollgate_base::task::TaskName;
use tollgate_vault::brief::UnreadableTask;
use tollgate_vault::state::Slot;
use tollgate_vault::store::{TaskSummary, Version};
use tollgate_vault::{Claim, ClaimRecord, State, Task};

use crate::layout::{KeyKind, Layout, TaskHead, read_task, split_slot};
use crate::message::KeyValue;

/// The tasks of one name.
#[derive(Debug, Clone, Default)]
pub(crate) struct TasksOfName {
    pub(crate) tasks: BTreeMap<StepId, CachedTask>,
}

/// Which task, and when it was last changed: what a version stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenTask {
    pub(crate) revision: i64,
    pub(crate) id: StepId,
}

impl SeenTask {
    pub(crate) fn of(version: &Version) -> Option<Self> {
        let (revision, id) = version.as_ref().split_first_chunk()?;
        let id = str::from_utf8(id).ok()?.parse().ok()?;
        Some(Self { revision: i64::from_le_bytes(*revision), id })
    }

    fn version(&self) -> Version {
        Version::from([&self.revision.to_le_bytes()[..], self.id.as_str().as_bytes()].concat())
    }
}

/// A task as it was at a revision. It is read when somebody asks: most of what other machines do is of no interest here.
#[derive(Debug, Clone)]
pub(crate) struct CachedTask {
    pub(crate) seen: SeenTask,
    pub(crate) name: TaskName,
    pub(crate) slot: Slot,
    /// What follows the slot in its value, if there is room for it.
    value: Option<Arc<[u8]>>,
    read: OnceCell<ReadTask>,
}

/// What the value of a task says.
#[derive(Debug, Clone)]
struct ReadTask {
    task: Task,
    /// Whether tollgate put it where it is.
    is_known: bool,
    /// Where in the value its text begins.
    text_at: usize,
}

impl CachedTask {
    /// `None` if tollgate did not make it. The value is kept if it has at most `room` bytes.
    pub(crate) fn new(layout: &Layout, kv: &KeyValue, room: usize) -> Option<Self> {
        let KeyKind::Task(name, id, _) = layout.read(&kv.key)? else { return None };
        let (slot, value) = split_slot(&kv.value)?;
        let seen = SeenTask { revision: kv.mod_revision, id };
        let mut task = Self { seen, name, slot, value: Some(value.into()), read: OnceCell::new() };
        if value.len() > room {
            task.read();
            task.value = None;
        }
        Some(task)
    }

    fn read(&self) -> &ReadTask {
        self.read.get_or_init(|| {
            let value = self.value.as_deref().unwrap_or_default();
            let (head, text, broken) = match read_task(value) {
                Ok((head, text)) => (head, text, None),
                Err(fault) => {
                    (TaskHead::new(Timestamp::UNIX_EPOCH), value, Some(UnreadableTask(fault.to_string())))
                }
            };
            let is_known = head.record.as_ref().is_some_and(|record| record.slot == self.slot);
            let record = head.record.unwrap_or_else(|| ClaimRecord::new(self.slot.clone()));
            let version = self.seen.version();
            let mut task = Task::new(self.name.clone(), self.slot.clone(), version, record, text, head.since);
            if let Some(broken) = broken {
                task.brief = Err(broken);
            }
            ReadTask { task, is_known, text_at: value.len() - text.len() }
        })
    }

    /// How many bytes of it are kept.
    pub(crate) fn kept(&self) -> usize {
        self.value.as_ref().map_or(0, |value| value.len())
    }

    /// Its text, if there was room for it.
    pub(crate) fn text(&self) -> Option<Arc<[u8]>> {
        Some(self.value.as_ref()?[self.read().text_at..].into())
    }

    pub(crate) fn summary(&self) -> TaskSummary {
        self.read().task.clone().summary()
    }

    /// The claim that owns it.
    pub(crate) fn claim(&self) -> Option<&Claim> {
        self.read().task.record.claim.as_ref()
    }
}

impl TasksOfName {
    /// From what the engine has of this name.
    pub(crate) fn read(layout: &Layout, found: impl IntoIterator<Item = KeyValue>) -> Self {
        let tasks = found.into_iter().filter_map(|kv| CachedTask::new(layout, &kv, usize::MAX));
        Self { tasks: tasks.map(|task| (task.seen.id.clone(), task)).collect() }
    }

    /// The task in exactly this slot.
    pub(crate) fn in_slot(&self, slot: &Slot) -> Option<&CachedTask> {
        self.tasks.values().find(|task| task.slot == *slot)
    }

    /// The task in this state, or wherever it is; then the one that tollgate deals with comes first, and final ones last.
    pub(crate) fn find(&self, state: Option<State>) -> Option<Task> {
        let fits = |task: &&CachedTask| state.is_none_or(|state| task.slot.state() == state);
        let order =
            |task: &&CachedTask| (!task.read().is_known, task.slot.state().is_final(), task.slot.clone());
        let cached = self.tasks.values().filter(fits).min_by_key(order)?;
        let mut task = cached.read().task.clone();
        let mut others = self.tasks.values().filter(|other| other.slot != cached.slot);
        task.twin = others.find(|other| other.read().is_known).map(|other| other.slot.clone());
        Some(task)
    }
}
