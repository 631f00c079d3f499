//! Opening the vault of a workspace: which store, which journal, which terms, and what agents must not write.
//!
//! Everything that uses tasks opens them here: the command line, the server, other programs. So all processes of a
//! workspace agree on the journal's id, and a new store is one more arm of a `match`. The vault knows no ledger file and
//! the ledger no vault; here the two meet.
//!
//! The worktrees of a git repository share the vault of one of them, with its settings and its ledger: two agents in two
//! trees cannot own the same task, and the figures of all trees are the same.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use jiff::{SignedDuration, Timestamp};
use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::ledger::{self, Entry, Followed, Ledger, Line};
use tollgate_base::name::{Agent, StepId};
use tollgate_base::settings::{Durability, Settings, StoreChoice, Sync, VaultTree};
use tollgate_base::task::State;
use tollgate_etcd::{EtcdOptions, EtcdStore, EtcdUrl, Login};
use tollgate_guard::protected::Protected;
use tollgate_guard::workspace::{Options, STATE_FOLDER, Workspace, read_settings};
use tollgate_postgres::PostgresOptions;
use tollgate_vault::event::{EventPage, Journal};
use tollgate_vault::figures::Tally;
use tollgate_vault::roles::Roles;
use tollgate_vault::view::{Notice, ViewOptions};
use tollgate_vault::{ClaimDeadlines, FolderOptions, FolderStore, GitOptions, GitStore, Store, Terms, Vault};

use crate::machine::machine_name;
use crate::postgres::{is_postgres, open_postgres};
use crate::worktree::in_main_tree;

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
}

/// A user of an engine.
#[derive(Clone)]
pub struct StoreLogin {
    /// The name.
    pub user: String,
    /// The password.
    pub password: String,
}

/// The longest deadline of a call to an engine. A worker that cannot renew its lease must have time to stop.
const LONGEST_CALL: Duration = Duration::from_secs(10);

/// The workspace that a vault belongs to. In a git worktree, this may be another workspace.
#[derive(Debug, Clone)]
pub struct VaultHome {
    /// The workspace, canonical.
    pub root: PathBuf,
    /// Its settings.
    pub settings: Settings,
}

impl VaultHome {
    /// The workspace whose vault this one uses. A fault if that workspace is unknown or has no vault, and this one has: then
    /// agents in two worktrees could own the same task.
    pub fn of(root: &Path, settings: &Settings) -> Result<Self> {
        let own = Self { root: root.to_owned(), settings: settings.clone() };
        let shared = match shared_with(root, settings) {
            Ok(None) => return Ok(own),
            Ok(Some(root)) => {
                let home = Self::at(root)?;
                match home.has_vault() {
                    true => return Ok(home),
                    false => Err(not_shared(&format!("`{}` has no vault", home.root.display()))),
                }
            }
            Err(fault) => Err(fault),
        };
        if own.has_vault() { shared } else { Ok(own) }
    }

    /// This workspace, with the settings in its configuration.
    pub fn at(root: PathBuf) -> Result<Self> {
        let settings = read_settings(&root.join(STATE_FOLDER).join("config.toml"))?;
        Ok(Self { root, settings })
    }

    /// Where the vault is, whether or not it exists.
    pub fn folder(&self) -> PathBuf {
        vault_folder(&self.root, &self.settings)
    }

    /// Where the files of the tasks are: in the vault, or in the store's own view of it.
    pub fn tasks_folder(&self) -> PathBuf {
        files_in(&self.folder(), &self.settings)
    }

    /// Whether the tasks are in an engine, so that nothing on this machine shows whether there are any.
    pub fn is_in_engine(&self) -> bool {
        matches!(self.settings.vault.chosen_store(), StoreChoice::Engine(_))
    }

    /// Whether there is a vault. A store that keeps the tasks elsewhere may show none of them.
    pub fn has_vault(&self) -> bool {
        is_vault(&self.folder()) || *self.settings.vault.chosen_store() != StoreChoice::Folder
    }
}

/// The other workspace whose vault this one uses, if it is in a git worktree, or if its settings name one.
pub fn shared_with(root: &Path, settings: &Settings) -> Result<Option<PathBuf>> {
    let other = match &settings.vault.tree {
        VaultTree::Own => None,
        VaultTree::At(path) => {
            Some(fs::canonicalize(root.join(path)).at("open the workspace", root.join(path))?)
        }
        VaultTree::Main => in_main_tree(root).map_err(|why| not_shared(&why))?,
    };
    Ok(other.filter(|other| other != root))
}

fn not_shared(why: &str) -> Fault {
    Fault::invalid(format!("this git worktree shares the vault of the repository's main tree, but {why}"))
}

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
    if home.has_vault() { open_at(workspace, &home, options).map(Some) } else { Ok(None) }
}

