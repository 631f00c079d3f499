//! Any program, guarded: runs a command so that its changes never destroy a change that the agent has not seen.
//!
//! There are three levels. A **transaction** gives the command a private view of the workspace and commits its changes when
//! it ends, all or none. The **gate** stops the system call that would destroy a foreign change. **Observe** only reports.
//! [`run`] takes the strongest level that the machine allows, or the one that the caller asks for; it never does less
//! without saying so.
//!
//! Like the other library crates, this one prints nothing and reads no environment.

pub mod available;
pub mod level;
pub mod outcome;
pub mod record;
pub mod request;
#[cfg_attr(not(target_os = "linux"), path = "one_process.rs")]
pub mod supervisor;
#[cfg(target_os = "linux")]
mod sys;
#[cfg_attr(not(target_os = "linux"), path = "transaction/elsewhere.rs")]
mod transaction;

use tollgate_base::error::{Fault, Result};
use tollgate_guard::gate::Gate;

pub use available::{Availability, available};
pub use level::{LEVEL_VARIABLE, RunLevel, RunMode};
use outcome::Attempt;
pub use outcome::{AfterRun, ReadFile, RunEnd, RunNote, RunOutcome, WrittenFile};
pub use record::RunRecord;
pub use request::{ChangedRead, ReadsCount, RunRequest};
pub use supervisor::Supervisor;

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
