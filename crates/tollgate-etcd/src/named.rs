//! Everything that is known about the tasks of one name. Pure.
//!
//! A version is two revisions: that of the task, and that of the record of its name. So it changes with everything that
//! happens to either.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use tollgate_base::task::TaskName;
use tollgate_vault::brief::Broken;
use tollgate_vault::claim::Tenure;
use tollgate_vault::state::Slot;
use tollgate_vault::store::{TaskSummary, Version};
use tollgate_vault::{ClaimRecord, State, Task};

use crate::layout::{self, KeyOf, Layout, RecordValue, read_task};
use crate::message::KeyValue;

/// The tasks of one name, and their record.
#[derive(Debug, Clone, Default)]
pub(crate) struct Named {
    pub(crate) record: Option<(i64, RecordValue)>,
    pub(crate) tasks: BTreeMap<Slot, CachedTask>,
}

/// A task as it was at a revision.
#[derive(Debug, Clone)]
pub(crate) struct CachedTask {
    pub(crate) revision: i64,
    /// With an empty record and version: those belong to the name.
    task: Task,
    /// Its text, if there is room for it.
    pub(crate) text: Option<Arc<[u8]>>,
}

impl CachedTask {
    pub(crate) fn read(name: &TaskName, slot: &Slot, revision: i64, value: &[u8]) -> Self {
        let (since, text, broken) = match read_task(value) {
            Ok((since, text)) => (since, text, None),
            Err(fault) => (Timestamp::UNIX_EPOCH, value, Some(Broken(fault.to_string()))),
        };
        let record = ClaimRecord::new(slot.clone());
        let mut task = Task::new(name.clone(), slot.clone(), Version::from([]), record, text, since);
        if let Some(broken) = broken {
            task.brief = Err(broken);
        }
        Self { revision, task, text: Some(text.into()) }
    }

    pub(crate) fn summary(&self) -> TaskSummary {
        self.task.clone().summary()
    }
}

impl Named {
    /// From what the engine has of this name.
    pub(crate) fn read(layout: &Layout, found: impl IntoIterator<Item = KeyValue>) -> Self {
        let mut named = Self::default();
        for kv in found {
            match layout.read(&kv.key) {
                Some(KeyOf::Record(_)) => named.put_record(kv.mod_revision, &kv.value),
                Some(KeyOf::Task(name, slot)) => {
                    let task = CachedTask::read(&name, &slot, kv.mod_revision, &kv.value);
                    named.tasks.insert(slot, task);
                }
                Some(KeyOf::Owner(_)) | None => {}
            }
        }
        named
    }

    /// One summary for each task among these keys.
    pub(crate) fn read_each(layout: &Layout, found: Vec<KeyValue>) -> impl Iterator<Item = TaskSummary> {
        found.into_iter().filter_map(|kv| match layout.read(&kv.key)? {
            KeyOf::Task(name, slot) => {
                Some(CachedTask::read(&name, &slot, kv.mod_revision, &kv.value).summary())
            }
            KeyOf::Record(_) | KeyOf::Owner(_) => None,
        })
    }

    pub(crate) fn put_record(&mut self, revision: i64, value: &[u8]) {
        // A record of a later version is one that we cannot use; the steps that need it will conflict.
        self.record = layout::read(value).ok().map(|record| (revision, record));
    }

    /// The task in this state, or wherever it is; then the one that tollgate deals with comes first, and final ones last.
    /// `machine` is ours: no clock of another machine is trusted, so only silence shows that its owner is gone.
    pub(crate) fn find(&self, state: Option<State>, machine: &str) -> Option<Task> {
        let known = self.record.as_ref().map(|(_, value)| &value.record.slot);
        let fits = |slot: &Slot| state.is_none_or(|state| slot.state() == state);
        let found = self.tasks.iter().filter(|(slot, _)| fits(slot));
        let (slot, cached) =
            found.min_by_key(|(slot, _)| (known != Some(*slot), slot.state().is_final(), (*slot).clone()))?;
        let mut task = cached.task.clone();
        task.version =
            join_version(cached.revision, self.record.as_ref().map_or(0, |(revision, _)| *revision));
        if let Some((_, value)) = &self.record {
            task.record = value.record.clone().seen_in(slot);
            task.twin = known.filter(|known| *known != slot && self.tasks.contains_key(known)).cloned();
            if let Some(claim) = task.record.claim.as_mut().filter(|_| value.machine != machine) {
                claim.tenure = Tenure::Held;
            }
        }
        Some(task)
    }
}

fn join_version(task: i64, record: i64) -> Version {
    Version::from([task.to_le_bytes(), record.to_le_bytes()].concat())
}

/// The revisions of the task and of the record.
pub(crate) fn split_version(version: &Version) -> Option<(i64, i64)> {
    let (task, record) = version.split_first_chunk::<8>()?;
    Some((i64::from_le_bytes(*task), i64::from_le_bytes(record.try_into().ok()?)))
}
