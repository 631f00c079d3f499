//! The steps under way and the records of tasks: a small log for each of 256 stripes of task names.
//!
//! A step is appended to its stripe's log as a [`StepPlan`], flushed, before anything is done. A mark after it says that the
//! step was carried out, and what is known about the task since, or that it was rolled back. A plan without a mark is under
//! way, or its process died. A log that has grown is rewritten by the next process that locks it.
//!
//! The zeros after the lines make room: to flush lines that are written over them is cheaper than to flush a file that grows.
//!
//! Invariants: the kernel lock of a log is the lock of everything that tollgate does to the tasks of its stripe; a log is
//! written only under its lock; a task and its fallback names are in one stripe.

use std::borrow::Cow;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::Duration;

use rustix::fs::{CWD, OFlags};
use rustix::io::Errno;

use super::FolderStore;
use super::disk::{Disk, fingerprint, read, read_range};
use super::log_line::{LogLine, LogState, Noted, PLAN, StepPlan, without_zeros};
use crate::claim::ClaimRecord;
use crate::step::Version;
use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Result};
use tollgate_base::lock::{Lock, open_noatime};
use tollgate_base::settings::Durability;
use tollgate_base::task::TaskName;

/// A log that has grown past this is emptied as soon as nothing in it is needed, and rewritten when it is four times as
/// large. Every look at a task of the stripe reads the whole log.
const LARGE: u64 = 16 << 10;

/// How many zeros are added when the room is used up.
const ROOM: usize = LARGE as usize;

/// How many bytes of a long name are never cut, even if a fallback name gets a fallback name itself.
const NEVER_CUT: usize = 160;

impl FolderStore {
    fn log_path(&self, stripe: u8) -> PathBuf {
        log_path(&self.private, stripe)
    }

    /// What a log says now. Read without the lock, so a task that somebody is dealing with may be one step further.
    pub(super) fn read_log(&self, stripe: u8) -> Result<LogState> {
        let bytes = log_bytes(&self.log_path(stripe))?;
        Ok(bytes.map_or_else(LogState::default, |bytes| self.parse_log(&bytes).0))
    }

    fn parse_log(&self, bytes: &[u8]) -> (LogState, u64) {
        self.last_log.lock().unwrap_or_else(PoisonError::into_inner).parse(bytes)
    }

    /// Whether a step may be pending in a log: its last line is a plan. Every claim asks for all logs, so this parses
    /// nothing.
    pub(super) fn may_be_pending(&self, stripe: u8) -> Result<bool> {
        let Some(bytes) = log_bytes(&self.log_path(stripe))? else { return Ok(false) };
        let is_line = |byte: &u8| *byte == b'\n';
        let lines = without_zeros(&bytes).split_inclusive(is_line);
        Ok(lines.rev().find(|line| line.ends_with(b"\n")).is_some_and(|last| last.starts_with(PLAN)))
    }

    /// Locks the log of a stripe. `None` if others held the lock all the time.
    pub(super) fn lock_log(&self, stripe: u8, wait: Duration) -> Result<Option<LockedLog>> {
        let path = self.log_path(stripe);
        let is_new = self.disk.durability == Durability::Durable && !path.exists();
        let log = loop {
            let Some(lock) = Lock::acquire(&path, wait)? else { return Ok(None) };
            let size = match lock.file().metadata().at("look at", &path)? {
                // Rewritten while we waited.
                found if found.nlink() == 0 => continue,
                found => found.len(),
            };
            let bytes = read_range(lock.file(), 0, size).at("read", &path)?;
            let (state, len) = self.parse_log(&bytes);
            let disk = self.disk.clone();
            let mut log = LockedLog { state, lock, path: path.clone(), len, size, disk };
            let is_settled = log.state.pending.is_none();
            if is_settled && log.state.notes.is_empty() && len > LARGE {
                log.cut(0)?;
            } else if without_zeros(&bytes).len() as u64 > len {
                log.cut(len)?;
            }
            // A record has less than a KiB. If the log cannot be rewritten now, it goes on as it is.
            let is_large = log.len > 4 * LARGE.max((log.state.notes.len() as u64) << 10);
            if !(is_settled && is_large) || log.rewrite().is_err() {
                break log;
            }
        };
        if is_new {
            // Without it a power cut could take the whole log away from under a step that is half done.
            self.disk.sync_folder(&self.private.join("logs"))?;
        }
        Ok(Some(log))
    }
}

/// Where the log of a stripe is, in the private folder of a vault.
fn log_path(private: &Path, stripe: u8) -> PathBuf {
    private.join("logs").join(format!("{stripe:02x}"))
}

/// The bytes of a log; `None` if there is none.
fn log_bytes(path: &Path) -> Result<Option<Vec<u8>>> {
    match open_noatime(CWD, path, OFlags::RDONLY) {
        Err(Errno::NOENT) => Ok(None),
        file => read(&file.at("open", path)?, 0, u64::MAX).at("read", path).map(Some),
    }
}

