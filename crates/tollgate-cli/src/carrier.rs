//! `tollgate carry`: the process that the front of a run starts for a call through its door. It becomes `tollgate` with the arguments
//! and the streams of the caller, and the environment of the front.
//!
//! It knows for which agent it works, and that no person is there, because the front tells it and not the command. Any program in
//! the run can call at the door, so it carries out only what `tollgate` there would ask for: another call, such as
//! `run`, would execute a command outside of the run.
//!
//! The call is not in the command line that people see: `main` recognises it before clap parses anything.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use tollgate::name::{Agent, TurnId};
use tollgate_run::door;

use crate::surroundings::{CARRIED, CARRIED_TURN, Surroundings};

/// The name of the call with which the front starts a process for a call through the door.
const CARRY: &str = "carry";

/// What a call may bring with it. Everything else is the environment of the front.
pub(crate) const PASSED: [&str; 7] = [
    "TOLLGATE_TURN",
    "TOLLGATE_CLAIM_ID",
    "TOLLGATE_TASK_ID",
    "NO_COLOR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLUMNS",
];

/// How the front starts a process for a call through the door. Without an agent, the run is a person's, who may use any name. `turn` is
/// the folder of the turns and the turn to which the run belongs.
pub(crate) fn carrier(agent: Option<&Agent>, turn: Option<(&Path, &TurnId)>) -> Command {
    let mut command = Command::new(Surroundings::look().program);
    command.arg(CARRY).stdout(Stdio::null()).env(CARRIED, agent.map_or("", Agent::as_str));
    command.env_remove(CARRIED_TURN);
    if let Some((folder, id)) = turn {
        command.env(CARRIED_TURN, folder.join(id.as_str()));
    }
    if let Some(agent) = agent {
        command.env("TOLLGATE_AGENT", agent.as_str());
    }
    command
}

/// Whether the front has started this process for a call.
pub(crate) fn is_carrier(mut words: impl Iterator<Item = OsString>) -> bool {
    words.nth(1).is_some_and(|word| word == CARRY) && words.next().is_none() && Surroundings::is_set(CARRIED)
}

/// Receives the call, and becomes the process that carries it out. Returns only if that fails, or if the call is not one of those that
/// are carried out.
pub(crate) fn become_called(is_carried: impl Fn(&[OsString]) -> bool) -> ExitCode {
    let called = || {
        let door = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        let (call, [stdin, stdout, stderr]) = door::receive(&door)?;
        drop(door);
        if !is_carried(&call.arguments) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
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
