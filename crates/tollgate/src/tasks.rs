//! Opening the vault of a workspace: which store, which journal, which terms, and what agents must not write.
//!
//! Everything that uses tasks opens them here: the command line, the server, other programs. So all processes of a
//! workspace agree on the journal's id, and a new store is one more arm of a `match`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::name::Agent;
use tollgate_base::settings::{Durability, Settings, StoreChoice, Sync};
use tollgate_base::task::State;
use tollgate_base::tracked::refuse_tracked;
use tollgate_etcd::{EtcdOptions, EtcdStore, EtcdUrl, Login};
use tollgate_guard::protected::Protected;
use tollgate_guard::workspace::{Options, STATE_FOLDER, Workspace, read_settings};
use tollgate_postgres::PostgresOptions;
use tollgate_vault::event::Journal;
use tollgate_vault::roles::Roles;
use tollgate_vault::view::{Notice, ViewOptions};
use tollgate_vault::{FolderOptions, FolderStore, GitOptions, GitStore, Store, Terms, Vault};

use crate::credentials::EngineCredentials;
pub use crate::credentials::StoreLogin;
pub use crate::ledger_journal::{LedgerJournal, Observer};
use crate::machine::machine_name;
use crate::postgres::{is_postgres, open_postgres};
use crate::trust::Agreements;
pub use crate::vault_home::{VaultHome, is_vault, named_outside, shared_with, workspace_id};
use crate::vault_home::{deadlines_in, files_in};

/// What the caller must supply, because the library reads no environment.
#[derive(Clone, Default)]
pub struct TaskOptions {
    /// Called for every event after it is in the ledger: for logs.
    pub observer: Option<Observer>,
    /// The environment sets the ssh command, so tollgate does not change it.
    pub own_ssh: bool,
    /// A file outside the workspace that remembers the head of the ledger, for a vault of another worktree.
    pub ledger_head: Option<PathBuf>,
    /// Who we are for an engine. Never from the configuration, which is in the repository.
    pub login: Option<StoreLogin>,
    /// The password file of PostgreSQL's own programs.
    pub passfile: Option<PathBuf>,
    /// What the user has agreed to. Without it, nothing: no credential goes to an engine that the settings name, and no vault
    /// outside the workspace is used.
    pub agreements: Option<Agreements>,
}

/// The longest deadline of a call to an engine. A worker that cannot renew its lease must have time to stop.
const LONGEST_CALL: Duration = Duration::from_secs(10);

/// Checks a value for `[vault] store`, before it is written into a configuration.
pub fn check_store(text: &str) -> Result<StoreChoice> {
    let choice = StoreChoice::try_from(text.to_owned()).map_err(Fault::invalid)?;
    match &choice {
        StoreChoice::Engine(url) if EtcdUrl::is_one(url) => EtcdUrl::parse(url).map(|_| choice),
        StoreChoice::Engine(url) if is_postgres(url) => PostgresOptions::parse(url).map(|_| choice),
        StoreChoice::Engine(url) => Err(unknown_engine(url)),
        StoreChoice::Folder | StoreChoice::Git => Ok(choice),
    }
}

/// Whether a login for this store would cross a network without encryption. That of PostgreSQL usually does not: its
/// methods prove that one knows the password. But a server may ask for the password itself, so `doctor` warns.
pub fn tells_password(store: &str) -> bool {
    EtcdUrl::is_one(store) && EtcdUrl::parse(store).is_ok_and(|url| url.is_unencrypted())
}

fn unknown_engine(url: &str) -> Fault {
    let scheme = url.split("://").next().unwrap_or_default();
    Fault::invalid(format!("tollgate knows no engine `{scheme}`: use `etcd://`, `etcds://` or `postgres://`"))
}

/// The vault of a workspace, open.
#[derive(Clone)]
pub struct Tasks {
    /// The rules over the store.
    pub vault: Vault,
    /// The folder in which people see the tasks.
    pub folder: PathBuf,
    /// The workspace that the vault belongs to.
    pub home: VaultHome,
    /// The name of the store, as in the settings.
    pub store: &'static str,
    /// How long a file that was written in place must be unchanged to be complete.
    pub settle: Duration,
    /// The number of quick failures in a row after which a worker stops. 0: it never stops.
    pub breaker: u32,
    /// Whether acknowledged steps survive a power failure.
    pub durability: Durability,
    /// Whether the tasks are in an engine, and the folders of this machine show them.
    pub has_view: bool,
}

impl Tasks {
    /// How the folders of this machine are kept in step with the engine; `None` if they are not.
    pub fn view_options(
        &self,
        now: fn() -> Timestamp,
        tell: Arc<dyn Fn(&Notice) + Send + std::marker::Sync>,
    ) -> Option<ViewOptions> {
        let Self { folder, settle, durability, .. } = self;
        let options =
            ViewOptions { folder: folder.clone(), settle: *settle, durability: *durability, now, tell };
        self.has_view.then_some(options)
    }
}

