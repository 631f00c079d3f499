//! What is to be looked at next: hints of the store and of the folders become tasks to reconcile.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::folder_view::{FolderView, ToDo, ViewTrouble};
use super::notice::Notice;
use crate::state::State;
use crate::store::{Hint, TaskSummary};
use tollgate_base::error::Result;
use tollgate_base::task::TaskName;

/// The pause before a file is tried again with which something is wrong.
const STUCK: Duration = Duration::from_secs(5);

/// What may have changed, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ViewNews {
    /// In the store.
    Store(Hint),
    /// In the folders.
    Folder(Hint),
}

impl ToDo {
    /// Looks at a task after this time.
    pub(super) fn postpone(
        &mut self,
        task: &TaskName,
        states: impl IntoIterator<Item = State>,
        wait: Duration,
    ) {
        let at = Instant::now() + wait;
        let (due, asked) = self.later.entry(task.clone()).or_insert((at, BTreeSet::new()));
        *due = at.min(*due);
        asked.extend(states);
    }

    fn ask(&mut self, task: &TaskName, state: Option<State>) {
        self.now.entry(task.clone()).or_default().extend(state);
    }

    /// Moves what is due to the tasks of now.
    fn wake(&mut self) {
        let now = Instant::now();
        let due: Vec<TaskName> =
            self.later.iter().filter(|(_, (at, _))| *at <= now).map(|(task, _)| task.clone()).collect();
        for task in due {
            if let Some((_, states)) = self.later.remove(&task) {
                self.now.entry(task).or_default().extend(states);
            }
        }
    }
}

impl FolderView {
    /// Remembers what may have changed.
    pub fn hear(&mut self, news: ViewNews) {
        match news {
            ViewNews::Store(Hint::Task(task, state, _)) => self.to_do.ask(&task, Some(state)),
            ViewNews::Store(Hint::State(state)) => _ = self.to_do.in_store.insert(state),
            ViewNews::Store(Hint::Everything) => self.to_do.in_store.extend(State::ALL),
            ViewNews::Store(Hint::OwnerGone) | ViewNews::Folder(Hint::OwnerGone) => {}
            ViewNews::Folder(Hint::Task(task, ..)) => self.to_do.ask(&task, None),
            // A new folder of an agent. Anything else without the name of a task cannot be one.
            ViewNews::Folder(Hint::State(State::InProgress)) => {
                _ = self.to_do.in_folder.insert(State::InProgress);
            }
            ViewNews::Folder(Hint::State(_)) => {}
            ViewNews::Folder(Hint::Everything) => self.to_do.in_folder.extend(State::ALL),
        }
    }

    /// Does everything that can be done now. Returns after which time there is more to do, if there is. An error means that the
    /// store did not answer; nothing is forgotten.
    pub fn work(&mut self) -> Result<Option<Duration>> {
        while let Some(state) = self.to_do.in_store.first().copied() {
            self.compare_store(state)?;
            self.to_do.in_store.remove(&state);
        }
        while let Some(state) = self.to_do.in_folder.first().copied() {
            self.compare_folder(state)?;
            self.to_do.in_folder.remove(&state);
        }
        self.to_do.wake();
        while let Some((task, states)) = self.to_do.now.pop_first() {
            match self.reconcile(&task, states.clone()) {
                Ok(()) => _ = self.to_do.stuck.remove(&task),
                Err(ViewTrouble::ByStore(fault)) => {
                    self.to_do.now.entry(task).or_default().extend(states);
                    return Err(fault);
                }
                Err(ViewTrouble::ByFile(fault)) => {
                    if self.to_do.stuck.insert(task.clone()) {
                        self.tell(&Notice::Stuck { task: task.clone(), why: fault.to_string() });
                    }
                    self.to_do.postpone(&task, states, STUCK);
                }
            }
        }
        let next = self.to_do.later.values().map(|(at, _)| *at).min();
        Ok(next.map(|at| at.saturating_duration_since(Instant::now())))
    }

    /// Finds out which tasks of a state differ from what the view has written.
    fn compare_store(&mut self, state: State) -> Result<()> {
        let listed = self.vault.store().scan(state, self.now())?.tasks;
        let is_new = |task: &&TaskSummary| {
            let shown = self.notes.get(&task.name, state);
            shown.is_none_or(|shown| shown.slot != task.slot || shown.modified != task.modified)
        };
        let new: Vec<TaskName> = listed.iter().filter(is_new).map(|task| task.name.clone()).collect();
        let listed: BTreeSet<&TaskName> = listed.iter().map(|task| &task.name).collect();
        let shown = self.notes.in_state(state).map(|shown| &shown.task);
        let gone: Vec<TaskName> = shown.filter(|task| !listed.contains(task)).cloned().collect();
        for task in new.iter().chain(&gone) {
            self.to_do.ask(task, Some(state));
        }
        Ok(())
    }

    /// Every file in a state, and every one that should be there, is looked at.
    fn compare_folder(&mut self, state: State) -> Result<()> {
        let mut tasks = self.files.list(state)?;
        tasks.extend(self.notes.in_state(state).map(|shown| shown.task.clone()));
        if state == State::NeedsAction {
            tasks.extend(self.notes.all_adding());
        }
        for task in tasks {
            self.to_do.ask(&task, None);
        }
        Ok(())
    }
}
