//! The kernel's user notification for system calls: a filter that asks a supervisor, and the supervisor's side of it.
//!
//! A process that has installed the filter, and everything that it starts, waits in each listed call until the supervisor
//! answers. If there is no supervisor any more, the kernel answers `ENOSYS`: the calls fail, and nothing is changed.
#![allow(unsafe_code)]

use std::io;
use std::iter;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::signalled::is_signalled;
use crate::level::RunLevel;
use libc::{c_int, c_uint, c_ulong, sock_filter, sock_fprog};

/// The calls that a filter treats in a special way, by number.
pub(crate) struct CallList {
    /// The supervisor answers.
    pub(crate) asked: Vec<u32>,
    /// Calls that open a file, and where their flags are among the arguments. The supervisor answers if the file could be
    /// read or written: a call with one of `harmless` among its flags is let through.
    pub(crate) opens: Vec<(u32, u8)>,
    /// The flags of calls that open no bytes.
    pub(crate) harmless: u32,
    /// The kernel answers `ENOSYS`.
    pub(crate) absent: Vec<u32>,
}

/// The architecture as the kernel names it in the data of a call.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: u32 = 0;

/// Numbers from here on are calls of x32 programs, which have tables of their own.
const FOREIGN_NUMBERS: u32 = 0x4000_0000;

/// What a process asks the kernel to learn in which run it is: operations of `prctl` that no kernel has. The filter of a run answers
/// yes by the signal `SIGSYS`, and no process can remove a filter. One that a command installs cannot take the yes back: of all
/// filters, the kernel takes the strictest answer, and only to end the process is stricter than the signal. So each question is put
/// in such a way that a yes allows less than a no.
#[derive(Debug, Clone, Copy)]
#[repr(u32)]
enum Question {
    InRun = 0x746F_6C6C,
    UnderGate,
    /// Whether `tollgate` must call at the door of the run for what it cannot do itself.
    AtDoor,
}

/// Whether `tollgate` in a run can reach the process in front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DoorOfRun {
    Open,
    /// A sandbox around the run allows no sockets.
    Missing,
}

/// Offsets in `seccomp_data`.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ARGUMENTS: u32 = 16;

/// Since Linux 5.19: once the supervisor has received a call, only a deadly signal interrupts it.
const WAIT_KILLABLE: c_ulong = libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
const LISTENER: c_ulong = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;

/// The filter, as a program of the kernel's packet filter.
#[derive(Debug, Clone)]
pub(crate) struct Filter(Vec<sock_filter>);

impl Filter {
    /// The filter for these calls. Calls of other architectures do not exist: nobody knows their numbers.
    pub(crate) fn new(calls: &CallList, door: DoorOfRun) -> Self {
        let absent = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs();
        let mut code = vec![
            load(ARCH),
            // Skips the next one if it is ours.
            op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, ARCHITECTURE, 1, 0),
            answer(absent),
            load(NUMBER),
            skip_unless(libc::BPF_JGE, FOREIGN_NUMBERS, 1),
            answer(absent),
        ];
        code.extend(mark(match door {
            DoorOfRun::Open => &[Question::InRun, Question::UnderGate, Question::AtDoor],
            DoorOfRun::Missing => &[Question::InRun, Question::UnderGate],
        }));
        for (number, flags) in &calls.opens {
            code.extend([
                skip_unless(libc::BPF_JEQ, *number, 4),
                load(ARGUMENTS + 8 * u32::from(*flags)),
                skip_unless(libc::BPF_JSET, calls.harmless, 1),
                answer(libc::SECCOMP_RET_ALLOW),
                answer(libc::SECCOMP_RET_USER_NOTIF),
            ]);
        }
        for (numbers, value) in [(&calls.asked, libc::SECCOMP_RET_USER_NOTIF), (&calls.absent, absent)] {
            for number in numbers {
                code.extend([skip_unless(libc::BPF_JEQ, *number, 1), answer(value)]);
            }
        }
        code.push(answer(libc::SECCOMP_RET_ALLOW));
        Self(code)
    }

    /// The filter of a transaction: allows everything, and tells a process that it is in a run.
    pub(crate) fn of_transaction() -> Self {
        let mut code = vec![
            load(ARCH),
            op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, ARCHITECTURE, 1, 0),
            answer(libc::SECCOMP_RET_ALLOW),
            load(NUMBER),
        ];
        code.extend(mark(&[Question::InRun, Question::AtDoor]));
        code.push(answer(libc::SECCOMP_RET_ALLOW));
        Self(code)
    }

    /// Installs a filter that asks no supervisor. The caller has the right to do so: it has just entered its own namespaces.
    pub(crate) fn install_alone(&self) -> io::Result<()> {
        self.install_with(0).map(drop)
    }

    /// Installs the filter in this process, for good. Returns the listener of the supervisor, and how a call waits for it.
    ///
    /// Safe between `fork` and `exec`: allocates nothing.
    pub(crate) fn install(&self) -> io::Result<(OwnedFd, Interruptible)> {
        let is = |error: &io::Error, code| error.raw_os_error() == Some(code);
        let with_listener = |flags, interruptible| {
            let listener = self.install_with(LISTENER | flags)?.ok_or(io::ErrorKind::Unsupported)?;
            Ok((listener, interruptible))
        };
        let install = || match with_listener(WAIT_KILLABLE, Interruptible::No) {
            // An older kernel. There, any signal interrupts a call that waits, and the call is made again.
            Err(error) if is(&error, libc::EINVAL) => with_listener(0, Interruptible::Yes),
            installed => installed,
        };
        match install() {
            // Otherwise a program that gains privileges could be misled by the filter. Root may do without this promise.
            Err(error) if is(&error, libc::EACCES) => {
                rustix::thread::set_no_new_privs(true)?;
                install()
            }
            installed => installed,
        }
    }

    /// With a listener, the answer is its descriptor.
    fn install_with(&self, flags: c_ulong) -> io::Result<Option<OwnedFd>> {
        let program = sock_fprog {
            len: u16::try_from(self.0.len()).unwrap_or(u16::MAX),
            filter: self.0.as_ptr().cast_mut(),
        };
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        // SAFETY: `program` and the instructions that it points to live until the call returns, and the kernel only reads
        // them. The answer is an error, or with a listener a new descriptor, which nobody else owns.
        unsafe {
            let answer = libc::syscall(libc::SYS_seccomp, mode, flags as c_uint, &raw const program);
            if answer < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok((flags & LISTENER != 0).then(|| OwnedFd::from_raw_fd(answer as c_int)))
        }
    }
}

