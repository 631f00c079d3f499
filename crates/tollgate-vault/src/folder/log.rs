//! The steps under way and the records of tasks: a small log for each of 256 stripes of task names.
//!
//! A step is appended to its stripe's log as a [`Plan`], flushed, before anything is done. A mark after it says that the
//! step was carried out (then the plan's record is in force) or rolled back. A plan without a mark is under way, or its
//! process died. A log in which nothing is left is truncated; one that has grown is rewritten.
//!
//! A log has one JSON value per line. A line without its newline, or that is not JSON, was cut short and does not count,
//! because nothing is done before the line is complete.
//!
//! Invariants: the kernel lock of a log is the lock of everything that tollgate does to the tasks of its stripe; a log is
//! written only under its lock; a task and its fallback names are in one stripe.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{CWD, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::FolderStore;
use super::disk::{Disk, fingerprint, read};
use crate::claim::{ClaimRecord, StepId};
use crate::step::{Step, Version};
use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::lock::{Lock, has_name, open_noatime};
use tollgate_base::task::TaskName;

/// A log that has grown past this is rewritten, unless most of it is needed: about ten steps. Every look at a task of the
/// stripe parses the whole log.
const LARGE: u64 = 16 << 10;

/// How many bytes of a long name are never cut, even if a fallback name gets a fallback name itself.
const NEVER_CUT: usize = 160;

/// A step and everything that is needed to carry it out, finish it, or roll it back.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) step: Step,
    /// The inode of the task's file, by which it is recognised wherever it is.
    pub(super) ino: u64,
    /// The length of the file.
    pub(super) len: u64,
    /// The journal that the events belong to.
    pub(super) journal: String,
    /// What changes in the file.
    pub(super) change: Option<Change>,
}

/// From byte `at` to the end, the file has the bytes `old` and gets the bytes `new`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Change {
    pub(super) at: u64,
    #[serde(with = "raw")]
    pub(super) old: Vec<u8>,
    #[serde(with = "raw")]
    pub(super) new: Vec<u8>,
}

/// What is known about a task, and the step that recorded it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Noted {
    pub(super) step: StepId,
    #[serde(rename = "note")]
    pub(super) record: ClaimRecord,
}

/// Bytes as text, one character each, so that any byte survives JSON.
mod raw {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&bytes.iter().map(|byte| char::from(*byte)).collect::<String>())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.chars().map(|c| u8::try_from(c).map_err(D::Error::custom)).collect()
    }
}

/// A line of a log.
#[derive(Serialize, Deserialize)]
enum Line {
    /// This is about to be done.
    Plan(Box<Plan>),
    /// It was done, and the task has this name now.
    Done(TaskName),
    /// It was rolled back.
    Undone,
    /// This is known about a task.
    Noted(TaskName, Box<Noted>),
}

