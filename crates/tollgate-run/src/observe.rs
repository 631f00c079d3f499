//! Only observing: where a command cannot be guarded, or need not be, it runs as if tollgate were not there, and the outcome says
//! so. Nothing is compared, refused or recorded.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use tollgate_base::error::{At, Result};

use crate::level::{LEVEL_VARIABLE, RunLevel};
use crate::outcome::{AfterRun, RunEnd, RunNote, RunOutcome};
use crate::request::RunRequest;
#[cfg(target_os = "linux")]
use crate::supervisor::Supervisor;
#[cfg(target_os = "linux")]
use crate::sys;

pub(crate) fn run(request: &RunRequest<'_>) -> Result<RunOutcome> {
    let end = match execute(request)? {
        Ok(end) => end,
        Err(error) => return Ok(RunOutcome::not_started(RunLevel::Observe, &request.command[0], &error)),
    };
    Ok(RunOutcome {
        level: RunLevel::Observe,
        end,
        refused: None,
        reads: Vec::new(),
        writes: Vec::new(),
        notes: vec![RunNote::NotGuarded],
        after: AfterRun::nothing(),
    })
}

/// Runs the command to its end.
fn execute(request: &RunRequest<'_>) -> Result<std::result::Result<RunEnd, io::Error>> {
    let (program, arguments) = request.program();
    let mut command = Command::new(program);
    command.args(arguments).env(LEVEL_VARIABLE, RunLevel::Observe.word());
    prepare(&mut command, request);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ok(Err(error)),
    };
    #[cfg(target_os = "linux")]
    if let Some(supervisor) = request.supervisor {
        supervisor.started(child.id(), None);
    }
    let status = child.wait().at("wait for", "the command")?;
    Ok(Ok(match (status.code(), status.signal()) {
        (Some(code), _) => RunEnd::Exited(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
        (None, signal) => RunEnd::Killed(signal.unwrap_or(0)),
    }))
}

/// The command runs in its folder, and blocks the signals that this process blocked when it started.
#[cfg(target_os = "linux")]
fn prepare(command: &mut Command, request: &RunRequest<'_>) {
    let (mask, folder) = (request.supervisor.map(Supervisor::mask), request.folder.clone());
    sys::before_exec(command, move || {
        rustix::process::chdir(&folder)?;
        mask.as_ref().map_or(Ok(()), |mask| mask.set().map(drop))
    });
}

/// Elsewhere there is one process, which runs in the folder already.
#[cfg(not(target_os = "linux"))]
fn prepare(_command: &mut Command, _request: &RunRequest<'_>) {}
