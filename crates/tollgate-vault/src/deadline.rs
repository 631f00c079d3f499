//! Until when a claim is certainly its owner's, as far as this machine knows: one small file for each claim.
//!
//! On a store that other machines share, only the store knows who owns a task, and asking it for every write would take too
//! long. But a claim cannot be lost before its lease is over. So each process that makes, renews or ends a claim here writes
//! the moment of its end into a file, and every process that works under the claim looks there.
//!
//! Invariants: a deadline is not later than the end of the lease that the store has confirmed, counted from before the store
//! was asked, by a clock that nobody can set. What was asked for later counts: a renewal that is written late does not bring
//! back a claim that has ended. No file, or one from before a restart of the machine, means that the claim has ended.
//!
//! A person may take a claim away before its lease is over, on another machine. So the store is asked from time to time:
//! [`ClaimDeadlines::is_due`].

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::claim::ClaimId;
use tollgate_base::boot_clock::{boot_id, millis, millis_since_boot};
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::file::{names_in, replace_file};
use tollgate_base::lock::Lock;
use tollgate_base::private;
use tollgate_base::settings::Durability;

/// The version of these files.
const FORMAT: u32 = 1;

/// The longest wait for the lock, which is held while a small file is replaced.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// A write that was allowed must be made before the lease is over. This part of the lease is left for it. A worker asks its
/// command to stop, and kills it, before that: the command may write as long as it may run.
const MARGIN: u32 = 12;

/// No write takes longer than this.
const LONGEST_MARGIN: Duration = Duration::from_secs(10);

/// The wait for the lock where something more urgent comes next: a write, a heartbeat, the end of a command.
const SHORT_LOCK_WAIT: Duration = Duration::from_secs(1);

/// How soon the store is asked again if it did not answer.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// How long this machine may believe that nobody has taken a claim away. With a short lease it is half of the lease, so that a claim
/// whose owner sends heartbeats needs no further question.
const BELIEVED: Duration = Duration::from_secs(30);

/// How often files are deleted that nobody needs any more. All of them are read for that, which would take too long for every
/// claim.
const SWEEP_EVERY: Duration = Duration::from_secs(5 * 60);

/// The longest lease that is expected of a claim whose lease is not known here.
const LONGEST_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// The deadlines of the claims that were made on this machine.
#[derive(Debug, Clone)]
pub struct ClaimDeadlines {
    folder: PathBuf,
}

/// What is known about one claim.
#[derive(Debug, Serialize, Deserialize)]
struct DeadlineFile {
    format: u32,
    /// The times are those of this start of the machine.
    boot: String,
    /// When the store was asked, in milliseconds since the machine was started.
    heard_ms: u64,
    /// When the claim ends. `None`: it lasts until its owner ends it.
    until_ms: Option<u64>,
    /// When the store was last asked whether somebody has taken the claim away, and when that question was asked to which it
    /// answered no.
    #[serde(default)]
    asked_ms: u64,
    #[serde(default)]
    confirmed_ms: u64,
    /// Of a claim that was ended: how long this file must say so. A renewal that was asked for before the end, and is written
    /// late, would bring the claim back for the rest of its lease.
    #[serde(default)]
    kept_ms: u64,
}

impl DeadlineFile {
    /// Whether the claim was ended, which is for good. A lease that is over can be renewed.
    fn is_ended(&self) -> bool {
        self.until_ms.is_some_and(|until| until <= self.heard_ms)
    }

    /// Whether the claim is over, and stays over without this file.
    fn is_needless(&self, now: u64, boot: &str) -> bool {
        self.boot != boot || self.until_ms.is_some_and(|until| until.max(self.kept_ms) < now)
    }
}

/// When needless files were last deleted.
#[derive(Serialize, Deserialize)]
struct SweptFile {
    boot: String,
    swept_ms: u64,
}

impl ClaimDeadlines {
    /// The deadlines in this folder, which all processes of a machine share, and no other machine.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Whether this claim has certainly not ended.
    pub fn is_before(&self, claim: &ClaimId) -> Result<bool> {
        let (now, boot) = (millis_since_boot(), boot_id());
        Ok(self.read(claim)?.is_some_and(|file| {
            file.boot == boot && file.heard_ms <= now && file.until_ms.is_none_or(|until| now < until)
        }))
    }

