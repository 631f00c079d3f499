//! Kernel locks between processes, and how files that processes share are opened.
//!
//! A lock is a value: while it lives, no other process or thread that asks for the same lock gets it. When the value is
//! dropped, or the process dies for any reason, the kernel releases the lock. So there are no stale locks.
//!
//! Lock files are created once and never deleted. If one were deleted, two processes could each hold a lock on a file of
//! that name.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use crate::error::{At, Result};
use crate::private;
use crate::sys;

/// The number of attempts that keep the core, about a microsecond apart. Most locks are held for a few microseconds on
/// another core, and another process on this one would only come to wait for the same lock.
const SPINS: u32 = 12;

/// The number of spin hints before each of these attempts.
const HINTS: u32 = 30;

/// The number of attempts after that, which only yield the core. If the holder waits for a core, it gets this one.
const YIELDS: u32 = 20;

/// The first pause between two attempts. Most guarded writes take less than a millisecond.
const FIRST_PAUSE: Duration = Duration::from_micros(100);

/// The longest pause: short enough that nobody notices it, long enough to leave the cores to processes that work.
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// A lock that is held. The file is closed with it.
#[derive(Debug)]
#[must_use = "a lock that is dropped at once locks nothing"]
pub struct Lock {
    file: File,
}

impl Lock {
    /// Opens the lock file, creates it if it is missing, and takes the lock. `None` if others held it the whole time.
    pub fn acquire(path: &Path, wait: Duration) -> Result<Option<Self>> {
        Self::acquire_by(path, wait, File::try_lock)
    }

    /// Like [`Self::acquire`], but others may have the lock in the same way at the same time.
    pub fn acquire_shared(path: &Path, wait: Duration) -> Result<Option<Self>> {
        Self::acquire_by(path, wait, File::try_lock_shared)
    }

    fn acquire_by(
        path: &Path,
        wait: Duration,
        try_lock: fn(&File) -> std::result::Result<(), TryLockError>,
    ) -> Result<Option<Self>> {
        let file = open(path)?;
        Ok(wait_for(&file, path, wait, try_lock)?.then_some(Self { file }))
    }

    /// The lock file, which may hold a few bytes about its holder.
    pub fn file(&self) -> &File {
        &self.file
    }
}

/// A lock file that stays open while it is not locked, for a lock that is taken often.
#[derive(Debug, Default)]
pub struct KeptLock {
    file: Option<File>,
}

impl KeptLock {
    /// Takes the lock. `None` if others held it the whole time.
    pub fn acquire(&mut self, path: &Path, wait: Duration) -> Result<Option<KeptLockGuard<'_>>> {
        // Somebody may have deleted the state and begun anew.
        let file = match self.file.take().filter(has_name) {
            Some(file) => file,
            None => open(path)?,
        };
        let file = self.file.insert(file);
        Ok(wait_for(file, path, wait, File::try_lock)?.then_some(KeptLockGuard { file }))
    }
}

/// A [`KeptLock`] that is held.
#[derive(Debug)]
#[must_use = "a lock that is dropped at once locks nothing"]
pub struct KeptLockGuard<'a> {
    file: &'a File,
}

impl Drop for KeptLockGuard<'_> {
    fn drop(&mut self) {
        // Cannot fail for a file that is open. Also releases it for a process that was started at this moment.
        let _ = self.file.unlock();
    }
}

/// Locks a file that is open. `false` if others held the lock the whole time.
///
/// For a file that stays open: unlock it with [`File::unlock`], and never share it with a thread that may lock it too.
pub fn lock_file(file: &File, path: &Path, wait: Duration) -> Result<bool> {
    wait_for(file, path, wait, File::try_lock)
}

/// Whether the lock was taken in this time.
fn wait_for(
    file: &File,
    path: &Path,
    wait: Duration,
    try_lock: fn(&File) -> std::result::Result<(), TryLockError>,
) -> Result<bool> {
    let mut pauses = Pauses::lasting(wait);
    loop {
        match try_lock(file) {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) if pauses.pause() => {}
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(TryLockError::Error(error)) => return Err(error).at("lock", path),
        }
    }
}

/// Opens a file that processes share and that is locked or written in place. Creates it if it is missing, never truncates
/// it.
pub fn open(path: &Path) -> Result<File> {
    match open_noatime(path, OFlags::RDWR) {
        // Only now, because to create a file the kernel locks the folder against all others.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            open_noatime(path, OFlags::RDWR | OFlags::CREATE)
        }
        opened => opened,
    }
    .at("open", path)
}

/// [`private::open`] with `O_NOATIME` where that is allowed: on files of our own. Otherwise the first read after each write
/// updates the access time, which costs as much as another write.
pub fn open_noatime(path: &Path, flags: OFlags) -> io::Result<File> {
    match private::open(path, flags | sys::NO_ATIME) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {}
        opened => return opened,
    }
    private::open(path, flags)
}

/// Whether an open file still has a name: nobody has deleted or replaced it.
pub fn has_name(file: &File) -> bool {
    file.metadata().is_ok_and(|found| found.nlink() > 0)
}

/// Whether nobody has this file open for writing. Where the kernel cannot tell, the answer is yes.
pub fn nobody_writes(file: File) -> io::Result<bool> {
    // Closing the file returns the lease.
    let lease = sys::take_read_lease(&file);
    Ok(!lease.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock))
}

/// Growing pauses until a deadline.
pub struct Pauses {
    deadline: Instant,
    attempts: u32,
    next: Duration,
}

impl Pauses {
    /// Pauses for this length of time.
    pub fn lasting(wait: Duration) -> Self {
        Self { deadline: Instant::now() + wait, attempts: 0, next: FIRST_PAUSE }
    }

    /// Waits a little and returns true. Returns false, without waiting, once the time is up.
    pub fn pause(&mut self) -> bool {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        self.attempts = self.attempts.saturating_add(1);
        if self.attempts <= SPINS {
            (0..HINTS).for_each(|_| std::hint::spin_loop());
        } else if self.attempts <= SPINS + YIELDS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(self.next.min(left));
            self.next = (self.next * 2).min(LONGEST_PAUSE);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_open_for_writing_is_noticed() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let read = || File::open(&path).unwrap();
        assert!(nobody_writes(read()).unwrap() && nobody_writes(read()).unwrap());
        let writer = File::options().write(true).open(&path).unwrap();
        assert!(!nobody_writes(read()).unwrap());
        drop(writer);
        assert!(nobody_writes(read()).unwrap());
    }
}
