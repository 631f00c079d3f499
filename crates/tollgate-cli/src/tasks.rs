//! The vault of this call's workspace, with the logs of its agents.
//!
//! The library opens the vault. This file adds what the library does not know: the environment of this process.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use tollgate::error::{At, Result};
use tollgate::settings::StoreChoice;
use tollgate::tasks::{self, Observer, StoreLogin, TaskOptions, VaultHome, check_store};
use tollgate::vault::TaskName;
use tollgate::vault::checkup::SyncRound;
use tollgate::vault::claim::Mode;
use tollgate::vault::state::State;
use tollgate::vault::view::{FolderView, Maintainer, Notice, ViewOptions};
use tollgate::workspace::{STATE_FOLDER, Workspace, read_settings};

use crate::agent_log::AgentLogs;
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::output;
use crate::trust::Configured;
use crate::words;

/// The vault of a workspace, and the log of each agent.
pub(crate) struct LoggedVault {
    open: tasks::Tasks,
    pub(crate) logs: AgentLogs,
}

impl Deref for LoggedVault {
    type Target = tasks::Tasks;

    fn deref(&self) -> &tasks::Tasks {
        &self.open
    }
}

impl LoggedVault {
    /// Whether the owner of a task was asked for a draft and has written none. A fault must not keep it from releasing the task.
    pub(crate) fn lacks_draft(&self, task: &TaskName, now: Timestamp) -> bool {
        let store = self.vault.store();
        let Ok(Some(found)) = store.get(task, Some(State::InProgress), now) else { return false };
        let is_heading = |line: &[u8]| line.trim_ascii_end() == b"## Draft";
        let has_draft = |text: Vec<u8>| text.split(|byte| *byte == b'\n').any(is_heading);
        found.record.claim.as_ref().is_some_and(|claim| claim.mode == Mode::Draft)
            && store.read(&found, u64::MAX).is_ok_and(|text| !text.is_some_and(has_draft))
    }

    /// Synchronises once with the remote, if there is one.
    pub(crate) fn sync(&self) -> Result<Option<SyncRound>> {
        self.vault.store().sync()
    }

    /// For servers: from now on, a background thread synchronises with the remote every few seconds and sends a heartbeat
    /// for the claims of this machine's agents. If the remote cannot be reached, the next request reports that.
    pub(crate) fn keep_in_touch(&self) -> Result<()> {
        let vault = self.vault.clone();
        let Some(interval) = vault.store().heartbeat_interval() else { return Ok(()) };
        let pause = interval.clamp(Duration::from_millis(100), Duration::from_secs(10));
        let keep = move || {
            loop {
                let _ = vault.store().sync().and_then(|_| vault.heartbeat_all());
                thread::sleep(pause);
            }
        };
        thread::Builder::new().spawn(keep).at("start", "the thread that sends heartbeats")?;
        Ok(())
    }

    /// As long as the answer lives, this process keeps the folders of this machine in step with the engine, unless another
    /// process does. `None`: the settings do not ask for it.
    pub(crate) fn keep_view(&self) -> Result<Option<Maintainer>> {
        self.view_options().map(|options| Maintainer::start(self.vault.clone(), options)).transpose()
    }

    /// The view, for one round; `None`: another process keeps it.
    pub(crate) fn open_view(&self, options: ViewOptions) -> Result<Option<FolderView>> {
        FolderView::open(self.vault.clone(), options)
    }

    /// How the view is kept, if the settings ask for one. People read its notices on stderr.
    pub(crate) fn view_options(&self) -> Option<ViewOptions> {
        let tell = |notice: &Notice| output::tell(&words::view_notice(notice));
        self.open.view_options(Timestamp::now, Arc::new(tell))
    }

    /// Synchronises for commands that only read. If that fails, they show the last known state, and this note.
    pub(crate) fn look(&self, invocation: &Invocation) -> String {
        match self.sync() {
            Ok(_) => String::new(),
            Err(fault) => words::may_be_old(&invocation.viewpoint(), &fault),
        }
    }
}

impl Invocation {
    /// The vault of this workspace, with all interrupted steps recovered. Never creates a vault.
    pub(crate) fn tasks(&self) -> Result<LoggedVault, CliError> {
        let tasks = self.tasks_or_fault()?;
        tasks.vault.store().heal()?;
        Ok(tasks)
    }

    /// The vault of this call's workspace, without recovery, for callers that need a plain fault.
    pub(crate) fn tasks_or_fault(&self) -> Result<LoggedVault> {
        let (root, _) = self.root()?;
        let settings = read_settings(&root.join(STATE_FOLDER).join("config.toml"))?;
        let home = VaultHome::of(&root, &settings)?;
        let missing = || words::no_vault(&self.viewpoint(), &home.folder());
        if !home.has_vault() {
            return Err(missing());
        }
        self.tasks_of(&self.workspace()?)?.ok_or_else(missing)
    }

    /// The vault of an open workspace, if it has one.
    pub(crate) fn tasks_of(&self, workspace: &Workspace) -> Result<Option<LoggedVault>> {
        let home = VaultHome::of(workspace.path(), workspace.settings())?.root;
        let (logs, untrusted) = AgentLogs::new(self.user_state(), &self.trust(), workspace)?;
        if let Some(folder) = untrusted {
            output::tell(&words::untrusted_log(&folder));
        }
        let observer = logs.clone();
        let observer: Observer = Arc::new(move |entry| observer.event(entry));
        let options = TaskOptions { observer: Some(observer), ..self.task_options(&home)? };
        Ok(tasks::open(workspace, options)?.map(|open| LoggedVault { open, logs }))
    }

    /// How this process opens the vault of this workspace.
    pub(crate) fn task_options(&self, home: &Path) -> Result<TaskOptions> {
        if let Some(owner) = self.trust().stranger(home) {
            return Err(words::foreign_state(home, owner));
        }
        Ok(TaskOptions {
            observer: None,
            own_ssh: self.surroundings().ssh,
            ledger_head: self.ledger_head(home)?,
            login: self.login_for(home)?,
            passfile: self.surroundings().passfile.clone(),
            agreements: Some(self.trust().agreements()),
        })
    }

    /// The login for the engine that the configuration names, if it names one.
    fn login_for(&self, home: &Path) -> Result<Option<StoreLogin>> {
        if Configured::read(home)?.engine.is_some() { self.store_login() } else { Ok(None) }
    }

    /// The tasks in another store, opened with the settings of this workspace. Its vault is made if it is missing. It gets a
    /// login of its own, and never that of the workspace: it may be another engine, whose owners must not learn the password.
    pub(crate) fn tasks_in(&self, store: &str) -> Result<tasks::Tasks> {
        let choice = check_store(store)?;
        let options = TaskOptions {
            own_ssh: self.surroundings().ssh,
            login: if matches!(choice, StoreChoice::Engine(_)) { self.copy_login()? } else { None },
            passfile: self.surroundings().passfile.clone(),
            agreements: Some(self.trust().agreements()),
            ..TaskOptions::default()
        };
        tasks::open_in(&self.workspace()?, choice, options)
    }

    /// The vault of this workspace, synchronised with the remote.
    pub(crate) fn fresh_tasks(&self) -> Result<LoggedVault, CliError> {
        let tasks = self.tasks()?;
        tasks.sync()?;
        Ok(tasks)
    }
}
