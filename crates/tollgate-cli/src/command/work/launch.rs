//! The small program between `tollgate work` and its command: it ties the command to tollgate's life, then becomes it.
//!
//! The signal at the parent's death can only be asked for by the child itself. To do that between fork and exec would
//! need unsafe code; instead tollgate starts itself once more, asks, and turns into the command. The lock of the claim
//! is an open file that stays open across both.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::Args;

use crate::answer::{Answer, Stop};
use crate::words;

/// What a shell says when it cannot run a command.
const CANNOT_RUN: i32 = 127;

/// Become the command of a task (used by `tollgate work`)
#[derive(Debug, Args)]
#[command(after_help = "Example\n  tollgate launch 4711 -- make")]
pub(crate) struct Launch {
    /// The process that this one is to die with
    parent: i32,
    /// What to become
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

pub(crate) fn launch(wish: &Launch) -> Result<Answer, Stop> {
    if !die_with_parent(wish.parent) {
        // It is gone already; nobody wants this any more.
        std::process::exit(CANNOT_RUN);
    }
    let Some((program, arguments)) = wish.command.split_first() else {
        return Err(words::no_such_program(std::ffi::OsStr::new("")));
    };
    let error = Command::new(program).args(arguments).exec();
    words::tell_that_it_cannot_run(program, &error);
    std::process::exit(CANNOT_RUN)
}

/// Killed, and not asked to end: it must not outlive its claim by catching a signal.
#[cfg(target_os = "linux")]
fn die_with_parent(parent: i32) -> bool {
    use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
    set_parent_process_death_signal(Some(Signal::KILL)).is_ok()
        && getppid().map(Pid::as_raw_pid) == Some(parent)
}

/// Elsewhere the lock alone must do: nobody gets the task while the command runs.
#[cfg(not(target_os = "linux"))]
fn die_with_parent(_: i32) -> bool {
    true
}
