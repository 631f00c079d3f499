//! A deadline for the whole process: at its end the process says its last words and is gone, whatever it is doing.
//!
//! For processes that must answer in time, such as hooks. A signal does it, because a thread that watches costs a tenth of
//! a millisecond in a process that lives for one. A process that waits for a disk may hear no signal but one: a little
//! later the kernel kills it, and whoever has called it sees that.
//!
//! There is one for the process. The words go to standard output in one piece, so they must be shorter than a pipe is.

use std::time::Duration;

use crate::error::{At, Result};
use crate::sys::timer;

/// Enough to write some words, if that is possible at all.
const MERCY: Duration = Duration::from_millis(500);

/// A deadline that is set. It is called off when this is dropped.
#[derive(Debug)]
#[must_use = "a deadline that is dropped at once is none"]
pub struct Deadline(());

impl Deadline {
    /// After this time the process says these words and ends with success.
    pub fn set(wait: Duration, words: Vec<u8>) -> Result<Self> {
        let mut deadline = Self(());
        deadline.change(wait, words)?;
        Ok(deadline)
    }

    /// Another time, counted from now, and other words.
    pub fn change(&mut self, wait: Duration, words: Vec<u8>) -> Result<()> {
        // A timer of zero is none.
        let wait = wait.max(Duration::from_millis(1));
        timer::set(wait, words).at("set a timer", "")?;
        timer::kill(wait + MERCY).at("set a timer", "")
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        // Neither can fail: both were set.
        let _ = timer::alarm(Duration::ZERO);
        let _ = timer::kill(Duration::ZERO);
    }
}
