//! Only observing: where a command cannot be guarded, or need not be, it runs as if tollgate were not there, and the outcome says
//! so. Nothing is compared, refused or recorded.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use tollgate_base::error::{At, Result};

use crate::level::{LEVEL_VARIABLE, RunLevel};
use crate::outcome::{AfterRun, RunEnd, RunNote, RunOutcome};
use crate::request::RunRequest;
use crate::supervisor;

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
    supervisor::prepare(&mut command, &request.folder, request.supervisor);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ok(Err(error)),
    };
    if let Some(supervisor) = request.supervisor {
        supervisor.started(child.id(), None);
    }
    let status = child.wait().at("wait for", "the command")?;
    Ok(Ok(match (status.code(), status.signal()) {
        (Some(code), _) => RunEnd::Exited(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
        (None, signal) => RunEnd::Killed(signal.unwrap_or(0)),
    }))
}
