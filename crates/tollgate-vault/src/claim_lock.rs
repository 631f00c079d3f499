//! The lock of a held claim: it lives exactly as long as the work.
//!
//! A store that can see which processes are alive gives every held claim a [`ClaimLock`]. While the value lives, the owner
//! is alive. If the lock is a file descriptor, the worker's command can inherit it ([`ClaimLock::lend`]): such a lock
//! belongs to the open file, not to a process, so the kernel releases it when the last process that has it ends.
//! `kill -9` of tollgate alone frees nothing while the command runs; `kill -9` of everything frees the task at once.
//!
//! With every kind of lock, the command inherits a pipe, too, which shows when its last process has ended ([`Borrowers`]).

use std::any::Any;
use std::fs::File;
use std::io::{self, PipeReader};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};

use crate::claim::ClaimId;
use crate::deadline::{ClaimDeadlines, DeadlineGuard};
use tollgate_base::error::{At, Result};

/// One spawn at a time: while a descriptor is lent to one command, no other command may inherit it.
static LENDING: Mutex<()> = Mutex::new(());

/// The lowest number of a lent descriptor. Scripts open their own files as 3 to 9 and would close a lock of that number
/// without knowing; shells pick numbers from 10.
const LOWEST_NUMBER: i32 = 100;

/// The lock of a held claim. Dropping it ends the claim, unless a command has inherited it.
#[must_use = "a lock that is dropped at once holds nothing"]
#[derive(Debug)]
pub struct ClaimLock {
    /// Dropped first: nobody works under the claim any more when others may have the task.
    deadline: Option<DeadlineGuard>,
    token: Option<u64>,
    kind: Kind,
}

/// What ends the claim.
#[derive(Debug)]
enum Kind {
    /// A lock that belongs to an open file.
    File(File),
    /// Anything else that ends the claim when it is dropped.
    Guard(#[expect(dead_code, reason = "kept for its drop")] Box<dyn Any + Send + Sync>),
}

/// Whether the owner of a claim is alive.
#[derive(Debug)]
pub enum Liveness {
    /// The owner is alive, so nobody else may have the task.
    Alive,
    /// The owner is gone for good. While the lock in here lives, nobody else can take the claim.
    Gone(ClaimLock),
    /// The store cannot tell: a leased claim lasts as long as the caller's clock says, and a held one as long as a lease.
    Unknown,
}

/// A command and everything it started.
#[derive(Debug)]
pub struct Borrowers {
    /// All of these processes have inherited the other end.
    pipe: PipeReader,
    /// Whether they have inherited the lock, too.
    pub have_lock: bool,
}

impl Borrowers {
    /// Whether all of them have ended, waiting at most this long. A zombie counts as ended.
    pub fn are_gone(&self, patience: Duration) -> Result<bool> {
        let deadline = Instant::now() + patience;
        loop {
            let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now())).ok();
            // Nobody writes to the pipe, so the only event is that the last process has closed it.
            match poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], left.as_ref()) {
                Err(Errno::INTR) => {}
                heard => return heard.map(|ends| ends > 0).at("wait for", Path::new("the command")),
            }
        }
    }
}

impl ClaimLock {
    /// A lock with nothing behind it: for stores in memory, and as the proof that a lease has expired.
    pub fn nothing() -> Self {
        Self { deadline: None, token: None, kind: Kind::Guard(Box::new(())) }
    }

    /// A lock that belongs to an open file, so that commands can inherit it. The token goes into the claim.
    pub fn of_file(token: u64, file: File) -> Self {
        Self { deadline: None, token: Some(token), kind: Kind::File(file) }
    }

    /// Any other value that ends the claim when it is dropped: the handle of an engine's lease, for example.
    pub fn of_guard(token: u64, guard: impl Any + Send + Sync) -> Self {
        Self { deadline: None, token: Some(token), kind: Kind::Guard(Box::new(guard)) }
    }

    /// Ends the claim on this machine together with the lock. A lock that is a file may have been inherited by a command: then
    /// the claim goes on, and ends at its deadline.
    pub(crate) fn ends(&mut self, deadlines: &ClaimDeadlines, claim: &ClaimId) {
        if let Kind::Guard(_) = self.kind {
            self.deadline = Some(DeadlineGuard(deadlines.clone(), claim.clone()));
        }
    }

    /// The store's token for this lock; see [`crate::claim::Claim::hold`].
    pub fn token(&self) -> Option<u64> {
        self.token
    }

    /// Runs `spawn` while the lock's descriptor, if it has one, is inheritable. A command that is started inside keeps that lock
    /// until it ends, and so does everything it starts. Start every command of this process through here, because one that is
    /// started elsewhere at the same time would inherit the lock, too.
    pub fn lend<T>(&self, spawn: impl FnOnce() -> T) -> Result<(T, Borrowers)> {
        let lock = Path::new("the lock of the claim");
        let (pipe, theirs) = io::pipe().at("make a pipe for", lock)?;
        let _one_at_a_time = LENDING.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match &self.kind {
            Kind::File(file) => Some(inheritable(file.as_fd())),
            Kind::Guard(_) => None,
        };
        let have_lock = file.is_some();
        let lent = file.transpose().and_then(|file| Ok((file, inheritable(theirs.as_fd())?)));
        // Closed when the command has its copies, before another may be started.
        let _lent = lent.at("pass on", lock)?;
        Ok((spawn(), Borrowers { pipe, have_lock }))
    }
}

/// Starts a program that must inherit no lock, even if one is being lent at this moment.
pub fn without_locks<T>(spawn: impl FnOnce() -> T) -> T {
    let _one_at_a_time = LENDING.lock().unwrap_or_else(PoisonError::into_inner);
    spawn()
}

/// A copy of the descriptor that a command inherits: with a high number, or a low one if the limit is too low for that.
fn inheritable(fd: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    let lent = fcntl_dupfd_cloexec(fd, LOWEST_NUMBER).or_else(|_| fcntl_dupfd_cloexec(fd, 0))?;
    fcntl_setfd(&lent, FdFlags::empty())?;
    Ok(lent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_lock_that_is_not_a_file_also_knows_when_the_last_process_of_its_command_has_ended() {
        for lock in [ClaimLock::nothing(), ClaimLock::of_guard(7, "an engine's lease")] {
            // The shell ends at once. The process that it leaves behind ends with its input.
            let mut shell = Command::new("sh");
            shell.args(["-c", "exec 3<&0; cat <&3 &"]).stdin(Stdio::piped());
            let (child, borrowers) = lock.lend(|| shell.spawn()).unwrap();
            let mut child = child.unwrap();
            let input = child.stdin.take();
            child.wait().unwrap();
            assert!(!borrowers.are_gone(Duration::ZERO).unwrap(), "{lock:?}");
            drop(input);
            assert!(borrowers.are_gone(Duration::from_secs(10)).unwrap(), "{lock:?}");
        }
    }
}
