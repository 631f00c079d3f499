//! Signals as something to wait for.
#![allow(unsafe_code)]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;

use libc::c_int;
use rustix::process::{Signal, pidfd_send_signal};

/// Signals that are blocked, and can be read instead.
pub(crate) struct BlockedSignals(OwnedFd);

/// A signal that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ArrivedSignal {
    number: c_int,
    /// The kernel sent it, because of a key on the terminal. Then all processes in the foreground have got it.
    from_terminal: bool,
}

/// What people and programs send to a process to end it, or to tell it something.
pub(crate) const SENT_TO_PROCESSES: [c_int; 6] =
    [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

/// What stops a process.
pub(crate) const STOPPING: [c_int; 3] = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

impl BlockedSignals {
    /// Blocks these signals for this thread and everything that it starts from now on.
    pub(crate) fn block(signals: &[c_int]) -> io::Result<Self> {
        // SAFETY: zeros are a valid set, which lives until the calls return. The answer of the last call is an error or a
        // new descriptor, which nobody else owns.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in signals {
                libc::sigaddset(&raw mut set, *signal);
            }
            if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, null_mut()) < 0 {
                return Err(io::Error::last_os_error());
            }
            let descriptor = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if descriptor < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Self(OwnedFd::from_raw_fd(descriptor)))
        }
    }

    /// Passes on to a process what has arrived. It has got a key of the terminal itself.
    pub(crate) fn pass_on(&self, process: Option<&OwnedFd>) {
        while let Some(signal) = self.next() {
            if let (Some(process), false) = (process, signal.from_terminal)
                && let Some(signal) = Signal::from_named_raw(signal.number)
            {
                // A process that has ended needs no signal.
                let _ = pidfd_send_signal(process, signal);
            }
        }
    }

    /// The next signal that has arrived, if any.
    fn next(&self) -> Option<ArrivedSignal> {
        let mut bytes = [0_u8; size_of::<libc::signalfd_siginfo>()];
        let count = rustix::io::read(&self.0, &mut bytes).ok()?;
        if count < bytes.len() {
            return None;
        }
        // Both are at the beginning of the struct: the number, an error, the code.
        let word = |at: usize| c_int::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Some(ArrivedSignal { number: word(0), from_terminal: word(8) == libc::SI_KERNEL })
    }
}

impl AsFd for BlockedSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
