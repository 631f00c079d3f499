//! The gate: a system call that would destroy a foreign change fails, for every process that the command starts.
//!
//! It needs no privilege, no namespace and no mount: the kernel lets a process have its own system calls supervised (seccomp
//! user notification). There is no transaction. A call is judged before it is made, so calls before it stand, and a program
//! that holds a file open is not judged again when it writes into it.

mod call;
mod closed;
mod files;
mod message;
mod supervisor;
mod tracee;

use std::io::{self, BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::Command;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, waitpid};

use self::call::supervised;
use self::message::SupervisorMessage;
use crate::sys::seccomp::{Filter, Forked, before_exec, fork};
use crate::sys::signals::{BlockedSignals, SENT_TO_PROCESSES};
use crate::{RunNote, RunOutcome, RunRequest};
use tollgate_base::error::{At, Fault, Result};
use tollgate_guard::gate::Gate;

/// Runs a command at this level. Another process supervises it, and stays until the last process of the command has ended.
/// This one returns when the command itself has.
pub(crate) fn run(gate: &Gate, request: &RunRequest<'_>) -> Result<RunOutcome> {
    let root = gate.workspace().path();
    let (ours, theirs) = UnixStream::pair().at("make a socket for", root)?;
    match fork().at("start a supervisor for", root)? {
        Forked::Parent(supervisor) => {
            drop(theirs);
            let outcome = wait(ours)?;
            if !outcome.notes.contains(&RunNote::StillGuarded) {
                // It is about to end.
                let _ = waitpid(Some(supervisor), WaitOptions::empty());
            }
            Ok(outcome)
        }
        Forked::Child => {
            drop(ours);
            if let Err(fault) = supervisor::supervise(gate, request, &theirs) {
                // If nobody listens, there is nobody to tell.
                let _ = SupervisorMessage::Failed(fault.to_string()).send(&theirs);
            }
            std::process::exit(0);
        }
    }
}

/// Waits for the end of the command, and passes on signals that are meant for it.
fn wait(supervisor: UnixStream) -> Result<RunOutcome> {
    let signals = BlockedSignals::block(&SENT_TO_PROCESSES).at("wait for", "the command")?;
    let mut lines = BufReader::new(supervisor);
    let mut command = None;
    loop {
        if lines.buffer().is_empty() {
            let mut sources = [
                PollFd::from_borrowed_fd(lines.get_ref().as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
            ];
            match poll(&mut sources, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).at("wait for", "the command"),
            }
            let heard = !sources[0].revents().is_empty();
            signals.pass_on(command.as_ref());
            if !heard {
                continue;
            }
        }
        let mut line = Vec::new();
        lines.read_until(b'\n', &mut line).at("wait for", "the command")?;
        if line.is_empty() {
            let _ = command.as_ref().map(|command| pidfd_send_signal(command, Signal::KILL));
            return Err(Fault::invalid("the process that supervised the command was killed"));
        }
        match SupervisorMessage::read(&line)? {
            SupervisorMessage::Started(number) => {
                let pid = Pid::from_raw(number);
                command = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
            }
            SupervisorMessage::Ended(ended) => return Ok(ended.outcome()),
            SupervisorMessage::Failed(what) => return Err(Fault::invalid(what)),
        }
    }
}

/// Why the gate is not possible here. `None` if it is: a process has just tried.
pub(crate) fn why_not() -> Option<String> {
    if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        return Some("the gate knows the system calls of x86-64 and aarch64 only".to_owned());
    }
    if let Some(why) = may_not_look() {
        return Some(why);
    }
    let filter = Filter::new(&supervised());
    let mut trial = Command::new("/");
    // The trial ends with an error in any case, before a program is started.
    before_exec(&mut trial, move || match filter.install() {
        Ok(_) => Err(io::Error::from_raw_os_error(libc::ECANCELED)),
        Err(error) => Err(error),
    });
    match trial.spawn() {
        Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => None,
        Err(error) => Some(why_not_installed(&error)),
        Ok(_) => None,
    }
}

/// Why the supervisor could not read the arguments of a call.
fn may_not_look() -> Option<String> {
    if let Err(error) = std::fs::metadata("/proc/self/mem") {
        return Some(format!("the gate needs `/proc`, and `/proc/self/mem` cannot be used: {error}"));
    }
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let closed = match scope.trim() {
        "2" => !rustix::process::geteuid().is_root(),
        "3" => true,
        _ => false,
    };
    closed.then(|| {
        format!(
            "the gate must read the arguments of system calls, and `kernel.yama.ptrace_scope` is {}: set it to 1",
            scope.trim()
        )
    })
}

/// Why the kernel does not accept the filter, and what to do.
fn why_not_installed(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EBUSY) => "another program supervises the system calls of this process already (a sandbox, or another \
                              `tollgate run`), and the kernel allows only one: start tollgate outside of it"
            .to_owned(),
        Some(libc::ENOSYS | libc::EINVAL) => "the kernel cannot notify a supervisor of system calls: Linux 5.9 or later is \
                                              needed, with `CONFIG_SECCOMP_FILTER`"
            .to_owned(),
        Some(libc::EPERM | libc::EACCES) => "a sandbox forbids system call filters here: allow `seccomp` in its profile (for \
                                             Docker: `--security-opt seccomp=unconfined`, or a profile with `seccomp`)"
            .to_owned(),
        _ => format!("the kernel refuses the filter for system calls: {error}"),
    }
}
