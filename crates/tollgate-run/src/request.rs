//! What a caller asks for.

use std::ffi::OsString;
use std::path::PathBuf;

use tollgate_guard::turn::TurnState;

use crate::level::RunMode;
use crate::supervisor::Supervisor;

/// What to do if a file that the command only read was changed while it ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ChangedRead {
    /// A note in the outcome.
    #[default]
    Note,
    /// The run is refused: the result is as if nothing else had happened in the meantime.
    Refuse,
}

/// A command to run.
pub struct RunRequest<'a> {
    /// The program and its arguments. There is at least the program.
    pub command: Vec<OsString>,
    /// The folder in which the command runs, absolute.
    pub folder: PathBuf,
    /// The level that the caller asks for.
    pub mode: RunMode,
    /// What to do if a file that the command only read was changed.
    pub changed_read: ChangedRead,
    /// Folders that the command changes directly, without a guard. Relative to the workspace, or absolute.
    pub pass: Vec<PathBuf>,
    /// The turn to which the reads and writes of the command belong.
    pub turn: &'a dyn TurnState,
    /// What a read of the command means for the turn.
    pub reads_count: ReadsCount,
    /// This process, if it is not the one that the caller knows.
    pub supervisor: Option<&'a Supervisor>,
}

/// What a read of the command means for the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadsCount {
    /// The agent has seen the file.
    #[default]
    Seen,
    /// Nothing yet: the caller knows what the command printed, and decides.
    Later,
}
