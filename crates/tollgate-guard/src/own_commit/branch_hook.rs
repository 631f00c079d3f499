//! The hook `reference-transaction` of one commit. git calls it when it has prepared the change of the branch, and holds its lock.
//!
//! The hook decides nothing. It hands git's lines to this process through one pipe, and reads the answer from another: so one shell
//! is all that it costs. git inherits the two ends. If this process dies, the hook reads the end of the pipe, and git makes no commit.
//!
//! After the answer for the branch, the hook is deleted: git would call it four more times, and ask nothing.

use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write, pipe};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, ExitStatus};
use std::thread;

use rustix::io::{FdFlags, fcntl_setfd};

use tollgate_base::error::{At, Fault, Result};

/// What ends the lines of one call.
const ASK: &str = "ask";

/// What this process says to itself after git has ended: a process that git has left behind may keep the pipe open.
const END: &str = "end";

/// The pipes between the hook and this process.
pub(super) struct BranchHook {
    questions: PipeReader,
    asks: PipeWriter,
    answers: PipeWriter,
    hears: PipeReader,
}

impl BranchHook {
    pub(super) fn open() -> Result<Self> {
        let (questions, asks) = pipe().at("open", "a pipe")?;
        let (hears, answers) = pipe().at("open", "a pipe")?;
        Ok(Self { questions, asks, answers, hears })
    }

    /// The script. `next` is the repository's own hook as a word of a shell, which git calls first, and at each step.
    pub(super) fn script(&self, next: Option<&[u8]>) -> Vec<u8> {
        let mut script = b"#!/bin/sh\nunset GIT_CONFIG_PARAMETERS\n".to_vec();
        if let Some(next) = next {
            script.extend(b"lines=$(cat)\nprintf '%s\\n' \"$lines\" | ");
            script.extend(next);
            script.extend(b" \"$@\" || exit 1\n");
        }
        script.extend(b"[ \"$1\" = prepared ] || exit 0\n");
        let (asks, hears) = (self.asks.as_fd().as_raw_fd(), self.hears.as_fd().as_raw_fd());
        let lines = match next {
            Some(_) => "printf '%s\\n' \"$lines\"",
            None => "while read -r line; do printf '%s\\n' \"$line\"; done",
        };
        script.extend(format!("{{ {lines}; echo {ASK}; }} >/dev/fd/{asks}\n").bytes());
        script.extend(format!("read -r answer </dev/fd/{hears} && [ \"$answer\" = yes ]\n").bytes());
        script
    }

    /// Starts git and waits for it. `allows` answers the hook: it gets the lines `OLD NEW REF`.
    pub(super) fn serve(
        self,
        git: &mut Command,
        allows: &mut dyn FnMut(&[String]) -> Result<bool>,
    ) -> Result<ExitStatus> {
        let Self { questions, asks, mut answers, hears } = self;
        // Not before: other programs that we start are not to have them.
        let inherited = fcntl_setfd(&asks, FdFlags::empty()).and(fcntl_setfd(&hears, FdFlags::empty()));
        inherited.map_err(std::io::Error::from).at("share", "a pipe")?;
        let mut child = git.spawn().at("start", "git")?;
        drop(hears);
        thread::scope(|scope| {
            let waiting = scope.spawn(move || {
                let ended = child.wait();
                let _ = write!(&asks, "\n{END}\n");
                ended
            });
            let mut lines = Vec::new();
            let mut result = Ok(());
            for line in BufReader::new(questions).split(b'\n').map_while(std::result::Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                match line.as_str() {
                    END => break,
                    ASK => {
                        let allowed = allows(&std::mem::take(&mut lines));
                        let answer = if matches!(allowed, Ok(true)) { "yes\n" } else { "no\n" };
                        // A hook that is gone needs no answer.
                        let _ = answers.write_all(answer.as_bytes());
                        result = result.and(allowed.map(drop));
                    }
                    _ => lines.push(line),
                }
            }
            // Whoever still asks now hears that nobody answers.
            drop(answers);
            let ended = waiting.join().map_err(|_| Fault::invalid("the wait for git has failed"))?;
            result.and(ended.at("wait for", "git"))
        })
    }
}
