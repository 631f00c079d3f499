//! A clock that nobody can set, for measuring across processes.
//!
//! It counts from the start of the machine. A stored value means something only until the next start: keep [`boot_id`] with it.

use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use crate::sys;

/// How often a wait looks at the clock. A timer stands still while the machine sleeps; the clock goes on.
const LOOK: Duration = Duration::from_secs(1);

/// Milliseconds since this machine was started: for measuring how long something has not changed.
///
/// It goes on while the machine sleeps. A stored value that lies in the future is from before a restart.
pub fn millis_since_boot() -> u64 {
    let now = rustix::time::clock_gettime(sys::CLOCK);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

/// Waits for a moment that may be put off, by a clock such as [`millis_since_boot`]. Whether it comes before the sender of `over` is
/// dropped.
pub fn comes(moment: impl Fn() -> u64, now: impl Fn() -> u64, over: &Receiver<()>) -> bool {
    loop {
        let left = Duration::from_millis(moment().saturating_sub(now()));
        if over.recv_timeout(left.min(LOOK)) != Err(RecvTimeoutError::Timeout) {
            return false;
        }
        if left.is_zero() {
            return true;
        }
    }
}

/// What tells one start of the machine from another. Empty where the system does not tell.
pub fn boot_id() -> &'static str {
    // No process outlives its start of the machine, so it is read once.
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| sys::read_boot_id().unwrap_or_default())
}

/// A length of time, for adding to a moment of this clock.
pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_moment_that_came_while_the_machine_slept_is_noticed_within_a_second_or_so() {
        let (_sender, over) = mpsc::channel::<()>();
        let (began, looks) = (Instant::now(), Cell::new(0));
        // After the first look the machine sleeps for an hour.
        let now = || 3_600_000 * u64::from(looks.replace(looks.get() + 1) > 0);
        assert!(comes(|| 20_000, now, &over));
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    }
}
