//! A held claim: a kernel lock that lives exactly as long as the work.
//!
//! The worker's command inherits the descriptor. A lock of this kind belongs to the open file, not to a process, so it
//! is let go when the last process that has it is gone: `kill -9` of tollgate alone frees nothing while the command
//! runs, `kill -9` of everything frees the task at once, and nobody has to watch a clock.
//!
//! Scripts like to open their own files as 3 to 9 and would close a lock of that number without knowing, so what is lent
//! has a number that no script names.
//!
//! All of them are in one file of slots: the claim's id stands in the slot, and the slot's first byte is locked. A file
//! for each would have to be made and removed for each task, at which file systems are slow.
//!
//! Invariants: the slot is locked and has the claim's id before the claim is written down, and keeps it as long as it is
//! written down; whoever gets the lock of a slot with that id in it has proof that its owner is gone, for ever, because
//! an id is never used again. A slot is taken only when it is empty and its lock is free.

use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};

use super::claim::ClaimId;
use crate::error::{At, Result};
use crate::lock::open_unnoticed;
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
    slot: Option<Slot>,
}

/// A slot of the file of locks.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    /// Where it begins.
    pub(crate) at: u64,
}

impl Slot {
    /// What is written into a slot that is free again.
    pub(crate) const EMPTY: [u8; SLOT] = [0; SLOT];
}

/// The bytes of a slot: the claim's id, the stripe of its task, and room.
const SLOT: usize = 32;

