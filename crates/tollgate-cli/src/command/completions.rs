//! `tollgate completions`: a script by which a shell asks tollgate itself what may come next.
//!
//! Invariant: a name that a shell could take for more than a word is never offered. Completing the name of a task must not
//! run a command that the name contains.

use std::collections::BTreeSet;

use clap::{Arg, Args, Command};
use clap_complete::CompleteEnv;
use clap_complete::Shell;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::Shells;
use serde_json::json;
use tollgate::error::{Fault, Result};
use tollgate::vault::state::State;

use crate::answer::{Answer, Reply};
use crate::error::CliError;
use crate::global_args::GlobalArgs;
use crate::invocation::Invocation;
use crate::surroundings::Surroundings;

/// The variable by which the script asks.
const ASKS: &str = "TOLLGATE_COMPLETE";

/// The most names that are offered. More do not help anyone.
const MOST: usize = 1000;

/// Print a completion script for a shell
///
/// It completes commands, options, files, and the task names, agent names and recovery IDs of the current workspace. Load it
/// when the shell starts, so that it always matches the installed version.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  echo 'source <(tollgate completions bash)' >> ~/.bashrc
  echo 'source <(tollgate completions zsh)' >> ~/.zshrc
  echo 'tollgate completions fish | source' > ~/.config/fish/completions/tollgate.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(_: &Invocation, args: &CompletionsArgs) -> Result<Answer, CliError> {
    let shell = args.shell.to_string();
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let known =
        shells.completer(&shell).ok_or_else(|| Fault::invalid(format!("no completions for {shell}")))?;
    known
        .write_registration(ASKS, "tollgate", "tollgate", "tollgate", &mut script)
        .map_err(|error| Fault::invalid(error.to_string()))?;
    let script = String::from_utf8_lossy(&script).trim().to_owned();
    let json = json!({"shell": shell, "script": script});
    Ok(Answer::Done(Reply::new(script, json)))
}

/// Answers a shell that asks, and ends the process then.
pub(crate) fn answer_a_shell(command_line: impl Fn() -> Command) {
    CompleteEnv::with_factory(|| with_candidates(command_line())).var(ASKS).complete();
}

/// The command line with the names that its arguments may have here.
fn with_candidates(command: Command) -> Command {
    let name = command.get_name().to_owned();
    command.mut_args(|arg| with_candidates_of(&name, arg)).mut_subcommands(with_candidates)
}

fn with_candidates_of(command: &str, arg: Arg) -> Arg {
    let candidates: fn() -> Result<BTreeSet<String>> = match (command, arg.get_id().as_str()) {
        (_, "task" | "after") => tasks,
        (_, "agent") => agents,
        ("show" | "restore", "id") | ("undo", "to") => kept,
        _ => return arg,
    };
    arg.add(ArgValueCandidates::new(move || {
        let names = candidates().unwrap_or_default();
        names.iter().filter(|name| is_plain(name)).take(MOST).map(CompletionCandidate::new).collect()
    }))
}

/// Whether every shell takes it for one word.
fn is_plain(name: &str) -> bool {
    !name.starts_with('-') && name.chars().all(|c| c.is_alphanumeric() || "._-+@".contains(c))
}

fn here() -> Invocation {
    Invocation::new(Surroundings::look(), GlobalArgs::default())
}

fn tasks() -> Result<BTreeSet<String>> {
    let (here, mut names) = (here(), BTreeSet::new());
    let tasks = here.tasks_or_fault()?;
    // Those that somebody may still want to act on.
    for state in State::ALL.into_iter().filter(|state| *state != State::Done) {
        let scan = tasks.vault.store().scan(state, here.now())?;
        names.extend(scan.tasks.iter().map(|task| task.name.stem().to_owned()));
    }
    Ok(names)
}

fn agents() -> Result<BTreeSet<String>> {
    let here = here();
    if !here.has_state()? {
        return Ok(BTreeSet::new());
    }
    let workspace = here.workspace()?;
    let mut names: BTreeSet<String> = workspace.settings().agent.keys().map(ToString::to_string).collect();
    names.extend(workspace.ledger().tallies()?.keys().map(ToString::to_string));
    Ok(names)
}

fn kept() -> Result<BTreeSet<String>> {
    let here = here();
    if !here.has_state()? {
        return Ok(BTreeSet::new());
    }
    Ok(here.workspace()?.recovery()?.into_iter().map(|kept| kept.id).collect())
}
