//! The MCP server without a transport: the workspace, the agent, its turns and its tasks.
//!
//! All connections of one server share it.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tollgate::gate::Gate;
use tollgate::name::Agent;
use tollgate::turn::Session;

use super::tasks::ServedVault;
use super::turns::Turns;
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
    gate: Gate,
    agent: Agent,
    home: Option<PathBuf>,
    turns: Turns,
    /// Set once the workspace has a vault.
    tasks: OnceLock<ServedVault>,
    changed: Notify,
}

impl Server {
    /// A server for an open workspace.
    pub fn new(gate: Gate, options: ServerOptions) -> Self {
        let ServerOptions { agent, idle, home, session } = options;
        let turns = Turns::new(gate.clone(), agent.clone(), idle, session);
        let (tasks, changed) = (OnceLock::new(), Notify::new());
        Self(Arc::new(ServerState { gate, agent, home, turns, tasks, changed }))
    }

    /// Adds the workspace's tasks. Without them the task tools answer that there is no vault.
    #[must_use]
    pub fn with_tasks(self, tasks: ServedVault) -> Self {
        self.offer_tasks(|| tasks);
        self
    }

    /// Adds the tasks to a running server. Only the first offer counts, because clients may hold claims in it.
    pub(crate) fn offer_tasks(&self, tasks: impl FnOnce() -> ServedVault) {
        self.0.tasks.get_or_init(tasks);
    }

    /// Ends the turns that were idle for too long. The HTTP transport calls this on a timer.
    pub fn expire(&self) {
        self.0.turns.expire();
    }

    pub(super) fn gate(&self) -> &Gate {
        &self.0.gate
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

    pub(super) fn tasks(&self) -> Option<&ServedVault> {
        self.0.tasks.get()
    }

    /// A call has replaced a file, so a late-write check will be due.
    pub(super) fn file_changed(&self) {
        self.0.changed.notify_one();
    }

    /// Runs the late-write checks that calls make necessary, for as long as it is polled.
    pub(super) async fn late_write_checks(&self) {
        late_write_check::after_each(&self.0.changed, || Some(self.0.gate.workspace().clone())).await;
    }
}
