//! The kernel's file leases: the only unsafe lines of tollgate.
//!
//! A read lease on a descriptor is granted only while nobody has the file open for writing or mapped writable, and
//! from then on holds back whoever wants to open it for writing until we let go (at most 45 s by the kernel's default).
//! That is what "quiet" means. No safe crate wraps these three calls.
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
