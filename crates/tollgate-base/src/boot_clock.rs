//! A clock that nobody can set, for measuring across processes.
//!
//! It counts from the start of the machine. A stored value means something only until the next start: keep [`boot_id`] with it.

use std::fs;

/// Milliseconds since this machine was started: for measuring how long something has not changed.
///
/// On Linux it goes on while the machine sleeps. A stored value that lies in the future is from before a restart.
pub fn millis_since_boot() -> u64 {
    #[cfg(target_os = "linux")]
    const ID: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const ID: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
    let now = rustix::time::clock_gettime(ID);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

/// What tells one start of the machine from another. Empty where the system does not tell.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}
