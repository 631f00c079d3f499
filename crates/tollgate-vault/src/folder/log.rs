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
use std::fs::{File, Metadata};
use std::io;
use std::mem::take;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::OFlags;

use super::FolderStore;
use super::disk::{Disk, fingerprint, read, read_range};
use super::last_log::LastLog;
use super::log_line::{LogLine, LogState, NotedTask, PLAN, StepPlan, stands_alone, without_zeros};
use crate::claim::ClaimRecord;
use crate::step::Version;
use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Result};
use tollgate_base::lock::{lock_file, open, open_noatime};
use tollgate_base::settings::Durability;
use tollgate_base::task::TaskName;

/// A log that has grown past this is rewritten, or emptied if nothing in it is needed.
const LARGE: u64 = 64 << 10;

/// How much of a log is read first. The lines of one task have less.
const END: u64 = 4 << 10;

/// How many zeros are added when the room is used up.
const ROOM: usize = 16 << 10;

/// How many bytes of a long name are never cut, even if a fallback name gets a fallback name itself.
const NEVER_CUT: usize = 160;

impl FolderStore {
    fn log_path(&self, stripe: u8) -> PathBuf {
        log_path(&self.private, stripe)
    }

    /// What a log says now. Read without the lock, so a task that somebody is dealing with may be one step further.
    pub(super) fn read_log(&self, stripe: u8) -> Result<Arc<LogState>> {
        match self.open_log(stripe)? {
            Some((file, size)) => Ok(Arc::clone(&self.read_end(stripe, &file, size)?.1.says)),
            None => Ok(Arc::default()),
        }
    }

    /// The end of a log of this size that says as much as the whole log, and where it begins.
    fn read_end(&self, stripe: u8, file: &File, size: u64) -> Result<(u64, MutexGuard<'_, LastLog>)> {
        let read = |start| {
            read_range(file, start, size).or_else(|error| Err(error).at("read", self.log_path(stripe)))
        };
        let mut start = size.saturating_sub(END);
        let mut end = read(start)?;
        let mut last = self.last_log();
        if last.end != end || (start > 0 && !last.stands_alone) {
            last.stands_alone = stands_alone(&end);
            if start > 0 && !last.stands_alone {
                (start, end) = (0, read(0)?);
            }
            if last.end != end {
                let (says, lines) = LogState::parse(&end);
                (last.says, last.lines, last.end) = (Arc::new(says), lines, end);
            }
        }
        Ok((start, last))
    }

    fn last_log(&self) -> MutexGuard<'_, LastLog> {
        self.last_log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A log and its size, if it exists. It stays open, because a task that is looked at is claimed next.
    fn open_log(&self, stripe: u8) -> Result<Option<(Arc<File>, u64)>> {
        let kept = self.last_log().file.clone().filter(|(kept, _)| *kept == stripe);
        if let Some((_, file)) = kept
            && let Ok(found) = file.metadata()
            && found.nlink() > 0
        {
            return Ok(Some((file, found.len())));
        }
        let path = self.log_path(stripe);
        let open = |flags| open_noatime(&path, flags);
        let opened = open(OFlags::RDWR);
        let (file, can_lock) = match opened.as_ref().map_err(io::Error::kind) {
            Err(io::ErrorKind::NotFound) => return Ok(None),
            Err(io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) => {
                (open(OFlags::RDONLY), false)
            }
            _ => (opened, true),
        };
        let file = Arc::new(file.at("open", &path)?);
        let size = file.metadata().at("look at", &path)?.len();
        if can_lock {
            // A new one: nobody can have locked it.
            self.last_log().file = Some((stripe, Arc::clone(&file)));
        }
        Ok(Some((file, size)))
    }

    /// Whether a step may be pending in a log: its last line is a plan. Every claim asks for all logs, so this parses
    /// nothing.
    pub(super) fn may_be_pending(&self, stripe: u8) -> Result<bool> {
        let Some((file, size)) = self.open_log(stripe)? else { return Ok(false) };
        for start in [size.saturating_sub(END), 0] {
            let end = read_range(&file, start, size).at("read", self.log_path(stripe))?;
            let is_newline = |byte: &u8| *byte == b'\n';
            let lines = without_zeros(&end).split_inclusive(is_newline).rev();
            let mut lines = lines.filter(|line| line.last().is_some_and(is_newline));
            // The first line that was read may be the end of a longer one.
            if let Some(last) = lines.next().filter(|_| start == 0 || lines.next().is_some()) {
                return Ok(last.starts_with(PLAN));
            }
        }
        Ok(false)
    }

