//! `tollgate run`: runs a command, guarded.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IsTerminal, stderr};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, exit};

use clap::{Args, ValueEnum};
use serde_json::Value;
use tollgate::conflict::RefusedCommand;
use tollgate::error::{Fault, MissingKind};
use tollgate::gate::Gate;
use tollgate::history::refused::RunMerge;
use tollgate::name::Agent;
use tollgate::tasks::closed_to_commands;
use tollgate::turn::TurnState;
use tollgate_run::supervisor::{self, Side, Supervisor};
use tollgate_run::{
    AfterRun, ChangedRead, ReadsCount, RecordFile, RunEnd, RunMode, RunNote, RunOutcome, RunRecord,
    RunRequest,
};

use crate::answer::{Answer, Form, Reply};
use crate::carrier;
use crate::command::merge::whose;
use crate::command::past;
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::output;
use crate::prefixed::{self, PrefixedCommand};
use crate::run_turn::RunTurn;
use crate::surroundings::Surroundings;
use crate::words::{self, NoteReader};

/// The exit code of a refused run: `EX_TEMPFAIL`, try again.
const REFUSED: u8 = 75;
/// Run a command; refused if it would overwrite a change that its author has not seen
///
/// The command sees the workspace as it is now, plus its own changes. When it ends, its changes are made, all or none. If
/// someone else has changed one of these files since, nothing is written, and stderr has one line of JSON for each such
/// file. Folders that git ignores are not guarded.
///
/// With --retry, the command of a refused run is run again, in the folder in which it ran, on the files as they are now. LINE is the
/// number of the ledger line of its refusal; without it, the newest refused run is meant. The other options are those of this call.
///
/// The exit code is that of the command. 75: tollgate refused its changes. 125: tollgate failed. 126 and 127: the command
/// cannot be executed, or was not found.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate run -- sed -i s/old/new/ src/a.rs
  tollgate run --agent blue -- make
  tollgate run --retry")]
pub(crate) struct RunArgs {
    /// How well the command is guarded
    #[arg(long, value_enum, default_value_t = ModeWord::Auto)]
    mode: ModeWord,
    /// Also refuse if a file that the command only read has changed
    #[arg(long)]
    serial: bool,
    /// Let the command change this folder directly, without a guard (repeatable)
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pass: Vec<PathBuf>,
    /// Guard call by call, for a command that keeps running or leaves processes behind
    #[arg(long)]
    keep_running: bool,
    /// Run the command of a refused run again
    #[arg(long, value_name = "LINE", num_args = 0..=1, conflicts_with = "command")]
    retry: Option<Option<u64>>,
    /// Write what the command read and wrote to this file, as JSON
    #[arg(long, value_name = "FILE", hide_short_help = true, value_hint = clap::ValueHint::FilePath)]
    record: Option<PathBuf>,
    /// The folder with the turn of an agent whose hook lets this command run. The turn learns from the record
    #[arg(long, value_name = "DIR", hide = true, requires = "record")]
    by_hook: Option<PathBuf>,
    /// The hook tells the agent what it should hear
    #[arg(long, hide = true, requires = "by_hook")]
    hook_tells: bool,
    /// The name under which the agent claims tasks, if it is not the agent's own
    #[arg(long, value_name = "NAME", hide = true)]
    claims_as: Option<Agent>,
    /// The command is one text, which an agent program would execute with a shell, and perhaps that shell. Its hook may let
    /// it run guarded
    #[arg(long, hide = true)]
    prefixed: bool,
    /// The command and its arguments
    #[arg(required_unless_present = "retry", last = true, value_name = "COMMAND", value_hint = clap::ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

/// The words for `--mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModeWord {
    /// The strongest that this machine allows
    Auto,
    /// All changes are made when the command ends, or none
    Transaction,
    /// A system call that would overwrite a change that the agent has not seen fails
    Gate,
    /// The command is only executed, without a guard
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
    if args.prefixed {
        return Ok(run_prefixed(invocation, &args.command[0], args.command.get(1)));
    }
    let again = args.retry.map(|line| refused_command(invocation, line)).transpose()?;
    if invocation.surroundings().run.is_some() {
        return Ok(replace_this_process(again.as_ref().map_or(&args.command, |again| &again.words)));
    }
    let agent = claimant(invocation, args)?;
    let turn = args.by_hook.as_deref().zip(invocation.turn_id()?);
    let carrier = || carrier::carrier(agent.as_ref(), turn.as_ref().map(|(folder, id)| (*folder, id)));
    match supervisor::split(&carrier).map_err(CliError::RunFailed)? {
        Side::Supervisor(supervisor) => supervise(invocation, args, again, supervisor),
        Side::Front(None) => Err(CliError::RunFailed(words::run_killed())),
        Side::Front(Some(end)) => {
            if let RunEnd::Killed(signal) = end {
                supervisor::die_by(signal);
            }
            exit(i32::from(end.code()))
        }
    }
}

