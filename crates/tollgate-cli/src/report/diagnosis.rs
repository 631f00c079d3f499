//! What `tollgate doctor` found: facts, how bad each is, and the printed finding.

use std::path::PathBuf;
use std::time::SystemTime;

use serde::Serialize;
use tollgate::commit::Guarantee;
use tollgate::error::Fault;
use tollgate::ledger::{Verification, Wrong};
use tollgate::name::Agent;
use tollgate::settings::{GuardMode, Settings};
use tollgate::vault::Denial;
use tollgate::vault::checkup::{Finding, Level};
use tollgate::vault::state::State;
use tollgate::vault::store::Unfit;
use tollgate_guard::doctor::Leftovers;
use tollgate_guard::probe::{FileSystem, Reach};
use tollgate_run::RunLevel;

use crate::host::{FoundHost, Trust};
use crate::root::FoundBy;
use crate::trust::{Commands, OutsideFolder};

/// The result of one check.
#[derive(Debug)]
pub(crate) enum Fact {
    Workspace {
        root: PathBuf,
        found_by: FoundBy,
    },
    Settings {
        settings: Box<Settings>,
        written: bool,
    },
    /// The configuration has commands.
    Commands {
        commands: Commands,
        trusted: bool,
    },
    /// The configuration, or a link, names a folder outside the workspace.
    Outside {
        folder: OutsideFolder,
        trusted: bool,
    },
    /// The configuration says whom to tell when something needs a person.
    Notify {
        trusted: bool,
    },
    /// A workspace above was ignored, because its state belongs to this user.
    Ignored {
        root: PathBuf,
        owner: u32,
    },
    FileSystem(FileSystem),
    /// The state and the workspace are on different file systems.
    OtherFileSystem,
    NoState,
    State {
        version: u32,
    },
    Privacy {
        state: PathBuf,
        mode: u32,
        ours: bool,
    },
    /// Interrupted writes before and after the state was opened. Opening recovers them.
    Leftovers {
        before: Leftovers,
        after: Leftovers,
    },
    Ledger {
        verdict: Box<Verification>,
        head_file: Option<PathBuf>,
    },
    Recovery {
        entries: usize,
        bytes: u64,
        late: usize,
        room: u64,
    },
    Reservations {
        live: usize,
        void: usize,
    },
    Turns {
        running: usize,
    },
    /// Whether commands can be guarded at this level.
    RunLevel {
        level: RunLevel,
        why_not: Option<String>,
        /// It is the level that `tollgate run` chooses.
        reached: bool,
    },
    /// The workspace is in a linked git worktree.
    Worktree {
        /// The workspace whose vault it uses, if it shares one.
        shared_with: Option<PathBuf>,
        /// It has a vault of its own, or a copy of the shared one.
        has_vault: bool,
    },
    /// The workspace has linked git worktrees, and a vault.
    Worktrees {
        /// Those that use its vault.
        shared: usize,
        /// Those with another vault.
        apart: Vec<PathBuf>,
    },
    Vault {
        folder: PathBuf,
        open: usize,
        /// The folders of states that it did not have.
        missing: Vec<State>,
        healed: usize,
        reclaimable: usize,
        /// Agents that have claimed tasks and have no role.
        unknown: Vec<Agent>,
        unfit: Vec<Unfit>,
        /// Why some tasks will never be claimed.
        stuck: Vec<Denial>,
    },
    /// The configuration names a vault that does not exist.
    NoVault {
        folder: PathBuf,
    },
    /// An action that one agent may only draft, and that every agent without a table may execute.
    Unapproved {
        action: String,
        agent: Agent,
    },
    /// Workers that have stopped claiming tasks, each in one sentence.
    Breakers(Vec<String>),
    /// What the store's checkup found and fixed.
    Store {
        name: &'static str,
        findings: Vec<Finding>,
    },
    Host(HostCheckup),
    /// The MCP server is registered with an agent program.
    Server {
        host: &'static str,
        /// The configuration file.
        file: PathBuf,
        state: Registration,
    },
    /// The check failed.
    Broken {
        check: &'static str,
        fault: Fault,
    },
}

/// A finding, as it is printed.
#[derive(Debug, Serialize)]
pub(crate) struct Checked {
    pub(crate) check: &'static str,
    pub(crate) level: Level,
    pub(crate) message: String,
    /// How to fix it.
    #[serde(rename = "mend")]
    pub(crate) fix: Option<String>,
}

