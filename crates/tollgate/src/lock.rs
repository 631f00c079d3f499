//! Kernel locks between the processes that share a workspace.
//!
//! A lock is a value: while it lives, no other process or thread that asks for the same lock gets it; when it is
//! dropped, or the process dies in whatever way, the kernel lets go. So there are no stale locks.
//!
//! The files that are guarded are never locked themselves, because a replacement would leave the lock on the old
//! inode. Locked are stripes: 256 files, chosen by the hash of the guarded path. They are made once and never removed,
//! because removing a lock file is how two processes come to hold the "same" lock.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
#[cfg(not(target_os = "linux"))]
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use crate::digest::Digest;
use crate::error::{At, Fault, Result};
use crate::name::random_id;
use crate::sys;

/// So often the core is only left to others, without a pause: whoever holds a lock for a few microseconds is done by then,
/// and the shortest pause takes longer.
const YIELDS: u32 = 20;

/// The first pause between two attempts. Most guarded writes are done in less than a millisecond.
const FIRST_PAUSE: Duration = Duration::from_micros(100);

/// The longest pause: short enough that nobody notices, long enough to leave the cores to those who work.
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// The lock of a file that stays open, while this lives.
#[derive(Debug)]
#[must_use = "a lock that is dropped at once locks nothing"]
pub(crate) struct Kept<'a>(&'a File);

impl Deref for Kept<'_> {
    type Target = File;

    fn deref(&self) -> &File {
        self.0
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        // If it fails, the lock is let go with the file.
        let _ = self.0.unlock();
    }
}

/// A lock that is held.
#[derive(Debug)]
#[must_use = "a lock that is dropped at once locks nothing"]
pub struct Lock {
    file: File,
}

/// Several locks, taken in one order by everyone, so that nobody waits in a circle.
#[derive(Debug)]
#[must_use = "a lock that is dropped at once locks nothing"]
pub(crate) struct StripeLocks {
    locks: Vec<(u8, Lock)>,
}

/// Stripes whose last holder died at work, each with the mark that it left.
///
/// A holder marks its stripes while it changes files, and clears the marks when it is done. A mark that is found was
/// left by a process that died: what it left half done has to be healed before anything else happens to these paths.
pub(crate) type Marks = Vec<(u8, [u8; 8])>;

impl StripeLocks {
    pub(crate) fn marks(&self) -> Result<Marks> {
        let mut marks = Vec::new();
        for (stripe, lock) in &self.locks {
            let mut mark = [0; MARK];
            let length = lock.file.read_at(&mut mark, 0).at("read the lock", "locks")?;
            if length > 0 && mark != [0; MARK] {
                marks.push((*stripe, mark));
            }
        }
        Ok(marks)
    }

    pub(crate) fn mark(&self) -> Result<()> {
        let mark = u64::from_str_radix(&random_id()?, 16).unwrap_or(1).max(1).to_ne_bytes();
        self.put(mark)
    }

    pub(crate) fn clear(&self) -> Result<()> {
        self.put([0; 8])
    }

    fn put(&self, mark: [u8; 8]) -> Result<()> {
        self.locks
            .iter()
            .try_for_each(|(_, lock)| lock.file.write_all_at(&mark, 0).at("mark the lock", "locks"))
    }

    /// The line behind the mark of this path's stripe; empty if there is none.
    pub(crate) fn line(&self, path: &Path) -> Result<Vec<u8>> {
        let file = self.file(path)?;
        let mut text = vec![0; 1 << 10];
        let mut length = 0;
        loop {
            match file.read_at(&mut text[length..], (MARK + length) as u64).at("read the lock", "locks")? {
                0 => return Ok(line_in(&text[..length]).to_vec()),
                count => length += count,
            }
            if text[..length].contains(&b'\n') {
                return Ok(line_in(&text[..length]).to_vec());
            }
            if length == text.len() {
                text.resize(2 * length, 0);
            }
        }
    }

    /// Puts a line there. What an earlier, longer one leaves behind its end does not count.
    pub(crate) fn put_line(&self, path: &Path, mut line: Vec<u8>) -> Result<()> {
        line.push(b'\n');
        self.file(path)?.write_all_at(&line, MARK as u64).at("write to the lock", "locks")
    }

    fn file(&self, path: &Path) -> Result<&File> {
        let number = stripe(path);
        let held = self.locks.iter().find(|(held, _)| *held == number);
        held.map(|(_, lock)| &lock.file).ok_or_else(|| Fault::invalid("the lock of this path is not held"))
    }
}

/// How many bytes a mark has. The line follows.
const MARK: usize = 8;

/// The line at the beginning of a text, if it was written to its end.
fn line_in(text: &[u8]) -> &[u8] {
    text.iter().position(|byte| *byte == b'\n').map_or(&[], |end| &text[..end])
}

/// The line in the bytes of a lock file, for those who only look.
pub(crate) fn line_of(bytes: &[u8]) -> &[u8] {
    bytes.get(MARK..).map_or(&[], line_in)
}

