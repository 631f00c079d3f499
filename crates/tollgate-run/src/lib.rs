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
mod sys;
mod transaction;

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use tollgate_base::error::{Fault, Result};
use tollgate_guard::gate::Gate;
use tollgate_guard::guard::Refused;
use tollgate_guard::turn::TurnState;

pub use available::{Availability, available};
pub use record::{ReadFile, RunRecord, WrittenFile};

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
}

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
    /// The processes that the command left behind, if any.
    pub background: Option<Background>,
}

/// Something that the agent should know about a run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunNote {
    /// Another program changed this file while the command ran, which only read it. Relative to the workspace.
    ReadChanged(PathBuf),
    /// The workspace has too many names, so nobody knows what the command read.
    ReadsUnknown,
    /// The command left processes behind. What they change is committed when the last one ends.
    LeftBehind,
}

/// The processes that a command left behind. What they change is committed when the last one has ended.
pub struct Background {}

/// Runs a command.
pub fn run(gate: &Gate, request: &RunRequest<'_>) -> Result<RunOutcome> {
    match level(gate, request)? {
        RunLevel::Transaction => transaction::run(gate, request),
        RunLevel::Gate => Err(Fault::invalid("the gate does not run commands yet")),
        RunLevel::Observe => Err(Fault::invalid("observing does not run commands yet")),
    }
}

/// The level of a run, or why the one that was asked for is not possible.
fn level(gate: &Gate, request: &RunRequest<'_>) -> Result<RunLevel> {
    let wanted = match request.mode {
        RunMode::Auto => None,
        RunMode::Transaction => Some(RunLevel::Transaction),
        RunMode::Gate => Some(RunLevel::Gate),
        RunMode::Observe => Some(RunLevel::Observe),
    };
    let mut why_not = Vec::new();
    for Availability { level, why_not: reason } in available(gate.workspace().path()) {
        match reason {
            _ if wanted.is_some_and(|wanted| wanted != level) => {}
            None => return Ok(level),
            Some(reason) => why_not.push(format!("{}: {reason}", level.word())),
        }
    }
    Err(Fault::invalid(format!("this machine does not allow it: {}", why_not.join("; "))))
}
