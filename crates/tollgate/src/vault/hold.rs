//! A held claim: a kernel lock that lives exactly as long as the work.
//!
//! The worker's command inherits the descriptor. A lock of this kind belongs to the open file, not to a process, so it
//! is let go when the last process that has it is gone: `kill -9` of tollgate alone frees nothing while the command
//! runs, `kill -9` of everything frees the task at once, and nobody has to watch a clock.
//!
//! Scripts like to open their own files as 3 to 9 and would close a lock of that number without knowing, so what is lent
//! has a number that no script names.
//!
//! All of them are locks of bytes of one file, far apart: the number of the byte is the claim's id. A file for each would
//! have to be made and removed for each task, at which file systems are slow. What is in the file is its own id, which
//! the claim notes down: whoever removes the file takes the locks away from those who look, not from those who hold.
//!
//! Invariants: the byte is locked before the claim is written down, and the claim says in which file. Whoever gets the lock
//! of that byte of that file has proof that its owner is gone, for ever, because an id is never used again.

use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, OFlags, RenameFlags};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};

use super::claim::{Claim, ClaimId};
use crate::error::{At, Fault, Result};
use crate::lock::open_unnoticed;
use crate::name::random_id;
use crate::sys;

/// One spawn at a time: while a descriptor is lent to one command, another command must not inherit it too.
static LENDING: Mutex<()> = Mutex::new(());

/// The least number of a descriptor that is lent: a shell names those up to 9 and picks its own from 10.
const LEAST_NUMBER: i32 = 100;

/// The lock of a claim, held.
#[derive(Debug)]
#[must_use = "a lock that is dropped at once holds nothing"]
pub struct Hold {
    /// None for a store without processes.
    lock: Option<Lock>,
}

/// The file of locks, open, with one of its bytes locked or to be locked.
#[derive(Debug)]
struct Lock {
    file: File,
    path: PathBuf,
    /// Which file it is.
    id: u64,
}

/// What trying the lock of a claim tells about its owner.
#[derive(Debug)]
pub enum Owner {
    /// Somebody has the lock.
    Alive,
    /// Nobody has it, and now we do: nobody else can reclaim at the same time.
    Gone(Hold),
    /// The file that its lock is in is not there any more.
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
                Err(Errno::INTR) => {}
                heard => return heard.map(|ends| ends > 0).at("wait for", Path::new("the command")),
            }
        }
    }
}

impl Hold {
    /// One that needs no lock, for a store in memory.
    pub(crate) fn nothing() -> Self {
        Self { lock: None }
    }

    /// Takes the lock of a new claim.
    pub(crate) fn new(path: &Path, claim: &ClaimId) -> Result<Self> {
        let lock = loop {
            match Lock::open(path, true)? {
                Some(lock) => break lock,
                // Removed since the vault was opened.
                None => make(path)?,
            }
        };
        if sys::try_lock_byte(&lock.file, byte(claim)).at("lock", path)? {
            return Ok(Self { lock: Some(lock) });
        }
        Err(Fault::invalid(format!("somebody has a claim of the id `{claim}`: try again")))
    }

    /// Tries the lock of a claim that is written down.
    pub(crate) fn try_take(path: &Path, claim: &Claim) -> Result<Owner> {
        let open = |to_write| Ok(Lock::open(path, to_write)?.filter(|lock| claim.lock == Some(lock.id)));
        // Only looked at, at first: a file that was open for writing is told to all who watch it when it is closed.
        let Some(seen) = open(false)? else { return Ok(Owner::Unknown) };
        if sys::is_byte_locked(&seen.file, byte(&claim.id)).at("look at the lock", path)? {
            return Ok(Owner::Alive);
        }
        let Some(lock) = open(true)? else { return Ok(Owner::Unknown) };
        if !sys::try_lock_byte(&lock.file, byte(&claim.id)).at("lock", path)? {
            return Ok(Owner::Alive);
        }
        Ok(Owner::Gone(Self { lock: Some(lock) }))
    }