/// The vault of a workspace; `None` if it has none. Looking for one does not make one.
pub fn open(workspace: &Workspace, options: TaskOptions) -> Result<Option<Tasks>> {
    let home = VaultHome::of(workspace.path(), workspace.settings())?;
    if !home.has_vault() {
        return Ok(None);
    }
    agreed_vault(workspace, &options)?;
    open_at(workspace, &home, options).map(Some)
}

/// A vault outside the workspace is used only if the user has agreed: a clone could take the tasks of another project.
fn agreed_vault(workspace: &Workspace, options: &TaskOptions) -> Result<()> {
    match named_outside(workspace.path(), workspace.settings())? {
        Some((root, folder))
            if !options.agreements.as_ref().is_some_and(|agreed| agreed.trusts_folder(&root, &folder)) =>
        {
            Err(foreign_vault(&root, &folder))
        }
        _ => Ok(()),
    }
}

/// The fault of a vault outside the workspace that the user has not agreed to use there.
pub fn foreign_vault(root: &Path, folder: &Path) -> Fault {
    Fault::Untrusted {
        what: format!(
            "the vault `{}` is outside the workspace `{}`, and you have not agreed to use it there",
            folder.display(),
            root.display()
        ),
    }
}

/// Opens the vault of a workspace, and makes its folders if they are missing.
pub fn create(workspace: &Workspace, options: TaskOptions) -> Result<Tasks> {
    agreed_vault(workspace, &options)?;
    open_at(workspace, &VaultHome::of(workspace.path(), workspace.settings())?, options)
}

/// The tasks in another store than the one that the settings name, for a copy. What a store with its own ledger records is
/// not copied into that of the workspace.
pub fn open_in(workspace: &Workspace, store: StoreChoice, options: TaskOptions) -> Result<Tasks> {
    agreed_vault(workspace, &options)?;
    let mut home = VaultHome::of(workspace.path(), workspace.settings())?;
    home.settings.vault.store = store;
    home.settings.vault.sync = Sync::None;
    open_store(workspace, &home, options, EngineLines::InTheEngine)
}

pub(crate) fn open_at(workspace: &Workspace, home: &VaultHome, options: TaskOptions) -> Result<Tasks> {
    open_store(workspace, home, options, EngineLines::HereToo).map_err(|fault| match fault {
        // The store is not in the call but in the configuration.
        Fault::Invalid { what, .. } => {
            let path = home.root.join(STATE_FOLDER).join("config.toml");
            let key = if home.settings.vault.sync == Sync::Git { "sync" } else { "store" };
            let what = format!("`{key}` under `[vault]` names a store that cannot be used: {what}");
            Fault::Config { path, what }
        }
        fault => fault,
    })
}

/// Where the ledger lines of a store that keeps its own ledger are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EngineLines {
    /// In the engine, and those of this machine also in the ledger of the workspace.
    HereToo,
    /// In the engine only.
    InTheEngine,
}

