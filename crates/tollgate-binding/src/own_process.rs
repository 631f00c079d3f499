//! The process that made a handle.
//!
//! Programs in other languages may fork without executing another program. Then both processes have the same open files, and a
//! kernel lock on an open file excludes neither. So a handle works only in the process that made it.

use std::process;

use crate::failure::{Answered, CallFailure};

/// The process that made a handle.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnProcess(u32);

impl OwnProcess {
    pub(crate) fn now() -> Self {
        Self(process::id())
    }

    pub(crate) fn is_this(self) -> bool {
        self.0 == process::id()
    }

    /// A failure in a process that was forked since.
    pub(crate) fn check(self) -> Answered<()> {
        if self.is_this() {
            return Ok(());
        }
        Err(CallFailure::invalid(
            "this object was made before a fork, in another process: open the workspace again in this one",
        ))
    }
}
