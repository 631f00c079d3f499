//! Opening the vault of a workspace, as a program does that has no command line of its own.

use std::sync::Arc;
use std::time::Duration;

use tollgate::chronicle::Chronicle;
use tollgate::error::Result;
use tollgate::vault::folder::FolderOptions;
use tollgate::vault::roles::Roles;
use tollgate::vault::{FolderStore, Terms, Vault};
use tollgate::workspace::Workspace;

/// The vault that the settings name, under the rules that they give. A file in it counts as complete at once.
pub(crate) fn open(workspace: &Workspace) -> Result<Vault> {
    let settings = workspace.settings();
    let durability = settings.vault.durability;
    let id = workspace.path().to_string_lossy().into_owned();
    let options = FolderOptions {
        durability,
        settle: Duration::ZERO,
        journal: Arc::new(Chronicle::new(workspace.ledger().clone(), id, durability)),
        quiet: None,
    };
    let terms = Terms {
        roles: Roles(settings.agent.clone()),
        lease: settings.vault.lease.0,
        max_attempts: settings.vault.max_attempts,
    };
    let store = FolderStore::open(&workspace.path().join(&settings.vault.dir), options)?;
    Ok(Vault::new(Arc::new(store), terms))
}
