//! What is under way, and what is known: a small log for each of 256 stripes of task names.
//!
//! A step is appended to its stripe's log as a [`Plan`], flushed, before anything is done. A mark after it says that the
//! step was carried out (then the plan's record is in force) or rolled back. A plan without a mark is under way, or its
//! process died. A log in which nothing is left is blanked; one that has grown is rewritten.
//!
//! A log has one JSON value per line; the rest of the file is newlines, so that nearly every flush finds its blocks
//! allocated, which makes it about twice as fast. A line without its newline, or that is not JSON, was cut short and does
//! not count, because nothing is done before the line is complete.
//!
//! Invariants: the kernel lock of a log is the lock of everything that tollgate does to the tasks of its stripe; a log is
//! written only under its lock; a task and its fallback names are in one stripe.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, OFlags};
use serde::{Deserialize, Serialize};

use super::disk::Disk;
use crate::claim::{ClaimRecord, StepId};
use crate::step::Step;
use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::lock::{self, Lock, has_name};
use tollgate_base::task::TaskName;

/// A log that has grown past this is rewritten, unless most of it is needed: about forty steps, quick to read.
const LARGE: u64 = 64 << 10;

/// A log grows by this much at once.
const ROOM: usize = 4 << 10;

/// More than the line of a record has.
const RECORD: u64 = 1 << 10;

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

impl Plan {
    /// The id of the step that rolls this one back: the same whoever does it, and however often.
    pub(super) fn undo_id(&self) -> Result<StepId> {
        let digest = Digest::of(self.step.id.as_str().as_bytes()).to_string();
        format!("s-{}", &digest[..16]).parse()
    }
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

/// What a log says.
#[derive(Debug, Default)]
pub(super) struct LogState {
    /// What is known about each task of the stripe that is not final.
    pub(super) notes: BTreeMap<TaskName, Noted>,
    /// The step without a mark.
    pub(super) pending: Option<Box<Plan>>,
}

impl LogState {
    /// What these bytes say, and how many of them are complete lines.
    fn parse(bytes: &[u8]) -> (Self, u64) {
        let (mut state, mut whole) = (Self::default(), 0);
        // The blank rest, except for the newline of the last line.
        let end = bytes.iter().rposition(|byte| *byte != b'\n').map_or(0, |at| at + 2);
        let bytes = &bytes[..end.min(bytes.len())];
        while let Some(len) = bytes[whole..].iter().position(|byte| *byte == b'\n') {
            match serde_json::from_slice(&bytes[whole..whole + len]) {
                Ok(Line::Plan(plan)) => state.pending = Some(plan),
                Ok(Line::Undone) => state.pending = None,
                Ok(Line::Done(landed)) => {
                    if let Some(plan) = state.pending.take() {
                        state.settle(*plan, landed);
                    }
                }
                Ok(Line::Noted(task, noted)) => drop(state.notes.insert(task, *noted)),
                // Cut short by a power cut.
                Err(_) => break,
            }
            whole += len + 1;
        }
        (state, whole as u64)
    }

    /// A step was done: what was known about the old name is void, the step's record holds for the new one.
    fn settle(&mut self, plan: Plan, landed: TaskName) {
        self.notes.remove(&plan.step.task);
        if let Some(record) = plan.step.record {
            self.notes.insert(landed, Noted { step: plan.step.id, record });
        }
    }
}

/// All logs of a vault.
#[derive(Debug, Clone)]
pub(super) struct Logs {
    folder: PathBuf,
}

impl Logs {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    fn path(&self, stripe: u8) -> PathBuf {
        self.folder.join(format!("{stripe:02x}"))
    }

    /// What is known about a task now, and whether a step in its stripe is under way or was interrupted. Read without the
    /// lock, so a task that somebody is dealing with may be one step further.
    pub(super) fn noted(&self, task: &TaskName) -> Result<(Option<Noted>, bool)> {
        let mut state = self.read(stripe_of(task))?;
        Ok((state.notes.remove(task), state.pending.is_some()))
    }

    /// What a log says now.
    pub(super) fn read(&self, stripe: u8) -> Result<LogState> {
        let path = self.path(stripe);
        match lock::open_noatime(CWD, &path, OFlags::RDONLY) {
            Ok(file) => Ok(LogState::parse(&read(&file, &path)?).0),
            Err(rustix::io::Errno::NOENT) => Ok(LogState::default()),
            Err(error) => Err(error).at("open", &path),
        }
    }