fn op(code: u32, value: u32, if_so: u8, otherwise: u8) -> sock_filter {
    let code = u16::try_from(code).unwrap_or(u16::MAX);
    sock_filter { code, jt: if_so, jf: otherwise, k: value }
}

fn load(at: u32) -> sock_filter {
    op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at, 0, 0)
}

fn answer(value: u32) -> sock_filter {
    op(libc::BPF_RET | libc::BPF_K, value, 0, 0)
}

fn skip_unless(test: u32, value: u32, skipped: u8) -> sock_filter {
    op(libc::BPF_JMP | test | libc::BPF_K, value, 0, skipped)
}

/// Says yes to these questions. The number of the call is loaded before and after.
fn mark(yes: &[Question]) -> Vec<sock_filter> {
    let questions = yes.iter().flat_map(|question| {
        [skip_unless(libc::BPF_JEQ, *question as u32, 1), answer(libc::SECCOMP_RET_TRAP)]
    });
    let mut code: Vec<_> = iter::once(load(ARGUMENTS)).chain(questions).chain([load(NUMBER)]).collect();
    let length = u8::try_from(code.len()).unwrap_or(u8::MAX);
    code.insert(0, skip_unless(libc::BPF_JEQ, libc::SYS_prctl as u32, length));
    code
}

/// Whether a filter says yes. If nobody can tell, that counts as a yes.
fn is_yes(question: Question) -> bool {
    let ask = || {
        // SAFETY: an operation that does not exist reads and writes nothing.
        unsafe { libc::prctl(question as c_int, 0, 0, 0, 0) };
    };
    is_signalled(libc::SIGSYS, ask).unwrap_or(true)
}

/// The level of the run in which this process is, as the kernel says.
pub(crate) fn level_here() -> Option<RunLevel> {
    is_yes(Question::InRun).then(|| match is_yes(Question::UnderGate) {
        true => RunLevel::Gate,
        false => RunLevel::Transaction,
    })
}

/// Whether this process is in a run without a door.
pub(crate) fn is_without_door() -> bool {
    is_yes(Question::InRun) && !is_yes(Question::AtDoor)
}

/// Whether a call that the supervisor has received may be interrupted by a signal, and made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interruptible {
    Yes,
    /// Only by one that ends the process.
    No,
}

/// A call that waits for an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitingCall {
    /// The kernel's name for it.
    pub(crate) id: u64,
    /// The thread that makes the call.
    pub(crate) thread: u32,
    pub(crate) number: u32,
    pub(crate) arguments: [u64; 6],
}

/// The answer to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallAnswer {
    /// The kernel makes it.
    Continue,
    /// The supervisor has made it.
    Made,
    /// It fails.
    Fails(c_int),
}

/// Waits for the next call. `None` if the caller was killed in the meantime.
pub(crate) fn receive(listener: &OwnedFd) -> io::Result<Option<WaitingCall>> {
    // SAFETY: zeros are a valid value of this struct of numbers, and the kernel requires them. It lives until the call
    // returns, and has the size that the kernel expects: the request's number contains it.
    let (answer, call) = unsafe {
        let mut call: libc::seccomp_notif = std::mem::zeroed();
        let answer = libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV as _, &raw mut call);
        (answer, call)
    };
    if answer < 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ENOENT | libc::EINTR) => Ok(None),
            _ => Err(error),
        };
    }
    Ok(Some(WaitingCall {
        id: call.id,
        thread: call.pid,
        number: call.data.nr.unsigned_abs(),
        arguments: call.data.args,
    }))
}

/// Whether the call still waits. Otherwise its thread's number may belong to another one by now.
pub(crate) fn still_waits(listener: &OwnedFd, id: u64) -> bool {
    // SAFETY: the kernel reads one number, which lives until the call returns.
    unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID as _, &raw const id) == 0 }
}

/// Answers a call. A caller that was killed in the meantime needs no answer.
pub(crate) fn reply(listener: &OwnedFd, id: u64, answer: CallAnswer) -> io::Result<()> {
    let (error, flags) = match answer {
        CallAnswer::Continue => (0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
        CallAnswer::Made => (0, 0),
        CallAnswer::Fails(error) => (-error, 0),
    };
    let mut reply = libc::seccomp_notif_resp { id, val: 0, error, flags };
    // SAFETY: the struct lives until the call returns, and has the size that the request's number contains.
    let sent =
        unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND as _, &raw mut reply) };
    match io::Error::last_os_error() {
        error if sent < 0 && error.raw_os_error() != Some(libc::ENOENT) => Err(error),
        _ => Ok(()),
    }
}

/// Asks for a switch to the supervisor on the same processor, which halves the wait. Kernels before 6.6 cannot do it.
pub(crate) fn prefer_same_processor(listener: &OwnedFd) {
    const SYNC_WAKE_UP: u64 = 1;
    // SAFETY: the kernel takes the flags by value.
    unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS as _, SYNC_WAKE_UP) };
}
