//! The arguments that every command has, and the list of commands. Those of one command are in its own file.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use tollgate::name::{Agent, TurnId};

use crate::answer::Form;
use crate::command::{
    apply, completions, create, delete, doctor, edit, hook, init, ledger, mcp, move_file, read, recovery,
    serve, sync, task, turn, work, write,
};

/// Many agents, one workspace, nothing lost
///
/// tollgate keeps agents, and the people beside them, from overwriting each other's work. A write goes through only if
/// the file is still what its author last read; otherwise it is refused, and the disk stays as it is.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, arg_required_else_help = true, after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) everywhere: Everywhere,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER_HELP: &str = "\
Example: read, think, write, in a turn
  export TOLLGATE_TURN=$(tollgate turn begin --agent blue)
  tollgate read src/a.rs > draft
  (change the draft)
  tollgate write src/a.rs < draft || echo 'read it again and redo the change'
  tollgate turn end

Exit codes
  0 done   1 refused, or not valid   2 usage   3 fault

Output
  With --json, stdout is one JSON document: the answer, the payload of a refusal, or
  {\"error\",\"message\",\"hint\"} of a fault. Without it, refusals and faults are words on stderr;
  for each stale file of a refused change, stdout has its report as one line of JSON.";

/// What every command understands.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Everywhere {
    /// The workspace [default: the nearest folder upward with `.tollgate`, else the git root, else here]
    ///
    /// Relative file arguments are relative to it; without it, to the current folder.
    #[arg(
        short = 'C',
        long,
        value_name = "DIR",
        global = true,
        value_hint = clap::ValueHint::DirPath,
        help_heading = "Everywhere"
    )]
    pub(crate) workspace: Option<PathBuf>,

    /// Print one JSON document and nothing else on stdout
    #[arg(long, global = true, help_heading = "Everywhere")]
    json: bool,

    /// The turn, as `turn begin` named it [default: TOLLGATE_TURN; else the command is a turn of its own]
    #[arg(long, value_name = "ID", global = true, help_heading = "Everywhere")]
    pub(crate) turn: Option<TurnId>,

    /// Who acts [default: TOLLGATE_AGENT, else your user name]; in `ledger tail`, whose lines to show
    #[arg(long, value_name = "NAME", global = true, help_heading = "Everywhere")]
    pub(crate) agent: Option<Agent>,
}

impl Everywhere {
    /// For this workspace, in this name.
    pub(crate) fn of(workspace: &std::path::Path, agent: Option<Agent>) -> Self {
        Self { workspace: Some(workspace.to_owned()), agent, ..Self::default() }
    }

    pub(crate) fn form(&self) -> Form {
        if self.json { Form::Json } else { Form::Words }
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Init(init::Wish),
    Turn(turn::Wish),
    Read(read::Wish),
    Write(write::Wish),
    Edit(edit::Wish),
    Create(create::Wish),
    Delete(delete::Wish),
    Move(move_file::Wish),
    Apply(apply::Wish),
    Task(task::Wish),
    Work(work::Wish),
    Sync(sync::Wish),
    #[command(hide = true)]
    Launch(work::Launch),
    Mcp(mcp::Wish),
    Serve(serve::Wish),
    Recovery(recovery::Wish),
    Ledger(ledger::Wish),
    Hook(hook::Wish),
    Doctor(doctor::Wish),
    Completions(completions::Wish),
}
