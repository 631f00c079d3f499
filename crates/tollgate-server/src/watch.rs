//! Watches the workspace's folders: one kernel watcher for the whole server.
//!
//! The watcher sees every change, by any process. Nothing is polled. This is the only file that knows which folder holds
//! which part of the state; the rest of the server learns only which parts have changed. Tasks are watched by their store.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{ErrorKind, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;
use tollgate::shared_turn::SharedTurns;
use tollgate::vault::state::State;
use tollgate::vault::store::{Hint, Watch};
use tollgate::vault::{TaskName, Vault};
use tollgate::workspace::STATE_FOLDER;

/// Changes within this time are reported as one. One write or one claim makes many small changes; a person does not
/// notice this delay.
const BURST: Duration = Duration::from_millis(50);

/// A part of the workspace's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum StatePart {
    Ledger = 1,
    Board = 2,
    Turns = 4,
    /// The settings, or a folder that appeared or disappeared.
    Setup = 8,
    /// The kernel dropped events: anything may have changed.
    Missed = 16,
}

/// The parts that have changed since the last call of [`FolderWatch::changed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChangedParts(u8);

impl ChangedParts {
    pub(crate) fn has(self, part: StatePart) -> bool {
        self.0 & part as u8 != 0
    }
}

/// The tasks that have changed since the last call of [`FolderWatch::take_touched`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TouchedTasks {
    /// These tasks, and anything in these states.
    These {
        /// Tasks, and the state in which each has changed.
        tasks: BTreeSet<(State, TaskName)>,
        /// States in which something else has changed.
        states: BTreeSet<State>,
    },
    /// Too many to list.
    Everything,
}

impl Default for TouchedTasks {
    fn default() -> Self {
        Self::These { tasks: BTreeSet::new(), states: BTreeSet::new() }
    }
}

impl TouchedTasks {
    /// Above this number, reading all tasks again costs less than looking at each.
    const MOST: usize = 2_000;

    fn add(&mut self, change: Hint) {
        let Self::These { tasks, states } = self else { return };
        match change {
            Hint::Task(task, state, _) => drop(tasks.insert((state, task))),
            Hint::State(state) => drop(states.insert(state)),
            Hint::OwnerGone => {}
            Hint::Everything => *self = Self::Everything,
        }
        if matches!(self, Self::These { tasks, .. } if tasks.len() > Self::MOST) {
            *self = Self::Everything;
        }
    }
}

/// One watched folder, and which part of the state it holds.
#[derive(Debug, Clone)]
struct WatchedFolder {
    folder: PathBuf,
    depth: RecursiveMode,
    part: StatePart,
    /// Only entries whose name starts with one of these. Empty: all entries.
    only: Vec<OsString>,
}

impl WatchedFolder {
    fn part_of(&self, path: &Path) -> Option<StatePart> {
        let below = path.strip_prefix(&self.folder).ok()?;
        let Some(name) = below.iter().next() else {
            // The folder itself appeared or disappeared.
            return Some(StatePart::Setup);
        };
        let like = |only: &OsString| name.as_encoded_bytes().starts_with(only.as_encoded_bytes());
        (self.only.is_empty() || self.only.iter().any(like)).then_some(self.part)
    }
}

/// The folders of a workspace. The first that contains a path decides which part of the state the path belongs to.
fn folders(root: &Path, vault: &Path, turns: &[SharedTurns]) -> Vec<WatchedFolder> {
    let flat = RecursiveMode::NonRecursive;
    let state = root.join(STATE_FOLDER);
    let mut folders = Vec::new();
    let mut add = |folder: &Path, depth, part, only: &[&OsStr]| {
        let only = only.iter().map(|name| (*name).to_owned()).collect();
        folders.push(WatchedFolder { folder: folder.to_owned(), depth, part, only });
    };
    for turns in turns {
        add(turns.folder(), RecursiveMode::Recursive, StatePart::Turns, &[]);
    }
    add(&state, flat, StatePart::Ledger, &["ledger".as_ref()]);
    add(&state, flat, StatePart::Setup, &["config.toml".as_ref(), "version".as_ref()]);
    let first = vault.strip_prefix(root).ok().and_then(|below| below.iter().next());
    add(vault, flat, StatePart::Setup, &State::ALL.map(|state| OsStr::new(state.as_str())));
    add(root, flat, StatePart::Setup, &[STATE_FOLDER.as_ref(), first.unwrap_or(STATE_FOLDER.as_ref())]);
    folders
}

/// The watcher.
pub(crate) struct FolderWatch {
    seen: Arc<WatchState>,
    watcher: Mutex<Option<RecommendedWatcher>>,
    /// The store's own watch on the tasks.
    tasks: Mutex<Option<Watch>>,
    /// The store cannot tell when a task changes.
    tasks_blind: AtomicBool,
    /// The kernel does not watch all folders, for example because it has no watches left.
    blind: AtomicBool,
}

/// What the watcher's own thread has seen.
#[derive(Default)]
struct WatchState {
    parts: AtomicU8,
    wake: Notify,
    watched: Mutex<Vec<WatchedFolder>>,
    touched: Mutex<TouchedTasks>,
}

impl FolderWatch {
    pub(crate) fn new() -> Self {
        let seen = Arc::new(WatchState::default());
        let for_watcher = seen.clone();
        let watcher = notify::recommended_watcher(move |event| for_watcher.see(event)).ok();
        Self {
            seen,
            blind: AtomicBool::new(watcher.is_none()),
            watcher: Mutex::new(watcher),
            tasks: Mutex::default(),
            tasks_blind: AtomicBool::new(false),
        }
    }

