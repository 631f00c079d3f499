//! Milliseconds since this machine was started: for measuring how long something has not changed.
//!
//! This is not the time of day, which every verb of the vault takes as an argument. It is a monotonic clock: nobody can set
//! it, on Linux it goes on while the machine sleeps, and it starts from zero when the machine restarts. Only differences
//! are used, and a stored value that lies in the future is from before a restart.

/// Milliseconds since this machine was started.
pub(super) fn millis_since_boot() -> u64 {
    #[cfg(target_os = "linux")]
    const ID: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const ID: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
    let now = rustix::time::clock_gettime(ID);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}
