//! The processes of a command: how the first one ended, and whether others are left. This process adopts them.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, WaitOptions, wait};

use crate::outcome::RunEnd;
use tollgate_base::error::{At, Result};
use tollgate_base::lock::Pauses;

/// How long tollgate waits for processes that a command has left behind before it says so. Many programs clean up behind
/// themselves in this way, and need a few milliseconds.
const ABOUT_TO_END: Duration = Duration::from_millis(20);

pub(super) fn status_of(pid: Pid) -> Result<RunEnd> {
    loop {
        if let Some((ended, status)) = wait_for_any(WaitOptions::empty())?
            && ended == pid
        {
            return Ok(match (status.code(), status.signal()) {
                (Some(code), _) => RunEnd::Exited(u8::try_from(code).unwrap_or(u8::MAX)),
                (None, signal) => RunEnd::Killed(signal.unwrap_or(0)),
            });
        }
    }
}

/// Waits for any child. `None` if there is none, or none has ended.
pub(super) fn wait_for_any(options: WaitOptions) -> Result<Option<(Pid, ExitStatus)>> {
    loop {
        return match wait(options) {
            Ok(ended) => Ok(ended.map(|(pid, status)| (pid, ExitStatus::from_raw(status.as_raw())))),
            Err(rustix::io::Errno::CHILD) => Ok(None),
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => Err(error).at("wait for", "the command"),
        };
    }
}

/// Whether processes of the command are still running, and not just about to end.
pub(super) fn children_are_left() -> Result<bool> {
    let mut pauses = Pauses::lasting(ABOUT_TO_END);
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) if pauses.pause() => {}
            Ok(None) => return Ok(true),
            Err(rustix::io::Errno::CHILD) => return Ok(false),
            Err(error) => return Err(error).at("wait for", "the command"),
        }
    }
}