/// The refused command that is to be run again. An agent runs its own commands only.
fn refused_command(invocation: &Invocation, line: Option<u64>) -> Result<RefusedCommand, CliError> {
    let found = match past::recorded(invocation)? {
        Some(workspace) => workspace.refused_command(line, whose(invocation)?.as_ref())?,
        None => None,
    };
    found.ok_or_else(|| CliError::RunFailed(words::no_refused_command(line)))
}

/// Runs the text of an agent program that puts `tollgate run --prefixed` in front of all its commands.
fn run_prefixed(invocation: &Invocation, text: &OsStr, shell: Option<&OsString>) -> Answer {
    let folders = invocation.folders_of_turns();
    let shell = shell.cloned().unwrap_or_else(|| prefixed::shell_for(text, Surroundings::shell()));
    match prefixed::command(text, &Surroundings::executable(), shell, &folders) {
        PrefixedCommand::Execute(words) => replace_this_process(&words),
        PrefixedCommand::Nothing => Answer::Exit(
            prefixed::NOT_GUARDED,
            Reply { notes: words::no_prologue().into(), ..Reply::default() },
        ),
    }
}

/// Inside a run, the command is guarded already.
fn replace_this_process(command: &[OsString]) -> Answer {
    let (program, arguments) = command.split_first().expect("clap requires a command");
    let error = Command::new(program).args(arguments).exec();
    let end = match error.kind() {
        io::ErrorKind::NotFound => RunEnd::NotFound,
        _ => RunEnd::NotExecutable,
    };
    let notes = words::did_not_start(program, end);
    Answer::Exit(end.code(), Reply { notes, ..Reply::default() })
}

/// Runs the command, prints what there is to say, lets the process in front end, and waits for processes that the command
/// has left behind.
fn supervise(
    invocation: &Invocation,
    args: &RunArgs,
    again: Option<RefusedCommand>,
    supervisor: Supervisor,
) -> ! {
    let ran = guarded(invocation, args, again, &supervisor).map_err(|error| match error {
        CliError::Fault(fault) => CliError::RunFailed(fault),
        error => error,
    });
    if let Some(root) = invocation.created() {
        output::tell(&words::created_state(root));
    }
    let (answer, end, after) = match ran {
        Ok((answer, end, after)) => (Ok(answer), Some(end), Some(after)),
        Err(error) => (Err(error), None, None),
    };
    let code = match &answer {
        Ok(Answer::Exit(code, _)) => *code,
        Ok(_) => 0,
        Err(error) => error.exit_code(),
    };
    output::print(&invocation.viewpoint(), invocation.form(), &answer);
    if let Some((_, gate, turn)) = &after
        && !args.hook_tells
    {
        let folder = invocation.viewpoint().base.unwrap_or_default();
        // A turn of this run alone is not noted anywhere, so it has none.
        let notes = gate.workspace().notes(turn.turn.as_ref(), &folder).unwrap_or_default();
        // The hook compares the output with files: a diff in it would count as a read of the file.
        let is_said = |line: &&str| {
            args.by_hook.is_none() || ["note: ", "hint: "].iter().any(|start| line.starts_with(start))
        };
        output::tell(&notes.lines().filter(is_said).collect::<Vec<_>>().join("\n"));
    }
    // A command that was killed ends the process in front in the same way, unless its changes were refused.
    let end = end.filter(|end| end.code() == code).unwrap_or(RunEnd::Exited(code));
    if supervisor.let_front_end(end).is_ok()
        && let Some((after, gate, turn)) = after
    {
        leave_the_terminal();
        // Nobody reads this process's messages any more. The ledger has what matters, and the next sweep does the rest.
        let _ = after.finish(&gate, turn.turn.as_ref());
        if turn.is_lone {
            let _ = gate.workspace().lone_turn_ends(turn.turn.as_ref());
        }
        let _ = gate.workspace().sweep();
    }
    exit(0)
}

/// Others must not wait for this process, or end it together with the front.
fn leave_the_terminal() {
    let _ = rustix::process::setsid();
    if let Ok(nowhere) = File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&nowhere);
        let _ = rustix::stdio::dup2_stdout(&nowhere);
        let _ = rustix::stdio::dup2_stderr(&nowhere);
    }
}

/// What is left to do, and with what.
type UnfinishedRun = (AfterRun, Gate, TurnOfRun);

/// The turn in which a command runs.
struct TurnOfRun {
    turn: Box<dyn TurnState>,
    /// Whether it is for this command alone.
    is_lone: bool,
}

