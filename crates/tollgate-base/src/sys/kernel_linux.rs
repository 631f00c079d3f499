//! What the kernel of Linux answers: flushing, processes, the start of the machine, and who has a file open.
#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use rustix::time::ClockId;

use super::checked;
use super::process::RunningProcess;

/// A clock that nobody can set, and that goes on while the machine sleeps.
pub(crate) const CLOCK: ClockId = ClockId::Boottime;

/// The error for a file that does not have an extended attribute.
pub const NO_ATTRIBUTE: Errno = Errno::NODATA;

/// What tells one start of the machine from another.
pub(crate) fn read_boot_id() -> Option<String> {
    Some(fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned())
}

/// Makes the bytes of a file, or the names in a folder, survive a power cut.
pub fn flush(file: impl AsFd) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::fsync(&file))?)
}

/// Like [`flush`], without the times of the file.
pub fn flush_data(file: impl AsFd) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::fdatasync(&file))?)
}

/// The process with this id.
pub fn process(pid: u32) -> Option<RunningProcess> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    // The name is in parentheses and may contain anything, also parentheses.
    let (before, rest) = text.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let started = fields.nth(17)?.parse().ok()?;
    Some(RunningProcess { name: name.to_owned(), parent, started, is_zombie: state == "Z" })
}

/// From now on, this process is killed when its parent dies. False if that is another process by now.
///
/// SIGKILL, not SIGTERM: a command that catches the signal would outlive its claim.
pub fn die_with_parent(parent: i32) -> bool {
    set_parent_process_death_signal(Some(Signal::KILL)).is_ok()
        && getppid().map(Pid::as_raw_pid) == Some(parent)
}

/// Opens what has this name in a folder, not to read it but to know it again. A link is not followed.
pub fn open_link(folder: impl AsFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::openat(&folder, name, flags, Mode::empty()))
}

/// Changes the mode of a file or folder. A symbolic link has none.
pub fn set_mode(folder: impl AsFd, name: &OsStr, mode: u32) -> rustix::io::Result<()> {
    let fd = open_link(folder, name)?;
    // A descriptor that is open for its path only cannot be changed itself.
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    retry_on_intr(|| rustix::fs::chmod(path.as_str(), Mode::from_raw_mode(mode)))
}

/// The commands for leases. The values are the same on every architecture.
pub(super) const F_SETSIG: libc::c_int = 10;
pub(super) const F_SETLEASE: libc::c_int = 1024;
#[cfg(not(tollgate_no_leases))]
pub(super) const F_GETLEASE: libc::c_int = 1025;

/// Makes a call about the lease on a file.
pub(super) fn lease(file: &File, command: libc::c_int, argument: libc::c_int) -> io::Result<libc::c_int> {
    // SAFETY: the descriptor is open for as long as `file` is borrowed, and the three commands used here take an
    // int by value; the kernel reads or writes no memory of ours.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), command, argument) })
}

/// Whether a process has this file open for writing. In place of the list of open files that macOS has: the kernel grants a lease
/// only if there is none, and the lease is returned at once.
#[cfg(tollgate_no_leases)]
pub(super) fn is_open_for_writing(file: &File) -> bool {
    let asked = lease(file, F_SETSIG, libc::SIGURG)
        .and_then(|_| lease(file, F_SETLEASE, libc::F_RDLCK as libc::c_int));
    let _ = lease(file, F_SETLEASE, libc::F_UNLCK as libc::c_int);
    asked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// After this time, the kernel kills the process, even if it waits for a disk and gets no other signal. Zero cancels
/// the timer.
pub(super) fn kill_after(wait: Duration) -> io::Result<()> {
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
        checked(libc::timer_settime(timer, 0, &when, std::ptr::null_mut())).map(drop)
    }
}
