//! What `tollgate init` did to the configuration and to agent programs.

use std::path::PathBuf;

use tollgate::settings::ShellCommands;

use crate::host::SetupChange;

/// What `init` did for one agent program: its hooks, or its MCP server.
#[derive(Debug, serde::Serialize)]
pub(crate) struct HostSetup {
    pub(crate) host: &'static str,
    pub(crate) files: Vec<PathBuf>,
    pub(crate) done: SetupChange,
    /// What a person still has to do.
    pub(crate) then: Option<String>,
    /// Its hooks inform the agent at the start of each session.
    #[serde(skip)]
    pub(crate) greets: bool,
    /// What its hooks do with shell commands, if they are installed now.
    #[serde(skip)]
    pub(crate) shell: Option<ShellCommands>,
}

/// What `init` did to `.tollgate/config.toml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ConfigSetup {
    Written,
    /// It existed, and was not changed.
    Kept,
    /// It existed, and lines were added to it.
    Changed,
    Removed,
    /// It was kept, because the user has changed it.
    KeptAsChanged,
    NothingToRemove,
}