    /// Watches the tasks of this vault, and no other.
    pub(crate) fn watch_tasks(&self, vault: Option<&Vault>) {
        let seen = self.seen.clone();
        let watch = vault
            .map(|vault| vault.store().watch(&State::ALL, Arc::new(move |change| seen.see_task(change))));
        let (watch, blind) = match watch {
            None => (None, false),
            Some(Ok(Some(watch))) => (Some(watch), false),
            Some(Ok(None) | Err(_)) => (None, true),
        };
        *lock(&self.tasks) = watch;
        self.tasks_blind.store(blind, Ordering::Relaxed);
    }

    /// Watches the folders of this workspace.
    pub(crate) fn watch(&self, root: &Path, vault: &Path, turns: &[SharedTurns]) {
        self.watch_folders(folders(root, vault, turns));
    }

    /// Watches these folders, and those that were watched before. Skips a folder that does not exist: the watch on its
    /// parent reports when it appears.
    fn watch_folders(&self, folders: Vec<WatchedFolder>) {
        lock(&self.seen.watched).clone_from(&folders);
        if let Some(watcher) = &mut *lock(&self.watcher) {
            let mut blind = false;
            for watched in folders {
                blind |= match watcher.watch(&watched.folder, watched.depth) {
                    Ok(()) => false,
                    Err(error) => match error.kind {
                        ErrorKind::PathNotFound => false,
                        ErrorKind::Io(error) => error.kind() != io::ErrorKind::NotFound,
                        _ => true,
                    },
                };
            }
            self.blind.store(blind, Ordering::Relaxed);
        }
    }

    /// Whether a task has changed since the last [`FolderWatch::take_touched`]. Always true if the watch is blind.
    pub(crate) fn is_touched(&self) -> bool {
        self.is_blind() || *lock(&self.seen.touched) != TouchedTasks::default()
    }

    /// The tasks that have changed, without waiting for the end of a burst.
    pub(crate) fn take_touched(&self) -> TouchedTasks {
        let touched = std::mem::take(&mut *lock(&self.seen.touched));
        if self.is_blind() { TouchedTasks::Everything } else { touched }
    }

    /// Whether changes may go unreported. Pages are then right when they are loaded, but not live.
    pub(crate) fn is_blind(&self) -> bool {
        self.blind.load(Ordering::Relaxed) || self.tasks_blind.load(Ordering::Relaxed)
    }

    /// Marks all tasks as changed.
    pub(crate) fn touch_everything(&self) {
        *lock(&self.seen.touched) = TouchedTasks::Everything;
    }

    /// Waits for a change, and for the rest of its burst.
    pub(crate) async fn changed(&self) -> ChangedParts {
        loop {
            self.seen.wake.notified().await;
            tokio::time::sleep(BURST).await;
            let parts = self.seen.parts.swap(0, Ordering::AcqRel);
            if parts != 0 {
                return ChangedParts(parts);
            }
        }
    }
}

impl WatchState {
    fn see(&self, event: notify::Result<Event>) {
        let parts = match event {
            Ok(event) if is_reading(event.kind) => 0,
            // The kernel's queue overflowed.
            Ok(event) if event.need_rescan() => u8::MAX,
            Ok(event) => {
                let watched = lock(&self.watched);
                let mut parts = 0;
                for path in event.paths {
                    let Some(part) = watched.iter().find_map(|watched| watched.part_of(&path)) else {
                        continue;
                    };
                    parts |= part as u8;
                }
                parts
            }
            Err(_) => u8::MAX,
        };
        self.report(parts);
    }

    fn see_task(&self, change: Hint) {
        let is_everything = change == Hint::Everything;
        if change != Hint::OwnerGone {
            lock(&self.touched).add(change);
            self.report(if is_everything { u8::MAX } else { StatePart::Board as u8 });
        }
    }

    fn report(&self, parts: u8) {
        if parts & StatePart::Missed as u8 != 0 {
            *lock(&self.touched) = TouchedTasks::Everything;
        }
        if parts != 0 {
            self.parts.fetch_or(parts, Ordering::AcqRel);
            self.wake.notify_one();
        }
    }
}

/// Reads must not wake the server: its own reads would wake it forever.
fn is_reading(kind: EventKind) -> bool {
    matches!(kind, EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blind_watch_reports_every_task_as_changed_each_time() {
        let watch = FolderWatch::new();
        assert!(!watch.is_blind() && !watch.is_touched());
        let folder = |folder: &str| WatchedFolder {
            folder: folder.into(),
            depth: RecursiveMode::NonRecursive,
            part: StatePart::Turns,
            only: Vec::new(),
        };
        watch.watch_folders(vec![folder("/nowhere/at/all")]);
        assert!(!watch.is_blind(), "a folder that does not exist is reported when it appears");
        // The kernel rejects this name. It stands for every folder that the kernel cannot watch.
        watch.watch_folders(vec![folder(&format!("/{}", "x".repeat(300)))]);
        assert!(watch.is_blind() && watch.is_touched());
        assert_eq!(watch.take_touched(), TouchedTasks::Everything);
        assert!(watch.is_touched(), "and again");
        watch.watch_folders(vec![folder("/")]);
        assert!(!watch.is_blind());
    }

    #[test]
    fn every_watched_folder_exists_once_the_workspace_is_set_up() {
        let keep = tempfile::tempdir().unwrap();
        let root = keep.path();
        let vault = root.join("vault");
        tollgate::workspace::Workspace::open(root, Default::default()).unwrap();
        for state in State::ALL {
            std::fs::create_dir_all(vault.join(state.as_str())).unwrap();
        }
        for watched in folders(root, &vault, &[]) {
            assert!(watched.folder.is_dir(), "{}", watched.folder.display());
        }
    }
}
