//! The MCP server without a transport: the workspace, the agent, its turns and its tasks.
//!
//! All connections of one server share it. The settings may change while it runs: then it gets another gate, and its turns go
//! on.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tollgate::error::Result;
use tollgate::gate::Gate;
use tollgate::name::Agent;
use tollgate::tasks::VaultHome;
use tollgate::turn::Session;
use tollgate::workspace::{Workspace, read_settings};

use super::room::CALLS;
use super::tasks::ServedVault;
use super::turns::{Turns, lock};
use crate::late_write_check;

/// A turn that nobody has used for this long ends. The limit is a day, because an agent may wait that long for a
/// person's answer, and without its turn its next write would be unguarded.
pub const IDLE: Duration = Duration::from_secs(24 * 60 * 60);

/// The options of a server.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// The agent in whose name the server writes. No client can change it.
    pub agent: Agent,
    /// A turn that nobody has used for this long ends.
    pub idle: Duration,
    /// The home directory of the server's user: `~` in a path stands for it. Without it, `~` is a name like any other.
    pub home: Option<PathBuf>,
    /// What the agent knew before it connected. By default, what it has learned from this server.
    pub session: Session,
}

impl ServerOptions {
    /// The defaults, for this agent.
    pub fn new(agent: Agent) -> Self {
        Self { agent, idle: IDLE, home: None, session: Session::default() }
    }
}

/// The server. Clones are the same server.
#[derive(Clone)]
pub struct Server(Arc<ServerState>);

struct ServerState {
    gate: Mutex<Gate>,
    settings_watch: OnceLock<SettingsWatch>,
    agent: Agent,
    home: Option<PathBuf>,
    turns: Turns,
    /// Set once the workspace has a vault.
    tasks: Mutex<Option<Arc<ServedVault>>>,
    changed: Notify,
    calls: Arc<Semaphore>,
}

/// Lets a server over stdio notice changed settings by itself.
struct SettingsWatch {
    open: Box<dyn Fn() -> Result<Gate> + Send + Sync>,
    /// The settings file at the last look.
    seen: Mutex<Option<FileStamp>>,
}

/// The inode, the time of change and the length of a file; `None` if there is no file. Another stamp means that the file may
/// have changed.
type FileStamp = Option<(u64, i64, i64, u64)>;

impl Server {
    /// A server for an open workspace.
    pub fn new(gate: Gate, options: ServerOptions) -> Self {
        let ServerOptions { agent, idle, home, session } = options;
        let turns = Turns::new(agent.clone(), idle, session);
        let (gate, settings_watch) = (Mutex::new(gate), OnceLock::new());
        let (tasks, changed, calls) = (Mutex::default(), Notify::new(), Arc::new(Semaphore::new(CALLS)));
        Self(Arc::new(ServerState { gate, settings_watch, agent, home, turns, tasks, changed, calls }))
    }

    /// Opens the gate again before a call if the settings in `config.toml` have changed. If it cannot be opened, the call
    /// fails: a server must not go on with settings that do not apply any more.
    #[must_use]
    pub fn reopened_by(self, open: impl Fn() -> Result<Gate> + Send + Sync + 'static) -> Self {
        self.0.settings_watch.get_or_init(|| SettingsWatch { open: Box::new(open), seen: Mutex::default() });
        self
    }

    /// Adds the workspace's tasks. Without them the task tools answer that there is no vault.
    #[must_use]
    pub fn with_tasks(self, tasks: ServedVault) -> Self {
        self.replace_tasks(Some(tasks));
        self
    }

    /// From the next call on, clients use this gate.
    pub(crate) fn replace_gate(&self, gate: Gate) {
        *lock(&self.0.gate) = gate;
    }

    /// From the next call on, clients use this vault. Only for servers whose clients hold no claims by a lock: a lease lasts
    /// in the store itself.
    pub(crate) fn replace_tasks(&self, tasks: Option<ServedVault>) {
        *lock(&self.0.tasks) = tasks.map(Arc::new);
    }

    /// Ends the turns that were idle for too long. The HTTP transport calls this on a timer.
    pub fn expire(&self) {
        self.0.turns.expire();
    }

    /// The gate as it is.
    pub(super) fn gate(&self) -> Gate {
        lock(&self.0.gate).clone()
    }

    /// The gate for a call: opened again if the settings have changed. Blocks.
    pub(super) fn gate_for_call(&self) -> Result<Gate> {
        let Some(SettingsWatch { open, seen }) = self.0.settings_watch.get() else { return Ok(self.gate()) };
        let path = self.gate().workspace().state_path().join("config.toml");
        let stamp: FileStamp = std::fs::metadata(&path)
            .ok()
            .map(|file| (file.ino(), file.ctime(), file.ctime_nsec(), file.size()));
        let mut seen = lock(seen);
        // The stamp is older than what is read below, so a change in between is found by the next call.
        if *seen != Some(stamp) {
            if read_settings(&path)? != *self.gate().workspace().settings() {
                let gate = open()?;
                let home = |gate: &Gate| VaultHome::of(gate.workspace().path(), gate.workspace().settings());
                let now = home(&gate)?;
                if self.tasks().is_some() && !now.is_same_vault(&home(&self.gate())?) {
                    return Err(now.another_vault());
                }
                self.replace_gate(gate);
            }
            *seen = Some(stamp);
        }
        Ok(self.gate())
    }

    /// Waits until fewer than [`CALLS`] calls run. A call runs until this is dropped.
    pub(super) async fn running_call(&self) -> Option<OwnedSemaphorePermit> {
        self.0.calls.clone().acquire_owned().await.ok()
    }

    pub(super) fn agent(&self) -> &Agent {
        &self.0.agent
    }

    pub(super) fn home(&self) -> Option<&PathBuf> {
        self.0.home.as_ref()
    }

    pub(super) fn turns(&self) -> &Turns {
        &self.0.turns
    }

    pub(super) fn tasks(&self) -> Option<Arc<ServedVault>> {
        lock(&self.0.tasks).clone()
    }

    /// A call has replaced a file, so a late-write check will be due.
    pub(super) fn file_changed(&self) {
        self.0.changed.notify_one();
    }

    /// Runs the late-write checks that calls make necessary, for as long as it is polled.
    pub(super) async fn late_write_checks(&self) {
        let workspace = || Some(Workspace::clone(self.gate().workspace()));
        late_write_check::after_each(&self.0.changed, workspace).await;
    }
}
