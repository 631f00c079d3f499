//! The kernel's file leases, locks of single bytes and timers: the only unsafe lines of tollgate.
//!
//! A read lease on a descriptor is granted only while nobody has the file open for writing or mapped writable, and
//! from then on holds back whoever wants to open it for writing until we let go (at most 45 s by the kernel's default).
//! That is what "quiet" means.
//!
//! A lock of a byte belongs to the open file, as that of a whole file does, and is inherited with it; thousands of them
//! fit into one file that is made once. No safe crate wraps these calls.
//!
//! The timers are for [`crate::deadline`].
#![allow(unsafe_code)]

use std::fs::File;
use std::io;

#[cfg(target_os = "linux")]
mod imp {
    use super::{File, io};
    use std::os::fd::AsRawFd;

    /// The same on every architecture that has it; the crate does not.
    const F_SETSIG: libc::c_int = 10;

    fn fcntl(file: &File, command: libc::c_int, argument: libc::c_int) -> io::Result<libc::c_int> {
        // SAFETY: the descriptor is open for as long as `file` is borrowed, and the three commands used here take an
        // int by value; the kernel reads or writes no memory of ours.
        let answer = unsafe { libc::fcntl(file.as_raw_fd(), command, argument) };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
    }

    pub(crate) fn take_read_lease(file: &File) -> io::Result<()> {
        // A broken lease is announced by SIGIO, which would end the process; SIGURG is ignored unless asked for.
        fcntl(file, F_SETSIG, libc::SIGURG)?;
        fcntl(file, libc::F_SETLEASE, libc::F_RDLCK)?;
        Ok(())
    }

    pub(crate) fn has_read_lease(file: &File) -> io::Result<bool> {
        Ok(fcntl(file, libc::F_GETLEASE, 0)? == libc::F_RDLCK)
    }

    pub(crate) fn drop_lease(file: &File) -> io::Result<()> {
        fcntl(file, libc::F_SETLEASE, libc::F_UNLCK).map(drop)
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use super::{File, io};

    pub(crate) fn take_read_lease(_: &File) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn has_read_lease(_: &File) -> io::Result<bool> {
        Ok(false)
    }

    pub(crate) fn drop_lease(_: &File) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) use imp::{drop_lease, has_read_lease, take_read_lease};

#[cfg(any(target_os = "linux", target_os = "macos"))]
mod bytes {
    use super::{File, io};
    use std::os::fd::AsRawFd;

    fn ask(file: &File, command: libc::c_int, kind: libc::c_int, at: u64) -> io::Result<libc::flock> {
        // SAFETY: all zeros is a valid value of this struct of numbers.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = kind as libc::c_short;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
        lock.l_start = libc::off_t::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
        lock.l_len = 1;
        // SAFETY: the descriptor is open for as long as `file` is borrowed, and both commands read and write the one
        // struct they are given, which lives until they return.
        let answer = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(lock) }
    }

    /// Locks one byte, unless it is locked through another open file. The file must be open for writing.
    pub(crate) fn try_lock_byte(file: &File, at: u64) -> io::Result<bool> {
        match ask(file, libc::F_OFD_SETLK, libc::F_WRLCK, at) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Lets go of one byte.
    pub(crate) fn unlock_byte(file: &File, at: u64) -> io::Result<()> {
        ask(file, libc::F_OFD_SETLK, libc::F_UNLCK, at).map(drop)
    }

    /// Whether one byte is locked through another open file.
    pub(crate) fn is_byte_locked(file: &File, at: u64) -> io::Result<bool> {
        ask(file, libc::F_OFD_GETLK, libc::F_WRLCK, at)
            .map(|lock| lock.l_type != libc::F_UNLCK as libc::c_short)
    }
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
mod bytes {
    use super::{File, io};

    pub(crate) fn try_lock_byte(_: &File, _: u64) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn unlock_byte(_: &File, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn is_byte_locked(_: &File, _: u64) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

pub(crate) use bytes::{is_byte_locked, try_lock_byte, unlock_byte};

/// Timers that end the process.
pub(crate) mod timer {
    use std::io;
    use std::ptr::null_mut;
    use std::sync::atomic::{AtomicPtr, Ordering};
    use std::time::Duration;

    /// What is said in the end. Never freed: the signal may come at any moment.
    static WORDS: AtomicPtr<Vec<u8>> = AtomicPtr::new(null_mut());

    /// In a signal handler: only atomics, `write` and `_exit`.
    extern "C" fn time_is_up(_: libc::c_int) {
        // SAFETY: the pointer is null or came from `Box::into_raw` and is never freed or changed; both calls are
        // allowed in a signal handler.
        unsafe {
            if let Some(words) = WORDS.load(Ordering::SeqCst).as_ref() {
                libc::write(libc::STDOUT_FILENO, words.as_ptr().cast(), words.len());
            }
            libc::_exit(0)
        }
    }

    /// After this time the process says these words on standard output and ends as if all were well.
    pub(crate) fn set(wait: Duration, words: Vec<u8>) -> io::Result<()> {
        WORDS.store(Box::into_raw(Box::new(words)), Ordering::SeqCst);
        // SAFETY: zeros are a valid `sigaction`, whose handler is a function that lives as long as the process.
        let answer = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = time_is_up as *const () as libc::sighandler_t;
            libc::sigaction(libc::SIGALRM, &action, null_mut())
        };
        checked(answer)?;
        alarm(wait)
    }

    /// After this time the words are said. Zero: not.
    pub(crate) fn alarm(wait: Duration) -> io::Result<()> {
        let zero = libc::timeval { tv_sec: 0, tv_usec: 0 };
        let timer = libc::itimerval { it_interval: zero, it_value: timeval(wait) };
        // SAFETY: both point to what lives until the call returns, and the second may be null.
        checked(unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, null_mut()) })
    }

    fn timeval(wait: Duration) -> libc::timeval {
        libc::timeval {
            tv_sec: wait.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_usec: wait.subsec_micros() as libc::suseconds_t,
        }
    }

    fn checked(answer: libc::c_int) -> io::Result<()> {
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// After this time the kernel ends the process, also where it waits for a disk and hears no other signal. Zero: not.
    #[cfg(target_os = "linux")]
    pub(crate) fn kill(wait: Duration) -> io::Result<()> {
        /// Made once. Its type is a pointer, but what it points to is the kernel's.
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
            checked(libc::timer_settime(timer, 0, &when, null_mut()))
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn kill(_: Duration) -> io::Result<()> {
        Ok(())
    }
}
