//! `tollgate` inside a run: which calls work in the view of the run, and which the process in front of the run carries out.
//!
//! A command in a run cannot change tollgate's state or the tasks. So `tollgate` there passes its call through the door of the
//! run, and the front starts `tollgate carry` for it, outside. That process knows for which agent it works, and that no person
//! is there, because the front tells it and not the command.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use tollgate::name::Agent;
use tollgate_run::RunLevel;
use tollgate_run::door::{self, CarriedCall};

use crate::command::{Command as Called, InRun};
use crate::error::{CliError, UsageError};
use crate::invocation::Invocation;
use crate::surroundings::{CARRIED, Surroundings};

/// The name of the call with which the front starts a process for a call through the door.
pub(crate) const CARRY: &str = "carry";

/// What a call may bring with it. Everything else is the environment of the front.
const PASSED: [&str; 7] = [
    "TOLLGATE_TURN",
    "TOLLGATE_CLAIM_ID",
    "TOLLGATE_TASK_ID",
    "NO_COLOR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLUMNS",
];

/// What becomes of a call.
pub(crate) enum Passage {
    /// This process carries it out.
    Here,
    /// Another process has carried it out.
    Carried(ExitCode),
}

/// Passes a call through the door, if it is made in a run and cannot work there.
pub(crate) fn pass(invocation: &Invocation, command: &Called) -> Result<Passage, CliError> {
    if let Some(own) = invocation.carried_for()?
        && let Some(given) = invocation.named_agent().filter(|given| **given != own)
    {
        return Err(UsageError::OtherName { own, given: given.clone() }.into());
    }
    let Some(level) = invocation.run_level() else { return Ok(Passage::Here) };
    match (command.in_run(), level) {
        (InRun::Here | InRun::OnView, _) => Ok(Passage::Here),
        (InRun::Never, _) => Err(UsageError::NotInRun.into()),
        (InRun::Carried, level) => match carry(invocation) {
            Ok(code) => Ok(Passage::Carried(code.into())),
            // A sandbox forbids sockets. The filter lets tollgate change its state.
            Err(_) if level == RunLevel::Gate => Ok(Passage::Here),
            Err(error) => Err(UsageError::NoDoor(error.to_string()).into()),
        },
    }
}

fn carry(invocation: &Invocation) -> io::Result<u8> {
    let folder = invocation.run_folder_of_command().ok_or(io::ErrorKind::NotFound)?;
    let variable = |name: &&str| Some((OsString::from(*name), env::var_os(name)?));
    let call = CarriedCall {
        folder: env::current_dir()?,
        variables: PASSED.iter().filter_map(variable).collect(),
        arguments: env::args_os().skip(1).collect(),
    };
    door::call(&folder, &call)
}

/// How the front starts a process for a call through the door. Without an agent, the run is a person's, who may use any name.
pub(crate) fn carrier(agent: Option<&Agent>) -> Command {
    let mut command = Command::new(Surroundings::look().program);
    command.arg(CARRY).stdout(Stdio::null()).env(CARRIED, agent.map_or("", Agent::as_str));
    if let Some(agent) = agent {
        command.env("TOLLGATE_AGENT", agent.as_str());
    }
    command
}

/// Whether the front has started this process for a call.
pub(crate) fn is_carrier(mut words: impl Iterator<Item = OsString>) -> bool {
    words.nth(1).is_some_and(|word| word == CARRY) && words.next().is_none() && Surroundings::is_set(CARRIED)
}

/// Receives the call, and becomes the process that carries it out. Returns only if that fails.
pub(crate) fn become_called() -> ExitCode {
    let called = || {
        let door = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        let (call, [stdin, stdout, stderr]) = door::receive(&door)?;
        drop(door);
        let mut command = Command::new(Surroundings::look().program);
        let passed = call.variables.iter().filter(|(name, _)| PASSED.iter().any(|passed| name == passed));
        command.args(&call.arguments).envs(passed.map(|(name, value)| (name, value)));
        command.current_dir(nearest(&call.folder));
        command.stdin::<OwnedFd>(stdin).stdout::<OwnedFd>(stdout).stderr::<OwnedFd>(stderr);
        Err::<(), io::Error>(command.exec())
    };
    let _ = called();
    ExitCode::FAILURE
}

/// The folder, or the nearest one above it that exists: a command may be in a folder that only its view has.
fn nearest(folder: &Path) -> &Path {
    folder.ancestors().find(|folder| folder.is_dir()).unwrap_or(folder)
}