    /// Whether it is time to ask the store if somebody has taken this claim away. If so, notes that it is asked now: a store
    /// that does not answer is not asked again for every write. If that cannot be noted, the store is not asked: a full disk
    /// must not refuse a write for this.
    pub fn is_due(&self, claim: &ClaimId) -> Result<bool> {
        let (now, boot) = (millis_since_boot(), boot_id());
        let is_old = |file: &DeadlineFile| {
            let half = file.until_ms.map_or(u64::MAX, |until| until.saturating_sub(file.heard_ms) / 2);
            let known = file.heard_ms.max(file.confirmed_ms);
            file.boot == boot
                && now.saturating_sub(known) >= millis(BELIEVED).min(half)
                && now.saturating_sub(file.asked_ms) >= millis(ASK_AGAIN)
        };
        if !self.is_before(claim)? || !self.read(claim)?.is_some_and(|file| is_old(&file)) {
            return Ok(false);
        }
        // Another process may have asked in the meantime, or ended the claim.
        let noted = self.change(claim, SHORT_LOCK_WAIT, |file| {
            is_old(file).then(|| file.asked_ms = now);
            file.asked_ms == now
        });
        Ok(noted.unwrap_or(false))
    }

    /// The store, asked at this moment, said that the claim still owns its task.
    pub(crate) fn confirm(&self, claim: &ClaimId, asked_ms: u64) -> Result<()> {
        self.change(claim, LOCK_WAIT, |file| {
            file.confirmed_ms = file.confirmed_ms.max(asked_ms);
            true
        })
        .map(drop)
    }

    /// Changes the file of a claim, if there is one and the change is wanted. Whether it is.
    fn change(
        &self,
        claim: &ClaimId,
        wait: Duration,
        change: impl FnOnce(&mut DeadlineFile) -> bool,
    ) -> Result<bool> {
        let _lock = self.lock(wait)?;
        let Some(mut file) = self.read(claim)? else { return Ok(false) };
        let is_wanted = change(&mut file);
        if is_wanted {
            self.replace(claim, &file)?;
        }
        Ok(is_wanted)
    }

    /// A claim is about to be made.
    pub(crate) fn begin(&self, claim: &ClaimId, heard_ms: u64, lasts: Option<Duration>) -> Result<()> {
        private::create_folders(&self.folder, 0o777).at("make the folder", &self.folder)?;
        let ignore = self.folder.join(".gitignore");
        if ignore.symlink_metadata().is_err() {
            replace_file(&ignore, b"*\n", Durability::Fast)?;
        }
        self.sweep()?;
        self.extend(claim, LOCK_WAIT, heard_ms, lasts)
    }

    /// At `heard_ms`, the store was asked, and the claim lasts this long from then on. Gives up soon, so that the next heartbeat
    /// is not late.
    pub(crate) fn extend_soon(&self, claim: &ClaimId, heard_ms: u64, lasts: Option<Duration>) -> Result<()> {
        self.extend(claim, SHORT_LOCK_WAIT, heard_ms, lasts)
    }

    fn extend(&self, claim: &ClaimId, wait: Duration, heard_ms: u64, lasts: Option<Duration>) -> Result<()> {
        let until_ms = lasts.map(|lasts| {
            let left = lasts.saturating_sub((lasts / MARGIN).min(LONGEST_MARGIN));
            heard_ms.saturating_add(millis(left))
        });
        self.write(claim, wait, |known| {
            let is_newer = known.is_none_or(|known| known.heard_ms < heard_ms && !known.is_ended());
            is_newer.then_some((heard_ms, until_ms, 0))
        })
    }

    /// The claim has ended.
    pub(crate) fn end(&self, claim: &ClaimId) -> Result<()> {
        self.end_within(claim, LOCK_WAIT)
    }

    /// The claim has ended, and its command must be killed now, so nobody waits long for the lock.
    pub(crate) fn end_soon(&self, claim: &ClaimId) -> Result<()> {
        self.end_within(claim, SHORT_LOCK_WAIT)
    }

    fn end_within(&self, claim: &ClaimId, wait: Duration) -> Result<()> {
        if !self.folder.exists() {
            return Ok(());
        }
        let now = millis_since_boot();
        let ended = self.write(claim, wait, |known| {
            let lease = known.and_then(|known| Some(known.until_ms?.saturating_sub(known.heard_ms)));
            let kept = now.saturating_add(lease.unwrap_or(millis(LONGEST_LEASE)));
            known.is_none_or(|known| !known.is_ended()).then_some((now, Some(now), kept))
        });
        // A full disk still lets go of a file, and a claim without a file has ended, too.
        ended.or_else(|fault| self.forget(claim).map_err(|_| fault))
    }

