//! `tollgate run`: runs a command, guarded.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::{Args, ValueEnum};
use tollgate::error::Fault;
use tollgate::turn::TurnState;
use tollgate_run::{ChangedRead, LEVEL_VARIABLE, RunEnd, RunMode, RunOutcome, RunRecord, RunRequest};

use crate::answer::{Answer, Said};
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::run_turn::RunTurn;
use crate::surroundings::Surroundings;
use crate::words;

/// The exit code of a refused run: `EX_TEMPFAIL`, try again.
const REFUSED: u8 = 75;
/// The exit codes of a run whose command did not start, as in a shell.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// Added to the number of the signal that ended a command, as in a shell.
const BY_SIGNAL: u8 = 128;

/// Run a command; refused if it would overwrite a change that its author has not seen
///
/// The command sees the workspace as it is now, plus its own changes. When it ends, its changes are made, all or none. If
/// someone else has changed one of these files since, nothing is written, and stderr has one line of JSON for each such
/// file. Folders that git ignores are not guarded.
///
/// The exit code is that of the command. 75: tollgate refused its changes. 125: tollgate failed. 126 and 127: the command
/// cannot be executed, or was not found.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate run -- sed -i s/old/new/ src/a.rs
  tollgate run --agent blue -- codex")]
pub(crate) struct RunArgs {
    /// How well the command is guarded
    #[arg(long, value_enum, default_value_t = ModeWord::Auto)]
    mode: ModeWord,
    /// Refuse also if a file that the command only read was changed
    #[arg(long)]
    serial: bool,
    /// Let the command change this folder directly, without a guard (repeatable)
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pass: Vec<PathBuf>,
    /// Write what the command read and wrote to this file, as JSON
    #[arg(long, value_name = "FILE", hide_short_help = true, value_hint = clap::ValueHint::FilePath)]
    record: Option<PathBuf>,
    /// The folder with the turn of an agent whose hook lets this command run. The turn learns from the record
    #[arg(long, value_name = "DIR", hide = true, requires = "record")]
    by_hook: Option<PathBuf>,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND", value_hint = clap::ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

/// The words for `--mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModeWord {
    /// The strongest that this machine allows
    Auto,
    /// All changes are made when the command ends, or none
    Transaction,
    /// A system call that would destroy a foreign change fails
    Gate,
    /// Nothing is prevented; lost changes are reported
    Observe,
}

impl From<ModeWord> for RunMode {
    fn from(word: ModeWord) -> Self {
        match word {
            ModeWord::Auto => Self::Auto,
            ModeWord::Transaction => Self::Transaction,
            ModeWord::Gate => Self::Gate,
            ModeWord::Observe => Self::Observe,
        }
    }
}

pub(crate) fn run(invocation: &Invocation, args: &RunArgs) -> Result<Answer, CliError> {
    if Surroundings::has(LEVEL_VARIABLE) {
        return Ok(replace_this_process(args));
    }
    match guarded(invocation, args) {
        Ok(answer) => Ok(answer),
        Err(CliError::Fault(fault)) => Err(CliError::RunFailed(fault)),
        Err(error) => Err(error),
    }
}

/// Inside a run, the command is guarded already.
fn replace_this_process(args: &RunArgs) -> Answer {
    let (program, arguments) = args.command.split_first().expect("clap requires a command");
    let error = Command::new(program).args(arguments).exec();
    let end = match error.kind() {
        std::io::ErrorKind::NotFound => RunEnd::NotFound,
        _ => RunEnd::NotExecutable,
    };
    did_not_start(program, end)
}

fn did_not_start(program: &OsString, end: RunEnd) -> Answer {
    let notes = words::did_not_start(program, end);
    Answer::Exit(code(end), Said { notes, ..Said::default() })
}

fn code(end: RunEnd) -> u8 {
    match end {
        RunEnd::Exited(code) => code,
        RunEnd::Killed(signal) => BY_SIGNAL.wrapping_add(u8::try_from(signal).unwrap_or(0)),
        RunEnd::NotExecutable => NOT_EXECUTABLE,
        RunEnd::NotFound => NOT_FOUND,
    }
}

fn guarded(invocation: &Invocation, args: &RunArgs) -> Result<Answer, CliError> {
    let gate = invocation.gate()?;
    let (turn, folder): (Box<dyn TurnState>, PathBuf) = match (&args.by_hook, invocation.turn_id()?) {
        (Some(turns), Some(id)) => {
            let folder = Surroundings::look()
                .folder
                .map_err(|_| Fault::Missing { what: "the current folder".into() })?;
            (Box::new(RunTurn::open(turns.clone(), &id)?), folder)
        }
        _ => (invocation.turn(&gate)?, invocation.base()?),
    };
    let request = RunRequest {
        command: args.command.clone(),
        folder,
        mode: args.mode.into(),
        changed_read: if args.serial { ChangedRead::Refuse } else { ChangedRead::Note },
        pass: args.pass.clone(),
        turn: turn.as_ref(),
    };
    let outcome = tollgate_run::run(&gate, &request)?;
    answer(invocation, args, &outcome)
}

fn answer(invocation: &Invocation, args: &RunArgs, outcome: &RunOutcome) -> Result<Answer, CliError> {
    let record = RunRecord::of(outcome);
    if let Some(file) = &args.record {
        record.write(&invocation.path(file)?)?;
    }
    let mut notes = words::run_notes(outcome);
    let code = match &outcome.refused {
        None => code(outcome.end),
        Some(refused) => {
            notes = words::run_refused(&invocation.viewpoint(), refused, &notes);
            REFUSED
        }
    };
    let json = serde_json::to_value(&record).unwrap_or_default();
    Ok(Answer::Exit(code, Said { notes, json, words: String::new() }))
}
