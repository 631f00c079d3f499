//! A held claim: a kernel lock that lives exactly as long as the work.
//!
//! The worker's command inherits the descriptor. A lock of this kind belongs to the open file, not to a process, so it
//! is let go when the last process that has it is gone: `kill -9` of tollgate alone frees nothing while the command
//! runs, `kill -9` of everything frees the task at once, and nobody has to watch a clock.
//!
//! Scripts like to open their own files as 3 to 9 and would close a lock of that number without knowing, so what is lent
//! has a number that no script names.
//!
//! Invariants: the file exists and is locked before the claim it is named after is written down; whoever gets the lock
//! of a claim that is written down has proof that its owner is gone, for ever, because the name is never used again.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{PipeReader, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};

use super::claim::ClaimId;
use super::name::TaskName;
use crate::error::{At, Result};

/// One spawn at a time: while a descriptor is lent to one command, another command must not inherit it too.
static LENDING: Mutex<()> = Mutex::new(());

/// The least number of a descriptor that is lent: a shell names those up to 9 and picks its own from 10.
const LEAST_NUMBER: i32 = 100;

/// The lock of a claim, held.
#[derive(Debug)]
#[must_use = "a lock that is dropped at once holds nothing"]
pub struct Hold {
    /// None for a store without processes.
    file: Option<(File, PathBuf)>,
}

/// What trying the lock of a claim tells about its owner.
#[derive(Debug)]
pub enum Owner {
    /// Somebody has the lock.
    Alive,
    /// Nobody has it, and now we do: nobody else can reclaim at the same time.
    Gone(Hold),
    /// There is no lock to try.
    Unknown,
}

/// Who has inherited a lock: a command, what it started, and so on.
#[derive(Debug)]
pub struct Borrowers {
    /// All of them have the other end of this pipe. None for a store without processes.
    pipe: Option<PipeReader>,
}

impl Borrowers {
    /// Whether all of them are gone, waiting for that no longer than this. Who is dead is gone, buried or not.
    pub fn are_gone(&self, patience: Duration) -> Result<bool> {
        let Some(pipe) = &self.pipe else { return Ok(true) };
        let deadline = Instant::now() + patience;
        loop {
            let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now())).ok();
            // Nobody writes, so all that can be heard is that the last of them has closed it.
            match poll(&mut [PollFd::new(pipe, PollFlags::IN)], left.as_ref()) {
                Err(rustix::io::Errno::INTR) => {}
                heard => return heard.map(|ends| ends > 0).at("wait for", Path::new("the command")),
            }
        }
    }
}

impl Hold {
    /// One that needs no lock, for a store in memory.
    pub(crate) fn nothing() -> Self {
        Self { file: None }
    }

    /// Makes the lock file of a new claim. It is locked before it has its name, so nobody can find it free.
    pub(crate) fn new(folder: &Path, stage: &Path, claim: &ClaimId, task: &TaskName) -> Result<Self> {
        let (path, staged) = (folder.join(claim.as_str()), stage.join(claim.as_str()));
        let mut options = OpenOptions::new();
        options.create_new(true).write(true).mode(0o660).custom_flags(libc::O_NOFOLLOW);
        let file = options.open(&staged).at("make the lock", &staged)?;
        let file = File::from(out_of_reach(file.into()));
        file.lock().at("lock", &staged)?;
        // So that a sweeper can look whether the claim was ever written down.
        (&file).write_all(task.as_str().as_bytes()).at("write", &staged)?;
        std::fs::rename(&staged, &path).at("rename", &staged)?;
        Ok(Self { file: Some((file, path)) })
    }

