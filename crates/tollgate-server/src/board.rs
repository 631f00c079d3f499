//! The board: which tasks are in which state, kept in memory.
//!
//! All tasks are read once. After that only the files that the watcher names are read again, so that a page costs the
//! same with ten tasks and with ten thousand. The folders are authoritative: the board may be a moment old, and nothing
//! is decided by it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;
use tollgate::error::Result;
use tollgate::vault::brief::Rank;
use tollgate::vault::state::{Slot, State};
use tollgate::vault::store::{NotATask, TaskSummary};
use tollgate::vault::{TaskName, Vault};

/// All tasks of a vault.
#[derive(Debug, Default)]
pub struct Board {
    columns: [Column; State::ALL.len()],
}

/// The tasks in one state.
#[derive(Debug, Default)]
pub struct Column {
    tasks: BTreeMap<Key, TaskSummary>,
    keys: HashMap<(Slot, TaskName), Key>,
    ages: BTreeSet<(Timestamp, TaskName)>,
    /// Files in the folder that cannot be tasks.
    pub unfit: Vec<NotATask>,
}

/// The order of a column: the order in which tasks are claimed, unreadable ones first; in final states the newest first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    rank: Option<Rank>,
    newest: Option<Reverse<Timestamp>>,
    modified: Timestamp,
    task: TaskName,
    slot: Slot,
}

impl Key {
    fn of(listed: &TaskSummary) -> Self {
        let is_final = listed.slot.state().is_final();
        let rank = listed.brief.as_ref().ok().filter(|_| !is_final);
        Self {
            rank: rank.map(|brief| brief.rank(listed.modified)),
            newest: is_final.then_some(Reverse(listed.modified)),
            modified: listed.modified,
            task: listed.name.clone(),
            slot: listed.slot.clone(),
        }
    }
}

impl Column {
    /// The number of tasks.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether there are no tasks.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Whether this task is here. Not for `In_Progress`, where tasks have owners.
    pub fn has(&self, task: &TaskName) -> bool {
        self.keys.keys().next().is_some_and(|(slot, _)| self.keys.contains_key(&(slot.clone(), task.clone())))
    }

    /// The tasks, in the order in which they are claimed; in `Done` and `Rejected`, the newest first.
    pub fn tasks(&self) -> impl Iterator<Item = &TaskSummary> {
        self.tasks.values()
    }

    /// The task with the oldest last change, and the time of that change.
    pub fn oldest(&self) -> Option<(&TaskName, Timestamp)> {
        self.ages.first().map(|(since, task)| (task, *since))
    }

    /// The time of the last change of any task.
    pub fn newest(&self) -> Option<Timestamp> {
        self.ages.last().map(|(since, _)| *since)
    }

    fn put(&mut self, listed: TaskSummary) {
        self.take(&listed.slot, &listed.name);
        let key = Key::of(&listed);
        self.ages.insert((listed.modified, listed.name.clone()));
        self.keys.insert((listed.slot.clone(), listed.name.clone()), key.clone());
        self.tasks.insert(key, listed);
    }

    fn take(&mut self, slot: &Slot, task: &TaskName) {
        if let Some(key) = self.keys.remove(&(slot.clone(), task.clone())) {
            self.ages.remove(&(key.modified, key.task.clone()));
            self.tasks.remove(&key);
        }
    }
}

impl Board {
    /// The tasks in one state.
    pub fn column(&self, state: State) -> &Column {
        &self.columns[state as usize]
    }

    pub(crate) fn read(vault: &Vault, now: Timestamp) -> Result<Self> {
        let mut board = Self::default();
        for state in State::ALL {
            board.read_column(vault, state, now)?;
        }
        Ok(board)
    }

    fn read_column(&mut self, vault: &Vault, state: State, now: Timestamp) -> Result<()> {
        let scan = vault.store().scan(state, now)?;
        let mut column = Column { unfit: scan.unfit, ..Column::default() };
        for listed in scan.tasks {
            column.put(listed);
        }
        self.columns[state as usize] = column;
        Ok(())
    }

    /// Reads the touched tasks again.
    pub(crate) fn catch_up(
        &mut self,
        vault: &Vault,
        tasks: BTreeSet<(State, TaskName)>,
        mut states: BTreeSet<State>,
        now: Timestamp,
    ) -> Result<()> {
        for (state, task) in tasks {
            // These columns are read as a whole: `In_Progress` is small, and only a scan finds unfit files.
            if state == State::InProgress || !self.look(vault, &task, state, now) {
                states.insert(state);
            }
        }
        for state in states {
            self.read_column(vault, state, now)?;
        }
        Ok(())
    }

    /// Reads one task again. Returns false if the column has to be scanned, because the file is or was unfit.
    fn look(&mut self, vault: &Vault, task: &TaskName, state: State, now: Timestamp) -> bool {
        let column = &mut self.columns[state as usize];
        let was_unfit = column.unfit.iter().any(|unfit| unfit.name == task.as_str());
        match vault.store().get(task, Some(state), now) {
            Ok(Some(task)) => column.put(task.summary()),
            Ok(None) => column.take(&Slot::Free(state), task),
            Err(_) => return false,
        }
        !was_unfit
    }
}
