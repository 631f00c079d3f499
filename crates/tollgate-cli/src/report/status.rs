//! What `tollgate status` found.

use jiff::Timestamp;
use serde::Serialize;
use tollgate::name::Agent;
use tollgate::overlap::Overlap;
use tollgate::settings::{GuardMode, ShellCommands};
use tollgate::unfinished_list::{ListedFile, counts};

/// What is guarded here, who works here, and what waits for a person.
#[derive(Debug, Default, Serialize)]
pub(crate) struct WorkspaceStatus {
    pub(crate) workspace: String,
    /// The workspace has a configuration or a state.
    pub(crate) set_up: bool,
    /// Something was written here through tollgate.
    #[serde(skip)]
    pub(crate) has_writes: bool,
    pub(crate) mode: GuardMode,
    pub(crate) hosts: Vec<HostStatus>,
    /// The agents with running turns.
    pub(crate) agents: Vec<AgentStatus>,
    pub(crate) claims: Vec<ClaimStatus>,
    pub(crate) pending_approvals: Vec<WaitingTask>,
    pub(crate) refusals_today: RefusalCount,
    pub(crate) unfinished: UnfinishedCount,
    /// The files on which several agents work.
    pub(crate) overlaps: Vec<Overlap>,
    /// What a person should do something about.
    pub(crate) problems: Vec<StatusProblem>,
    pub(crate) needs_person: bool,
}

/// One agent program that is used or set up here.
#[derive(Debug, Serialize)]
pub(crate) struct HostStatus {
    pub(crate) host: &'static str,
    pub(crate) guarded: bool,
    pub(crate) hooks: Hooks,
    /// What its hooks do with shell commands; `None` if it calls none.
    pub(crate) shell: Option<ShellCommands>,
    /// The MCP server is registered with it.
    pub(crate) mcp: bool,
    /// When it last called a hook.
    pub(crate) last_seen: Option<Timestamp>,
    /// It has files in this workspace, or a person can start it: it is in `PATH`.
    #[serde(skip)]
    pub(crate) used: HostUse,
}

/// Where a program is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostUse {
    InProject,
    OnPath,
    Elsewhere,
}

/// The hooks of a program, without a test of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Hooks {
    Installed,
    /// The program calls the hooks of another program.
    Through(&'static str),
    /// Installed, but the program does not call them until the user agrees or switches them on.
    NotApproved,
    /// Installed by another version.
    Outdated,
    None,
    /// Its configuration cannot be read.
    Broken,
}

#[derive(Debug, Serialize)]
pub(crate) struct AgentStatus {
    pub(crate) agent: Agent,
    pub(crate) turns: usize,
    /// When the oldest of its running turns started.
    pub(crate) since: Timestamp,
}

#[derive(Debug, Serialize)]
pub(crate) struct ClaimStatus {
    pub(crate) task: String,
    pub(crate) agent: Option<Agent>,
    pub(crate) age_s: i64,
}

#[derive(Debug, Serialize)]
pub(crate) struct WaitingTask {
    pub(crate) task: String,
    pub(crate) age_s: i64,
}

/// How many writes were refused since midnight UTC.
#[derive(Debug, Default, Serialize)]
pub(crate) struct RefusalCount {
    pub(crate) count: usize,
    /// The ledger has more lines of today than `status` reads.
    pub(crate) at_least: bool,
}

/// How many files are unfinished, and whose they are.
#[derive(Debug, Default, Serialize)]
pub(crate) struct UnfinishedCount {
    pub(crate) files: usize,
    pub(crate) agents: Vec<AgentFiles>,
}

/// The number of unfinished files of one agent; without an agent, of nobody who uses tollgate.
#[derive(Debug, Serialize)]
pub(crate) struct AgentFiles {
    pub(crate) agent: Option<Agent>,
    pub(crate) files: usize,
}

impl UnfinishedCount {
    pub(crate) fn of(listed: &[ListedFile]) -> Self {
        let agents = counts(listed).into_iter().map(|(agent, files)| AgentFiles { agent, files });
        Self { files: listed.len(), agents: agents.collect() }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct StatusProblem {
    pub(crate) problem: String,
    pub(crate) hint: String,
}

impl StatusProblem {
    pub(crate) fn new(problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { problem: problem.into(), hint: hint.into() }
    }
}
