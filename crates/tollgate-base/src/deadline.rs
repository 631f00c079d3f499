//! A deadline for the whole process: when it passes, the process prints a prepared answer and exits.
//!
//! Hooks use it, because they must answer in time. A signal does the work: a watching thread would cost a tenth of a
//! millisecond in a process that lives for one. A process that waits for a disk ignores every signal except `SIGKILL`, so
//! the kernel kills it a little later, and its caller sees that.
//!
//! There is one deadline per process. The answer goes to standard output in one write, so it must fit into a pipe's buffer.

use std::time::Duration;

use crate::error::{At, Result};
use crate::sys::timer;

/// Enough time to print the answer, if that is possible at all.
const GRACE: Duration = Duration::from_millis(500);

/// A deadline that is set. Dropping the value cancels it.
#[derive(Debug)]
#[must_use = "a deadline that is dropped at once never passes"]
pub struct Deadline(());

impl Deadline {
    /// After this time, the process prints this answer and exits with success.
    pub fn set(wait: Duration, answer: Vec<u8>) -> Result<Self> {
        let mut deadline = Self(());
        deadline.change(wait, answer)?;
        Ok(deadline)
    }

    /// Sets another time, counted from now, and another answer.
    pub fn change(&mut self, wait: Duration, answer: Vec<u8>) -> Result<()> {
        // A timer of zero would cancel the deadline.
        let wait = wait.max(Duration::from_millis(1));
        timer::set(wait, answer).at("set a timer", "")?;
        timer::kill(wait + GRACE).at("set a timer", "")
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        // Neither can fail, because both timers exist.
        let _ = timer::alarm(Duration::ZERO);
        let _ = timer::kill(Duration::ZERO);
    }
}
