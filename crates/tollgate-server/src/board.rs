//! The board: which tasks are in which state, kept in memory.
//!
//! Read once; then only the files that the watcher names are looked at again, so that a page costs the same with ten
//! tasks and with ten thousand. The folders are the truth: what is here may be a moment old, and nothing is decided by it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use tollgate::error::Result;
use tollgate::vault::state::{Slot, State};
use tollgate::vault::store::{Listed, Unfit};
use tollgate::vault::task::Rank;
use tollgate::vault::{TaskName, Vault};

/// All tasks of a vault.
#[derive(Debug, Default)]
pub struct Board {
    columns: [Column; State::ALL.len()],
}

/// The tasks in one state.
#[derive(Debug, Default)]
pub struct Column {
    tasks: BTreeMap<Key, Listed>,
    keys: HashMap<(Slot, TaskName), Key>,
    ages: BTreeSet<(Timestamp, TaskName)>,
    /// What lies there and cannot be a task.
    pub unfit: Vec<Unfit>,
}

/// The order of a column: as they will be taken, broken ones first; where nothing more happens, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    rank: Option<Rank>,
    newest: Option<Reverse<Timestamp>>,
    modified: Timestamp,
    task: TaskName,
    slot: Slot,
}

impl Key {
    fn of(listed: &Listed) -> Self {
        let is_final = listed.slot.state().is_final();
        let rank = listed.brief.as_ref().ok().filter(|_| !is_final);
        Self {
            rank: rank.map(|brief| brief.rank(listed.modified)),
            newest: is_final.then_some(Reverse(listed.modified)),
            modified: listed.modified,
            task: listed.task.clone(),
            slot: listed.slot.clone(),
        }
    }
}

impl Column {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// The tasks: as they will be taken; in `Done` and `Rejected`, the newest first.
    pub fn tasks(&self) -> impl Iterator<Item = &Listed> {
        self.tasks.values()
    }

    /// The one that has not been changed for longest, and since when.
    pub fn oldest(&self) -> Option<(&TaskName, Timestamp)> {
        self.ages.first().map(|(since, task)| (task, *since))
    }

    fn put(&mut self, listed: Listed) {
        self.take(&listed.slot, &listed.task);
        let key = Key::of(&listed);
        self.ages.insert((listed.modified, listed.task.clone()));
        self.keys.insert((listed.slot.clone(), listed.task.clone()), key.clone());
        self.tasks.insert(key, listed);
    }

    fn take(&mut self, slot: &Slot, task: &TaskName) {
        if let Some(key) = self.keys.remove(&(slot.clone(), task.clone())) {
            self.ages.remove(&(key.modified, key.task.clone()));
            self.tasks.remove(&key);
        }
    }
}

/// What happened to files since it was last asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Touched {
    /// Something happened to these.
    Paths(BTreeSet<PathBuf>),
    /// To more than were counted.
    Everything,
}

impl Default for Touched {
    fn default() -> Self {
        Self::Paths(BTreeSet::new())
    }
}

impl Touched {
    /// Past this many, reading the folders anew costs less than looking at each.
    const MOST: usize = 2_000;

    pub(crate) fn add(&mut self, path: PathBuf) {
        if let Self::Paths(paths) = self {
            paths.insert(path);
            if paths.len() > Self::MOST {
                *self = Self::Everything;
            }
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
        let scan = vault.list(state, now)?;
        let mut column = Column { unfit: scan.unfit, ..Column::default() };
        for listed in scan.tasks {
            column.put(listed);
        }
        self.columns[state as usize] = column;
        Ok(())
    }

    /// Looks again at what was touched.
    pub(crate) fn catch_up(
        &mut self,
        vault: &Vault,
        folder: &Path,
        paths: BTreeSet<PathBuf>,
        now: Timestamp,
    ) -> Result<()> {
        // Whole columns: what is in progress is not much, and what cannot be a task is told by a look at the folder only.
        let mut anew = BTreeSet::new();
        for path in paths {
            let Ok(below) = path.strip_prefix(folder) else { continue };
            let mut names = below.iter().map(|name| name.to_str().unwrap_or_default());
            let Some(state) =
                names.next().and_then(|name| State::ALL.into_iter().find(|s| s.as_str() == name))
            else {
                continue;
            };
            let Some(name) = names.next() else {
                anew.insert(state);
                continue;
            };
            let is_task = name.ends_with(".md") && !name.starts_with('.');
            let task = TaskName::of_file(name).ok().filter(|_| is_task && state != State::InProgress);
            match task {
                Some(task) if self.look(vault, &task, state, now) => {}
                None if !is_task && state != State::InProgress => {}
                _ => drop(anew.insert(state)),
            }
        }
        for state in anew {
            self.read_column(vault, state, now)?;
        }
        Ok(())
    }

    /// Whether a look at this one tells all. What is no plain file is told by a look at the folder only.
    fn look(&mut self, vault: &Vault, task: &TaskName, state: State, now: Timestamp) -> bool {
        let column = &mut self.columns[state as usize];
        let was_unfit = column.unfit.iter().any(|unfit| unfit.name == task.as_str());
        match vault.look(task, state, now) {
            Ok(Some(stored)) => column.put(Listed {
                task: stored.placed.task,
                slot: stored.placed.slot,
                brief: stored.brief,
                ready: stored.ready,
                modified: stored.modified,
            }),
            Ok(None) => column.take(&Slot::Free(state), task),
            Err(_) => return false,
        }
        !was_unfit
    }
}
