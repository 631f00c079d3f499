//! The command line: one file per command, and one list of them.
//!
//! The file of a command has its arguments, which are also its help, and the function that runs it. A new command is one new
//! file (with its `mod` line) and one line in [`Command`], from which help, dispatch and completions follow.

mod apply;
mod bytes;
mod change;
pub(crate) mod completions;
mod create;
mod delete;
mod dispatch;
mod doctor;
mod edit;
mod export;
pub(crate) mod hook;
mod init;
pub(crate) mod launch;
mod ledger;
mod man;
mod mcp;
mod merge;
mod move_file;
mod number;
mod read;
mod recovery;
mod run;
mod serve;
mod status;
mod sync;
mod task;
mod token;
mod trust;
mod turn;
mod undo;
mod vault;
pub(crate) mod warden;
mod work;
mod write;

use clap::{CommandFactory, Parser};

use self::dispatch::commands;
use crate::global_args::GlobalArgs;

/// Many agents, one workspace, nothing lost
///
/// tollgate keeps agents and people from overwriting each other's work in shared files. A write is made only if the file is
/// still what its author last read; otherwise tollgate refuses it and changes nothing. tollgate also gives each task to one
/// agent at a time.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, arg_required_else_help = true, after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
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
  0 done   1 refused, or not valid   2 usage error   3 fault

Output
  With --json, stdout is one JSON document: the answer, the payload of a refusal, or
  {\"error\",\"message\",\"hint\"} of a fault. Without it, refusals and faults are text on stderr;
  for each stale file of a refused change, stdout has its report as one line of JSON, unless it is
  a terminal. On a terminal, text has colours; NO_COLOR=1 or CLICOLOR=0 switches them off.";

commands! {
    /// The commands, in the order of the help.
    pub(crate) enum Command {
        Init(init::InitArgs) => init::run,
        Status(status::StatusArgs) => status::run,
        Turn(turn::TurnArgs) => turn::run,
        Read(read::ReadArgs) => read::run,
        Write(write::WriteArgs) => write::run,
        Edit(edit::EditArgs) => edit::run,
        Create(create::CreateArgs) => create::run,
        Delete(delete::DeleteArgs) => delete::run,
        Move(move_file::MoveArgs) => move_file::run,
        Apply(apply::ApplyArgs) => apply::run,
        Merge(merge::MergeArgs) => merge::run,
        Run(run::RunArgs) => run::run,
        Task(task::TaskArgs) => task::run,
        Work(work::WorkArgs) => work::run,
        Sync(sync::SyncArgs) => sync::run,
        Vault(vault::VaultArgs) => vault::run,
        Mcp(mcp::McpArgs) => mcp::run,
        Serve(serve::ServeArgs) => serve::run,
        Token(token::TokenArgs) => token::run,
        Undo(undo::UndoArgs) => undo::run,
        Recovery(recovery::RecoveryArgs) => recovery::run,
        Ledger(ledger::LedgerArgs) => ledger::run,
        Export(export::ExportArgs) => export::run,
        Hook(hook::HookArgs) => hook::run,
        Doctor(doctor::DoctorArgs) => doctor::run,
        Trust(trust::TrustArgs) => trust::run,
        Man(man::ManArgs) => |_, args| man::run(args, Arguments::command()),
        Completions(completions::CompletionsArgs) => completions::run,
    }
}

/// How a command works inside a run.
pub(crate) enum InRun {
    /// It needs neither files nor state.
    Here,
    /// On the files as the run sees them.
    OnView,
    /// Outside, for the run.
    Carried,
    /// Not at all: it is for people, or it starts work that does not end with the run.
    Never,
}

impl Command {
    pub(crate) fn in_run(&self) -> InRun {
        match self {
            Self::Run(_) | Self::Hook(_) | Self::Man(_) | Self::Completions(_) => InRun::Here,
            Self::Read(_)
            | Self::Write(_)
            | Self::Edit(_)
            | Self::Create(_)
            | Self::Delete(_)
            | Self::Move(_)
            | Self::Apply(_)
            | Self::Mcp(_) => InRun::OnView,
            Self::Status(_)
            | Self::Turn(_)
            | Self::Merge(_)
            | Self::Task(_)
            | Self::Sync(_)
            | Self::Undo(_)
            | Self::Recovery(_)
            | Self::Ledger(_)
            | Self::Doctor(_) => InRun::Carried,
            Self::Init(_)
            | Self::Work(_)
            | Self::Vault(_)
            | Self::Serve(_)
            | Self::Token(_)
            | Self::Export(_)
            | Self::Trust(_) => InRun::Never,
        }
    }
}
