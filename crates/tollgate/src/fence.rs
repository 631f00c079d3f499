//! The fence between the two promises: an agent that works on a task writes files only while its claim is its own.
//!
//! The guard asks before every change and the vault knows the answer; here the two meet. The answer comes from files of this
//! machine, without the network and without opening the vault: from the claim records of a vault in folders, and from the
//! deadlines of the claims on a store that other machines share.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tollgate_base::error::Result;
use tollgate_base::name::ClaimId;
use tollgate_base::settings::StoreChoice;
use tollgate_base::task::TaskName;
pub use tollgate_guard::fence::{LostClaim, WriteFence};
use tollgate_guard::workspace::Workspace;
use tollgate_vault::{ClaimDeadlines, FolderStore};

use crate::tasks::{VaultHome, deadlines_in};

/// Knows which claims of a vault still own their tasks.
#[derive(Debug, Clone)]
pub struct ClaimFence {
    /// The vault whose folders have the claim records, unless an engine has them.
    records: Option<PathBuf>,
    /// The deadlines, if other machines share the store.
    deadlines: Option<ClaimDeadlines>,
}

impl ClaimFence {
    /// The fence of the vault of this workspace.
    pub fn of(home: &VaultHome) -> Self {
        let store = home.settings.vault.chosen_store();
        let has_records = !matches!(store, StoreChoice::Engine(_));
        Self {
            records: has_records.then(|| home.tasks_folder()),
            deadlines: (*store != StoreChoice::Folder).then(|| deadlines_in(&home.folder())),
        }
    }

    /// The fence of the vault under whose claim a process was started: that of this workspace, if it is known, else that of the
    /// workspace in which the process works. `None` if it has no vault.
    pub fn given(workspace: &Workspace, home: Option<&Path>) -> Result<Option<Self>> {
        let home = match home {
            Some(root) => VaultHome::at(root.to_owned())?,
            None => VaultHome::of(workspace.path(), workspace.settings())?,
        };
        Ok(home.has_vault().then(|| Self::of(&home)))
    }

    /// Whether a claim still owns its task, as far as this machine knows.
    pub fn is_owned(&self, task: &TaskName, claim: &ClaimId) -> Result<bool> {
        if let Some(deadlines) = &self.deadlines
            && !deadlines.is_before(claim)?
        {
            return Ok(false);
        }
        self.records.as_deref().map_or(Ok(true), |vault| FolderStore::is_owned(vault, task, claim))
    }

    /// The fence for an agent that works under one claim.
    pub fn around(self, task: TaskName, claim: ClaimId) -> WriteFence {
        Arc::new(move || self.lost(&task, &claim))
    }

    /// The claim, if it does not own its task any more.
    pub fn lost(&self, task: &TaskName, claim: &ClaimId) -> Result<Option<LostClaim>> {
        let lost = || LostClaim { task: task.clone(), claim: claim.clone() };
        Ok((!self.is_owned(task, claim)?).then(lost))
    }
}