fn open_store(
    workspace: &Workspace,
    home: &VaultHome,
    options: TaskOptions,
    lines: EngineLines,
) -> Result<Tasks> {
    let (settings, folder) = (&home.settings, home.folder());
    fs::create_dir_all(&folder).at("make the folder", &folder)?;
    let folder = fs::canonicalize(&folder).at("open the vault", &folder)?;
    refuse_tracked(&folder)?;
    let id = workspace_id(&home.root)?;
    let ledger = if home.root == workspace.path() {
        workspace.ledger().clone()
    } else {
        let settings = Some(settings.clone());
        let options = Options { settings, ledger_head: options.ledger_head.clone(), ..Options::default() };
        Workspace::open(&home.root, options)?.ledger().clone()
    };
    let durability = settings.vault.durability;
    let journal = Arc::new(LedgerJournal::new(ledger, id, durability, options.observer.clone()));
    let mut folder_options = FolderOptions::new(Arc::clone(&journal) as Arc<dyn Journal>);
    let copies = (lines == EngineLines::HereToo).then_some(journal as Arc<dyn Journal>);
    folder_options.durability = durability;
    folder_options.settle = settings.vault.settle.0;
    let credentials = |engine| EngineCredentials {
        engine,
        // For a copy, the caller names the store, and not the configuration.
        is_agreed: lines == EngineLines::InTheEngine
            || options.agreements.as_ref().is_some_and(|agreed| agreed.trusts_engine(engine)),
        login: options.login.as_ref(),
        passfile: options.passfile.as_deref(),
    };
    let (name, store): (_, Arc<dyn Store>) = match settings.vault.chosen_store() {
        StoreChoice::Folder => ("folder", Arc::new(FolderStore::open(&folder, folder_options)?)),
        StoreChoice::Git => {
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
        StoreChoice::Engine(url) if EtcdUrl::is_one(url) => {
            let etcd = EtcdUrl::parse(url)?;
            let (credentials, own) = (credentials(url), etcd.tls.iter().flat_map(|tls| &tls.own));
            credentials.check_files(&home.root, own.flat_map(|(cert, key)| [cert, key]))?;
            let login = credentials.login()?.cloned();
            let login = login.map(|StoreLogin { user, password }| Login { user, password });
            let private = folder.join(STATE_FOLDER).join("engine");
            let etcd_options = EtcdOptions {
                url: etcd,
                login,
                base: home.root.clone(),
                machine: machine_name(&private)?,
                lease: settings.vault.lease.0,
                deadline: settings.vault.remote_timeout.0.min(LONGEST_CALL),
                journal: copies,
            };
            ("etcd", Arc::new(EtcdStore::open(etcd_options)?))
        }
        StoreChoice::Engine(url) if is_postgres(url) => {
            ("postgres", Arc::new(open_postgres(&credentials(url), &home.root, &settings.vault, copies)?))
        }
        StoreChoice::Engine(url) => return Err(unknown_engine(url)),
    };
    let terms = Terms {
        roles: Roles { tables: settings.agent.clone(), agents: settings.vault.agents },
        lease: settings.vault.lease.0,
        max_attempts: settings.vault.max_attempts,
        retry: settings.vault.retry.iter().map(|pause| pause.0).collect(),
        approve_by_move: settings.vault.approve_by_move,
    };
    let mut vault = Vault::new(store, terms);
    if settings.vault.is_shared() {
        vault = vault.with_deadlines(deadlines_in(&folder));
    }
    Ok(Tasks {
        folder: files_in(&folder, settings),
        home: home.clone(),
        vault,
        store: name,
        settle: settings.vault.settle.0,
        breaker: settings.work.breaker,
        durability,
        has_view: home.is_in_engine() && settings.vault.view,
    })
}

/// Opens a workspace so that this agent, or any, writes only those of the vault's files that it may write: new tasks, and
/// the tasks that it has claimed.
pub fn open_workspace(root: &Path, agent: Option<&Agent>, mut options: Options) -> Result<Workspace> {
    let settings = match options.settings.take() {
        Some(settings) => settings,
        None => read_settings(&root.join(STATE_FOLDER).join("config.toml"))?,
    };
    protect_vaults(root, &settings, agent, &mut options.protected);
    Workspace::open(root, Options { settings: Some(settings), ..options })
}

/// What a command sees of the tasks and cannot change, whatever its text is, and the folders in these where it may: those with the
/// tasks that this agent has claimed. New tasks are files like others.
pub fn closed_to_commands(workspace: &Workspace, agent: Option<&Agent>) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (root, settings) = (workspace.path(), workspace.settings());
    let (mut closed, mut open) = (Vec::new(), Vec::new());
    for home in vault_homes(root, settings) {
        let Ok(vault) = fs::canonicalize(home.folder()) else { continue };
        let states = State::ALL.iter().filter(|state| **state != State::NeedsAction);
        closed.extend(states.map(|state| vault.join(state.as_str())));
        closed.push(vault.join(STATE_FOLDER));
        let claimed = files_in(&vault, &home.settings).join(State::InProgress.as_str());
        if let Some(agent) = agent.filter(|_| claimed.is_dir()) {
            let own = claimed.join(agent.as_str());
            // Otherwise the command could not write to a task that it claims later. If this fails, it cannot.
            let _ = fs::create_dir(&own);
            open.extend(Some(own).filter(|own| own.symlink_metadata().is_ok_and(|found| found.is_dir())));
        }
    }
    (closed, open)
}

/// The vault of a workspace, and the one that it shares with other worktrees of a repository.
fn vault_homes(root: &Path, settings: &Settings) -> Vec<VaultHome> {
    let own = VaultHome { root: root.to_owned(), settings: settings.clone() };
    let shared = VaultHome::of(root, settings).ok().filter(|home| home.root != root);
    [Some(own), shared].into_iter().flatten().filter(VaultHome::has_vault).collect()
}

/// Adds what agents must not change in the vault: everything except new tasks and their own. The folders stay in place. The
/// copy of the vault in a git worktree is protected, too, because a merge would bring its changes into the vault.
fn protect_vaults(root: &Path, settings: &Settings, agent: Option<&Agent>, protected: &mut Protected) {
    for home in vault_homes(root, settings) {
        if let Ok(vault) = fs::canonicalize(home.folder()) {
            protect_vault(&vault, &home.settings, agent, protected);
        }
    }
}

fn protect_vault(vault: &Path, settings: &Settings, agent: Option<&Agent>, protected: &mut Protected) {
    let folder = |state: &State| vault.join(state.as_str());
    protected.fixed.extend(State::ALL.iter().map(folder));
    protected.paths.extend(State::ALL.iter().filter(|state| **state != State::NeedsAction).map(folder));
    // An agent could remove the action of a task before anybody claims it.
    protected.only_new.push(folder(&State::NeedsAction));
    let claimed = files_in(vault, settings).join(State::InProgress.as_str());
    protected.open.extend(agent.map(|agent| claimed.join(agent.as_str())));
}
