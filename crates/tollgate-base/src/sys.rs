//! The kernel's file leases, byte locks and timers. All unsafe code of tollgate is here, because no safe crate wraps
//! these calls.
//!
//! A byte lock belongs to the open file, like a lock on the whole file, and child processes inherit it. One file, created
//! once, has room for thousands of byte locks.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use crate::error::{At, Result};

fn checked(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// The commands for leases, which only Linux has. The values are the same on every architecture.
const F_SETSIG: libc::c_int = 10;
const F_SETLEASE: libc::c_int = 1024;
const F_GETLEASE: libc::c_int = 1025;

#[cfg(target_os = "linux")]
fn lease(file: &File, command: libc::c_int, argument: libc::c_int) -> io::Result<libc::c_int> {
    // SAFETY: the descriptor is open for as long as `file` is borrowed, and the three commands used here take an
    // int by value; the kernel reads or writes no memory of ours.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), command, argument) })
}

#[cfg(not(target_os = "linux"))]
fn lease(_: &File, _: libc::c_int, _: libc::c_int) -> io::Result<libc::c_int> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Takes a read lease. The kernel grants it only while nobody has the file open for writing or mapped writable. From then
/// on, a process that opens the file for writing must wait until we return the lease (at most 45 s by the kernel's
/// default). A file with such a lease is "quiet".
pub fn take_read_lease(file: &File) -> io::Result<()> {
    // By default, the kernel announces a broken lease with SIGIO, which would end the process. SIGURG is ignored.
    lease(file, F_SETSIG, libc::SIGURG)?;
    lease(file, F_SETLEASE, libc::F_RDLCK as libc::c_int)?;
    Ok(())
}

/// Whether the lease is still in force.
pub fn has_read_lease(file: &File) -> io::Result<bool> {
    Ok(lease(file, F_GETLEASE, 0)? == libc::F_RDLCK as libc::c_int)
}

/// Returns the lease.
pub fn drop_lease(file: &File) -> io::Result<()> {
    lease(file, F_SETLEASE, libc::F_UNLCK as libc::c_int).map(drop)
}

/// Makes a call about the lock on one byte, and returns the kernel's answer.
fn byte_lock(file: &File, command: libc::c_int, at: u64) -> io::Result<libc::flock> {
    // SAFETY: all zeros is a valid value of this struct of numbers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = libc::off_t::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
    lock.l_len = 1;
    // SAFETY: the descriptor is open for as long as `file` is borrowed, and both commands read and write the one
    // struct they are given, which lives until they return.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) })?;
    Ok(lock)
}

/// Locks one byte, unless it is locked through another open file. The file must be open for writing.
pub fn try_lock_byte(file: &File, at: u64) -> io::Result<bool> {
    match byte_lock(file, libc::F_OFD_SETLK, at) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether one byte is locked through another open file.
pub fn is_byte_locked(file: &File, at: u64) -> io::Result<bool> {
    byte_lock(file, libc::F_OFD_GETLK, at).map(|lock| lock.l_type != libc::F_UNLCK as libc::c_short)
}

/// Enough time to print the answer, if that is possible at all.
const GRACE: Duration = Duration::from_millis(500);

/// A deadline for the whole process: when it passes, the process prints a prepared answer and exits with success.
/// Dropping the value cancels it.
///
/// Hooks use it, because they must answer in time. A signal does the work: a watching thread would cost a tenth of a
/// millisecond in a process that lives for one. A process that waits for a disk ignores every signal except `SIGKILL`,
/// so the kernel kills it a little later, and its caller sees that.
///
/// There is one deadline per process. The answer goes to standard output in one write, so it must fit into a pipe's
/// buffer.
#[derive(Debug)]
#[must_use = "a deadline that is dropped at once never passes"]
pub struct Deadline(());

impl Deadline {
    /// After this time, the process prints this answer and exits.
    pub fn set(wait: Duration, answer: Vec<u8>) -> Result<Self> {
        let mut deadline = Self(());
        deadline.change(wait, answer)?;
        Ok(deadline)
    }

    /// Sets another time, counted from now, and another answer.
    pub fn change(&mut self, wait: Duration, answer: Vec<u8>) -> Result<()> {
        // A timer of zero would cancel the deadline.
        let wait = wait.max(Duration::from_millis(1));
        print_after(wait, answer).and_then(|()| kill_after(wait + GRACE)).at("set a timer", "")
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        // Neither can fail, because both timers exist.
        let _ = alarm_after(Duration::ZERO);
        let _ = kill_after(Duration::ZERO);
    }
}

/// The answer to print. Never freed, because the signal may come at any moment.
static ANSWER: AtomicPtr<Vec<u8>> = AtomicPtr::new(null_mut());

/// In a signal handler: only atomics, `write` and `_exit`.
extern "C" fn time_is_up(_: libc::c_int) {
    // SAFETY: the pointer is null or came from `Box::into_raw` and is never freed or changed; both calls are
    // allowed in a signal handler.
    unsafe {
        if let Some(answer) = ANSWER.load(Ordering::SeqCst).as_ref() {
            libc::write(libc::STDOUT_FILENO, answer.as_ptr().cast(), answer.len());
        }
        libc::_exit(0)
    }
}

fn print_after(wait: Duration, answer: Vec<u8>) -> io::Result<()> {
    ANSWER.store(Box::into_raw(Box::new(answer)), Ordering::SeqCst);
    // SAFETY: zeros are a valid `sigaction`, whose handler is a function that lives as long as the process.
    let set = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = time_is_up as *const () as libc::sighandler_t;
        libc::sigaction(libc::SIGALRM, &action, null_mut())
    };
    checked(set)?;
    alarm_after(wait)
}

/// Zero cancels the timer.
fn alarm_after(wait: Duration) -> io::Result<()> {
    let once = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let wait = libc::timeval {
        tv_sec: wait.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_usec: wait.subsec_micros() as libc::suseconds_t,
    };
    let timer = libc::itimerval { it_interval: once, it_value: wait };
    // SAFETY: both point to what lives until the call returns, and the second may be null.
    checked(unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, null_mut()) }).map(drop)
}

/// After this time, the kernel kills the process, even if it waits for a disk and gets no other signal. Zero cancels
/// the timer.
#[cfg(target_os = "linux")]
fn kill_after(wait: Duration) -> io::Result<()> {
    /// Created once. A pointer by type, but to something of the kernel's.
    static TIMER: std::sync::Mutex<Option<usize>> = std::sync::Mutex::new(None);
    let mut made = TIMER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // SAFETY: zeros are a valid `sigevent` and `itimerspec`, all pointers are to what lives until the calls return,
    // and the timer was made by the first call and is never deleted.
    unsafe {
        let mut timer = made.unwrap_or_default() as libc::timer_t;
        if made.is_none() {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_SIGNAL;
            event.sigev_signo = libc::SIGKILL;
            checked(libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer))?;
            *made = Some(timer as usize);
        }
        let mut when: libc::itimerspec = std::mem::zeroed();
        when.it_value.tv_sec = wait.as_secs().try_into().unwrap_or(libc::time_t::MAX);
        when.it_value.tv_nsec = wait.subsec_nanos().into();
        checked(libc::timer_settime(timer, 0, &when, null_mut())).map(drop)
    }
}

#[cfg(not(target_os = "linux"))]
fn kill_after(_: Duration) -> io::Result<()> {
    Ok(())
}
