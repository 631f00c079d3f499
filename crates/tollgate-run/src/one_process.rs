//! A run in one process, on systems where nobody can wait for processes that a command has left behind.

use crate::outcome::RunEnd;
use tollgate_base::error::Result;

/// What a process is after [`split`].
pub enum Side {
    /// Never: there is one process.
    Front(Option<RunEnd>),
    /// The process that the caller knows.
    Supervisor(Supervisor),
}

/// The process that runs the command.
pub struct Supervisor(());

/// Does not split the process.
pub fn split() -> Result<Side> {
    Ok(Side::Supervisor(Supervisor(())))
}

/// Nothing to do: the caller ends with the code of the signal.
pub fn die_by(_signal: i32) {}

impl Supervisor {
    /// Ends this process.
    pub fn let_front_end(self, end: RunEnd) -> Result<()> {
        std::process::exit(i32::from(end.code()))
    }
}
