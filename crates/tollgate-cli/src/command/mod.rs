//! The command line: one file per command, and one list of them.
//!
//! The file of a command has its arguments, which are also its help, and the function that runs it. A new command is one new
//! file (with its `mod` line) and one line in [`Command`], from which help, dispatch, completions and its place inside a run follow.

mod apply;
mod bisect;
mod blame;
mod bytes;
mod change;
mod commit;
pub(crate) mod completions;
mod create;
mod delete;
mod diff;
mod dispatch;
mod doctor;
mod edit;
mod export;
mod history;
pub(crate) mod hook;
mod init;
pub(crate) mod launch;
mod ledger;
mod man;
mod mcp;
mod merge;
mod moment;
mod move_file;
mod number;
mod past;
mod read;
mod recovery;
mod restore;
mod run;
mod serve;
mod show;
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

/// How a command works inside a run.
#[derive(PartialEq, Eq)]
pub(crate) enum RunAccess {
    /// It needs neither files nor state.
    Here,
    /// On the files as the run sees them.
    OnView,
    /// Outside, for the run.
    Carried,
    /// Not at all: it is for people, or it starts work that does not end with the run.
    Never,
}

commands! {
    /// The commands, in the order of the help, and how each works inside a run.
    pub(crate) enum Command {
        Init(init::InitArgs): Never => init::run,
        Status(status::StatusArgs): Carried => status::run,
        Turn(turn::TurnArgs): Carried => turn::run,
        Read(read::ReadArgs): OnView => read::run,
        Write(write::WriteArgs): OnView => write::run,
        Edit(edit::EditArgs): OnView => edit::run,
        Create(create::CreateArgs): OnView => create::run,
        Delete(delete::DeleteArgs): OnView => delete::run,
        Move(move_file::MoveArgs): OnView => move_file::run,
        Apply(apply::ApplyArgs): OnView => apply::run,
        Commit(commit::CommitArgs): Carried => commit::run,
        Merge(merge::MergeArgs): Carried => merge::run,
        Run(run::RunArgs): Here => run::run,
        Task(task::TaskArgs): Carried => task::run,
        Work(work::WorkArgs): Never => work::run,
        Sync(sync::SyncArgs): Carried => sync::run,
        Vault(vault::VaultArgs): Never => vault::run,
        Mcp(mcp::McpArgs): OnView => mcp::run,
        Serve(serve::ServeArgs): Never => serve::run,
        Token(token::TokenArgs): Never => token::run,
        History(history::HistoryArgs): Carried => history::run,
        Show(show::ShowArgs): Carried => show::run,
        Blame(blame::BlameArgs): Carried => blame::run,
        Bisect(bisect::BisectArgs): Never => bisect::run,
        Diff(diff::DiffArgs): Carried => diff::run,
        Undo(undo::UndoArgs): Carried => undo::run,
        Restore(restore::RestoreArgs): Carried => restore::run,
        Recovery(recovery::RecoveryArgs): Carried => recovery::run,
        Ledger(ledger::LedgerArgs): Carried => ledger::run,
        Export(export::ExportArgs): Never => export::run,
        Hook(hook::HookArgs): Here => hook::run,
        Doctor(doctor::DoctorArgs): Carried => doctor::run,
        Trust(trust::TrustArgs): Never => trust::run,
        Man(man::ManArgs): Here => |_, args| man::run(args, Arguments::command()),
        Completions(completions::CompletionsArgs): Here => completions::run,
    }
}
