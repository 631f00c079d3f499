//! What the kernel of macOS answers: flushing, processes, the start of the machine, and who has a file open.
//!
//! Nobody has run this file where tollgate is developed: it is type-checked there. Each function does less, and says so
//! to its caller, if the kernel does not answer as its headers say.
#![allow(unsafe_code)]

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::fs::File;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::ptr::null_mut;
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags, RawMode};
use rustix::io::{Errno, retry_on_intr};
use rustix::time::ClockId;

use super::process::RunningProcess;

/// A clock that nobody can set, and that goes on while the machine sleeps.
pub(crate) const CLOCK: ClockId = ClockId::Monotonic;

/// The error for a file that does not have an extended attribute.
pub const NO_ATTRIBUTE: Errno = Errno::NOATTR;

/// What tells one start of the machine from another.
pub(crate) fn read_boot_id() -> Option<String> {
    let mut text = [0u8; 64];
    let mut length = text.len();
    // SAFETY: the name ends with a zero, the kernel writes at most `length` bytes and the number of them, and both outlive the call.
    let answer = unsafe {
        libc::sysctlbyname(
            c"kern.bootsessionuuid".as_ptr(),
            text.as_mut_ptr().cast(),
            &raw mut length,
            null_mut(),
            0,
        )
    };
    if answer != 0 {
        return None;
    }
    Some(CStr::from_bytes_until_nul(&text).ok()?.to_str().ok()?.to_owned())
}

/// Makes the bytes of a file, or the names in a folder, survive a power cut. `fsync` alone leaves them in the memory of the disk.
pub fn flush(file: impl AsFd) -> io::Result<()> {
    match retry_on_intr(|| rustix::fs::fcntl_fullfsync(&file)) {
        // File systems of other machines do not have it. Nor does a pipe, which has nothing to flush: callers know that as `INVAL`.
        Err(Errno::NOTSUP | Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL) => {
            match retry_on_intr(|| rustix::fs::fsync(&file)) {
                Err(Errno::NOTSUP | Errno::OPNOTSUPP) => Err(Errno::INVAL.into()),
                flushed => Ok(flushed?),
            }
        }
        flushed => Ok(flushed?),
    }
}

/// The same as [`flush`].
pub fn flush_data(file: impl AsFd) -> io::Result<()> {
    flush(file)
}

/// The process with this id.
pub fn process(pid: u32) -> Option<RunningProcess> {
    // SAFETY: the struct is one of numbers, for which zeros are valid.
    let mut found: libc::proc_bsdinfo = unsafe { zeroed() };
    ask(pid, libc::PROC_PIDTBSDINFO, std::slice::from_mut(&mut found)).filter(|count| *count == 1)?;
    let name = |letters: &[c_char]| {
        let bytes = letters.iter().take_while(|letter| **letter != 0).map(|letter| letter.cast_unsigned());
        String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
    };
    Some(RunningProcess {
        name: name(&found.pbi_comm),
        parent: found.pbi_ppid,
        started: found.pbi_start_tvsec.wrapping_mul(1_000_000).wrapping_add(found.pbi_start_tvusec),
        is_zombie: found.pbi_status == libc::SZOMB,
    })
}

/// There is no such signal. The lock of the claim alone protects: nobody gets the task while the command runs.
pub fn die_with_parent(_: i32) -> bool {
    true
}

/// Opens what has this name in a folder. A link is not followed.
pub fn open_link(folder: impl AsFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::SYMLINK | OFlags::NONBLOCK | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::openat(&folder, name, flags, Mode::empty()))
}

/// Changes the mode of a file or folder.
pub fn set_mode(folder: impl AsFd, name: &OsStr, mode: u32) -> rustix::io::Result<()> {
    let mode = Mode::from_raw_mode(mode as RawMode);
    retry_on_intr(|| rustix::fs::chmodat(&folder, name, mode, AtFlags::SYMLINK_NOFOLLOW))
}

