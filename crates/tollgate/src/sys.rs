//! The kernel's file leases and locks of single bytes: the only unsafe lines of tollgate.
//!
//! A read lease on a descriptor is granted only while nobody has the file open for writing or mapped writable, and
//! from then on holds back whoever wants to open it for writing until we let go (at most 45 s by the kernel's default).
//! That is what "quiet" means.
//!
//! A lock of a byte belongs to the open file, as that of a whole file does, and is inherited with it; thousands of them
//! fit into one file that is made once. No safe crate wraps these calls.
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

    fn ask(file: &File, command: libc::c_int, at: u64) -> io::Result<libc::flock> {
        // SAFETY: all zeros is a valid value of this struct of numbers.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = libc::F_WRLCK as libc::c_short;
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
        match ask(file, libc::F_OFD_SETLK, at) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether one byte is locked through another open file.
    pub(crate) fn is_byte_locked(file: &File, at: u64) -> io::Result<bool> {
        ask(file, libc::F_OFD_GETLK, at).map(|lock| lock.l_type != libc::F_UNLCK as libc::c_short)
    }
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
mod bytes {
    use super::{File, io};

    pub(crate) fn try_lock_byte(_: &File, _: u64) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn is_byte_locked(_: &File, _: u64) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

pub(crate) use bytes::{is_byte_locked, try_lock_byte};
