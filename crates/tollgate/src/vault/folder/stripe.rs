//! The stripes of a vault: the lock and the log of each, open as long as the store is.
//!
//! The locks are of the bytes of one file, one for each stripe.
//!
//! Invariants: a lock of a byte belongs to the open file, so threads that share a store exclude each other before, by a
//! mutex, and let the byte go before the mutex. What is remembered of a log is compared with the log each time.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use super::disk::Disk;
use super::log::{Known, Line, Noted, Plan};
use crate::error::{At, Fault, Result};
use crate::lock::{Pauses, has_name};
use crate::sys;
use crate::vault::name::TaskName;

/// How many there are.
const STRIPES: usize = 256;

/// A log that has grown past this is written anew, unless most of it is needed. About forty steps: small enough to read
/// for each of them.
const LARGE: usize = 64 << 10;

/// More than the line of a note has.
const NOTE: usize = 1 << 10;

/// A log that is open, and what was last read in it.
struct Open {
    file: Arc<File>,
    path: Arc<Path>,
    known: Known,
}

/// The stripes of one vault.
pub(crate) struct Stripes {
    /// The file of the locks.
    file: File,
    path: PathBuf,
    /// The folder of the logs.
    logs: PathBuf,
    open: Box<[Mutex<Option<Open>>]>,
    /// So many of them stay open.
    stay_open: u64,
}

impl Stripes {
    pub(crate) fn open(path: PathBuf, logs: PathBuf) -> Result<Self> {
        let file = crate::lock::open(&path)?;
        // A quarter of what this process may have open: others need some too.
        let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let stay_open = most.map_or(STRIPES as u64, |most| most / 4);
        let open = std::iter::repeat_with(Mutex::default).take(STRIPES).collect();
        Ok(Self { file, path, logs, open, stay_open })
    }

    fn log(&self, stripe: u8) -> PathBuf {
        self.logs.join(format!("{stripe:02x}"))
    }

    /// What the log of a stripe says now. Without the lock, so what it says of a task that somebody deals with may be a
    /// step old.
    pub(crate) fn read(&self, stripe: u8) -> Result<Known> {
        Known::read(&self.log(stripe))
    }

    /// The same, through what stays open: what `of` makes of it. `None` if another thread is at it.
    fn glance<T>(&self, stripe: u8, of: impl FnOnce(&Known) -> T) -> Result<Option<T>> {
        let Some(mut open) = self.place(stripe) else { return Ok(None) };
        if open.is_none() && !self.log(stripe).exists() {
            return Ok(Some(of(&Known::default())));
        }
        let fresh = self.refresh(open.take(), stripe)?;
        let found = of(&fresh.known);
        if u64::from(stripe) < self.stay_open {
            *open = Some(fresh);
        }
        Ok(Some(found))
    }

    /// What is known of a task now, likewise; and whether a step in its stripe is under way, or was cut short.
    pub(crate) fn noted(&self, task: &TaskName) -> Result<(Option<Arc<Noted>>, bool)> {
        let of = |known: &Known| (known.notes.get(task).cloned(), known.is_pending());
        match self.glance(task.stripe(), of)? {
            Some(noted) => Ok(noted),
            None => Ok(of(&self.read(task.stripe())?)),
        }
    }

    /// The stripes in which a step is under way, or was cut short.
    pub(crate) fn under_way(&self) -> Result<Vec<u8>> {
        let mut found = Vec::new();
        for stripe in 0..=u8::MAX {
            if self.glance(stripe, Known::is_pending)? == Some(true) {
                found.push(stripe);
            }
        }
        Ok(found)
    }

    /// Unless another thread has it.
    fn place(&self, stripe: u8) -> Option<MutexGuard<'_, Option<Open>>> {
        match self.open[usize::from(stripe)].try_lock() {
            Ok(place) => Some(place),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The log as it is now.
    fn refresh(&self, open: Option<Open>, stripe: u8) -> Result<Open> {
        let mut open = match open.filter(|open| has_name(&open.file)) {
            Some(open) => open,
            None if has_name(&self.file) => {
                let path = self.log(stripe);
                let file = Arc::new(crate::lock::open(&path)?);
                Open { file, path: path.into(), known: Known::default() }
            }
            // Whoever comes later locks another file.
            None => {
                return Err(Fault::damaged(&self.path, "it was removed while in use: start tollgate again"));
            }
        };
        open.known.read_again(&open.file, &open.path)?;
        Ok(open)
    }

    /// The log of a stripe, and the lock of everything that tollgate does to the tasks in it. `None` if others had it
    /// all the time.
    pub(crate) fn lock(&self, stripe: u8, wait: Duration) -> Result<Option<Log<'_>>> {
        let mut pauses = Pauses::lasting(wait);
        let mut place = loop {
            match self.place(stripe) {
                Some(place) => break place,
                None if pauses.pause() => {}
                None => return Ok(None),
            }
        };
        while !sys::try_lock_byte(&self.file, stripe.into()).at("lock", &self.path)? {
            if !pauses.pause() {
                return Ok(None);
            }
        }
        let lock = Locked { stripes: self, stripe };
        let Open { file, path, known } = self.refresh(place.take(), stripe)?;
        Ok(Some(Log { known, sound: true, lost: false, file, path, lock, place }))
    }
}

