//! What differs between systems, behind the same functions on each of them, and all unsafe code of the library's base.
//!
//! A byte lock belongs to the open file, like a lock on the whole file, and child processes inherit it. One file, created
//! once, has room for thousands of byte locks.
//!
//! Two modules are chosen here, and only here does the library ask for which system it is compiled:
//! - `layer` has what tollgate does on Linux and nowhere else (`linux`), or what stands in for it (`portable`): how a file is made
//!   quiet, how a path is opened without following links. `RUSTFLAGS='--cfg tollgate_no_leases'` chooses `portable` on Linux, so that
//!   the suite tests there what macOS runs. Nothing else asks for this flag.
//! - `kernel` asks this system's kernel what every kernel can answer in its own way: flushing, processes, the start of the machine.
#![allow(unsafe_code)]

#[cfg_attr(target_os = "linux", path = "sys/kernel_linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "sys/kernel_macos.rs")]
mod kernel;
#[cfg_attr(all(target_os = "linux", not(tollgate_no_leases)), path = "sys/linux.rs")]
#[cfg_attr(not(all(target_os = "linux", not(tollgate_no_leases))), path = "sys/portable.rs")]
mod layer;
mod process;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use rustix::io::Errno;

pub(crate) use kernel::{CLOCK, read_boot_id};
pub use kernel::{NO_ATTRIBUTE, die_with_parent, flush, flush_data, open_link, process, set_mode};
pub use layer::{HAS_LEASES, drop_lease, has_read_lease, link_text, metadata, take_read_lease};
pub(crate) use layer::{NO_ATIME, WAY, each_entry, open_without_links};
pub use process::RunningProcess;

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
compile_error!(
    "tollgate supports Linux and macOS: its promises need locks and renames that differ elsewhere"
);

/// Whether an error says that the file system or the kernel lacks a call. Linux has one number for what macOS tells apart.
pub fn is_unsupported(error: Errno) -> bool {
    [Errno::NOSYS, Errno::OPNOTSUPP, Errno::NOTSUP].contains(&error)
}

/// Whether an error says that files cannot be exchanged here, or cannot be renamed without replacing another.
pub fn lacks_rename_flag(error: Errno) -> bool {
    error == Errno::INVAL || is_unsupported(error)
}

fn checked(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
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
    pub fn set(wait: Duration, answer: Vec<u8>) -> io::Result<Self> {
        let mut deadline = Self(());
        deadline.change(wait, answer)?;
        Ok(deadline)
    }

    /// Sets another time, counted from now, and another answer.
    pub fn change(&mut self, wait: Duration, answer: Vec<u8>) -> io::Result<()> {
        // A timer of zero would cancel the deadline.
        let wait = wait.max(Duration::from_millis(1));
        print_after(wait, answer).and_then(|()| kernel::kill_after(wait + GRACE))
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        // Neither can fail, because both timers exist.
        let _ = alarm_after(Duration::ZERO);
        let _ = kernel::kill_after(Duration::ZERO);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_errors_of_a_file_system_that_cannot_are_told_from_those_of_a_disk_that_fails() {
        for error in [Errno::NOSYS, Errno::OPNOTSUPP, Errno::NOTSUP] {
            assert!(is_unsupported(error) && lacks_rename_flag(error), "{error}");
        }
        assert!(lacks_rename_flag(Errno::INVAL) && !is_unsupported(Errno::INVAL));
        for error in [Errno::IO, Errno::EXIST, Errno::NOENT, Errno::PERM, Errno::XDEV] {
            assert!(!is_unsupported(error) && !lacks_rename_flag(error), "{error}");
        }
    }

    #[test]
    fn a_link_is_read_by_itself_and_never_by_another_of_its_name() {
        use std::os::unix::fs::symlink;
        let keep = tempfile::tempdir().unwrap();
        let folder = File::open(keep.path()).unwrap();
        symlink("one", keep.path().join("link")).unwrap();
        let name = std::ffi::OsStr::new("link");
        let link = open_link(&folder, name).unwrap();
        assert_eq!(link_text(&link, &folder, name).unwrap().as_deref(), Some(&b"one"[..]));
        std::fs::remove_file(keep.path().join("link")).unwrap();
        symlink("two", keep.path().join("link")).unwrap();
        let text = link_text(&link, &folder, name).unwrap();
        assert_ne!(text.as_deref(), Some(&b"two"[..]), "that is another link");
    }
}