/// What trying the lock of a claim tells about its owner.
#[derive(Debug)]
pub enum Owner {
    /// Somebody has the lock.
    Alive,
    /// Nobody has it, and now we do: nobody else can reclaim at the same time.
    Gone(Hold),
    /// There is no slot of this claim.
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
        Self { slot: None }
    }

    /// Takes a slot for a new claim of a task in this stripe.
    pub(crate) fn new(path: &Path, claim: &ClaimId, stripe: u8) -> Result<Self> {
        loop {
            let file = open(path, true).at("open the lock", path)?;
            let slots = read(&file).at("read", path)?;
            let is_empty = |at: u64| slots.get(at as usize..).is_none_or(|slot| claim_in(slot).is_none());
            let mut at = 0;
            // Empty and locked is one whose claim is over and whose command has left something running.
            while !(is_empty(at) && sys::try_lock_byte(&file, at).at("lock", path)?) {
                at += SLOT as u64;
            }
            let mut slot = Slot::EMPTY;
            // Taken by somebody who died since we read: it is not empty any more.
            if file.read_at(&mut slot, at).at("read", path)? > 0 && claim_in(&slot).is_some() {
                continue;
            }
            slot = Slot::EMPTY;
            slot[..claim.as_str().len()].copy_from_slice(claim.as_str().as_bytes());
            slot[STRIPE] = stripe;
            file.write_all_at(&slot, at).at("write", path)?;
            return Ok(Self { slot: Some(Slot { file, path: path.to_owned(), at }) });
        }
    }

    /// Tries the lock of a claim that is written down.
    pub(crate) fn try_take(path: &Path, claim: &ClaimId) -> Result<Owner> {
        // Only looked at, at first: a file that was open for writing is told to all who watch it when it is closed.
        let Some(seen) = find(path, claim, false)? else { return Ok(Owner::Unknown) };
        if sys::is_byte_locked(&seen.file, seen.at).at("look at the lock", path)? {
            return Ok(Owner::Alive);
        }
        let Some(slot) = find(path, claim, true)? else { return Ok(Owner::Unknown) };
        if !sys::try_lock_byte(&slot.file, slot.at).at("lock", path)? {
            return Ok(Owner::Alive);
        }
        // Let go of, and perhaps another's, before we had the lock?
        let still = find(path, claim, false)?.is_some_and(|now| now.at == slot.at);
        Ok(if still { Owner::Gone(Self { slot: Some(slot) }) } else { Owner::Unknown })
    }

    /// The slot, to be emptied by whoever knows that the claim is not written down.
    pub(crate) fn slot(&self) -> Option<&Slot> {
        self.slot.as_ref()
    }

    /// Empties the slot of a claim that was not made after all.
    pub(crate) fn remove(self) {
        if let Some(slot) = &self.slot {
            // One that stays is swept.
            let _ = slot.file.write_all_at(&Slot::EMPTY, slot.at);
        }
    }

    /// Runs `spawn` while the descriptor is inheritable. A command that is started inside keeps the lock until it ends,
    /// and so does everything it starts. Commands started elsewhere in this process at the same time would inherit it
    /// too, so all of them are to be started through here.
    pub fn lend<T>(&self, spawn: impl FnOnce() -> T) -> Result<(T, Borrowers)> {
        let Some(Slot { file, path, .. }) = &self.slot else {
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

/// Where in a slot the stripe stands.
const STRIPE: usize = SLOT - 1;

/// The slot that this claim has.
fn find(path: &Path, claim: &ClaimId, to_write: bool) -> Result<Option<Slot>> {
    let file = match open(path, to_write) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.at("open the lock", path)?,
    };
    let at = place(&file, claim).at("read", path)?;
    Ok(at.map(|at| Slot { file, path: path.to_owned(), at }))
}

/// Where in the file the slot of this claim is.
pub(crate) fn place(file: &File, claim: &ClaimId) -> io::Result<Option<u64>> {
    let (id, slots) = (claim.as_str().as_bytes(), read(file)?);
    let number = slots.chunks_exact(SLOT).position(|slot| slot.starts_with(id));
    Ok(number.map(|number| (number * SLOT) as u64))
}

/// All claims that have a slot, each with the stripe of its task.
pub(crate) fn all(path: &Path) -> Result<Vec<(ClaimId, u8)>> {
    let slots = open(path, false).and_then(|file| read(&file)).at("read", path)?;
    Ok(slots.chunks_exact(SLOT).filter_map(claim_in).collect())
}

/// What stands in a slot: nothing, too, if it was half written by one who died.
fn claim_in(slot: &[u8]) -> Option<(ClaimId, u8)> {
    let text = std::str::from_utf8(slot.get(..STRIPE)?).ok()?;
    Some((text.trim_end_matches('\0').parse().ok()?, *slot.get(STRIPE)?))
}

fn open(path: &Path, to_write: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(to_write).create(to_write).truncate(false).mode(0o660);
    open_unnoticed(&mut options, libc::O_NOFOLLOW, path)
}

/// As many slots as there are claims at one time: little.
fn read(file: &File) -> io::Result<Vec<u8>> {
    let mut slots = vec![0; 512];
    let mut length = 0;
    loop {
        length += file.read_at(&mut slots[length..], length as u64)?;
        if length < slots.len() {
            slots.truncate(length);
            return Ok(slots);
        }
        slots.resize(4 * length, 0);
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
    use std::process::{Command, Stdio};

    /// A process that is being started has every descriptor for an instant, so a free lock may look held for that long.
    fn gone(path: &Path, claim: &ClaimId) -> bool {
        let mut pauses = crate::lock::Pauses::lasting(Duration::from_secs(10));
        loop {
            match Hold::try_take(path, claim).unwrap() {
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
        let path = &folder.path().join("held");
        File::create(path).unwrap();
        let (lent, kept) = (ClaimId::new().unwrap(), ClaimId::new().unwrap());
        let lent_hold = Hold::new(path, &lent, 1).unwrap();
        let kept_hold = Hold::new(path, &kept, 2).unwrap();
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
        assert_eq!(all(path).unwrap(), [(lent, 1), (kept, 2)]);
        let missing = ClaimId::new().unwrap();
        assert!(matches!(Hold::try_take(path, &missing).unwrap(), Owner::Unknown));
    }
    #[test]
    fn a_slot_is_used_again_only_when_it_is_empty_and_free() {
        let folder = tempfile::tempdir().unwrap();
        let path = &folder.path().join("held");
        File::create(path).unwrap();
        let claims: Vec<ClaimId> = (0..4).map(|_| ClaimId::new().unwrap()).collect();
        let place = |hold: &Hold| hold.slot().unwrap().at;
        let first = Hold::new(path, &claims[0], 0).unwrap();
        let second = Hold::new(path, &claims[1], 0).unwrap();
        assert_eq!((place(&first), place(&second)), (0, SLOT as u64));
        // Its owner is gone, and it is still written down: not free.
        drop(first);
        let third = Hold::new(path, &claims[2], 0).unwrap();
        assert_eq!(place(&third), 2 * SLOT as u64);
        let Owner::Gone(first) = Hold::try_take(path, &claims[0]).unwrap() else { panic!("it is free") };
        assert!(matches!(Hold::try_take(path, &claims[0]).unwrap(), Owner::Alive), "one proof at a time");
        // Empty, and somebody still has its lock: not free either.
        let slot = find(path, &claims[0], true).unwrap().unwrap();
        slot.file.write_all_at(&Slot::EMPTY, slot.at).unwrap();
        let fourth = Hold::new(path, &claims[3], 0).unwrap();
        assert_eq!(place(&fourth), 3 * SLOT as u64);
        fourth.remove();
        drop(first);
        assert_eq!(place(&Hold::new(path, &claims[3], 0).unwrap()), 0);
        assert!(matches!(Hold::try_take(path, &claims[0]).unwrap(), Owner::Unknown));
        // Removed by somebody: nobody can tell who lives.
        std::fs::remove_file(path).unwrap();
        File::create(path).unwrap();
        assert!(matches!(Hold::try_take(path, &claims[1]).unwrap(), Owner::Unknown));
    }
}