impl Fact {
    pub(crate) fn check(&self) -> &'static str {
        match self {
            Self::Workspace { .. } | Self::Ignored { .. } => "workspace",
            Self::Settings { .. } => "settings",
            Self::Commands { .. } => "commands",
            Self::Outside { .. } => "folder",
            Self::Notify { .. } => "notify",
            Self::FileSystem(_) | Self::OtherFileSystem => "file system",
            Self::NoState | Self::State { .. } => "state",
            Self::Privacy { .. } => "privacy",
            Self::Leftovers { .. } => "leftovers",
            Self::Ledger { .. } => "ledger",
            Self::Recovery { .. } => "recovery",
            Self::Reservations { .. } => "reservations",
            Self::Turns { .. } => "turns",
            Self::RunLevel { .. } => "run",
            Self::Worktree { .. } | Self::Worktrees { .. } => "worktree",
            Self::Vault { .. } | Self::NoVault { .. } => "vault",
            Self::Unapproved { .. } => "roles",
            Self::Breakers(_) => "breaker",
            Self::Store { name, .. } => name,
            Self::Host(_) => "hooks",
            Self::Server { .. } => "mcp",
            Self::Broken { check, .. } => check,
        }
    }

    pub(crate) fn level(&self) -> Level {
        let warn_if = |warn: bool| if warn { Level::Warning } else { Level::Ok };
        match self {
            Self::Broken { .. } | Self::NoVault { .. } => Level::Problem,
            Self::OtherFileSystem | Self::Ignored { .. } | Self::Breakers(_) | Self::Unapproved { .. } => {
                Level::Warning
            }
            Self::Commands { trusted, .. } | Self::Outside { trusted, .. } | Self::Notify { trusted } => {
                warn_if(!trusted)
            }
            Self::Settings { settings, .. } => warn_if(settings.guard.mode != GuardMode::Enforce),
            Self::FileSystem(found) => {
                warn_if(found.guarantee() != Guarantee::Full || found.reach == Reach::Network)
            }
            Self::Privacy { mode, ours, .. } => warn_if(mode & 0o007 != 0 || !ours),
            Self::Leftovers { after, .. } => warn_if(!after.unknown.is_empty()),
            Self::Ledger { verdict, head_file } => match &verdict.problem {
                // The next append repairs it.
                Some(problem) if problem.wrong == Wrong::Torn => Level::Warning,
                Some(_) => Level::Problem,
                None => warn_if(head_file.is_none()),
            },
            Self::Host(HostCheckup {
                hooks:
                    HookState::InPlace { wrong: Some(_), .. }
                    | HookState::InPlace { trust: Trust::SwitchedOff(_), .. }
                    | HookState::ThroughOff { .. },
                ..
            }) => Level::Problem,
            Self::Host(HostCheckup { hooks: HookState::InPlace { trust, .. }, .. }) => {
                warn_if(!matches!(trust, Trust::NotNeeded | Trust::Given))
            }
            Self::Host(HostCheckup { hooks: HookState::Outdated, .. }) => Level::Warning,
            Self::Host(HostCheckup { hooks: HookState::Through(_), .. }) => Level::Ok,
            Self::Host(HostCheckup { found, has_server, .. }) => {
                warn_if(!has_server && (found.on_path || found.in_project.is_some()))
            }
            Self::Server { state: Registration::Wrong(_) | Registration::SwitchedOff(_), .. } => {
                Level::Problem
            }
            Self::Server { state, .. } => warn_if(*state == Registration::Disabled),
            Self::Recovery { late, .. } => warn_if(*late > 0),
            Self::RunLevel { why_not, .. } => warn_if(why_not.is_some()),
            Self::Store { findings, .. } => {
                findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok)
            }
            Self::Vault { reclaimable, unfit, stuck, .. } => {
                warn_if(*reclaimable > 0 || !unfit.is_empty() || !stuck.is_empty())
            }
            Self::Worktree { shared_with, has_vault } => warn_if(shared_with.is_none() && *has_vault),
            Self::Worktrees { apart, .. } => warn_if(!apart.is_empty()),
            Self::Workspace { .. }
            | Self::NoState
            | Self::State { .. }
            | Self::Reservations { .. }
            | Self::Turns { .. } => Level::Ok,
        }
    }
}

/// What was found about one agent program.
#[derive(Debug)]
pub(crate) struct HostCheckup {
    pub(crate) host: &'static str,
    /// The name of its executable.
    pub(crate) program: &'static str,
    /// What shows that it is used.
    pub(crate) found: FoundHost,
    /// The MCP server is registered with it.
    pub(crate) has_server: bool,
    pub(crate) hooks: HookState,
}

/// The state of a registered MCP server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Registration {
    /// It was started, and it answered.
    Responding,
    /// It is another program than `init` registers. The configuration may come with the repository, so it was not started.
    NotStarted(String),
    /// The entry is switched off.
    Disabled,
    /// A setting outside of the entry disables it. This is where.
    SwitchedOff(String),
    /// Why it cannot be used.
    Wrong(String),
}

/// The state of a program's hooks.
#[derive(Debug)]
pub(crate) enum HookState {
    /// Not installed.
    None,
    /// Not installed, but the program also calls the hooks of this other program, which are installed.
    Through(&'static str),
    /// The same, but a setting disables all hooks of the program. This is where.
    ThroughOff { other: &'static str, by: String },
    /// Installed, but not as this version installs them.
    Outdated,
    /// Installed by this version.
    InPlace {
        trust: Trust,
        /// When the program last called them.
        called: Option<SystemTime>,
        /// The level at which shell commands run, if they run through `tollgate run`.
        level: Option<String>,
        /// What is wrong with their answer; `None` if it is right.
        wrong: Option<String>,
    },
}
