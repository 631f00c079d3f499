//! Tasks in folders: a claim is a move, and the move decides.
//!
//! Every step of a task is taken under a kernel lock of that task's stripe, so the processes of all workspaces that share
//! the vault exclude each other. People and programs that know nothing of the lock only ever see atomic moves, and a move
//! never replaces anything. A step is written down before it is taken (`log`); if the process dies, the next one
//! finishes the step or rolls it back (`apply`).
//!
//! Invariants: the folder that a file is in is the task's state, no matter who put it there; `.tollgate/` only explains it.

mod apply;
mod cache;
pub(crate) mod disk;
mod format;
mod held;
mod last_log;
mod log;
mod log_line;
pub(crate) mod scan;
mod store;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod watch;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use self::disk::Disk;
use self::last_log::LastLog;
use crate::event::Journal;
use crate::recent::Recent;
use crate::state::{Slot, State};
use crate::step::TaskAfterStep;
use tollgate_base::error::{At, Result};
use tollgate_base::file::names_in;
use tollgate_base::lock::nobody_writes;
use tollgate_base::name::Agent;
use tollgate_base::private;
use tollgate_base::settings::Durability;
use tollgate_base::task::TaskName;

/// How the folders are used.
#[derive(Clone)]
pub struct FolderOptions {
    /// Whether an acknowledged step survives a power cut.
    pub durability: Durability,
    /// A file that was not renamed into place is complete when it has not changed for this long.
    pub settle: Duration,
    /// Where events are recorded.
    pub journal: Arc<dyn Journal>,
    /// How to find out whether nobody has a file open for writing. Without it only `settle` protects against half-written
    /// tasks.
    pub quiet: Option<fn(File) -> io::Result<bool>>,
}

impl FolderOptions {
    /// Durable, with two seconds to settle.
    pub fn new(journal: Arc<dyn Journal>) -> Self {
        let (durability, settle) = (Durability::Durable, Duration::from_secs(2));
        Self { durability, settle, journal, quiet: Some(nobody_writes) }
    }
}

/// Tasks in folders.
#[derive(Clone)]
pub struct FolderStore {
    vault: PathBuf,
    private: PathBuf,
    options: FolderOptions,
    disk: Disk,
    /// The tasks that were added.
    additions: Recent<TaskAfterStep>,
    last_log: Arc<Mutex<LastLog>>,
}

impl FolderStore {
    /// Where a task's file is in this slot.
    pub(crate) fn path(&self, task: &TaskName, slot: &Slot) -> PathBuf {
        let mut path = self.slot_folder(slot);
        path.push(task.as_str());
        path
    }

    fn slot_folder(&self, slot: &Slot) -> PathBuf {
        slot_folder(&self.vault, slot)
    }

    /// The only code that changes files here, for the store that lays its own tree over this one.
    pub(crate) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Where a file is made before it gets its name.
    pub(crate) fn stage(&self, name: &str) -> PathBuf {
        self.private.join("stage").join(name)
    }

    /// The slots in which a task may be, the likeliest first.
    fn slots(&self, state: Option<State>) -> Result<Vec<Slot>> {
        use State::{Approved, Done, InProgress, NeedsAction, PendingApproval, Rejected};
        let mut slots = Vec::new();
        for at in [NeedsAction, Approved, PendingApproval, InProgress, Done, Rejected] {
            match at {
                _ if state.is_some_and(|state| state != at) => {}
                InProgress => slots.extend(self.agents()?.into_iter().map(Slot::InProgress)),
                _ => slots.push(Slot::Free(at)),
            }
        }
        Ok(slots)
    }

    /// All agents that have, or had, something in progress.
    fn agents(&self) -> Result<Vec<Agent>> {
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

/// Where a vault keeps what nobody else needs.
fn private_folder(vault: &Path) -> PathBuf {
    vault.join(".tollgate").join("vault")
}

fn slot_folder(vault: &Path, slot: &Slot) -> PathBuf {
    // Room for the longest names, so that it is allocated once.
    let mut path = PathBuf::with_capacity(vault.as_os_str().len() + 512);
    path.push(vault);
    path.push(slot.state().as_str());
    path.extend(slot.agent().map(Agent::as_str));
    path
}

/// Makes the folders of the states. None of them, and no agent's folder, may be a link: tasks would leave the vault through it.
pub(crate) fn make_state_folders(vault: &Path) -> Result<()> {
    for state in State::ALL {
        disk::make_folders(&vault.join(state.as_str()))?;
    }
    let claimed = vault.join(State::InProgress.as_str());
    let names = names_in(&claimed)?;
    let agents = names.iter().filter(|name| name.to_str().is_some_and(|name| name.parse::<Agent>().is_ok()));
    agents.map(|name| claimed.join(name)).find_map(|folder| disk::linked(&folder)).map_or(Ok(()), Err)
}

/// Makes the folder for the vault's state, which is as private as the vault itself: users outside its group never have
/// access, whatever the umask is. A person may have opened it to everybody.
pub(crate) fn make_private_folder(vault: &Path) -> Result<()> {
    let state = vault.join(".tollgate");
    let mode = if fs::metadata(vault).at("look at", vault)?.mode() & 0o020 == 0 { 0o700 } else { 0o770 };
    private::create_folder(&state, mode).at("make the folder", &state)?;
    let folder = File::from(private::open_folder(&state).at("open", &state)?);
    let there = folder.metadata().at("look at", &state)?.mode();
    if there & 0o007 != 0 {
        // Only its owner can.
        let _ = folder.set_permissions(fs::Permissions::from_mode(there & 0o770));
    }
    Ok(())
}
