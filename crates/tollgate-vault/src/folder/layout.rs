//! The folders of a vault: where the file of a task is, and where tollgate keeps what explains it.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::disk::{Disk, Seen};
use super::log::{Logs, Noted};
use super::{held, migrate};
use crate::event::Journal;
use crate::state::{Slot, State};
use crate::step::{Landed, Version};
use tollgate_base::error::{At, Result};
use tollgate_base::lock::nobody_writes;
use tollgate_base::name::{Agent, StepId};
use tollgate_base::settings::Durability;
use tollgate_base::task::TaskName;

/// How to find out whether a program has a file open for writing.
pub type Quiet = fn(File) -> io::Result<bool>;

/// How the folders are used.
#[derive(Clone)]
pub struct FolderOptions {
    /// Whether an acknowledged step survives a power cut.
    pub durability: Durability,
    /// A file that was not renamed into place is complete when it has not changed for this long.
    pub settle: Duration,
    /// Where events are recorded.
    pub journal: Arc<dyn Journal>,
    /// How to find out whether a program has a file open for writing. Without it only `settle` protects against
    /// half-written tasks.
    pub quiet: Option<Quiet>,
}

impl FolderOptions {
    /// Durable, with two seconds to settle.
    pub fn new(journal: Arc<dyn Journal>) -> Self {
        let (durability, settle) = (Durability::Durable, Duration::from_secs(2));
        Self { durability, settle, journal, quiet: Some(nobody_writes) }
    }
}

/// The latest answers, by step, so that a step that is applied again gets the same answer.
pub(super) type Answers = Arc<Mutex<VecDeque<(StepId, Landed)>>>;

/// Tasks in folders.
#[derive(Clone)]
pub struct FolderStore {
    pub(super) vault: PathBuf,
    pub(super) private: PathBuf,
    pub(super) options: FolderOptions,
    pub(super) disk: Disk,
    pub(super) logs: Logs,
    pub(super) answers: Answers,
}

impl FolderStore {
    /// Opens a vault and makes the folders that are missing.
    pub fn open(vault: &Path, options: FolderOptions) -> Result<Self> {
        // A folder of its own, because a vault may be a workspace too, whose state lies beside it.
        let private = vault.join(".tollgate").join("vault");
        for state in State::ALL {
            make_folder(&vault.join(state.as_str()))?;
        }
        for folder in ["logs", "owed", "stage", "cache"] {
            make_folder(&private.join(folder))?;
        }
        migrate::to_this_format(&private, &*options.journal)?;
        // Without a trailing or doubled slash.
        let vault: PathBuf = vault.components().collect();
        let root = File::open(&vault).at("open", &vault)?;
        let disk = Disk::new(options.durability, vault.clone(), root);
        held::make(&private.join("held"))?;
        let logs = Logs::new(private.join("logs"));
        Ok(Self { vault, private, options, disk, logs, answers: Arc::default() })
    }

    /// Where a task's file is in this slot.
    pub(crate) fn path(&self, task: &TaskName, slot: &Slot) -> PathBuf {
        let mut path = self.slot_folder(slot);
        path.push(task.as_str());
        path
    }

    pub(super) fn slot_folder(&self, slot: &Slot) -> PathBuf {
        let folder = self.vault.join(slot.state().as_str());
        match slot {
            Slot::InProgress(agent) => folder.join(agent.as_str()),
            Slot::Free(_) => folder,
        }
    }

    /// The only code that changes files here, for the store that lays its own tree over this one.
    pub(crate) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// What is to happen at every act from here on.
    #[cfg(test)]
    pub(crate) fn set_fates(&mut self, fates: super::disk::Fates) {
        self.disk.fates = Some(fates);
    }

    /// Where a file is made before it gets its name.
    pub(crate) fn stage(&self, name: &str) -> PathBuf {
        self.private("stage", name)
    }

    pub(super) fn private(&self, folder: &str, name: &str) -> PathBuf {
        let mut path = self.private.join(folder);
        path.push(name);
        path
    }

    /// The slots in which a task may be, the likeliest first.
    pub(super) fn slots(&self, state: Option<State>) -> Result<Vec<Slot>> {
        let wanted = |at: State| state.is_none_or(|state| state == at);
        let free = [State::NeedsAction, State::Approved, State::PendingApproval];
        let mut slots: Vec<Slot> = free.into_iter().filter(|at| wanted(*at)).map(Slot::Free).collect();
        if wanted(State::InProgress) {
            slots.extend(self.agents()?.into_iter().map(Slot::InProgress));
        }
        slots.extend([State::Done, State::Rejected].into_iter().filter(|at| wanted(*at)).map(Slot::Free));
        Ok(slots)
    }

    /// All agents that have, or had, something in progress.
    pub(super) fn agents(&self) -> Result<Vec<Agent>> {
        let folder = self.vault.join(State::InProgress.as_str());
        let mut agents = Vec::new();
        for entry in fs::read_dir(&folder).at("read", &folder)? {
            let entry = entry.at("read", &folder)?;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                agents.extend(entry.file_name().to_str().and_then(|name| name.parse::<Agent>().ok()));
            }
        }
        agents.sort();
        Ok(agents)
    }
}

fn make_folder(path: &Path) -> Result<()> {
    match fs::create_dir_all(path) {
        Err(error) if !path.is_dir() => Err(error).at("make the folder", path),
        _ => Ok(()),
    }
}

/// Changes with everything that can happen to a file: ctime cannot be set back, and our own steps have ids.
pub(super) fn version(seen: &Seen, noted: Option<&Noted>) -> Version {
    let mut bytes: Vec<u8> = seen.numbers().into_iter().flat_map(u64::to_le_bytes).collect();
    bytes.extend(noted.map_or("", |noted| noted.step.as_str()).bytes());
    Version::new(bytes)
}
