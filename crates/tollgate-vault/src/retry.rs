//! Retrying: transient errors, after 100, 200 and 400 ms with a little jitter; and a task that is still being written.
//!
//! Invariant: only a transient fault is retried. A lost race is an answer and never comes here; a full disk or a missing
//! permission does not go away in half a second and is reported at once.

use std::io;
use std::time::Duration;

use jiff::Timestamp;

use crate::denial::{Allowed, Denial};
use crate::owner::{ClaimRequest, Claimed};
use crate::vault::Vault;
use tollgate_base::error::{Fault, Result};
use tollgate_base::task::TaskName;

/// The pauses of the contract.
pub const PAUSES: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(200), Duration::from_millis(400)];

/// Whether the same attempt may succeed a moment later.
pub fn is_transient(fault: &Fault) -> bool {
    match fault {
        Fault::Locked { .. } => true,
        Fault::Io { source, .. } => {
            // EIO: network and FUSE file systems return it for errors that are gone a moment later.
            let transient = [libc::EINTR, libc::EAGAIN, libc::EBUSY, libc::EIO, libc::ESTALE, libc::ETXTBSY];
            source.raw_os_error().is_some_and(|code| transient.contains(&code))
                || source.kind() == io::ErrorKind::TimedOut
        }
        _ => false,
    }
}

/// Retries transient faults, with the pauses of the contract. `sleep` does the waiting.
pub fn with_retry<T>(mut attempt: impl FnMut() -> Result<T>, sleep: &dyn Fn(Duration)) -> Result<T> {
    for pause in PAUSES {
        match attempt() {
            Err(fault) if is_transient(&fault) => sleep(jittered(pause)),
            answer => return answer,
        }
    }
    attempt()
}

/// The pause between two looks at a file that a program is writing.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

impl Vault {
    /// Claims this task. Waits for a file that is being written, as long as a complete one needs to `settle` and a little
    /// longer.
    pub fn claim_when_complete(
        &self,
        task: &TaskName,
        request: &ClaimRequest,
        settle: Duration,
        now: &dyn Fn() -> Timestamp,
        sleep: &dyn Fn(Duration),
    ) -> Result<Allowed<Claimed>> {
        let deadline = now().checked_add(2 * settle + Duration::from_secs(1)).unwrap_or(Timestamp::MAX);
        loop {
            let claimed = with_retry(|| self.claim(task, request, now()), sleep)?;
            match &claimed {
                _ if now() > deadline => return Ok(claimed),
                Err(Denial::Young(_, wait)) => sleep(*wait),
                Err(Denial::Empty(_) | Denial::OpenForWriting(_)) => sleep(LOOK_AGAIN),
                _ => return Ok(claimed),
            }
        }
    }
}

/// Up to a quarter longer, so that processes that failed together do not come back together.
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
    fn only_transient_faults_are_retried() {
        let waited = RefCell::new(Vec::new());
        let sleep = |pause| waited.borrow_mut().push(pause);
        let mut tries = 0;
        let answer = with_retry(
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
        let of_system = [libc::ENOENT, libc::ENOSPC, libc::EACCES, libc::EROFS, libc::EEXIST].map(fault);
        for permanent in of_system.into_iter().chain([Fault::invalid("not a task")]) {
            let mut permanent = Some(permanent);
            let once = || Err(permanent.take().expect("a permanent fault is not tried again"));
            let answer: Result<()> = with_retry(once, &|_| panic!("no pause for a permanent fault"));
            assert!(answer.is_err());
        }
    }

    #[test]
    fn retrying_ends() {
        let mut tries = 0;
        let answer: Result<()> = with_retry(
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
