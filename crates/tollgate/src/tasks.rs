//! Opening the vault of a workspace: which store, which journal, which terms, and what agents must not write.
//!
//! Everything that uses tasks opens them here: the command line, the server, other programs. So all processes of a
//! workspace agree on the journal's id, and a new store is one more arm of a `match`.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Result};
use tollgate_base::name::Agent;
use tollgate_base::settings::{Settings, Sync};
use tollgate_base::task::State;
use tollgate_guard::workspace::{Options, STATE_FOLDER, Workspace, read_settings};
use tollgate_vault::roles::Roles;
use tollgate_vault::{FolderOptions, FolderStore, GitOptions, GitStore, Store, Terms, Vault};

use crate::ledger_journal::{LedgerJournal, Observer};

/// What the library does not take from its surroundings by itself.
#[derive(Clone, Default)]
pub struct TaskOptions {
    /// Called for every event after it is in the ledger: for logs.
    pub observer: Option<Observer>,
    /// The environment says how ssh is to be run, so tollgate leaves that alone.
    pub own_ssh: bool,
}

/// The vault of a workspace, open.
#[derive(Clone)]
pub struct Tasks {
    /// The rules over the store.
    pub vault: Vault,
    /// The folder in which people see the tasks.
    pub folder: PathBuf,
    /// The name of the store, as in the settings.
    pub store: &'static str,
    /// How long a file that was written in place must be unchanged to be complete.
    pub settle: Duration,
}

/// The vault of a workspace; `None` if it has none. Looking for one does not make one.
pub fn open(workspace: &Workspace, options: TaskOptions) -> Result<Option<Tasks>> {
    let folder = vault_folder(workspace.path(), workspace.settings());
    if has_vault(&folder, workspace.settings()) { create(workspace, options).map(Some) } else { Ok(None) }
}

/// The same; makes the vault's folders if they are missing.
pub fn create(workspace: &Workspace, options: TaskOptions) -> Result<Tasks> {
    let settings = workspace.settings();
    let folder = vault_folder(workspace.path(), settings);
    fs::create_dir_all(&folder).at("make the folder", &folder)?;
    let folder = fs::canonicalize(&folder).at("open the vault", &folder)?;
    let id = workspace_id(workspace.path())?;
    let (ledger, durability) = (workspace.ledger().clone(), settings.vault.durability);
    let mut folder_options =
        FolderOptions::new(Arc::new(LedgerJournal::new(ledger, id, durability, options.observer)));
    folder_options.durability = durability;
    folder_options.settle = settings.vault.settle.0;
    let (name, store): (_, Arc<dyn Store>) = match settings.vault.sync {
        Sync::None => ("folder", Arc::new(FolderStore::open(&folder, folder_options)?)),
        Sync::Git => {
            let git_options = GitOptions {
                program: "git".into(),
                remote: settings.vault.remote.clone(),
                branch: settings.vault.branch.clone(),
                claim_refs: settings.vault.claim_refs.clone(),
                lease: settings.vault.lease.0,
                patience: settings.vault.remote_timeout.0,
                follow: settings.vault.follow,
                plain_ssh: !options.own_ssh,
                folder: folder_options,
            };
            ("git", Arc::new(GitStore::open(&folder, git_options)?))
        }
    };
    let terms = Terms {
        roles: Roles(settings.agent.clone()),
        lease: settings.vault.lease.0,
        max_attempts: settings.vault.max_attempts,
    };
    Ok(Tasks {
        folder: (kind.folder)(&folder),
        vault: Vault::new(store, terms),
        store: name,
        settle: settings.vault.settle.0,
    })
}

/// Opens a workspace so that this agent, or any, writes only those of the vault's files that it may write: new tasks, and
/// the tasks that it has claimed.
pub fn open_workspace(root: &Path, agent: Option<&Agent>, mut options: Options) -> Result<Workspace> {
    let settings = match options.settings.take() {
        Some(settings) => settings,
        None => read_settings(&root.join(STATE_FOLDER).join("config.toml"))?,
    };
    if let Ok(vault) = fs::canonicalize(vault_folder(root, &settings))
        && has_vault(&vault, &settings)
    {
        let inside = vault.strip_prefix(root).unwrap_or(&vault);
        let states = State::ALL.into_iter().filter(|state| *state != State::NeedsAction);
        options.protected.extend(states.map(|state| inside.join(state.as_str())));
        options.protected.push(inside.join(STATE_FOLDER));
        let claimed = files_in(inside, &settings).join(State::InProgress.as_str());
        options.open.extend(agent.map(|agent| claimed.join(agent.as_str())));
    }
    Workspace::open(root, Options { settings: Some(settings), ..options })
}

/// Where the vault of a workspace is, whether or not it exists.
pub fn vault_folder(root: &Path, settings: &Settings) -> PathBuf {
    let named = root.join(&settings.vault.dir);
    // A vault on its own, without a workspace around it.
    let itself = !is_vault(&named) && settings.vault.dir == Settings::default().vault.dir && is_vault(root);
    if itself { root.to_owned() } else { named }
}

/// Where the files of the tasks are: in the vault, or in the store's own view of it.
pub fn tasks_folder(root: &Path, settings: &Settings) -> PathBuf {
    files_in(&vault_folder(root, settings), settings)
}

fn files_in(vault: &Path, settings: &Settings) -> PathBuf {
    match settings.vault.sync {
        Sync::None => vault.to_owned(),
        Sync::Git => GitStore::folder_in(vault),
    }
}

/// Whether the workspace has a vault in this folder. A store that keeps the tasks elsewhere may show none of them.
pub fn has_vault(folder: &Path, settings: &Settings) -> bool {
    is_vault(folder) || settings.vault.sync != Sync::None
}

/// Whether this folder is a vault. Its first folder is enough: the others are made when they are needed.
pub fn is_vault(folder: &Path) -> bool {
    folder.join(State::NeedsAction.as_str()).is_dir()
}

/// What identifies a workspace outside of it: the same for all its processes, different for a new folder at the same path.
pub fn workspace_id(root: &Path) -> Result<String> {
    let metadata = fs::metadata(root).at("look at", root)?;
    let mut known = root.as_os_str().as_bytes().to_vec();
    known.push(0);
    known.extend(metadata.ino().to_le_bytes());
    // The inode of a deleted folder may be given to the next one; not every file system tells the time of birth.
    let born = metadata.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    known.extend(born.map_or(0, |born| born.as_nanos()).to_le_bytes());
    Ok(Digest::of(&known).to_string()[..16].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_folder_at_the_same_path_is_another_workspace() {
        let keep = tempfile::tempdir().unwrap();
        let path = keep.path().join("w");
        fs::create_dir(&path).unwrap();
        let first = workspace_id(&path).unwrap();
        assert_eq!(workspace_id(&path).unwrap(), first);
        fs::remove_dir(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_ne!(workspace_id(&path).unwrap(), first);
    }
}