    /// Which file the lock is in.
    pub(crate) fn file(&self) -> Option<u64> {
        self.lock.as_ref().map(|lock| lock.id)
    }

    /// Runs `spawn` while the descriptor is inheritable. A command that is started inside keeps the lock until it ends,
    /// and so does everything it starts. Commands started elsewhere in this process at the same time would inherit it
    /// too, so all of them are to be started through here.
    pub fn lend<T>(&self, spawn: impl FnOnce() -> T) -> Result<(T, Borrowers)> {
        let Some(Lock { file, path, .. }) = &self.lock else {
            return Ok((spawn(), Borrowers { pipe: None }));
        };
        let (pipe, theirs) = io::pipe().at("make a pipe for", path)?;
        let _one_at_a_time = LENDING.lock().unwrap_or_else(PoisonError::into_inner);
        let lent = inheritable(file.as_fd()).and_then(|lock| Ok((lock, inheritable(theirs.as_fd())?)));
        // Closed when the command has them, before another may be started.
        let _lent = lent.at("pass on the lock", path)?;
        Ok((spawn(), Borrowers { pipe: Some(pipe) }))
    }
}

/// Starts a program that is to inherit no lock, also if one is being lent at this moment.
pub(crate) fn without_locks<T>(spawn: impl FnOnce() -> T) -> T {
    let _one_at_a_time = LENDING.lock().unwrap_or_else(PoisonError::into_inner);
    spawn()
}

/// Which byte is locked for a claim. The file is not as long as that; a lock needs no byte to be there.
fn byte(claim: &ClaimId) -> u64 {
    // The digits are 64 bits, a place in a file has 63.
    claim.number() & (u64::MAX >> 1)
}

/// How many bytes the file of locks has: its id, as hex digits.
const ID: usize = 16;

impl Lock {
    /// `None` if it is not there.
    fn open(path: &Path, to_write: bool) -> Result<Option<Self>> {
        let flags = if to_write { OFlags::RDWR } else { OFlags::RDONLY };
        let file = match open_unnoticed(CWD, path, flags) {
            Err(Errno::NOENT) => return Ok(None),
            file => file.at("open the lock", path)?,
        };
        let mut id = [0; ID];
        let read = file.read_at(&mut id, 0).at("read", path)?;
        let id = str::from_utf8(&id[..read]).ok().and_then(|id| u64::from_str_radix(id, 16).ok());
        let id = id.ok_or_else(|| Fault::damaged(path, "it should hold 16 hex digits: remove it"))?;
        Ok(Some(Self { file, path: path.to_owned(), id }))
    }
}

/// Makes the file of locks, unless it is there.
pub(crate) fn make(path: &Path) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    let id = random_id()?;
    let stage = path.with_file_name("stage").join(&id);
    let mut options = OpenOptions::new();
    let file = options.create_new(true).write(true).mode(0o660).open(&stage).at("create", &stage)?;
    // Once in a vault's life. Without it a power cut could leave the name without the id.
    (&file).write_all(id.as_bytes()).and_then(|()| file.sync_all()).at("write", &stage)?;
    match rustix::fs::renameat_with(CWD, &stage, CWD, path, RenameFlags::NOREPLACE) {
        // Somebody else was quicker.
        Err(Errno::EXIST) => std::fs::remove_file(&stage).at("remove", &stage),
        moved => moved.at("rename", &stage),
    }
}

