//! Any program, guarded: runs a command so that its changes never destroy a change that the agent has not seen.
//!
//! There are three levels. A **transaction** gives the command a private view of the workspace and commits its changes when
//! it ends, all or none. The **gate** stops the system call that would destroy a foreign change. At the level **observe** the command is
//! only executed.
//! [`run`] takes the strongest level that the machine allows, or the one that the caller asks for; it never does less
//! without saying so.
//!
//! Like the other library crates, this one prints nothing and reads no environment.

pub mod available;
#[cfg(target_os = "linux")]
mod descriptors;
pub mod door;
#[cfg_attr(not(target_os = "linux"), path = "gate/elsewhere.rs")]
mod gate;
pub mod level;
#[cfg(target_os = "linux")]
mod mounts;
mod observe;
pub mod outcome;
pub mod record;
pub mod request;
#[cfg_attr(not(target_os = "linux"), path = "supervisor/elsewhere.rs")]
pub mod supervisor;
#[cfg(target_os = "linux")]
mod sys;
#[cfg_attr(not(target_os = "linux"), path = "transaction/elsewhere.rs")]
mod transaction;

use std::ffi::OsString;
use std::path::Path;

use tollgate_base::error::{Fault, Result};
use tollgate_guard::gate::Gate;

pub use available::{Availability, available};
pub use level::{LEVEL_VARIABLE, RunLevel, RunMode};
use outcome::LevelAttempt;
pub use outcome::{AfterRun, ChangedFile, ReadFile, RunEnd, RunNote, RunOutcome, SetAside};
pub use record::{RecordFile, RunRecord};
pub use request::{ChangedRead, NewSettings, ReadsCount, RunRequest};
pub use supervisor::Supervisor;

/// The level of the run in which this process is, as the kernel says, whatever the variables are.
pub fn level_here() -> Option<RunLevel> {
    gate::level_here()
}

/// Whether this process is in a run whose front cannot be reached, because a sandbox around the run allows no sockets.
pub fn is_without_door() -> bool {
    gate::is_without_door()
}

/// Runs a command in a private view of the workspace that is thrown away, with all that it has changed. `Err`: why that is not possible.
pub fn trial(
    gate: &Gate,
    command: &[OsString],
    folder: &Path,
) -> Result<std::result::Result<RunEnd, String>> {
    transaction::trial(gate, command, folder)
}

/// Runs a command at the strongest level that is possible, or at the one that was asked for.
pub fn run(gate: &Gate, request: &RunRequest<'_>) -> Result<RunOutcome> {
    let mut levels = RunLevel::ALL;
    if request.keeps_running() {
        // Nobody would see what a server writes in a transaction before it ends.
        levels.sort_by_key(|level| *level != RunLevel::Gate);
    }
    let mut why_not = Vec::new();
    for level in levels.into_iter().filter(|level| request.mode.allows(*level)) {
        let attempt = match level {
            RunLevel::Transaction => transaction::run(gate, request)?,
            RunLevel::Gate => gate::run(gate, request)?,
            RunLevel::Observe => LevelAttempt::Ran(observe::run(request)?),
        };
        match attempt {
            LevelAttempt::Ran(mut outcome) => {
                outcome.notes.extend((!why_not.is_empty()).then(|| RunNote::Weaker(why_not.join("; "))));
                return Ok(outcome);
            }
            LevelAttempt::NotPossible(reason) => why_not.push(format!("{}: {reason}", level.word())),
        }
    }
    let why = why_not.join("; ");
    Err(Fault::invalid_with_hint(
        format!("the command did not start, because it cannot be guarded here; {why}"),
        "allow what is missing, or take a weaker level with `--mode gate` or `--mode observe`; `tollgate doctor` shows which ones \
         are possible here",
    ))
}
