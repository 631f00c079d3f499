//! What the view has written, and what it is about to do: the file `.tollgate/view/notes`.
//!
//! A file that is not what the notes say was changed by a person. So before the view replaces or removes a file, it notes what
//! was there and what will be there; a process that dies in between leaves no doubt about whose bytes are on disk. Before it
//! adds a task, it notes the id of that step, so that the next process repeats the same step and adds nothing twice.
//!
//! If all notes are lost, the view compares the files with the store. Only a file in `Needs_Action` needs its note: without one
//! it is a new task, unless the store still has it there.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::folder::disk::Disk;
use crate::state::{Slot, State};
use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::lock;
use tollgate_base::name::StepId;
use tollgate_base::private;
use tollgate_base::settings::Durability;
use tollgate_base::task::TaskName;

/// The format that this version reads and writes.
const FORMAT: u32 = 1;

/// Superfluous lines that are worth writing the whole file again.
const SUPERFLUOUS: usize = 10_000;

/// A task as the view has written it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ShownTask {
    pub(super) task: TaskName,
    pub(super) slot: Slot,
    pub(super) sha256: Digest,
    /// When its text last changed, by the store.
    #[serde(with = "jiff::fmt::serde::timestamp::nanosecond::required")]
    pub(super) modified: Timestamp,
}

/// A change of one file that the view is about to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BegunWrite {
    pub(super) task: TaskName,
    pub(super) slot: Slot,
    /// What is there now.
    pub(super) was: Option<Digest>,
    /// What will be there.
    pub(super) new: Option<Digest>,
    /// The file that has the new bytes before, or the replaced ones afterwards.
    pub(super) stage: String,
}

/// A person's new file that is about to become a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NewTaskFile {
    pub(super) task: TaskName,
    pub(super) id: StepId,
    pub(super) sha256: Digest,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum NoteLine {
    Format(u32),
    Begun(BegunWrite),
    Shown(ShownTask),
    Gone(TaskName, State),
    Adding(NewTaskFile),
}

/// All notes.
pub(super) struct ViewNotes {
    path: PathBuf,
    disk: Disk,
    file: File,
    len: u64,
    lines: usize,
    shown: BTreeMap<TaskName, BTreeMap<State, ShownTask>>,
    begun: BTreeMap<(TaskName, State), BegunWrite>,
    adding: BTreeMap<TaskName, NewTaskFile>,
}

impl ViewNotes {
    pub(super) fn open(path: PathBuf, disk: Disk) -> Result<Self> {
        let file = lock::open(&path)?;
        let mut notes = Self {
            file,
            path,
            disk,
            len: 0,
            lines: 0,
            shown: BTreeMap::new(),
            begun: BTreeMap::new(),
            adding: BTreeMap::new(),
        };
        let text = private::read(&notes.path).at("read", &notes.path)?;
        for line in text.split(|byte| *byte == b'\n') {
            match serde_json::from_slice(line) {
                Ok(NoteLine::Format(found)) if found > FORMAT => {
                    return Err(Fault::NewerFormat { path: notes.path, found, known: FORMAT });
                }
                Ok(line) => notes.learn(line),
                // A process died while it wrote this line, so what it says has not begun.
                Err(_) => {}
            }
        }
        notes.rewrite()?;
        Ok(notes)
    }

    fn learn(&mut self, line: NoteLine) {
        match line {
            NoteLine::Format(_) => {}
            NoteLine::Begun(begun) => {
                self.begun.insert((begun.task.clone(), begun.slot.state()), begun);
            }
            NoteLine::Shown(shown) => {
                let state = shown.slot.state();
                self.settled(&shown.task, state);
                self.shown.entry(shown.task.clone()).or_default().insert(state, shown);
            }
            NoteLine::Gone(task, state) => {
                self.settled(&task, state);
                if let Some(states) = self.shown.get_mut(&task) {
                    states.remove(&state);
                    if states.is_empty() {
                        self.shown.remove(&task);
                    }
                }
            }
            NoteLine::Adding(adding) => {
                self.adding.insert(adding.task.clone(), adding);
            }
        }
    }

    fn settled(&mut self, task: &TaskName, state: State) {
        self.begun.remove(&(task.clone(), state));
        if state == State::NeedsAction {
            self.adding.remove(task);
        }
    }