/// The same file under a high number, or a low one if there is no room there, for a command to have.
fn inheritable(fd: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    let lent = fcntl_dupfd_cloexec(fd, LEAST_NUMBER).or_else(|_| fcntl_dupfd_cloexec(fd, 0))?;
    fcntl_setfd(&lent, FdFlags::empty())?;
    Ok(lent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vault::claim::{Mode, Tenure};
    use crate::vault::state::State;
    use jiff::Timestamp;
    use std::process::{Command, Stdio};

    fn claim(path: &Path) -> (Claim, Hold) {
        let id = ClaimId::new().unwrap();
        let hold = Hold::new(path, &id).unwrap();
        let claim = Claim {
            id,
            epoch: 1,
            agent: "blue".parse().unwrap(),
            at: Timestamp::UNIX_EPOCH,
            tenure: Tenure::Held,
            lock: hold.file(),
            mode: Mode::Execute,
            action: None,
            sensitive: false,
            from: State::NeedsAction,
            block_at: 0,
        };
        (claim, hold)
    }

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("stage")).unwrap();
        let path = folder.path().join("held");
        (folder, path)
    }

    /// A process that is being started has every descriptor for an instant, so a free lock may look held for that long.
    fn proof(path: &Path, claim: &Claim) -> Option<Hold> {
        let mut pauses = crate::lock::Pauses::lasting(Duration::from_secs(10));
        loop {
            match Hold::try_take(path, claim).unwrap() {
                Owner::Gone(proof) => return Some(proof),
                _ if pauses.pause() => {}
                _ => return None,
            }
        }
    }

    fn gone(path: &Path, claim: &Claim) -> bool {
        proof(path, claim).is_some()
    }

    fn cat() -> Command {
        let mut cat = Command::new("cat");
        cat.stdin(Stdio::piped());
        cat
    }

    #[test]
    fn the_lock_lives_as_long_as_the_command_it_was_lent_to() {
        let (_folder, path) = &folder();
        let (lent, lent_hold) = claim(path);
        let (kept, kept_hold) = claim(path);
        let (child, borrowers) = lent_hold.lend(|| cat().spawn()).unwrap();
        let mut child = child.unwrap();
        let mut other = cat().spawn().unwrap();
        drop(kept_hold);
        assert!(gone(path, &kept), "only what was lent is inherited");
        // As if tollgate had been killed: the command still has the lock.
        drop(lent_hold);
        assert!(matches!(Hold::try_take(path, &lent).unwrap(), Owner::Alive));
        assert!(!borrowers.are_gone(Duration::ZERO).unwrap());
        child.kill().unwrap();
        assert!(borrowers.are_gone(Duration::from_secs(10)).unwrap(), "also before it is buried");
        child.wait().unwrap();
        assert!(gone(path, &lent), "nor does a command that was started later have it");
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn a_proof_is_for_one_and_a_file_that_was_removed_proves_nothing() {
        let (_folder, path) = &folder();
        let (dead, hold) = claim(path);
        let (_, other) = claim(path);
        assert_eq!(hold.file(), other.file());
        drop(hold);
        let proof = proof(path, &dead).expect("it is free");
        assert!(matches!(Hold::try_take(path, &dead).unwrap(), Owner::Alive), "one proof at a time");
        drop(proof);
        let (alive, _hold) = claim(path);
        assert!(
            Hold::new(path, &alive.id).unwrap_err().to_string().contains("try again"),
            "an id is used once"
        );
        std::fs::remove_file(path).unwrap();
        assert!(matches!(Hold::try_take(path, &alive).unwrap(), Owner::Unknown));
        let (new, _new_hold) = claim(path);
        assert_ne!(new.lock, alive.lock);
        assert!(matches!(Hold::try_take(path, &alive).unwrap(), Owner::Unknown), "nobody can tell who lives");
        assert!(matches!(Hold::try_take(path, &new).unwrap(), Owner::Alive));
        std::fs::write(path, "").unwrap();
        assert!(Hold::new(path, &new.id).unwrap_err().to_string().contains("remove it"));
    }

    #[test]
    fn those_who_make_the_file_at_the_same_time_make_one() {
        let (_folder, path) = &folder();
        std::thread::scope(|scope| {
            let makers: Vec<_> = (0..8).map(|_| scope.spawn(|| claim(path))).collect();
            let made: Vec<_> = makers.into_iter().map(|maker| maker.join().unwrap()).collect();
            assert!(made.iter().all(|(claim, _)| claim.lock == made[0].0.lock));
            assert!(made.iter().all(|(claim, _)| matches!(Hold::try_take(path, claim), Ok(Owner::Alive))));
        });
        assert_eq!(std::fs::read_dir(path.with_file_name("stage")).unwrap().count(), 0);
    }
}
