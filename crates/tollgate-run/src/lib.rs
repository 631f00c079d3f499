//! Any program, guarded: runs a command so that its changes never destroy a change that the agent has not seen.
//!
//! There are three levels. A **transaction** gives the command a private view of the workspace and commits its changes when
//! it ends, all or none. The **gate** stops the system call that would destroy a foreign change. **Observe** only reports.
//! [`run`] takes the strongest level that the machine allows, or the one that the caller asks for; it never does less
//! without saying so.
//!
//! Like the other library crates, this one prints nothing and reads no environment.

pub mod available;
pub mod record;
pub mod supervisor;
mod sys;
mod transaction;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use tollgate_base::error::{Fault, Result};
use tollgate_guard::gate::Gate;
use tollgate_guard::guard::Refused;
use tollgate_guard::run_folder::RunFolder;
use tollgate_guard::turn::TurnState;

pub use available::{Availability, available};
pub use record::{ReadFile, RunRecord, WrittenFile};
pub use supervisor::Supervisor;

/// The variable that tells a command in which level it runs. A run inside a run only executes its command.
pub const LEVEL_VARIABLE: &str = "TOLLGATE_RUN";

/// The level that the caller asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RunMode {
    /// The strongest level that the machine allows.
    #[default]
    Auto,
    /// A transaction, or a fault.
    Transaction,
    /// The gate, or a fault.
    Gate,
    /// Only observe.
    Observe,
}

impl RunMode {
    fn allows(self, level: RunLevel) -> bool {
        match self {
            Self::Auto => true,
            Self::Transaction => level == RunLevel::Transaction,
            Self::Gate => level == RunLevel::Gate,
            Self::Observe => level == RunLevel::Observe,
        }
    }
}

/// The level that a run has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunLevel {
    /// Nothing is prevented. Lost changes are reported.
    Observe,
    /// A system call that would destroy a foreign change fails.
    Gate,
    /// All changes are committed when the command ends, or none.
    Transaction,
}

impl RunLevel {
    /// All levels, the strongest first.
    pub const ALL: [Self; 3] = [Self::Transaction, Self::Gate, Self::Observe];

    /// The word for it, in the ledger, in records and in [`LEVEL_VARIABLE`].
    pub fn word(self) -> &'static str {
        match self {
            Self::Transaction => "transaction",
            Self::Gate => "gate",
            Self::Observe => "observe",
        }
    }
}

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

/// The exit codes of a shell for a command that did not start.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// With this exit code.
    Exited(u8),
    /// By this signal.
    Killed(i32),
    /// It did not start: there is no such program.
    NotFound,
    /// It did not start: the program cannot be executed.
    NotExecutable,
}

impl RunEnd {
    /// The exit code, as in a shell.
    pub fn code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            // The number of a signal fits.
            Self::Killed(signal) => 128u8.wrapping_add(u8::try_from(signal).unwrap_or(0)),
            Self::NotExecutable => NOT_EXECUTABLE,
            Self::NotFound => NOT_FOUND,
        }
    }
}

/// What came of a run.
pub struct RunOutcome {
    /// The level that was reached.
    pub level: RunLevel,
    /// How the command ended.
    pub end: RunEnd,
    /// Why the changes of the command were refused. Then none of them was made.
    pub refused: Option<Refused>,
    /// The files that the command read and did not write.
    pub reads: Vec<ReadFile>,
    /// The files that the command changed.
    pub writes: Vec<WrittenFile>,
    /// What the agent should know.
    pub notes: Vec<RunNote>,
    /// What is left to do when the result is known.
    pub after: AfterRun,
}

impl RunOutcome {
    /// The command could not be executed.
    fn not_started(level: RunLevel, error: &io::Error) -> Self {
        let end =
            if error.kind() == io::ErrorKind::NotFound { RunEnd::NotFound } else { RunEnd::NotExecutable };
        let (reads, writes, notes) = Default::default();
        Self { level, end, refused: None, reads, writes, notes, after: AfterRun(After::Nothing) }
    }
}

/// Something that the agent should know about a run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunNote {
    /// Another program changed this file while the command ran, which only read it. Relative to the workspace.
    ReadChanged(PathBuf),
    /// The workspace has too many names, so nobody knows what the command read.
    ReadsUnknown,
    /// This is a socket or a pipe, which exists only as long as the command. Relative to the workspace.
    NotKept(PathBuf),
    /// The command left processes behind. What they change is committed when the last one ends.
    LeftBehind,
}

/// What is left to do after a run, when its result is known.
#[must_use = "a run must be finished"]
pub struct AfterRun(After);

enum After {
    Nothing,
    Remove(RunFolder),
    /// The command has left processes behind.
    Background(Box<transaction::Transaction>),
}

impl AfterRun {
    /// Cleans up. If the command has left processes behind, waits for the last of them, then commits what they have changed,
    /// with the same checks. The ledger says what came of it.
    pub fn finish(self, gate: &Gate, turn: &dyn TurnState) -> Result<()> {
        match self.0 {
            After::Nothing => Ok(()),
            After::Remove(folder) => folder.remove(),
            After::Background(transaction) => transaction.finish(gate, turn),
        }
    }
}

/// Runs a command at the strongest level that is possible, or at the one that was asked for.
pub fn run(gate: &Gate, request: &RunRequest<'_>) -> Result<RunOutcome> {
    let mut why_not = Vec::new();
    for level in RunLevel::ALL.into_iter().filter(|level| request.mode.allows(*level)) {
        let attempt = match level {
            RunLevel::Transaction => transaction::run(gate, request)?,
            RunLevel::Gate | RunLevel::Observe => Attempt::NotPossible("not supported yet".to_owned()),
        };
        match attempt {
            Attempt::Ran(outcome) => return Ok(outcome),
            Attempt::NotPossible(reason) => why_not.push(format!("{}: {reason}", level.word())),
        }
    }
    Err(Fault::invalid(format!(
        "the command did not start, because it cannot be guarded here; {}",
        why_not.join("; ")
    )))
}

/// What came of trying one level.
enum Attempt {
    Ran(RunOutcome),
    /// The command did not start.
    NotPossible(String),
}
