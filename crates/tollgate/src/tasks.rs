//! Opening the vault of a workspace: which store, which journal, which terms, and what agents must not write.
//!
//! Everything that uses tasks opens them here: the command line, the server, other programs. So all processes of a
//! workspace agree on the journal's id, and a new store is one function and one line in `STORES`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use jiff::Timestamp;
use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Result};
use tollgate_base::name::{Agent, StepId};
use tollgate_base::settings::{Settings, Sync};
use tollgate_base::task::State;
use tollgate_guard::workspace::{Options, STATE_FOLDER, Workspace, read_settings};
use tollgate_vault::event::{Entry, EventPage, Journal};
use tollgate_vault::figures::Tally;
use tollgate_vault::roles::Roles;
use tollgate_vault::{FolderOptions, FolderStore, GitOptions, GitStore, Store, Terms, Vault};

use crate::ledger_journal::LedgerJournal;

/// Called for every event.
pub type Observer = Arc<dyn Fn(&Entry) + Send + std::marker::Sync>;

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

/// A kind of store.
struct Kind {
    name: &'static str,
    /// Whether the settings choose it.
    is_chosen: fn(&Settings) -> bool,
    /// Where the files of the tasks are, if the vault is in this folder.
    folder: fn(&Path) -> PathBuf,
    open: fn(&Opening<'_>) -> Result<Arc<dyn Store>>,
}

/// What a store is opened with.
struct Opening<'a> {
    vault: &'a Path,
    settings: &'a Settings,
    own_ssh: bool,
    folder: FolderOptions,
}

/// All stores. The first that the settings choose is used.
const STORES: &[Kind] = &[
    Kind {
        name: "git",
        is_chosen: |settings| settings.vault.sync == Sync::Git,
        folder: GitStore::folder_in,
        open: open_git,
    },
    Kind { name: "folder", is_chosen: |_| true, folder: Path::to_owned, open: open_folder },
];

fn kind(settings: &Settings) -> &'static Kind {
    STORES.iter().find(|kind| (kind.is_chosen)(settings)).unwrap_or(&STORES[STORES.len() - 1])
}

fn open_folder(opening: &Opening<'_>) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(FolderStore::open(opening.vault, opening.folder.clone())?))
}

fn open_git(opening: &Opening<'_>) -> Result<Arc<dyn Store>> {
    let vault = &opening.settings.vault;
    let options = GitOptions {
        program: "git".into(),
        remote: vault.remote.clone(),
        branch: vault.branch.clone(),
        claim_refs: vault.claim_refs.clone(),
        lease: vault.lease.0,
        patience: vault.remote_timeout.0,
        follow: vault.follow,
        plain_ssh: !opening.own_ssh,
        folder: opening.folder.clone(),
    };
    Ok(Arc::new(GitStore::open(opening.vault, options)?))
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
    let ledger = LedgerJournal::new(workspace.ledger().clone(), id, settings.vault.durability);
    let journal: Arc<dyn Journal> = match options.observer {
        Some(observer) => Arc::new(Observed { ledger, observer }),
        None => Arc::new(ledger),
    };
    let mut folder_options = FolderOptions::new(journal);
    folder_options.durability = settings.vault.durability;
    folder_options.settle = settings.vault.settle.0;
    let opening = Opening { vault: &folder, settings, own_ssh: options.own_ssh, folder: folder_options };
    let kind = kind(settings);
    let store = (kind.open)(&opening)?;
    let terms = Terms {
        roles: Roles(settings.agent.clone()),
        lease: settings.vault.lease.0,
        max_attempts: settings.vault.max_attempts,
    };
    Ok(Tasks {
        folder: (kind.folder)(&folder),
        vault: Vault::new(store, terms),
        store: kind.name,
        settle: settings.vault.settle.0,
    })
}

/// Opens a workspace so that this agent, or any, writes only those of the vault's files that it may write: new tasks, and
/// the tasks that it has claimed.
pub fn open_workspace(root: &Path, agent: Option<&Agent>, mut options: Options) -> Result<Workspace> {
    if options.settings.is_none() {
        options.settings = Some(read_settings(&root.join(STATE_FOLDER).join("config.toml"))?);
    }
    if let Some(settings) = &options.settings {
        let (protected, open) = protected_paths(root, settings, agent);
        options.protected.extend(protected);
        options.open.extend(open);
    }
    Workspace::open(root, options)
}

/// What agents must not write, and the exceptions below that.
fn protected_paths(root: &Path, settings: &Settings, agent: Option<&Agent>) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let Ok(vault) = fs::canonicalize(vault_folder(root, settings)) else { return Default::default() };
    if !has_vault(&vault, settings) {
        return Default::default();
    }
    let inside = vault.strip_prefix(root).unwrap_or(&vault);
    let states = State::ALL.into_iter().filter(|state| *state != State::NeedsAction);
    let mut protected: Vec<PathBuf> = states.map(|state| inside.join(state.as_str())).collect();
    protected.push(inside.join(STATE_FOLDER));
    let tasks = (kind(settings).folder)(inside);
    let own = |agent: &Agent| tasks.join(State::InProgress.as_str()).join(agent.as_str());
    (protected, agent.map(own).into_iter().collect())
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
    (kind(settings).folder)(&vault_folder(root, settings))
}

/// Whether the workspace has a vault in this folder. A store that keeps the tasks elsewhere may show none of them.
pub fn has_vault(folder: &Path, settings: &Settings) -> bool {
    is_vault(folder) || kind(settings).name != "folder"
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

/// The ledger, and somebody who is told what goes into it.
struct Observed {
    ledger: LedgerJournal,
    observer: Observer,
}

impl Journal for Observed {
    fn id(&self) -> &str {
        self.ledger.id()
    }

    fn append(&self, events: &[Entry]) -> Result<()> {
        self.ledger.append(events)?;
        events.iter().for_each(|event| (self.observer)(event));
        Ok(())
    }

    fn has(&self, step: &StepId, since: Timestamp) -> Result<bool> {
        self.ledger.has(step, since)
    }

    fn events(&self, after: &str, limit: usize) -> Result<EventPage> {
        self.ledger.events(after, limit)
    }

    fn tallies(&self) -> Result<BTreeMap<Agent, Tally>> {
        self.ledger.tallies()
    }
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