/// The same; makes the vault's folders if they are missing.
pub fn create(workspace: &Workspace, options: TaskOptions) -> Result<Tasks> {
    open_at(workspace, &VaultHome::of(workspace.path(), workspace.settings())?, options)
}

/// The tasks in another store than the one that the settings name, for a copy. What a store with its own ledger records is
/// not copied into that of the workspace.
pub fn open_in(workspace: &Workspace, store: StoreChoice, options: TaskOptions) -> Result<Tasks> {
    let mut home = VaultHome::of(workspace.path(), workspace.settings())?;
    home.settings.vault.store = store;
    home.settings.vault.sync = Sync::None;
    open_store(workspace, &home, options, EngineLines::InTheEngine)
}

pub(crate) fn open_at(workspace: &Workspace, home: &VaultHome, options: TaskOptions) -> Result<Tasks> {
    open_store(workspace, home, options, EngineLines::HereToo).map_err(|fault| match fault {
        // The store is not in the call but in the configuration.
        Fault::Invalid { what } => {
            let path = home.root.join(STATE_FOLDER).join("config.toml");
            let key = if home.settings.vault.sync == Sync::Git { "sync" } else { "store" };
            let what = format!("it names a store that cannot be used, by `{key}` under `[vault]`: {what}");
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
    let id = workspace_id(&home.root)?;
    let ledger = if home.root == workspace.path() {
        workspace.ledger().clone()
    } else {
        let settings = Some(settings.clone());
        let options = Options { settings, ledger_head: options.ledger_head, ..Options::default() };
        Workspace::open(&home.root, options)?.ledger().clone()
    };
    let durability = settings.vault.durability;
    let journal = Arc::new(LedgerJournal::new(ledger, id, durability, options.observer));
    let mut folder_options = FolderOptions::new(Arc::clone(&journal) as Arc<dyn Journal>);
    let copies = (lines == EngineLines::HereToo).then_some(journal as Arc<dyn Journal>);
    folder_options.durability = durability;
    folder_options.settle = settings.vault.settle.0;
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
            let login = options.login.map(|StoreLogin { user, password }| Login { user, password });
            let private = folder.join(STATE_FOLDER).join("engine");
            let etcd_options = EtcdOptions {
                url: EtcdUrl::parse(url)?,
                login,
                base: home.root.clone(),
                machine: machine_name(&private)?,
                lease: settings.vault.lease.0,
                deadline: settings.vault.remote_timeout.0.min(LONGEST_CALL),
                archive: Some(private.join("archive")),
                journal: copies,
            };
            ("etcd", Arc::new(EtcdStore::open(etcd_options)?))
        }
        StoreChoice::Engine(url) if is_postgres(url) => {
            let login = options.login.map(|StoreLogin { user, password }| (user, password));
            let passfile = options.passfile.as_deref();
            let store = open_postgres(url, &home.root, &settings.vault, login, passfile, copies)?;
            ("postgres", Arc::new(store))
        }
        StoreChoice::Engine(url) => return Err(unknown_engine(url)),
    };
    let terms = Terms {
        roles: Roles { tables: settings.agent.clone(), agents: settings.vault.agents },
        lease: settings.vault.lease.0,
        max_attempts: settings.vault.max_attempts,
        retry: settings.vault.retry.iter().map(|pause| pause.0).collect(),
    };
    let mut vault = Vault::new(store, terms);
    if *settings.vault.chosen_store() != StoreChoice::Folder {
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

/// Adds what agents must not change in the vault: everything except new tasks and their own. The folders stay in place. The
/// copy of the vault in a git worktree is protected, too, because a merge would bring its changes into the vault.
fn protect_vaults(root: &Path, settings: &Settings, agent: Option<&Agent>, protected: &mut Protected) {
    let own = VaultHome { root: root.to_owned(), settings: settings.clone() };
    let shared = VaultHome::of(root, settings).ok().filter(|home| home.root != root);
    for home in [Some(own), shared].into_iter().flatten().filter(VaultHome::has_vault) {
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

fn vault_folder(root: &Path, settings: &Settings) -> PathBuf {
    let named = root.join(&settings.vault.dir);
    // A vault on its own, without a workspace around it.
    // Any project may have a folder `Done`, so the first folder must be there.
    let is_bare = || root.join(State::NeedsAction.as_str()).is_dir();
    let itself = settings.vault.dir == Settings::default().vault.dir && is_bare() && !is_vault(&named);
    if itself { root.to_owned() } else { named }
}

fn files_in(vault: &Path, settings: &Settings) -> PathBuf {
    match settings.vault.chosen_store() {
        StoreChoice::Git => GitStore::folder_in(vault),
        StoreChoice::Folder | StoreChoice::Engine(_) => vault.to_owned(),
    }
}

/// Where a machine that shares its store with others keeps the deadlines of its claims.
pub(crate) fn deadlines_in(vault: &Path) -> ClaimDeadlines {
    ClaimDeadlines::new(vault.join(STATE_FOLDER).join("deadlines"))
}

/// Whether this folder is a vault: one of its folders is enough, the others are made when they are needed. Git does not keep
/// empty folders, so a clone has only those with tasks.
pub fn is_vault(folder: &Path) -> bool {
    State::ALL.iter().any(|state| folder.join(state.as_str()).is_dir())
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

/// The clocks of processes on one machine agree; this allows for one that was set while a step was under way.
const CLOCK_SLACK: SignedDuration = SignedDuration::from_hours(1);

/// How many lines are read at once: little enough memory, however long the ledger is.
const AT_ONCE: usize = 1000;

/// Called for every event.
pub type Observer = Arc<dyn Fn(&Entry) + Send + std::marker::Sync>;

/// A ledger in which the events of a vault are recorded.
#[derive(Clone)]
pub struct LedgerJournal {
    ledger: Ledger,
    id: String,
    durability: Durability,
    observer: Option<Observer>,
}

impl LedgerJournal {
    /// The `id` is the same for all processes that use this ledger, and for none that use another. The observer is
    /// called for every event after it is in the ledger.
    pub fn new(ledger: Ledger, id: String, durability: Durability, observer: Option<Observer>) -> Self {
        Self { ledger, id, durability, observer }
    }
}

impl Journal for LedgerJournal {
    fn id(&self) -> &str {
        &self.id
    }

    fn append(&self, events: &[Entry]) -> Result<()> {
        self.ledger.append(events, self.durability)?;
        if let Some(observer) = &self.observer {
            events.iter().for_each(|event| observer(event));
        }
        Ok(())
    }

    fn has(&self, step: &StepId, since: Timestamp) -> Result<bool> {
        let since = since.checked_sub(CLOCK_SLACK).unwrap_or(Timestamp::MIN);
        for line in self.ledger.newest_first()? {
            match line {
                Ok(line) if line.event.keys().step == Some(step.as_str()) => return Ok(true),
                Ok(line) if line.time < since => return Ok(false),
                Ok(_) | Err(Fault::Damaged { .. }) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(false)
    }

    fn events(&self, after: &str, limit: usize) -> Result<EventPage> {
        let after = match after {
            "" => ledger::Cursor::START,
            text => text.parse()?,
        };
        let mut follower = self.ledger.follow_from(after);
        let mut events = Vec::new();
        while events.len() < limit {
            // The lines of guarded writes are in the same ledger and are skipped.
            let most = (limit - events.len()).min(AT_ONCE);
            let followed = follower.advance(most, |line| {
                let Line { time, agent, turn, event, .. } = line;
                if event.keys().task.is_some() {
                    events.push(Entry { time, agent, turn, event });
                }
            })?;
            match followed {
                Followed::Further => {}
                Followed::ToTheEnd | Followed::Doubtful => break,
                Followed::Lost(_) => {
                    let what = "it does not contain the line of the cursor: read it from the start";
                    return Err(Fault::damaged(self.ledger.path(), what));
                }
            }
        }
        Ok((events, follower.cursor().to_string()))
    }

    fn tallies(&self) -> Result<BTreeMap<Agent, Tally>> {
        self.ledger.tallies()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tollgate_base::event::{Event, TaskReclaimed};

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

    #[test]
    fn a_recorded_step_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::new(folder.path(), &folder.path().join("lock"), 1 << 20, None);
        let journal = LedgerJournal::new(ledger.clone(), "x".into(), Durability::Fast, None);
        let now = Timestamp::now();
        let entry = |time| {
            let step = StepId::new().unwrap();
            let reclaimed =
                TaskReclaimed { task: "x".parse().unwrap(), attempt: None, reason: None, step: step.clone() };
            (step, Entry { time, agent: None, turn: None, event: Event::Reclaim(reclaimed, State::Done) })
        };
        let yesterday = now - SignedDuration::from_hours(24);
        let ((old, first), (_, second), (new, third)) = (entry(yesterday), entry(yesterday), entry(now));
        journal.append(&[first, second, third]).unwrap();
        assert!(journal.has(&new, now).unwrap() && journal.has(&old, yesterday).unwrap());
        assert!(!journal.has(&StepId::new().unwrap(), now).unwrap());
        assert!(!journal.has(&old, now).unwrap(), "nobody reads a year of lines for a step of today");
        let line = ledger.newest_first().unwrap().next().unwrap().unwrap().json();
        assert_eq!(
            (&line["action_type"], &line["payload"]),
            (&json!("RECLAIM"), &json!({"task": "x.md", "step": new}))
        );
        assert_eq!(line["result"], json!({"status": "Done"}));
    }
}