fn guarded(
    invocation: &Invocation,
    args: &RunArgs,
    again: Option<RefusedCommand>,
    supervisor: &Supervisor,
) -> Result<(Answer, RunEnd, UnfinishedRun), CliError> {
    let gate = invocation.gate()?;
    let (turn, folder): (Box<dyn TurnState>, PathBuf) = match (&args.by_hook, invocation.turn_id()?) {
        (Some(turns), Some(id)) => {
            let folder = Surroundings::look()
                .folder
                .map_err(|_| Fault::missing(MissingKind::CurrentFolder, "the current folder"))?;
            let places = invocation.folders_of_turns();
            (Box::new(RunTurn::open(gate.workspace().path(), turns.clone(), &id, places)?), folder)
        }
        _ => (invocation.turn(&gate)?, invocation.base()?),
    };
    let is_lone = invocation.turn_id()?.is_none();
    if is_lone {
        gate.workspace().lone_turn_begins(turn.as_ref())?;
    }
    let pass: Vec<PathBuf> =
        args.pass.iter().map(|folder| invocation.path(folder)).collect::<Result<_, _>>()?;
    let (mut closed, mut open) = closed_to_commands(gate.workspace(), claimant(invocation, args)?.as_ref());
    let outside = invocation.closed_folders(gate.workspace().path());
    open.extend(invocation.fixed_folders(&outside, gate.workspace().path()));
    closed.extend(outside);
    let beside = gate.workspace().trees_beside(turn.session())?;
    closed.extend(beside.closed);
    open.extend(beside.open);
    let retried = again.as_ref().map(|again| again.line);
    let (command, folder) =
        again.map_or_else(|| (args.command.clone(), folder), |again| (again.words, again.folder));
    let request = RunRequest {
        command,
        folder,
        mode: args.mode.into(),
        changed_read: if args.serial { ChangedRead::Refuse } else { ChangedRead::Note },
        pass,
        closed,
        open,
        new_settings: invocation.new_settings(),
        keeps_running: args.keep_running,
        turn: turn.as_ref(),
        // The hook that asks for the record knows what the agent gets to see.
        reads_count: if args.record.is_some() { ReadsCount::Later } else { ReadsCount::Seen },
        list_reads: args.record.is_some() || invocation.form() == Form::Json,
        supervisor: Some(supervisor),
    };
    let record = args.record.as_ref().map(|file| invocation.path(file)).transpose()?;
    let record = record.map(RecordFile::create).transpose()?;
    let stdout = (invocation.form() == Form::Json).then(lend_stdout).transpose()?;
    let outcome = tollgate_run::run(&gate, &request);
    stdout.map_or(Ok(()), rustix::stdio::dup2_stdout).map_err(io::Error::from)?;
    let mut outcome = outcome?;
    if let Some(Err(fault)) = record.map(|file| file.write(&RunRecord::of(&outcome))) {
        // The changes of the command are made, so the exit code must not say otherwise.
        outcome.notes.push(RunNote::NotRecorded(fault.to_string()));
    }
    if let (Some(line), None) = (retried, &outcome.refused) {
        RunMerge::forget(gate.workspace(), line);
    }
    let answer = answer(invocation, &request, &gate, &outcome)?;
    Ok((answer, outcome.end, (outcome.after, gate, TurnOfRun { turn, is_lone })))
}

/// Stdout is for one JSON document, so the command writes to stderr. Returns the real stdout.
fn lend_stdout() -> io::Result<OwnedFd> {
    let stdout = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    Ok(stdout)
}

/// The agent whose tasks the command may work on; `None` if a person runs it, who names one in each call.
fn claimant(invocation: &Invocation, args: &RunArgs) -> Result<Option<Agent>, CliError> {
    match &args.claims_as {
        Some(agent) => Ok(Some(agent.clone())),
        None => invocation.named_by_environment(),
    }
}

fn answer(
    invocation: &Invocation,
    request: &RunRequest<'_>,
    gate: &Gate,
    outcome: &RunOutcome,
) -> Result<Answer, CliError> {
    let reader = if stderr().is_terminal() { NoteReader::Person } else { NoteReader::Program };
    let mut notes = words::run_notes(outcome, reader);
    if let end @ (RunEnd::NotFound | RunEnd::NotExecutable) = outcome.end {
        notes = words::did_not_start(&request.command[0], end);
    }
    let code = match &outcome.refused {
        None => outcome.end.code(),
        Some(refused) => {
            let kept =
                refused.line().map_or(Ok(None), |line| RunMerge::find(gate.workspace(), Some(line), None))?;
            let merge = kept.filter(|kept| kept.left_out == 0 && kept.plan.conflicts().next().is_none());
            let agent = request.turn.agent();
            let is_kept =
                gate.workspace().keep_refused_command(agent, refused, &request.command, &request.folder)?;
            let again = refused.line().filter(|_| is_kept);
            let view = invocation.viewpoint();
            notes = words::run_refused(&view, outcome.level, refused, merge.as_ref(), again, &notes);
            REFUSED
        }
    };
    let json = match invocation.form() {
        Form::Json => serde_json::to_value(RunRecord::of(outcome)).unwrap_or_default(),
        // A search has thousands of reads.
        Form::Words => Value::Null,
    };
    Ok(Answer::Exit(code, Reply { notes, json, words: String::new() }))
}
