//! The options that every command takes.

use std::path::{Path, PathBuf};

use clap::Args;
use tollgate::name::{Agent, TurnId};

use crate::answer::Form;

const HEADING: &str = "Global options";

/// The options that every command takes.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct GlobalArgs {
    /// Workspace [default: the nearest folder upward with `.tollgate` or `.git`, else the current folder]
    ///
    /// With -C, relative file arguments are relative to the workspace, otherwise to the current folder.
    #[arg(
        short = 'C',
        long,
        value_name = "DIR",
        global = true,
        value_hint = clap::ValueHint::DirPath,
        help_heading = HEADING
    )]
    pub(crate) workspace: Option<PathBuf>,

    /// Print one JSON document and nothing else on stdout
    #[arg(long, global = true, help_heading = HEADING)]
    json: bool,

    /// Turn ID, as printed by `turn begin` [default: TOLLGATE_TURN; without one, the command is its own turn]
    #[arg(long, value_name = "ID", global = true, help_heading = HEADING)]
    pub(crate) turn: Option<TurnId>,

    /// Agent name [default: TOLLGATE_AGENT, else your user name]; `ledger tail` shows only this agent's lines
    #[arg(long, value_name = "NAME", global = true, help_heading = HEADING)]
    pub(crate) agent: Option<Agent>,
}

impl GlobalArgs {
    /// The options for this workspace and this agent.
    pub(crate) fn of(workspace: &Path, agent: Option<Agent>) -> Self {
        Self { workspace: Some(workspace.to_owned()), agent, ..Self::default() }
    }

    pub(crate) fn form(&self) -> Form {
        if self.json { Form::Json } else { Form::Words }
    }
}
