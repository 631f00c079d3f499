//! Trying again: for errors that may pass, after 100, 200 and 400 ms, each with a little jitter; and for a task that is
//! still being written.
//!
//! Invariant: only a fault that may pass is tried again. A lost race is an answer and never comes here; a full disk or
//! a missing permission does not pass in half a second and is reported at once.

use std::io;
use std::time::Duration;

use jiff::Timestamp;

use super::store::Ready;
use super::{Asked, Claiming, Reason, TaskName, Vault};
use crate::error::{Fault, Result};

/// The pauses of the contract.
pub const PAUSES: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(200), Duration::from_millis(400)];

/// Whether the same attempt may succeed a moment later.
pub fn may_pass(fault: &Fault) -> bool {
    match fault {
        Fault::Locked { .. } => true,
        Fault::Io { source, .. } => {
            // EIO: network and fuse file systems give it for what is gone a moment later.
            let passing = [libc::EINTR, libc::EAGAIN, libc::EBUSY, libc::EIO, libc::ESTALE, libc::ETXTBSY];
            source.raw_os_error().is_some_and(|code| passing.contains(&code))
                || source.kind() == io::ErrorKind::TimedOut
        }
        _ => false,
    }
}

/// Tries until it succeeds, fails for good, or has failed once more after the last pause. `sleep` does the waiting.
pub fn patiently<T>(mut attempt: impl FnMut() -> Result<T>, sleep: &dyn Fn(Duration)) -> Result<T> {
    for pause in PAUSES {
        match attempt() {
            Err(fault) if may_pass(&fault) => sleep(jittered(pause)),
            answer => return answer,
        }
    }
    attempt()
}

/// How often a file that somebody is writing is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

impl Vault {
    /// Takes this task. A file that is being written is waited for, as long as a complete one would need to `settle`, and
    /// a little longer.
    pub fn claim_when_complete(
        &self,
        task: &TaskName,
        asked: &Asked,
        settle: Duration,
        now: &dyn Fn() -> Timestamp,
        sleep: &dyn Fn(Duration),
    ) -> Result<Claiming> {
        let enough = 2 * settle + Duration::from_secs(1);
        let patience = now().checked_add(enough).unwrap_or(Timestamp::MAX);
        loop {
            let claiming = patiently(|| self.claim(task, asked, now()), sleep)?;
            let Claiming::Not(not) = &claiming else { return Ok(claiming) };
            if not.reason != Reason::Incomplete || now() > patience {
                return Ok(claiming);
            }
            let being_written = || {
                let stored = self.get(task, now());
                stored.is_ok_and(|stored| matches!(stored.ready, Ready::Empty | Ready::Open))
            };
            match not.wait {
                Some(wait) => sleep(wait),
                None if being_written() => sleep(LOOK_AGAIN),
                None => return Ok(claiming),
            }
        }
    }
}

/// Up to a quarter longer, so that those who failed together do not come back together.
fn jittered(pause: Duration) -> Duration {
    let random = getrandom::u32().unwrap_or_default();
    pause + pause / 4 * (random % 1000) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn fault(code: i32) -> Fault {
        Fault::Io { doing: "try", path: "x".into(), source: io::Error::from_raw_os_error(code) }
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let waited = RefCell::new(Vec::new());
        let sleep = |pause| waited.borrow_mut().push(pause);
        let mut tries = 0;
        let answer = patiently(
            || {
                tries += 1;
                if tries < 4 { Err(fault(libc::EBUSY)) } else { Ok(()) }
            },
            &sleep,
        );
        assert!(answer.is_ok());
        assert_eq!(waited.borrow().len(), 3);
        for (waited, pause) in waited.borrow().iter().zip(PAUSES) {
            assert!(*waited >= pause && *waited <= pause + pause / 4, "{waited:?}");
        }
        for code in [libc::ENOENT, libc::ENOSPC, libc::EACCES, libc::EROFS, libc::EEXIST] {
            let mut tries = 0;
            let answer: Result<()> = patiently(
                || {
                    tries += 1;
                    Err(fault(code))
                },
                &|_| panic!("no pause for a fault that stays"),
            );
            assert!(answer.is_err() && tries == 1, "{code}");
        }
    }

    #[test]
    fn it_ends() {
        let mut tries = 0;
        let answer: Result<()> = patiently(
            || {
                tries += 1;
                Err(fault(libc::EIO))
            },
            &|_| (),
        );
        assert!(answer.is_err());
        assert_eq!(tries, 4);
    }
}
