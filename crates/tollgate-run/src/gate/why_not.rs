//! Why the gate is not possible here, and what to do about it.

use std::io;
use std::process::Command;

use super::call::supervised;
use crate::sys;
use crate::sys::seccomp::{DoorOfRun, Filter};

/// Why the gate is not possible here. `None` if it is: a process has just tried.
pub(crate) fn why_not() -> Option<String> {
    if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        return Some("the gate knows the system calls of x86-64 and aarch64 only".to_owned());
    }
    if let Some(why) = may_not_look() {
        return Some(why);
    }
    let filter = Filter::new(&supervised(), DoorOfRun::Missing);
    let mut trial = Command::new("true");
    sys::before_exec(&mut trial, move || {
        filter.install()?;
        // Far enough.
        Err(io::Error::from_raw_os_error(libc::ECANCELED))
    });
    match trial.spawn() {
        Err(error) if error.raw_os_error() != Some(libc::ECANCELED) => Some(why_not_installed(&error)),
        _ => None,
    }
}

/// Why the supervisor could not read the arguments of a call.
pub(super) fn may_not_look() -> Option<String> {
    if let Err(error) = std::fs::metadata("/proc/self/mem") {
        return Some(format!("the gate needs `/proc`, and `/proc/self/mem` cannot be used: {error}"));
    }
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let closed = match scope.trim() {
        "2" => !rustix::process::geteuid().is_root(),
        "3" => true,
        _ => false,
    };
    closed.then(|| {
        format!(
            "the gate must read the arguments of system calls, and `kernel.yama.ptrace_scope` is {}: set it to 1",
            scope.trim()
        )
    })
}

/// Why the kernel does not accept the filter, and what to do.
pub(super) fn why_not_installed(error: &io::Error) -> String {
    let words = match error.raw_os_error() {
        Some(libc::EBUSY) => {
            "another program supervises the system calls of this process already (a sandbox, or another `tollgate run`), and \
             the kernel allows only one: start tollgate outside of it"
        }
        Some(libc::ENOSYS | libc::EINVAL) => {
            "the kernel cannot ask a supervisor about system calls: Linux 5.9 or later is needed, with \
             `CONFIG_SECCOMP_FILTER`"
        }
        Some(libc::EPERM | libc::EACCES) => {
            "a sandbox forbids filters for system calls: allow `seccomp` in its profile (for Docker: `--security-opt \
             seccomp=PROFILE`)"
        }
        _ => return format!("the kernel refuses the filter for system calls: {error}"),
    };
    words.to_owned()
}