/// How the lines begin after which no step is pending.
const MARKS: [&[u8]; 3] = [br#"{"Done""#, br#""Undone""#, br#"{"Noted""#];

impl Line {
    fn bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec(self).map_err(|error| Fault::invalid(error.to_string()))?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

/// What a log says.
#[derive(Debug, Default)]
pub(super) struct LogState {
    /// What is known about each task of the stripe that is not final.
    pub(super) notes: BTreeMap<TaskName, Noted>,
    /// The step without a mark.
    pub(super) pending: Option<Plan>,
}

impl LogState {
    /// What these bytes say, and how many of them are complete lines.
    fn parse(bytes: &[u8]) -> (Self, u64) {
        let (mut state, mut whole) = (Self::default(), 0);
        for line in bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            match serde_json::from_slice(line) {
                Ok(Line::Plan(plan)) => state.pending = Some(*plan),
                Ok(Line::Undone) => state.pending = None,
                Ok(Line::Done(landed)) => {
                    if let Some(plan) = state.pending.take() {
                        state.settle(plan.step, landed);
                    }
                }
                Ok(Line::Noted(task, noted)) => drop(state.notes.insert(task, *noted)),
                // Cut short by a power cut.
                Err(_) => break,
            }
            whole += line.len() as u64;
        }
        (state, whole)
    }

    /// A step was done: what was known about the old name is void, the step's record holds for the new one.
    fn settle(&mut self, step: Step, landed: TaskName) {
        self.notes.remove(&step.task);
        if let Some(record) = step.record {
            self.notes.insert(landed, Noted { step: step.id, record });
        }
    }
}

impl FolderStore {
    fn log_path(&self, stripe: u8) -> PathBuf {
        self.private.join("logs").join(format!("{stripe:02x}"))
    }

    /// What a log says now. Read without the lock, so a task that somebody is dealing with may be one step further.
    pub(super) fn read_log(&self, stripe: u8) -> Result<LogState> {
        let path = self.log_path(stripe);
        match open_noatime(CWD, &path, OFlags::RDONLY) {
            Err(Errno::NOENT) => Ok(LogState::default()),
            file => Ok(LogState::parse(&read(&file.at("open", &path)?, 0, u64::MAX).at("read", &path)?).0),
        }
    }

    /// Whether a step may be pending in a log: its last complete line is not a mark. Every claim asks for all logs, so this
    /// parses nothing.
    pub(super) fn may_be_pending(&self, stripe: u8) -> Result<bool> {
        let path = self.log_path(stripe);
        let bytes = match open_noatime(CWD, &path, OFlags::RDONLY) {
            Err(Errno::NOENT) => return Ok(false),
            file => read(&file.at("open", &path)?, 0, u64::MAX).at("read", &path)?,
        };
        let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else { return Ok(false) };
        let last = bytes[..end].rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        Ok(!MARKS.iter().any(|mark| last.starts_with(mark)))
    }

    /// Locks the log of a stripe. `None` if others held the lock all the time.
    pub(super) fn lock_log(&self, stripe: u8, wait: Duration) -> Result<Option<LockedLog>> {
        let path = self.log_path(stripe);
        let is_new = !path.exists();
        let lock = loop {
            match Lock::acquire(&path, wait)? {
                Some(lock) if has_name(lock.file()) => break lock,
                // Rewritten while we waited.
                Some(_) => {}
                None => return Ok(None),
            }
        };
        if is_new {
            // Without it a power cut could take the whole log away from under a step that is half done.
            self.disk.sync_folder(&self.private.join("logs"))?;
        }
        let bytes = read(lock.file(), 0, u64::MAX).at("read", &path)?;
        let (state, len) = LogState::parse(&bytes);
        if len < bytes.len() as u64 {
            self.disk.cut(lock.file(), &path, len)?;
        }
        Ok(Some(LockedLog { state, lock, path, len, disk: self.disk.clone() }))
    }
}

/// A log under its lock.
pub(super) struct LockedLog {
    pub(super) state: LogState,
    lock: Lock,
    path: PathBuf,
    /// The length of its complete lines. What a failed write left after them is overwritten.
    len: u64,
    disk: Disk,
}

impl LockedLog {
    fn append(&mut self, line: &Line) -> Result<()> {
        let bytes = line.bytes()?;
        self.disk.write_at(self.lock.file(), &self.path, self.len, &bytes)?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Writes down what is about to be done.
    pub(super) fn begin(&mut self, plan: &Plan) -> Result<()> {
        self.append(&Line::Plan(Box::new(plan.clone())))?;
        // Without it a power cut could leave a step half done and nobody who knows.
        self.sync()
    }

    /// The step was done: its record is in force.
    pub(super) fn done(&mut self, plan: &Plan, landed: &TaskName) -> Result<()> {
        let before = self.state.notes.clone();
        self.state.settle(plan.step.clone(), landed.clone());
        self.mark(&Line::Done(landed.clone())).inspect_err(|_| self.state.notes = before)
    }

    /// The step was rolled back.
    pub(super) fn undone(&mut self) -> Result<()> {
        self.mark(&Line::Undone)
    }

    /// Forgets a task that is nowhere any more.
    pub(super) fn forget(&mut self, task: &TaskName) -> Result<()> {
        self.state.notes.remove(task);
        self.rewrite()
    }

    /// Every mark so far survives a power cut.
    pub(super) fn sync(&self) -> Result<()> {
        self.disk.sync(self.lock.file(), &self.path)
    }

    fn mark(&mut self, line: &Line) -> Result<()> {
        if self.state.notes.is_empty() {
            // Nothing is left to know: the empty log is the mark.
            self.disk.cut(self.lock.file(), &self.path, 0)?;
            self.len = 0;
            return Ok(());
        }
        self.append(line)?;
        // A record has less than a KiB.
        if self.len > LARGE.max((self.state.notes.len() as u64) << 10) {
            // The mark is made. If the log cannot be rewritten now, it goes on as it is.
            let _ = self.rewrite();
        }
        Ok(())
    }

    /// A compacted copy replaces the log, by rename: readers without the lock see the old or the new one.
    fn rewrite(&mut self) -> Result<()> {
        let mut bytes = Vec::new();
        for (task, noted) in &self.state.notes {
            bytes.extend(Line::Noted(task.clone(), Box::new(noted.clone())).bytes()?);
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
    use crate::state::Slot;

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

    #[test]
    fn a_line_that_was_cut_short_does_not_count() {
        let noted = Noted { step: StepId::new().unwrap(), record: ClaimRecord::new(Slot::NEEDS_ACTION) };
        let mut bytes = Vec::new();
        for name in ["a", "b"] {
            bytes.extend(Line::Noted(name.parse().unwrap(), Box::new(noted.clone())).bytes().unwrap());
        }
        let first = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for end in first..bytes.len() {
            for rest in [&b""[..], &[0; 64], b"garbage\n", b"\n\n\n"] {
                if end == bytes.len() - 1 && rest.starts_with(b"\n") {
                    continue;
                }
                let (state, whole) = LogState::parse(&[&bytes[..end], rest].concat());
                assert_eq!((state.notes.len(), whole), (1, first as u64), "cut at {end}");
            }
        }
        assert_eq!(LogState::parse(&bytes).0.notes.len(), 2);
    }

    #[test]
    fn mutated_logs_are_read_without_a_panic() {
        let noted = Noted { step: StepId::new().unwrap(), record: ClaimRecord::new(Slot::NEEDS_ACTION) };
        let line = Line::Noted("a".parse().unwrap(), Box::new(noted)).bytes().unwrap();
        let undone = Line::Undone.bytes().unwrap();
        let done = Line::Done("a".parse().unwrap()).bytes().unwrap();
        let examples = [line.clone(), undone.clone(), [line.clone(), done, undone, line].concat()];
        tollgate_fuzz::fuzz("vault log", &examples, |bytes| {
            let (_, whole) = LogState::parse(bytes);
            assert!(whole <= bytes.len() as u64);
        });
    }
}