/// The lock of a stripe.
struct Locked<'a> {
    stripes: &'a Stripes,
    stripe: u8,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // If it fails, the lock is let go with the file.
        let _ = sys::unlock_byte(&self.stripes.file, self.stripe.into());
    }
}

/// A log under its lock. The fields are dropped in their order: the lock before the place.
pub(crate) struct Log<'a> {
    pub(crate) known: Known,
    /// What is known is what the log says. Not while a step is under way.
    sound: bool,
    /// It could not be read after a fault, so nothing more is written to it.
    lost: bool,
    file: Arc<File>,
    path: Arc<Path>,
    lock: Locked<'a>,
    place: MutexGuard<'a, Option<Open>>,
}

impl Drop for Log<'_> {
    fn drop(&mut self) {
        if self.sound && u64::from(self.lock.stripe) < self.lock.stripes.stay_open {
            let (file, path) = (Arc::clone(&self.file), Arc::clone(&self.path));
            *self.place = Some(Open { file, path, known: std::mem::take(&mut self.known) });
        }
    }
}

impl Log<'_> {
    /// Changes the log, and what is known with it. After a fault what is known is what the log says.
    fn change(&mut self, change: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        if self.lost {
            return Err(Fault::damaged(&self.path, "it could not be read: try again"));
        }
        self.sound = false;
        let changed = change(self);
        if changed.is_err() {
            match Known::read(&self.path) {
                Ok(known) => self.known = known,
                Err(_) => self.lost = true,
            }
        }
        changed
    }

    fn append(&mut self, disk: &Disk, line: &Line<'_>) -> Result<()> {
        let (at, bytes) = self.known.add(line)?;
        disk.write_at(&self.file, &self.path, at as u64, bytes)
    }

    /// Writes down what is about to be done.
    pub(crate) fn begin(&mut self, disk: &Disk, plan: &Plan<'_>) -> Result<()> {
        self.change(|log| {
            log.append(disk, &Line::Plan(plan))?;
            // Without it a power cut could leave a step half made and nobody who knows.
            log.sync(disk)
        })
    }

    /// The step that is under way, or was cut short.
    pub(crate) fn pending(&self) -> Result<Option<Plan<'static>>> {
        self.known.pending(&self.path)
    }

    /// It was done.
    pub(crate) fn done(&mut self, disk: &Disk, plan: &Plan<'_>, landed: &TaskName) -> Result<()> {
        let noted = plan.note().map(|note| Noted { step: plan.step.id.clone(), note: note.clone() });
        self.change(|log| {
            log.known.settle(&plan.step.task, landed, noted);
            log.mark(disk, &Line::Done(landed))
        })
    }

    /// It was taken back.
    pub(crate) fn undone(&mut self, disk: &Disk) -> Result<()> {
        self.change(|log| log.mark(disk, &Line::Undone))
    }

    /// Forgets a task that is nowhere any more.
    pub(crate) fn forget(&mut self, disk: &Disk, task: &TaskName) -> Result<()> {
        self.change(|log| {
            log.known.notes.remove(task);
            log.rewrite(disk)
        })
    }

    /// What was marked survives a power cut from here on.
    pub(crate) fn sync(&self, disk: &Disk) -> Result<()> {
        disk.sync(&self.file, &self.path)
    }

    fn mark(&mut self, disk: &Disk, line: &Line<'_>) -> Result<()> {
        self.known.settled();
        if self.known.notes.is_empty() {
            // Nothing is left to know: that the log begins anew is the mark.
            let bytes = self.known.begin_anew()?;
            disk.write_at(&self.file, &self.path, 0, bytes)?;
        } else {
            self.append(disk, line)?;
            if self.known.bytes().len() > LARGE.max(NOTE * self.known.notes.len()) {
                // The mark is made. If the log cannot be written anew now, it goes on as it is.
                let _ = self.rewrite(disk);
            }
        }
        self.sound = true;
        Ok(())
    }

    /// The same in fewer words, or as it was. By rename, so that readers without the lock see the old or the new one.
    fn rewrite(&mut self, disk: &Disk) -> Result<()> {
        let anew = self.known.anew()?;
        let stage = self.path.with_extension("new");
        let _ = std::fs::remove_file(&stage);
        let file = disk.create(&stage, anew.bytes())?;
        disk.replace(&stage, &self.path)?;
        self.file = Arc::new(file);
        self.known = anew;
        self.sound = true;
        Ok(())
    }
}
