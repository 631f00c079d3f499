//! The door to the vault: where it is, under which rules, and where what happens in it is written down.
//!
//! The library's guard knows no vault; here it is told which of the vault's folders agents must not write to.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use tollgate::chronicle::Chronicle;
use tollgate::error::{Fault, Result};
use tollgate::lock::nobody_writes;
use tollgate::settings::{Offline, Settings, Sync};
use tollgate::vault::claim::StepId;
use tollgate::vault::event::{Event, Journal};
use tollgate::vault::folder::FolderOptions;
use tollgate::vault::git::{GitOptions, Round};
use tollgate::vault::roles::Roles;
use tollgate::vault::state::State;
use tollgate::vault::store::Store;
use tollgate::vault::{FolderStore, GitStore, Terms, Vault};
use tollgate::workspace::{STATE_FOLDER, Workspace, read_settings};

use crate::agent_log::AgentLogs;
use crate::answer::Stop;
use crate::door::{Door, identity};
use crate::words;

/// The vault of a workspace, open.
pub(crate) struct Tasks {
    /// The rules over the folders.
    pub(crate) vault: Vault,
    /// Where the vault is, canonical.
    pub(crate) folder: PathBuf,
    /// Where the locks of held claims are.
    pub(crate) held: PathBuf,
    /// After what time a file that was written in place is complete.
    pub(crate) settle: Duration,
    /// The log of each agent.
    pub(crate) logs: AgentLogs,
    /// The remote, where one decides.
    pub(crate) git: Option<Arc<GitStore>>,
    offline: Offline,
}

impl Tasks {
    /// One round with the remote, where there is one. Out of reach is a fault, unless the user chose otherwise.
    pub(crate) fn sync(&self) -> Result<Option<Round>> {
        let Some(git) = &self.git else { return Ok(None) };
        match git.sync() {
            Err(Fault::Unreachable { .. }) if self.offline == Offline::Allow => Ok(None),
            round => round.map(Some),
        }
    }

    /// From now on, beside everything else: a round with the remote every few seconds, and a heartbeat for what the agents of
    /// this machine hold. For servers; out of reach is told by whoever then asks for something.
    pub(crate) fn keep_in_touch(&self) {
        let Some(git) = self.git.clone() else { return };
        let pause = (git.lease() / 3).clamp(Duration::from_millis(100), Duration::from_secs(10));
        thread::spawn(move || {
            loop {
                let _ = git.sync().and_then(|_| git.tend());
                thread::sleep(pause);
            }
        });
    }

    /// The same for who only looks: what is known here is shown, and beside it that it may be old.
    pub(crate) fn look(&self, door: &Door) -> String {
        match self.sync() {
            Ok(_) => String::new(),
            Err(fault) => words::may_be_old(door, &fault),
        }
    }
}

/// What the guard keeps agents from writing, and the exceptions below it.
pub(crate) struct Walls {
    pub(crate) protected: Vec<PathBuf>,
    pub(crate) open: Vec<PathBuf>,
}

/// Where the vault of a workspace is, whether or not it is there.
pub(crate) fn vault_folder(root: &Path, settings: &Settings) -> PathBuf {
    let named = root.join(&settings.vault.dir);
    // A vault of its own, without a workspace around it.
    let itself = !is_vault(&named) && settings.vault.dir == Settings::default().vault.dir && is_vault(root);
    if itself { root.to_owned() } else { named }
}

/// Whether the workspace has a vault. Git keeps no empty folders, so a fresh clone may show none of it.
pub(crate) fn has_vault(folder: &Path, settings: &Settings) -> bool {
    is_vault(folder) || settings.vault.sync == Sync::Git
}

/// Where the files of the tasks are: in the vault, or in tollgate's own tree of it.
pub(crate) fn tasks_folder(vault: &Path, settings: &Settings) -> PathBuf {
    match settings.vault.sync {
        Sync::None => vault.to_owned(),
        Sync::Git => vault.join(STATE_FOLDER).join("git").join("tree"),
    }
}

/// Its first folder is enough: the others are made when they are needed.
pub(crate) fn is_vault(folder: &Path) -> bool {
    folder.join(State::NeedsAction.as_str()).is_dir()
}

impl Door {
    /// The vault of this workspace, with nothing left half made in it. Looking for one does not make one.
    pub(crate) fn tasks(&self) -> Result<Tasks, Stop> {
        let tasks = self.tasks_or_fault()?;
        tasks.vault.heal()?;
        Ok(tasks)
    }

    /// The same, for those who answer nobody.
    pub(crate) fn tasks_or_fault(&self) -> Result<Tasks> {
        let (root, _) = self.root()?;
        let settings = read_settings(&root.join(STATE_FOLDER).join("config.toml"))?;
        let folder = vault_folder(&root, &settings);
        if !has_vault(&folder, &settings) {
            return Err(words::no_vault(self, &folder));
        }
        self.open_vault(&self.workspace()?, &folder)
    }

