//! The system calls that no safe crate wraps, or that are unsafe by nature: fork, and what a child does before it executes
//! its program. All unsafe code of this crate is here and in the files below, and each block says why it is
//! sound.
#![allow(unsafe_code)]

pub(crate) mod seccomp;
mod signalled;

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::Pid;
use rustix::thread::UnshareFlags;

fn checked(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// The signals that a process blocks.
#[derive(Clone, Copy)]
pub(crate) struct SignalMask(libc::sigset_t);

impl SignalMask {
    fn of(signals: &[libc::c_int]) -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: the first call initialises the set, and the others only change it. The numbers are constants of libc.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in signals {
                libc::sigaddset(set.as_mut_ptr(), *signal);
            }
            Self(set.assume_init())
        }
    }

    /// Blocks exactly these signals in this thread. Returns what was blocked before.
    pub(crate) fn set(&self) -> io::Result<Self> {
        let mut before = MaybeUninit::uninit();
        // SAFETY: both pointers are valid for the call, and the kernel fills the second one if the call succeeds.
        unsafe {
            checked(libc::sigprocmask(libc::SIG_SETMASK, &raw const self.0, before.as_mut_ptr()))?;
            Ok(Self(before.assume_init()))
        }
    }
}

/// Blocks these signals in this thread. Returns what was blocked before.
pub(crate) fn block(signals: &[libc::c_int]) -> io::Result<SignalMask> {
    SignalMask::of(signals).set()
}

/// A descriptor from which these signals, which must be blocked, can be read.
pub(crate) fn signal_reader(signals: &[libc::c_int]) -> io::Result<OwnedFd> {
    let set = SignalMask::of(signals);
    // SAFETY: the set is valid for the call. The new descriptor belongs to nobody else.
    unsafe { Ok(OwnedFd::from_raw_fd(checked(libc::signalfd(-1, &raw const set.0, libc::SFD_CLOEXEC))?)) }
}

/// Splits the process in two. `None` in the new one. This process must have one thread only: no other one exists in the new
/// process, so a lock that it held would stay locked there.
pub(crate) fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: the caller has one thread, so the new process is a whole copy of it.
    checked(unsafe { libc::fork() }).map(Pid::from_raw)
}

/// Ends this process by a signal, as its own command was ended.
pub(crate) fn die_by(signal: libc::c_int) {
    // SAFETY: the default action needs no handler, and raising a signal reads no memory of ours.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// Gives this process its own namespaces. It must have one thread only.
pub(crate) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: the flags are those of namespaces, not that of the descriptors, which other threads might use.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

/// Runs a function in the child, before it executes its program.
pub(crate) fn before_exec(
    command: &mut Command,
    prepare: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) {
    // SAFETY: the parent has one thread, so that nothing in the child waits for a lock of a thread that is not there.
    unsafe { command.pre_exec(prepare) };
}