impl Lock {
    /// Opens the lock file, making it if it is not there, and takes the lock. `None` if others held it all the time.
    pub fn acquire(path: &Path, wait: Duration) -> Result<Option<Self>> {
        let file = open(path)?;
        Ok(take(&file, path, wait)?.then_some(Self { file }))
    }

    /// The same with a file that stays open for the next time, unless somebody has removed it. Whoever shares the file
    /// shares the lock: threads must exclude each other before.
    pub(crate) fn keep<'a>(
        file: &'a mut Option<File>,
        path: &Path,
        wait: Duration,
    ) -> Result<Option<Kept<'a>>> {
        let file = match file.take().filter(has_name) {
            Some(kept) => file.insert(kept),
            None => file.insert(open(path)?),
        };
        Ok(take(file, path, wait)?.then_some(Kept(file)))
    }
}

fn take(file: &File, path: &Path, wait: Duration) -> Result<bool> {
    let mut pauses = Pauses::until(Instant::now() + wait);
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) if pauses.pause() => {}
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(TryLockError::Error(error)) => return Err(error).at("lock", path),
        }
    }
}

/// A file that processes share and that is locked or written in place: made if it is not there, never truncated.
pub(crate) fn open(path: &Path) -> Result<File> {
    open_unnoticed(CWD, path, OFlags::RDWR | OFlags::CREATE).at("open", path)
}

/// Opens a file whose reading is not to be dated, if it is ours: after each write to it the first reading costs as much as
/// another write.
///
/// Never through a link. What is made is for this user and the group.
pub(crate) fn open_unnoticed(
    folder: impl AsFd,
    way: impl rustix::path::Arg + Copy,
    flags: OFlags,
) -> rustix::io::Result<File> {
    let (flags, mode) = (flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::from_raw_mode(0o660));
    loop {
        #[cfg(target_os = "linux")]
        let opened = match openat(folder.as_fd(), way, flags | OFlags::NOATIME, mode) {
            Err(Errno::PERM) => openat(folder.as_fd(), way, flags, mode),
            opened => opened,
        };
        #[cfg(not(target_os = "linux"))]
        let opened = openat(folder.as_fd(), way, flags, mode);
        match opened {
            Err(Errno::INTR) => {}
            opened => return opened.map(File::from),
        }
    }
}

/// Whether nobody has removed or replaced a file that is open.
///
/// Asks for nothing else: whoever asks for the dates of a file makes the next write to it note the time anew.
pub(crate) fn has_name(file: &File) -> bool {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{AtFlags, StatxFlags, statx};
        let found = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::NLINK);
        found.is_ok_and(|found| found.stx_nlink > 0)
    }
    #[cfg(not(target_os = "linux"))]
    file.metadata().is_ok_and(|found| found.nlink() > 0)
}

/// Pauses that grow, until a deadline.
pub(crate) struct Pauses {
    deadline: Instant,
    yields: u32,
    next: Duration,
}

impl Pauses {
    pub(crate) fn until(deadline: Instant) -> Self {
        Self { deadline, yields: 0, next: FIRST_PAUSE }
    }

    pub(crate) fn lasting(wait: Duration) -> Self {
        Self::until(Instant::now() + wait)
    }

    /// Waits a little and says true; says false, without waiting, when the time is up.
    pub(crate) fn pause(&mut self) -> bool {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        if self.yields < YIELDS {
            self.yields += 1;
            std::thread::yield_now();
        } else {
            std::thread::sleep(self.next.min(left));
            self.next = (self.next * 2).min(LONGEST_PAUSE);
        }
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
                Some(lock) => locks.push((stripe, lock)),
                None => return Ok(None),
            }
        }
        Ok(Some(StripeLocks { locks }))
    }
}

/// Whether nobody has this file open for writing. Where the kernel cannot tell, nobody has.
///
/// The kernel grants a read lease only while that is so. It is given back with the file.
pub fn nobody_writes(file: File) -> io::Result<bool> {
    match sys::take_read_lease(&file) {
        Ok(()) => Ok(true),
        Err(error) => Ok(error.kind() != io::ErrorKind::WouldBlock),
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
    fn who_has_a_file_open_for_writing_is_noticed() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let read = || File::open(&path).unwrap();
        assert!(nobody_writes(read()).unwrap() && nobody_writes(read()).unwrap());
        let writer = File::options().write(true).open(&path).unwrap();
        assert!(!nobody_writes(read()).unwrap());
        drop(writer);
        assert!(nobody_writes(read()).unwrap());
    }

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
        assert_eq!(held.marks().unwrap(), []);
        held.mark().unwrap();
        drop(held);
        let held = stripes.acquire([a], Duration::ZERO).unwrap().unwrap();
        assert_eq!(held.marks().unwrap().len(), 1, "who died left a mark");
        held.clear().unwrap();
        assert_eq!(held.marks().unwrap(), []);
        drop(held);
        assert!(stripes.acquire([b, a], Duration::ZERO).unwrap().is_some());
    }
}