    /// The vault of a workspace that is open, if it has one.
    pub(crate) fn tasks_of(&self, workspace: &Workspace) -> Result<Option<Tasks>> {
        let folder = vault_folder(workspace.path(), workspace.settings());
        if has_vault(&folder, workspace.settings()) {
            self.open_vault(workspace, &folder).map(Some)
        } else {
            Ok(None)
        }
    }

    /// The same, as the remote has it now.
    pub(crate) fn fresh_tasks(&self) -> Result<Tasks, Stop> {
        let tasks = self.tasks()?;
        tasks.sync()?;
        Ok(tasks)
    }

    /// Opens the vault in this folder, making what is missing of it.
    pub(crate) fn open_vault(&self, workspace: &Workspace, folder: &Path) -> Result<Tasks> {
        let settings = workspace.settings();
        let logs = AgentLogs::new(self, workspace);
        let id = identity(workspace.path())?;
        let ledger = Chronicle::new(workspace.ledger().clone(), id, settings.vault.durability);
        let journal = LedgerAndLogs { ledger, logs: logs.clone() };
        fs::create_dir_all(folder).map_err(|source| Fault::Io {
            doing: "make the folder",
            path: folder.to_owned(),
            source,
        })?;
        let folder = fs::canonicalize(folder).map_err(|source| Fault::Io {
            doing: "open the vault",
            path: folder.to_owned(),
            source,
        })?;
        let options = FolderOptions {
            durability: settings.vault.durability,
            settle: settings.vault.settle.0,
            journal: Arc::new(journal),
            quiet: Some(nobody_writes),
        };
        let (store, folder, held, git): (Arc<dyn Store>, _, _, _) = match settings.vault.sync {
            Sync::None => {
                let store = FolderStore::open(&folder, options)?;
                let held = store.held().to_owned();
                (Arc::new(store), folder, held, None)
            }
            Sync::Git => {
                let store = Arc::new(GitStore::open(&folder, self.git_options(settings, options))?);
                (Arc::clone(&store) as _, store.tree().to_owned(), store.held().to_owned(), Some(store))
            }
        };
        let terms = Terms {
            roles: Roles(settings.agent.clone()),
            lease: settings.vault.lease.0,
            max_attempts: settings.vault.max_attempts,
        };
        let settle = settings.vault.settle.0;
        let offline = settings.vault.offline;
        Ok(Tasks { vault: Vault::new(store, terms), folder, held, settle, logs, git, offline })
    }

    fn git_options(&self, settings: &Settings, folder: FolderOptions) -> GitOptions {
        let vault = &settings.vault;
        GitOptions {
            program: "git".into(),
            remote: vault.remote.clone(),
            branch: vault.branch.clone(),
            claim_refs: vault.claim_refs.clone(),
            lease: vault.lease.0,
            patience: vault.remote_timeout.0,
            offline: vault.offline,
            follow: vault.follow,
            plain_ssh: self.plain_ssh(),
            folder,
        }
    }

    /// The vault's folders are changed by its own verbs. Agents write only new tasks and what is in their hands.
    pub(crate) fn walls(&self, root: &Path, settings: &Settings) -> Walls {
        let none = Walls { protected: Vec::new(), open: Vec::new() };
        let Ok(vault) = fs::canonicalize(vault_folder(root, settings)) else { return none };
        if !has_vault(&vault, settings) {
            return none;
        }
        let inside = vault.strip_prefix(root).unwrap_or(&vault);
        let states = State::ALL.into_iter().filter(|state| *state != State::NeedsAction);
        let mut protected: Vec<PathBuf> = states.map(|state| inside.join(state.as_str())).collect();
        protected.push(inside.join(STATE_FOLDER));
        let tasks = tasks_folder(inside, settings);
        let own = |agent: tollgate::name::Agent| tasks.join(State::InProgress.as_str()).join(agent.as_str());
        Walls { protected, open: self.writer().map(own).into_iter().collect() }
    }
}

/// The ledger, and beside it the logs of the agents.
struct LedgerAndLogs {
    ledger: Chronicle,
    logs: AgentLogs,
}

impl Journal for LedgerAndLogs {
    fn id(&self) -> &str {
        self.ledger.id()
    }

    fn append(&self, events: &[Event]) -> Result<()> {
        self.ledger.append(events)?;
        for event in events {
            self.logs.event(event);
        }
        Ok(())
    }

    fn has(&self, step: &StepId, since: Timestamp) -> Result<bool> {
        self.ledger.has(step, since)
    }
}