    /// Locks the log of a stripe. `None` if others held the lock all the time.
    pub(super) fn lock_log(&self, stripe: u8, wait: Duration) -> Result<Option<LockedLog>> {
        let path = self.log_path(stripe);
        // Taken out, so that no other thread uses it: two threads with one open file would share its lock.
        let mut kept = self.last_log().file.take().filter(|(kept, _)| *kept == stripe);
        let is_new = kept.is_none() && self.disk.durability == Durability::Durable && !path.exists();
        let log = loop {
            let file = match kept.take() {
                Some((_, file)) => file,
                None => Arc::new(open(&path)?),
            };
            if !lock_file(&file, &path, wait)? {
                return Ok(None);
            }
            let mut log = LockedLog {
                state: LogState::default(),
                stripe,
                file,
                path: path.clone(),
                start: 0,
                end: Vec::new(),
                lines: 0,
                is_known: false,
                disk: self.disk.clone(),
                last: Arc::clone(&self.last_log),
            };
            let found = log.file.metadata().at("look at", &path)?;
            if found.nlink() == 0 {
                // Rewritten while we waited.
                continue;
            }
            let (start, mut last) = self.read_end(stripe, &log.file, found.len())?;
            (log.start, log.end, log.lines) = (start, take(&mut last.end), take(&mut last.lines));
            log.state = Arc::unwrap_or_clone(take(&mut last.says));
            drop(last);
            let is_settled = log.state.pending.is_none();
            log.is_known = is_settled;
            if is_settled && log.state.notes.is_empty() && log.len() > LARGE {
                log.cut(0)?;
            } else if without_zeros(&log.end).len() > log.lines {
                log.cut(log.len())?;
            }
            // A record has less than a KiB. If the log cannot be rewritten now, it goes on as it is.
            let is_large = log.len() > LARGE.max((log.state.notes.len() as u64) << 12);
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

/// What the log says about a task, in the private folder of a vault that is not open.
pub(super) fn record_of(private: &Path, task: &TaskName) -> Result<Option<ClaimRecord>> {
    let path = log_path(private, stripe_of(task));
    let bytes = match open_noatime(&path, OFlags::RDONLY) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => read(&file.at("open", &path)?, 0, u64::MAX).at("read", &path)?,
    };
    let noted = LogState::parse(&bytes).0.notes.remove(task);
    Ok(noted.map(|noted| noted.record))
}

/// A log under its lock.
pub(super) struct LockedLog {
    pub(super) state: LogState,
    stripe: u8,
    file: Arc<File>,
    path: PathBuf,
    /// The end of the log that says as much as the whole log, with the zeros, and where it begins.
    start: u64,
    end: Vec<u8>,
    /// How many of these bytes are complete lines. What a failed write left after them is overwritten.
    lines: usize,
    /// Whether the state is what the log says: no step is under way.
    is_known: bool,
    disk: Disk,
    last: Arc<Mutex<LastLog>>,
}

impl Drop for LockedLog {
    fn drop(&mut self) {
        // Cannot fail for a file that is open. Also unlocks it for a process that was started at this moment.
        if self.file.unlock().is_ok() {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            last.file = Some((self.stripe, Arc::clone(&self.file)));
            // The next reader that finds the same bytes need not parse them.
            let window = self.end.len().saturating_sub(END as usize);
            let stands_alone = stands_alone(&self.end[window..]);
            if self.is_known && (stands_alone || self.start == 0) {
                if stands_alone {
                    self.end.drain(..window);
                    self.lines = self.lines.saturating_sub(window);
                }
                last.stands_alone = stands_alone;
                (last.end, last.lines) = (take(&mut self.end), self.lines);
                last.says = Arc::new(take(&mut self.state));
            }
        }
    }
}

impl LockedLog {
    /// The length of the log without the zeros.
    fn len(&self) -> u64 {
        self.start + self.lines as u64
    }

    fn append(&mut self, line: &LogLine<'_>) -> Result<()> {
        let mut bytes = line.bytes()?;
        let lines = self.lines + bytes.len();
        if lines > self.end.len() && self.disk.durability == Durability::Durable {
            bytes.resize(bytes.len() + ROOM, 0);
        }
        self.disk.write_at(&self.file, &self.path, self.len(), &bytes)?;
        let overwritten = self.end.len().min(self.lines + bytes.len());
        self.end.splice(self.lines..overwritten, bytes);
        self.lines = lines;
        Ok(())
    }

    /// Writes down what is about to be done.
    pub(super) fn begin(&mut self, plan: &StepPlan) -> Result<()> {
        self.is_known = false;
        self.append(&LogLine::Plan(Cow::Borrowed(plan)))?;
        // Without it a power cut could leave a step half done and nobody who knows.
        self.sync()
    }

    /// The step was done: its record is in force.
    pub(super) fn done(&mut self, plan: &StepPlan, landed: &TaskName) -> Result<()> {
        // What the step changes, and no more: a stripe has the records of many tasks.
        let before =
            [&plan.step.task, landed].map(|task| (task.clone(), self.state.notes.get(task).cloned()));
        self.state.settle(&plan.step, landed);
        let marked = if self.state.notes.is_empty() {
            self.append(&LogLine::Empty)
        } else {
            let noted = self.state.notes.get(landed).cloned();
            let known = noted.map(|noted| (Cow::Borrowed(landed), Cow::Owned(noted)));
            self.append(&LogLine::Taken(Cow::Borrowed(&plan.step.task), known))
        };
        self.is_known = marked.is_ok();
        marked.inspect_err(|_| {
            for (task, noted) in before {
                self.state.notes.remove(&task);
                self.state.notes.extend(noted.map(|noted| (task, noted)));
            }
        })
    }

    /// The step was rolled back.
    pub(super) fn undone(&mut self) -> Result<()> {
        self.append(&LogLine::Undone)?;
        self.is_known = true;
        Ok(())
    }

    /// Forgets a task that is nowhere any more.
    pub(super) fn forget(&mut self, task: &TaskName) -> Result<()> {
        self.is_known = false;
        self.state.notes.remove(task);
        self.append(&LogLine::Taken(Cow::Borrowed(task), None))
    }

    /// Every mark so far survives a power cut.
    pub(super) fn sync(&self) -> Result<()> {
        self.disk.sync(&self.file, &self.path)
    }

    fn cut(&mut self, len: u64) -> Result<()> {
        self.disk.cut(&self.file, &self.path, len)?;
        self.start = self.start.min(len);
        self.lines = (len - self.start) as usize;
        self.end.truncate(self.lines);
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
pub(super) fn version(found: &Metadata, noted: Option<&NotedTask>) -> Version {
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