    fn write(&mut self, line: NoteLine, durability: Durability) -> Result<()> {
        let mut bytes = to_json(&line)?;
        bytes.push(b'\n');
        self.disk.write_at(&self.file, &self.path, self.len, &bytes)?;
        if durability == Durability::Durable {
            self.disk.sync(&self.file, &self.path)?;
        }
        self.len += bytes.len() as u64;
        self.lines += 1;
        self.learn(line);
        let needed = self.shown.len() + self.begun.len() + self.adding.len();
        if self.lines > 2 * needed + SUPERFLUOUS { self.rewrite() } else { Ok(()) }
    }

    /// Writes only what still holds.
    fn rewrite(&mut self) -> Result<()> {
        let mut lines = vec![NoteLine::Format(FORMAT)];
        lines.extend(self.shown.values().flat_map(BTreeMap::values).cloned().map(NoteLine::Shown));
        // After what was shown, because that would settle them.
        lines.extend(self.begun.values().cloned().map(NoteLine::Begun));
        lines.extend(self.adding.values().cloned().map(NoteLine::Adding));
        let mut bytes = Vec::new();
        for line in &lines {
            bytes.extend(to_json(line)?);
            bytes.push(b'\n');
        }
        self.disk.replace_file(&self.path, &bytes, self.disk.durability)?;
        self.file = lock::open(&self.path)?;
        (self.len, self.lines) = (bytes.len() as u64, lines.len());
        Ok(())
    }

    /// What the view has written of this name.
    pub(super) fn named(&self, task: &TaskName) -> Vec<ShownTask> {
        self.shown.get(task).into_iter().flat_map(BTreeMap::values).cloned().collect()
    }

    pub(super) fn get(&self, task: &TaskName, state: State) -> Option<&ShownTask> {
        self.shown.get(task)?.get(&state)
    }

    /// All that the view has written in this state.
    pub(super) fn in_state(&self, state: State) -> impl Iterator<Item = &ShownTask> {
        self.shown.values().filter_map(move |states| states.get(&state))
    }

    /// What a dead process may or may not have done.
    pub(super) fn all_begun(&self) -> Vec<BegunWrite> {
        self.begun.values().cloned().collect()
    }

    pub(super) fn adding(&self, task: &TaskName) -> Option<&NewTaskFile> {
        self.adding.get(task)
    }

    /// The tasks that are about to be added.
    pub(super) fn all_adding(&self) -> impl Iterator<Item = TaskName> {
        self.adding.keys().cloned()
    }

    /// The view is about to change a file.
    pub(super) fn begin(&mut self, begun: BegunWrite) -> Result<()> {
        // Otherwise a power failure could leave a person's bytes in the stage and nothing that says whose they are, or a file
        // in `Needs_Action` without a note.
        let is_flushed = begun.was.is_some() || begun.slot == Slot::NEEDS_ACTION;
        let durability = if is_flushed { Durability::Durable } else { Durability::Fast };
        self.write(NoteLine::Begun(begun), durability)
    }

    /// This is on disk now. The first note of a file in `Needs_Action` is flushed: a file there without a note is a new task,
    /// so if a power failure took the note, a task that was done elsewhere in the meantime would be added again.
    pub(super) fn put(&mut self, shown: ShownTask) -> Result<()> {
        let is_first = shown.slot == Slot::NEEDS_ACTION && !self.has_note_in_needs_action(&shown.task);
        let durability = if is_first { Durability::Durable } else { Durability::Fast };
        self.write(NoteLine::Shown(shown), durability)
    }

    fn has_note_in_needs_action(&self, task: &TaskName) -> bool {
        self.adding.contains_key(task)
            || self.begun.contains_key(&(task.clone(), State::NeedsAction))
            || self.get(task, State::NeedsAction).is_some()
    }

    /// Nothing of this task is on disk in this state.
    pub(super) fn gone(&mut self, task: &TaskName, state: State) -> Result<()> {
        self.write(NoteLine::Gone(task.clone(), state), Durability::Fast)
    }

    /// The view is about to add this task to the store. Flushed: a step that was forgotten would be made again with another
    /// id, and the task would be there twice.
    pub(super) fn add(&mut self, adding: NewTaskFile) -> Result<()> {
        self.write(NoteLine::Adding(adding), Durability::Durable)
    }
}

fn to_json(line: &NoteLine) -> Result<Vec<u8>> {
    serde_json::to_vec(line).map_err(|error| Fault::invalid(error.to_string()))
}