/// The structs of `sys/proc_info.h` that the crate `libc` lacks.
#[repr(C)]
struct FileInfo {
    flags: u32,
    status: u32,
    offset: libc::off_t,
    kind: i32,
    guard_flags: u32,
}

#[repr(C)]
struct OpenVnode {
    file: FileInfo,
    vnode: libc::vnode_info,
}

const PROC_PIDFDVNODEINFO: c_int = 1;

/// `FWRITE` of `sys/fcntl.h`: how the kernel notes that a file is open for writing.
const FWRITE: u32 = 2;

/// Whether a process that we may look at has this file open for writing: those of the same user, or all for root.
pub(super) fn is_open_for_writing(file: &File) -> bool {
    let Ok(wanted) = file.metadata() else { return false };
    all_processes().into_iter().any(|pid| {
        open_files(pid).iter().filter(|open| open.proc_fdtype == libc::PROX_FDTYPE_VNODE as u32).any(|open| {
            vnode(pid, open.proc_fd).is_some_and(|open| {
                let found = &open.vnode.vi_stat;
                // The kernel's number of a device has 32 bits, which the standard library widens.
                (found.vst_dev, found.vst_ino) == (wanted.dev() as u32, wanted.ino())
                    && open.file.flags & FWRITE != 0
            })
        })
    })
}

fn all_processes() -> Vec<u32> {
    // SAFETY: without a buffer, the kernel only counts.
    let count = unsafe { libc::proc_listallpids(null_mut(), 0) };
    // Some may be started in between.
    let mut pids = vec![0i32; usize::try_from(count).unwrap_or(0) + 64];
    let size = c_int::try_from(pids.len() * size_of::<i32>()).unwrap_or(0);
    // SAFETY: the kernel writes at most `size` bytes, which the buffer has.
    let count = unsafe { libc::proc_listallpids(pids.as_mut_ptr().cast(), size) };
    pids.truncate(usize::try_from(count).unwrap_or(0));
    pids.into_iter().filter_map(|pid| u32::try_from(pid).ok()).collect()
}

fn open_files(pid: u32) -> Vec<libc::proc_fdinfo> {
    let size = size_of::<libc::proc_fdinfo>();
    let Ok(id) = c_int::try_from(pid) else { return Vec::new() };
    // SAFETY: without a buffer, the kernel only says how large it must be.
    let bytes = unsafe { libc::proc_pidinfo(id, libc::PROC_PIDLISTFDS, 0, null_mut(), 0) };
    let count = usize::try_from(bytes).unwrap_or(0) / size + 16;
    let mut open = vec![libc::proc_fdinfo { proc_fd: 0, proc_fdtype: 0 }; count];
    let count = ask(pid, libc::PROC_PIDLISTFDS, &mut open).unwrap_or(0);
    open.truncate(count);
    open
}

/// Asks about a process. Returns how many of the values were filled in.
fn ask<T>(pid: u32, what: c_int, answer: &mut [T]) -> Option<usize> {
    let size = c_int::try_from(size_of_val(answer)).ok()?;
    // SAFETY: the kernel writes at most `size` bytes, which the answer has. All types that are asked for are structs of numbers.
    let bytes =
        unsafe { libc::proc_pidinfo(c_int::try_from(pid).ok()?, what, 0, answer.as_mut_ptr().cast(), size) };
    Some(usize::try_from(bytes).ok()? / size_of::<T>())
}

fn vnode(pid: u32, fd: i32) -> Option<OpenVnode> {
    // SAFETY: both are structs of numbers, for which zeros are valid; the kernel writes at most their size.
    unsafe {
        let mut found: OpenVnode = zeroed();
        let size = c_int::try_from(size_of::<OpenVnode>()).ok()?;
        let pid = c_int::try_from(pid).ok()?;
        let bytes = libc::proc_pidfdinfo(pid, fd, PROC_PIDFDVNODEINFO, (&raw mut found).cast(), size);
        (bytes == size).then_some(found)
    }
}

/// No signal comes while a process waits for a disk; nothing more can be done about that here.
pub(super) fn kill_after(_: Duration) -> io::Result<()> {
    Ok(())
}
