//! The view of one machine, open: one process at a time, after it has finished what a dead process began.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::notes::{BegunWrite, ShownTask, ViewNotes};
use super::notice::Notice;
use super::view_files::{ViewFiles, lock_path, private_folder};
use crate::folder::disk::Disk;
use crate::folder::make_private_folder;
use crate::state::{Slot, State};
use crate::vault::Vault;
use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::file::names_in;
use tollgate_base::lock::Lock;
use tollgate_base::name::is_random_id;
use tollgate_base::settings::Durability;
use tollgate_base::task::TaskName;

/// How a view is maintained.
#[derive(Clone)]
pub struct ViewOptions {
    /// The vault's folder.
    pub folder: PathBuf,
    /// A file that was not renamed into place is complete when it has not changed for this long. A file that is missing for
    /// this long was deleted: some editors delete a file and then write it again.
    pub settle: Duration,
    /// Whether the view survives a power failure without doubt about who wrote what.
    pub durability: Durability,
    /// The time of day.
    pub now: fn() -> Timestamp,
    /// Tells people what they should know.
    pub tell: Arc<dyn Fn(&Notice) + Send + Sync>,
}

/// The folders of a machine, kept in step with a store. The process that has this value maintains them.
pub struct FolderView {
    pub(super) vault: Vault,
    pub(super) options: ViewOptions,
    pub(super) files: ViewFiles,
    pub(super) notes: ViewNotes,
    pub(super) to_do: ToDo,
    /// Files that the view has replaced or removed, and when: a person may have them open in an editor.
    pub(super) replaced: BTreeMap<(TaskName, State), Instant>,
    _lock: Lock,
}

/// What is to be looked at.
#[derive(Default)]
pub(super) struct ToDo {
    /// Tasks, and the states in which the store may have something new of them.
    pub(super) now: BTreeMap<TaskName, BTreeSet<State>>,
    /// Tasks to look at later, when, and in which states.
    pub(super) later: BTreeMap<TaskName, (Instant, BTreeSet<State>)>,
    /// States of which all tasks in the store are compared.
    pub(super) in_store: BTreeSet<State>,
    /// States of which all files are compared.
    pub(super) in_folder: BTreeSet<State>,
    /// Files that are missing, and since when.
    pub(super) missing: BTreeMap<(TaskName, State), Instant>,
    /// Tasks of which people know that something is wrong.
    pub(super) stuck: BTreeSet<TaskName>,
}

/// Why the work on the view was interrupted.
#[derive(Debug)]
pub(super) enum ViewTrouble {
    /// The store did not answer, so nothing can go on.
    ByStore(Fault),
    /// Something is wrong with one file, so the others can go on.
    ByFile(Fault),
}

impl ViewTrouble {
    /// A change by a person has failed. If the store refuses it, it may take others.
    pub(super) fn of_store(fault: Fault) -> Self {
        match fault {
            Fault::RemoteRefused { .. } => Self::ByFile(fault),
            fault => Self::ByStore(fault),
        }
    }
}

impl From<Fault> for ViewTrouble {
    fn from(fault: Fault) -> Self {
        Self::ByFile(fault)
    }
}

impl FolderView {
    /// Opens the view; `None` if another process maintains it. The first work compares everything.
    pub fn open(vault: Vault, options: ViewOptions) -> Result<Option<Self>> {
        Self::open_on(vault, Disk::new(options.durability), options)
    }

    pub(super) fn open_on(vault: Vault, disk: Disk, mut options: ViewOptions) -> Result<Option<Self>> {
        // Without links, of which there may be some above the vault, but none in it.
        options.folder = fs::canonicalize(&options.folder).at("open the vault", &options.folder)?;
        make_private_folder(&options.folder)?;
        disk.make_folder(&private_folder(&options.folder))?;
        let Some(lock) = Lock::acquire(&lock_path(&options.folder), Duration::ZERO)? else { return Ok(None) };
        let files = ViewFiles::open(&options.folder, disk.clone(), options.settle)?;
        let notes = ViewNotes::open(private_folder(&options.folder).join("notes"), disk)?;
        let to_do = ToDo {
            in_store: State::ALL.into_iter().collect(),
            in_folder: State::ALL.into_iter().collect(),
            ..ToDo::default()
        };
        let mut view = Self { vault, options, files, notes, to_do, replaced: BTreeMap::new(), _lock: lock };
        for begun in view.notes.all_begun() {
            view.finish(&begun)?;
        }
        // What is left was never anywhere else.
        let staged = names_in(&view.files.stage(""))?;
        for name in staged.iter().filter(|name| name.to_str().is_some_and(is_random_id)) {
            view.files.disk.remove(&view.files.stage("").join(name))?;
        }
        Ok(Some(view))
    }

    /// Finds out whether a dead process has made the change that it began, and keeps what it may have replaced.
    fn finish(&mut self, begun: &BegunWrite) -> Result<()> {
        let BegunWrite { task, slot, was, new, stage } = begun;
        if !is_random_id(stage) {
            // Any other name could be a path that leads out of the stage.
            let notes = private_folder(&self.options.folder).join("notes");
            return Err(Fault::damaged(&notes, "a line names a file that is not a staged one"));
        }
        let stage = self.files.stage(stage);
        let holds_new = stage.exists() && self.files.is_settled(&stage, &[*new])?;
        let is_made = match new {
            Some(_) => !holds_new,
            None => stage.exists() || !self.files.path(task, slot).exists(),
        };
        if holds_new {
            self.files.disk.remove(&stage)?;
        } else {
            self.clear(&stage, task, slot, *was)?;
        }
        self.note(task, slot, if is_made { *new } else { *was }, Timestamp::UNIX_EPOCH)
    }

    /// Notes what is at this place.
    pub(super) fn note(
        &mut self,
        task: &TaskName,
        slot: &Slot,
        sha256: Option<Digest>,
        modified: Timestamp,
    ) -> Result<()> {
        match sha256 {
            Some(sha256) => {
                self.notes.put(ShownTask { task: task.clone(), slot: slot.clone(), sha256, modified })
            }
            None => self.notes.gone(task, slot.state()),
        }
    }

    /// Deletes a file that the view has replaced, unless it is not what the view wrote there, or somebody still writes to it.
    pub(super) fn clear(
        &self,
        stage: &Path,
        task: &TaskName,
        slot: &Slot,
        was: Option<Digest>,
    ) -> Result<()> {
        if self.files.is_settled(stage, &[was])? {
            return self.files.disk.remove(stage);
        }
        self.set_aside(stage, task, slot, "the task was changed in the store at the same time")
    }

    /// Keeps a person's file and tells them.
    pub(super) fn set_aside(&self, from: &Path, task: &TaskName, slot: &Slot, why: &str) -> Result<()> {
        if let Some(path) = self.files.keep(from, task)? {
            let (task, slot, why) = (task.clone(), slot.clone(), why.to_owned());
            self.tell(&Notice::SetAside { task, slot, path, why });
        }
        Ok(())
    }

    pub(super) fn tell(&self, notice: &Notice) {
        (self.options.tell)(notice);
    }

    pub(super) fn now(&self) -> Timestamp {
        (self.options.now)()
    }
}
