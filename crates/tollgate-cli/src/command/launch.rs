//! `tollgate launch PARENT -- COMMAND`: the process between `tollgate work` and its command. It ties the command's life to
//! that of tollgate, then becomes the command.
//!
//! Only the child can ask for a signal at its parent's death. To do that between fork and exec would need unsafe code.
//! Instead `work` starts tollgate again; that process asks for the signal and executes the command. The lock of the claim
//! is an open file that stays open through both.
//!
//! It waits for a byte on its standard input, so that the command does not run before `work` has told the warden of it.
//!
//! The call is not in the command line that people see: `main` recognises it before clap parses anything.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use tollgate_base::sys;

use crate::output;
use crate::words;

/// The name of the call.
pub(crate) const LAUNCH: &str = "launch";

/// A shell's exit code for a command that cannot be run.
const CANNOT_RUN: u8 = 127;

/// A call by `tollgate work`.
pub(crate) struct Launch {
    /// The process that the command must not outlive.
    parent: i32,
    program: OsString,
    arguments: Vec<OsString>,
}

/// The launch, if the call is exactly `tollgate launch PARENT -- COMMAND...`.
pub(crate) fn called(mut words: impl Iterator<Item = OsString>) -> Option<Launch> {
    words.next()?;
    if words.next()? != LAUNCH {
        return None;
    }
    let parent = words.next()?.to_str()?.parse().ok()?;
    if words.next()? != "--" {
        return None;
    }
    Some(Launch { parent, program: words.next()?, arguments: words.collect() })
}

impl Launch {
    /// Becomes the command. Returns only if that fails.
    pub(crate) fn run(&self) -> ExitCode {
        // If the parent is dead already, or has ended the input, nobody wants the command any more.
        if sys::die_with_parent(self.parent) && io::stdin().read_exact(&mut [0]).is_ok() {
            let error = Command::new(&self.program).args(&self.arguments).stdin(Stdio::null()).exec();
            output::tell(&words::cannot_run(&self.program, &error));
        }
        ExitCode::from(CANNOT_RUN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_call_of_the_worker_is_recognised() {
        let is_launch = |call: &str| called(call.split(' ').map(OsString::from)).is_some();
        assert!(is_launch("tollgate launch 4711 -- make"));
        assert!(is_launch("tollgate launch 4711 -- sh -c true"));
        for call in [
            "tollgate",
            "tollgate launch",
            "tollgate launch --help",
            "tollgate launch x -- make",
            "tollgate launch 4711 make",
            "tollgate launch 4711 --",
            "tollgate work -- launch 4711 -- make",
        ] {
            assert!(!is_launch(call), "{call}");
        }
    }
}
