//! Kernel locks between the processes that share a workspace.
//!
//! A lock is a value: while it lives, no other process or thread that asks for the same lock gets it; when it is
//! dropped, or the process dies in whatever way, the kernel lets go. So there are no stale locks.
//!
//! The files that are guarded are never locked themselves, because a replacement would leave the lock on the old
//! inode. Locked are stripes: 256 files, chosen by the hash of the guarded path. They are made once and never removed,
//! because removing a lock file is how two processes come to hold the "same" lock.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::digest::Digest;
use crate::error::{At, Result};

/// The first pause between two attempts. Most guarded writes are done in less than a millisecond.
const FIRST_PAUSE: Duration = Duration::from_micros(100);

/// The longest pause: short enough that nobody notices, long enough to leave the cores to those who work.
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// A lock that is held.
#[derive(Debug)]
#[must_use = "a lock that is dropped at once locks nothing"]
pub struct Lock {
    _file: File,
}

/// Several locks, taken in one order by everyone, so that nobody waits in a circle.
#[derive(Debug)]
#[must_use = "a lock that is dropped at once locks nothing"]
pub(crate) struct StripeLocks {
    _locks: Vec<Lock>,
}

impl Lock {
    /// Opens the lock file, making it if it is not there, and takes the lock. `None` if others held it all the time.
    pub fn acquire(path: &Path, wait: Duration) -> Result<Option<Self>> {
        let file = open(path)?;
        let mut pauses = Pauses::until(Instant::now() + wait);
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(Self { _file: file })),
                Err(TryLockError::WouldBlock) if pauses.pause() => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(TryLockError::Error(error)) => return Err(error).at("lock", path),
            }
        }
    }
}

fn open(path: &Path) -> Result<File> {
    // Never truncated, never read: only its lock matters.
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(0o660).custom_flags(libc::O_NOFOLLOW);
    options.open(path).at("open the lock", path)
}

/// Pauses that grow, until a deadline.
pub(crate) struct Pauses {
    deadline: Instant,
    next: Duration,
}

impl Pauses {
    pub(crate) fn until(deadline: Instant) -> Self {
        Self { deadline, next: FIRST_PAUSE }
    }

    pub(crate) fn lasting(wait: Duration) -> Self {
        Self::until(Instant::now() + wait)
    }

    /// Sleeps a little and says true; says false, without sleeping, when the time is up.
    pub(crate) fn pause(&mut self) -> bool {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        std::thread::sleep(self.next.min(left));
        self.next = (self.next * 2).min(LONGEST_PAUSE);
        true
    }
}

/// The stripes of one workspace.
#[derive(Debug, Clone)]
pub(crate) struct Stripes {
    folder: PathBuf,
}

impl Stripes {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Locks the stripes of these paths. `None` if others held one of them all the time.
    pub(crate) fn acquire<'a>(
        &self,
        paths: impl IntoIterator<Item = &'a Path>,
        wait: Duration,
    ) -> Result<Option<StripeLocks>> {
        let stripes: BTreeSet<u8> = paths.into_iter().map(stripe).collect();
        let deadline = Instant::now() + wait;
        let mut locks = Vec::with_capacity(stripes.len());
        for stripe in stripes {
            let left = deadline.saturating_duration_since(Instant::now());
            match Lock::acquire(&self.folder.join(format!("{stripe:02x}")), left)? {
                Some(lock) => locks.push(lock),
                None => return Ok(None),
            }
        }
        Ok(Some(StripeLocks { _locks: locks }))
    }
}

/// By the path relative to the workspace, which is the same in every container that has it mounted.
pub(crate) fn stripe(path: &Path) -> u8 {
    use std::os::unix::ffi::OsStrExt;
    Digest::of(path.as_os_str().as_bytes()).as_bytes()[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_excludes_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let stripes = Stripes::new(folder.path().to_owned());
        let (a, b) = (Path::new("a"), Path::new("b"));
        assert_ne!(stripe(a), stripe(b));
        let held = stripes
            .acquire([a, a], Duration::ZERO)
            .unwrap()
            .expect("one stripe asked for twice is locked once");
        assert!(stripes.acquire([b, a], Duration::from_millis(1)).unwrap().is_none());
        assert!(
            stripes.acquire([b], Duration::ZERO).unwrap().is_some(),
            "what was taken before the miss was let go"
        );
        drop(held);
        assert!(stripes.acquire([b, a], Duration::ZERO).unwrap().is_some());
    }
}
