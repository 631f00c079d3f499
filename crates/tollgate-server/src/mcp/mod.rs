//! The MCP server: the tools of the reference filesystem server, with every write through the gate.
//!
//! One connection is one agent with one running turn. [`serve_stdio`] serves one connection and returns when it is
//! closed; [`Server::router`] serves many over HTTP.
//!
//! Calls go one way: `wire` (the protocol, by rmcp) -> `connection` (whose turn) -> `tools` (one table)
//! -> the gate. rmcp is known to `wire`, `lines` and `http` alone.

mod answer;
mod collate;
mod connection;
mod flexible;
mod glob;
mod http;
mod lines;
mod patch;
mod tasks;
mod tools;
mod turns;
mod wire;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tollgate::error::{Fault, Result};
use tollgate::gate::Gate;
use tollgate::name::Agent;
use tollgate::workspace::{self, Workspace};

pub use tasks::Tasks;
use turns::Turns;

use crate::second_look;

/// A turn that nobody used for so long is over. A day, because a turn that is forgotten while its agent waits for a
/// person's answer would leave that agent's next write unguarded.
pub const IDLE: Duration = Duration::from_secs(24 * 60 * 60);

/// What a server is told at its start.
#[derive(Clone)]
pub struct Options {
    /// The folder it serves.
    pub folder: PathBuf,
    /// In whose name it writes. No client can change that.
    pub agent: Agent,
    /// How the workspace is opened.
    pub workspace: workspace::Options,
    /// After what time an unused turn is over.
    pub idle: Duration,
}

impl Options {
    /// With the workspace's own settings.
    pub fn new(folder: impl Into<PathBuf>, agent: Agent) -> Self {
        Self { folder: folder.into(), agent, workspace: workspace::Options::default(), idle: IDLE }
    }
}

/// What all connections of one server share. Clones are the same server.
#[derive(Clone)]
pub struct Server(Arc<Shared>);

struct Shared {
    gate: Gate,
    agent: Agent,
    turns: Turns,
    /// Set once at the start, if the workspace has a vault.
    tasks: OnceLock<Tasks>,
    /// Told after every change, so that the second look is taken.
    changed: tokio::sync::Notify,
}

impl Server {
    /// Opens the workspace.
    pub fn open(options: Options) -> Result<Self> {
        let gate = Gate::new(Workspace::open(&options.folder, options.workspace)?);
        Ok(Self::over(gate, options.agent, options.idle))
    }

    /// Over a workspace that is open, for a process that has more doors than this one.
    pub fn over(gate: Gate, agent: Agent, idle: Duration) -> Self {
        let turns = Turns::new(gate.clone(), agent.clone(), idle);
        let (tasks, changed) = (OnceLock::new(), tokio::sync::Notify::new());
        Self(Arc::new(Shared { gate, agent, turns, tasks, changed }))
    }

    /// With the tasks of the workspace. Without them the tools for tasks say that there is no vault.
    #[must_use]
    pub fn with_tasks(self, tasks: Tasks) -> Self {
        self.offer_tasks(|| tasks);
        self
    }

    /// From now on there are tasks. Who offers them twice keeps the first: claims were made in them.
    pub(crate) fn offer_tasks(&self, tasks: impl FnOnce() -> Tasks) {
        self.0.tasks.get_or_init(tasks);
    }

    /// Serves one client on these streams until it closes them.
    pub async fn serve<R, W>(&self, input: R, output: W) -> std::io::Result<()>
    where
        R: tokio::io::AsyncRead + Send + Unpin + 'static,
        W: tokio::io::AsyncWrite + Send + Unpin + 'static,
    {
        wire::serve(self, input, output, std::future::pending()).await
    }

    /// Looks once more at what calls have replaced, for as long as it is polled.
    async fn second_looks(&self) {
        second_look::after_each(&self.0.changed, || Some(self.0.gate.workspace().clone())).await;
    }

    /// Ends the turns that were idle for too long. The HTTP service does so by itself.
    pub fn expire(&self) {
        self.0.turns.expire();
    }
}

/// Serves one client on standard input and output until it closes the connection, or this process is asked to end. Blocks;
/// makes its own runtime.
pub fn serve_stdio(server: &Server) -> Result<()> {
    // One thread for the protocol: the work is done by the threads that may block, and an idle server stays small.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_keep_alive(Duration::from_secs(5))
        .build()
        .map_err(|source| io_fault("start the runtime of", source))?;
    let served =
        runtime.block_on(wire::serve(server, tokio::io::stdin(), tokio::io::stdout(), asked_to_end()));
    // Standard input may be stuck in a read that nobody can call back; calls at work are waited for by `serve`.
    runtime.shutdown_background();
    served.map_err(|source| io_fault("serve", source))
}

/// Most programs that start a server ask it to end before they kill it. Then its turns end and its tasks are free.
async fn asked_to_end() {
    let Ok(mut asked) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) else {
        return std::future::pending().await;
    };
    asked.recv().await;
}

/// Calls that wait for a lock or for quiet take a thread each; more than this many at once wait their turn.
const BLOCKING_THREADS: usize = 64;

fn io_fault(doing: &'static str, source: std::io::Error) -> Fault {
    Fault::Io { doing, path: "stdio".into(), source }
}