    /// Tries the lock of a claim that is written down.
    pub(crate) fn try_take(folder: &Path, claim: &ClaimId) -> Result<Owner> {
        let path = folder.join(claim.as_str());
        let file = match OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Owner::Unknown),
            file => file.at("open the lock", &path)?,
        };
        match file.try_lock() {
            Ok(()) => Ok(Owner::Gone(Self { file: Some((file, path)) })),
            Err(TryLockError::WouldBlock) => Ok(Owner::Alive),
            Err(TryLockError::Error(error)) => Err(error).at("lock", &path),
        }
    }

    /// Runs `spawn` while the descriptor is inheritable. A command that is started inside keeps the lock until it ends,
    /// and so does everything it starts. Commands started elsewhere in this process at the same time would inherit it
    /// too, so all of them are to be started through here.
    pub fn lend<T>(&self, spawn: impl FnOnce() -> T) -> Result<(T, Borrowers)> {
        let Some((file, path)) = &self.file else { return Ok((spawn(), Borrowers { pipe: None })) };
        let (pipe, theirs) = std::io::pipe().at("make a pipe for", path)?;
        let theirs = out_of_reach(theirs.into());
        let _one_at_a_time = LENDING.lock().unwrap_or_else(PoisonError::into_inner);
        fcntl_setfd(&theirs, FdFlags::empty()).at("pass on the lock", path)?;
        fcntl_setfd(file, FdFlags::empty()).at("pass on the lock", path)?;
        let spawned = spawn();
        fcntl_setfd(file, FdFlags::CLOEXEC).at("keep the lock", path)?;
        Ok((spawned, Borrowers { pipe: Some(pipe) }))
    }

    /// Removes the lock file. Only for a claim that is no longer written down.
    pub(crate) fn remove(self) {
        if let Some((_, path)) = &self.file {
            // A lock file that stays behind is free and is swept.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The same descriptor under a high number, or as it is if there is no room there.
fn out_of_reach(fd: OwnedFd) -> OwnedFd {
    fcntl_dupfd_cloexec(fd.as_fd(), LEAST_NUMBER).unwrap_or(fd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// A process that is being started has every descriptor for an instant, so a free lock may look held for that long.
    fn gone(folder: &Path, claim: &ClaimId) -> bool {
        let mut pauses = crate::lock::Pauses::lasting(Duration::from_secs(10));
        loop {
            match Hold::try_take(folder, claim).unwrap() {
                Owner::Gone(_) => return true,
                _ if pauses.pause() => {}
                _ => return false,
            }
        }
    }

    fn cat() -> Command {
        let mut cat = Command::new("cat");
        cat.stdin(Stdio::piped());
        cat
    }

    #[test]
    fn the_lock_lives_as_long_as_the_command_it_was_lent_to() {
        let folder = tempfile::tempdir().unwrap();
        let (lent, kept) = (ClaimId::new().unwrap(), ClaimId::new().unwrap());
        let lent_hold = Hold::new(folder.path(), folder.path(), &lent, &"x".parse().unwrap()).unwrap();
        let kept_hold = Hold::new(folder.path(), folder.path(), &kept, &"x".parse().unwrap()).unwrap();
        let (child, borrowers) = lent_hold.lend(|| cat().spawn()).unwrap();
        let mut child = child.unwrap();
        let mut other = cat().spawn().unwrap();
        drop(kept_hold);
        assert!(gone(folder.path(), &kept), "only what was lent is inherited");
        // As if tollgate had been killed: the command still has the lock.
        drop(lent_hold);
        assert!(matches!(Hold::try_take(folder.path(), &lent).unwrap(), Owner::Alive));
        assert!(!borrowers.are_gone(Duration::ZERO).unwrap());
        child.kill().unwrap();
        assert!(borrowers.are_gone(Duration::from_secs(10)).unwrap(), "also before it is buried");
        child.wait().unwrap();
        assert!(gone(folder.path(), &lent), "nor does a command that was started later have it");
        other.kill().unwrap();
        other.wait().unwrap();
        let missing = ClaimId::new().unwrap();
        assert!(matches!(Hold::try_take(folder.path(), &missing).unwrap(), Owner::Unknown));
    }
}