/// What the log says about a task, in the private folder of a vault that is not open.
pub(super) fn record_of(private: &Path, task: &TaskName) -> Result<Option<ClaimRecord>> {
    let bytes = log_bytes(&log_path(private, stripe_of(task)))?;
    let noted = bytes.and_then(|bytes| LogState::parse(&bytes).0.notes.remove(task));
    Ok(noted.map(|noted| noted.record))
}

/// A log under its lock.
pub(super) struct LockedLog {
    pub(super) state: LogState,
    lock: Lock,
    path: PathBuf,
    /// The length of its complete lines. What a failed write left after them is overwritten.
    len: u64,
    /// The length of the file, with the zeros.
    size: u64,
    disk: Disk,
}

impl LockedLog {
    fn append(&mut self, line: &LogLine<'_>) -> Result<()> {
        let mut bytes = line.bytes()?;
        let end = self.len + bytes.len() as u64;
        if end > self.size && self.disk.durability == Durability::Durable {
            bytes.resize(bytes.len() + ROOM, 0);
        }
        self.disk.write_at(self.lock.file(), &self.path, self.len, &bytes)?;
        self.size = self.size.max(self.len + bytes.len() as u64);
        self.len = end;
        Ok(())
    }

    /// Writes down what is about to be done.
    pub(super) fn begin(&mut self, plan: &StepPlan) -> Result<()> {
        self.append(&LogLine::Plan(Cow::Borrowed(plan)))?;
        // Without it a power cut could leave a step half done and nobody who knows.
        self.sync()
    }

    /// The step was done: its record is in force.
    pub(super) fn done(&mut self, plan: &StepPlan, landed: &TaskName) -> Result<()> {
        let before = self.state.notes.clone();
        self.state.settle(&plan.step, landed);
        let marked = if self.state.notes.is_empty() {
            self.append(&LogLine::Empty)
        } else {
            let noted = self.state.notes.get(landed).cloned();
            let known = noted.map(|noted| (Cow::Borrowed(landed), Cow::Owned(noted)));
            self.append(&LogLine::Taken(Cow::Borrowed(&plan.step.task), known))
        };
        marked.inspect_err(|_| self.state.notes = before)
    }

    /// The step was rolled back.
    pub(super) fn undone(&mut self) -> Result<()> {
        self.append(&LogLine::Undone)
    }

    /// Forgets a task that is nowhere any more.
    pub(super) fn forget(&mut self, task: &TaskName) -> Result<()> {
        self.state.notes.remove(task);
        self.append(&LogLine::Taken(Cow::Borrowed(task), None))
    }

    /// Every mark so far survives a power cut.
    pub(super) fn sync(&self) -> Result<()> {
        self.disk.sync(self.lock.file(), &self.path)
    }

    fn cut(&mut self, len: u64) -> Result<()> {
        self.disk.cut(self.lock.file(), &self.path, len)?;
        (self.len, self.size) = (len, len);
        Ok(())
    }

    /// A compacted copy replaces the log, by rename: readers without the lock see the old or the new one.
    fn rewrite(&self) -> Result<()> {
        let mut bytes = Vec::new();
        for (task, noted) in &self.state.notes {
            bytes.extend(LogLine::Noted(Cow::Borrowed(task), Cow::Borrowed(noted)).bytes()?);
        }
        self.disk.replace_via(&self.path.with_extension("new"), &self.path, &bytes)
    }
}

/// The version of a task: changes with everything that can happen to its file, and our own steps have ids.
pub(super) fn version(found: &Metadata, noted: Option<&Noted>) -> Version {
    let step = noted.map_or("", |noted| noted.step.as_str());
    Version::from([&fingerprint(found)[..], step.as_bytes()].concat())
}

/// The stripe of a task: the same for all its fallback names.
pub(super) fn stripe_of(task: &TaskName) -> u8 {
    let is_suffix = |word: &str| {
        let digits = word.strip_prefix("c-").or_else(|| word.strip_prefix("s-")).unwrap_or_default();
        digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_hexdigit())
    };
    let mut stem = task.stem();
    while let Some((before, _)) = stem.rsplit_once('.').filter(|(_, word)| is_suffix(word)) {
        stem = before;
    }
    // The fallback name of a long name is cut.
    let bytes = stem.as_bytes();
    Digest::of(&bytes[..bytes.len().min(NEVER_CUT)]).as_bytes()[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_and_its_fallback_names_share_a_stripe() {
        let name: TaskName = "x".parse().unwrap();
        let long = TaskName::of_file(&format!("{}.md", "ö".repeat(126))).unwrap();
        let beside = long.beside("c-0123456789abcdef");
        assert_eq!(stripe_of(&long), stripe_of(&beside));
        assert_eq!(stripe_of(&long), stripe_of(&beside.beside("s-0123456789abcdef")));
        assert_eq!(stripe_of(&name), stripe_of(&name.beside("c-0123456789abcdef")));
        assert_ne!(stripe_of(&name), stripe_of(&name.beside("c-0123")), "a word that tollgate never makes");
    }
}