    /// The stripes that have a log with anything in it.
    pub(super) fn in_use(&self) -> Result<Vec<u8>> {
        let mut found = Vec::new();
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Fault::damaged(
                    &self.folder,
                    "it was deleted while in use: start tollgate again",
                ));
            }
            entries => entries.at("read", &self.folder)?,
        };
        for entry in entries {
            let entry = entry.at("read", &self.folder)?;
            let stripe = entry.file_name().to_str().and_then(|name| u8::from_str_radix(name, 16).ok());
            // A blank log begins with a newline.
            let mut first = [b'\n'];
            let path = entry.path();
            if let Some(stripe) = stripe
                && File::open(&path).and_then(|file| file.read_at(&mut first, 0)).at("read", &path)? > 0
                && first != [b'\n']
            {
                found.push(stripe);
            }
        }
        Ok(found)
    }

    /// Locks the log of a stripe. `None` if others held the lock all the time.
    pub(super) fn lock(&self, stripe: u8, wait: Duration, disk: &Disk) -> Result<Option<LockedLog>> {
        let path = self.path(stripe);
        let is_new = !path.exists();
        let lock = loop {
            match Lock::acquire(&path, wait)? {
                // Rewritten while we waited.
                Some(lock) if !has_name(lock.file()) => {}
                Some(lock) => break lock,
                None => return Ok(None),
            }
        };
        if is_new {
            // Without it a power cut could take the whole log away from under a step that is half done.
            disk.sync_folder(&self.folder)?;
        }
        let bytes = read(lock.file(), &path)?;
        let (state, len) = LogState::parse(&bytes);
        let log = LockedLog { state, lock, path, len, size: bytes.len() as u64 };
        let rest = usize::try_from(len).unwrap_or(usize::MAX).min(bytes.len());
        if bytes[rest..].iter().any(|byte| *byte != b'\n') {
            log.blank(disk, len, log.size)?;
        }
        Ok(Some(log))
    }
}

fn read(file: &File, path: &Path) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(file.metadata().at("look at", path)?.len()).unwrap_or(0)];
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], read as u64) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).at("read", path),
        }
    }
    bytes.truncate(read);
    Ok(bytes)
}

/// A log under its lock.
pub(super) struct LockedLog {
    pub(super) state: LogState,
    lock: Lock,
    path: PathBuf,
    /// The length of its complete lines.
    len: u64,
    /// The size of the file. Everything after the lines is newlines.
    size: u64,
}

impl LockedLog {
    fn append(&mut self, disk: &Disk, line: &Line) -> Result<()> {
        let mut bytes = serde_json::to_vec(line).map_err(|error| Fault::invalid(error.to_string()))?;
        bytes.push(b'\n');
        let end = self.len + bytes.len() as u64;
        if end > self.size {
            let room = (ROOM as u64 - end % ROOM as u64) as usize;
            bytes.resize(bytes.len() + room, b'\n');
            self.size = end + room as u64;
        }
        let written = disk.write_at(self.lock.file(), &self.path, self.len, &bytes);
        match written {
            Ok(()) => self.len = end,
            // A half line must not get a whole one behind it.
            Err(_) => self.blank(disk, self.len, end)?,
        }
        written
    }

    /// Makes these bytes newlines.
    fn blank(&self, disk: &Disk, from: u64, to: u64) -> Result<()> {
        let blank = vec![b'\n'; usize::try_from(to.saturating_sub(from)).unwrap_or(0)];
        disk.write_at(self.lock.file(), &self.path, from, &blank)
    }

    /// Writes down what is about to be done.
    pub(super) fn begin(&mut self, disk: &Disk, plan: Plan) -> Result<Box<Plan>> {
        let line = Line::Plan(Box::new(plan));
        self.append(disk, &line)?;
        // Without it a power cut could leave a step half done and nobody who knows.
        self.sync(disk)?;
        let Line::Plan(plan) = line else { unreachable!("it was made above") };
        Ok(plan)
    }

    /// The step was done: its record is in force.
    pub(super) fn done(&mut self, disk: &Disk, plan: &Plan, landed: &TaskName) -> Result<()> {
        self.state.pending = None;
        self.state.settle(plan.clone(), landed.clone());
        self.mark(disk, &Line::Done(landed.clone()))
    }

    /// The step was rolled back.
    pub(super) fn undone(&mut self, disk: &Disk) -> Result<()> {
        self.state.pending = None;
        self.mark(disk, &Line::Undone)
    }

    /// Forgets a task that is nowhere any more.
    pub(super) fn forget(&mut self, disk: &Disk, task: &TaskName) -> Result<()> {
        self.state.notes.remove(task);
        self.rewrite(disk)
    }

    /// Every mark so far survives a power cut.
    pub(super) fn sync(&self, disk: &Disk) -> Result<()> {
        disk.sync(self.lock.file(), &self.path)
    }

    fn mark(&mut self, disk: &Disk, line: &Line) -> Result<()> {
        if self.state.notes.is_empty() {
            // Nothing is left to know: the blank log is the mark.
            let end = std::mem::take(&mut self.len);
            return self.blank(disk, 0, end);
        }
        self.append(disk, line)?;
        if self.len > LARGE.max(RECORD * self.state.notes.len() as u64) {
            // The mark is made. If the log cannot be rewritten now, it goes on as it is.
            let _ = self.rewrite(disk);
        }
        Ok(())
    }

    /// A compacted copy replaces the log, by rename: readers without the lock see the old or the new one.
    fn rewrite(&mut self, disk: &Disk) -> Result<()> {
        let mut bytes = Vec::new();
        for (task, noted) in &self.state.notes {
            let line = Line::Noted(task.clone(), Box::new(noted.clone()));
            serde_json::to_writer(&mut bytes, &line).map_err(|error| Fault::invalid(error.to_string()))?;
            bytes.push(b'\n');
        }
        let stage = self.path.with_extension("new");
        let _ = fs::remove_file(&stage);
        disk.create(&stage, &bytes)?;
        disk.replace(&stage, &self.path)
    }
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
            let line = Line::Noted(name.parse().unwrap(), Box::new(noted.clone()));
            serde_json::to_writer(&mut bytes, &line).unwrap();
            bytes.push(b'\n');
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
}