    /// Nobody was told of this claim.
    pub(crate) fn forget(&self, claim: &ClaimId) -> Result<()> {
        let path = self.path(claim);
        match private::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).at("remove", &path),
            _ => Ok(()),
        }
    }

    fn path(&self, claim: &ClaimId) -> PathBuf {
        self.folder.join(claim.as_str())
    }

    fn read(&self, claim: &ClaimId) -> Result<Option<DeadlineFile>> {
        let path = self.path(claim);
        let bytes = match private::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.at("read", &path)?,
        };
        let file: DeadlineFile =
            serde_json::from_slice(&bytes).map_err(|error| Fault::damaged(&path, error))?;
        if file.format > FORMAT {
            return Err(Fault::NewerFormat { path, found: file.format, known: FORMAT });
        }
        Ok(Some(file))
    }

    /// Writes when the store was asked, when the claim ends and how long that must be kept, unless the file that is there forbids it.
    fn write(
        &self,
        claim: &ClaimId,
        wait: Duration,
        next: impl FnOnce(Option<&DeadlineFile>) -> Option<(u64, Option<u64>, u64)>,
    ) -> Result<()> {
        private::create_folders(&self.folder, 0o777).at("make the folder", &self.folder)?;
        let _lock = self.lock(wait)?;
        let boot = boot_id();
        // A damaged file says nothing.
        let known = self.read(claim).ok().flatten().filter(|known| known.boot == boot);
        let Some((heard_ms, until_ms, kept_ms)) = next(known.as_ref()) else { return Ok(()) };
        self.replace(
            claim,
            &DeadlineFile {
                format: FORMAT,
                boot: boot.to_owned(),
                heard_ms,
                until_ms,
                asked_ms: 0,
                confirmed_ms: 0,
                kept_ms,
            },
        )
    }

    fn lock(&self, wait: Duration) -> Result<Lock> {
        let path = self.folder.join("lock");
        Lock::acquire(&path, wait)?.ok_or(Fault::Locked { path, waited_s: wait.as_secs() })
    }

    fn replace(&self, claim: &ClaimId, file: &DeadlineFile) -> Result<()> {
        let bytes = serde_json::to_vec(file).map_err(|error| Fault::invalid(error.to_string()))?;
        // Not flushed: after a power cut the machine starts again, and the file says nothing any more.
        replace_file(&self.path(claim), &bytes, Durability::Fast)
    }

    /// Deletes the files that nobody needs any more, from time to time.
    fn sweep(&self) -> Result<()> {
        if !self.is_sweep_due() {
            return Ok(());
        }
        // Without it, a file could be deleted that is being extended at this moment.
        let _lock = self.lock(LOCK_WAIT)?;
        if !self.is_sweep_due() {
            return Ok(());
        }
        let (swept_ms, boot) = (millis_since_boot(), boot_id());
        for name in names_in(&self.folder)? {
            let claim = name.to_str().and_then(|name| name.parse::<ClaimId>().ok());
            if let Some(claim) = claim
                && let Ok(Some(file)) = self.read(&claim)
                && file.is_needless(swept_ms, boot)
            {
                self.forget(&claim)?;
            }
        }
        let swept = serde_json::to_vec(&SweptFile { boot: boot.to_owned(), swept_ms });
        let swept = swept.map_err(|error| Fault::invalid(error.to_string()))?;
        replace_file(&self.folder.join("swept"), &swept, Durability::Fast)
    }

    fn is_sweep_due(&self) -> bool {
        let swept = private::read(&self.folder.join("swept")).ok();
        let swept: Option<SweptFile> = swept.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let is_recent = |swept: SweptFile| {
            swept.boot == boot_id()
                && millis_since_boot().saturating_sub(swept.swept_ms) < millis(SWEEP_EVERY)
        };
        !swept.is_some_and(is_recent)
    }
}

/// Ends a claim when it is dropped.
#[derive(Debug)]
pub(crate) struct DeadlineGuard(pub(crate) ClaimDeadlines, pub(crate) ClaimId);

impl Drop for DeadlineGuard {
    fn drop(&mut self) {
        // If it fails, the claim ends at its deadline.
        let _ = self.0.end(&self.1);
    }
}
