//! Elsewhere than on Linux, a run has one process, and nobody waits for what a command leaves behind.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;

use tollgate_base::error::Result;

use crate::outcome::RunEnd;

/// What a process is after [`split`].
pub enum Side {
    /// Never.
    Front(Option<RunEnd>),
    /// The only process.
    Supervisor(Supervisor),
}

/// The process that runs the command.
pub struct Supervisor {}

/// Does not split the process.
pub fn split(_carry: &dyn Fn() -> Command) -> Result<Side> {
    Ok(Side::Supervisor(Supervisor {}))
}

/// Nothing to do: the process runs in the folder already.
pub(crate) fn prepare(_command: &mut Command, _folder: &Path, _supervisor: Option<&Supervisor>) {}

/// Nothing to do: the caller ends with the code of the signal.
pub fn die_by(_signal: i32) {}

impl Supervisor {
    /// Nobody is in front who passes signals on.
    pub(crate) fn started(&self, _pid: u32, _door: Option<&OwnedFd>) {}

    /// Ends this process.
    pub fn let_front_end(self, end: RunEnd) -> Result<()> {
        std::process::exit(i32::from(end.code()))
    }
}
