//! What is under way, and what is known: one small log for each of 256 stripes of task names.
//!
//! A step is appended to its stripe's log as a [`Plan`], whole and flushed, before anything is done; a mark after it says
//! that it was carried out (then the plan's note is in force) or taken back. A plan without a mark is under way, or was
//! cut short. Nothing is created, removed or cut for a step, because file systems are slow at that: ext4 takes a
//! millisecond to find an inode when many were removed a moment ago, and flushing a file costs half as much when its
//! blocks are there already. A log in which nothing is left is begun anew at its first byte; one that has grown is
//! written anew.
//!
//! A line is 8 hex digits, a space and JSON. The digits are the CRC-32 of the JSON, carried on from that of the line
//! before, so neither a line that was cut short nor what is left of an older, longer log counts. A zero byte says that no
//! line follows, so that whoever has read the log before sees at once that it is the same.
//!
//! Invariants: a log is written only under the lock of its stripe. A line that was cut short is as good as none, since
//! nothing was done before it was whole. A task and the name beside it are in one stripe.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::{At, Fault, Result};
use crate::name::hex_digits;
use crate::vault::claim::{Note, StepId};
use crate::vault::name::TaskName;
use crate::vault::store::Step;

/// The version of everything in `<vault>/.tollgate/vault/`.
pub(crate) const FORMAT: u32 = 1;

/// More than most logs have.
const ENOUGH: usize = 4 << 10;

/// More than one has in which nothing is left.
const FEW: usize = 64;

/// After the last line.
const END: u8 = 0;

/// A step and all that is needed to carry it out, again or back.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan<'a> {
    pub(crate) step: Cow<'a, Step>,
    /// The inode of the task's file, by which it is known wherever it lies.
    pub(crate) ino: u64,
    /// How long it was.
    pub(crate) len: u64,
    /// The journal that the events belong into.
    pub(crate) journal: Cow<'a, str>,
    /// What it changes in the file.
    pub(crate) change: Option<Change>,
}

/// The bytes from `at` to the end are `old` and are to be `new`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Change {
    pub(crate) at: u64,
    #[serde(with = "raw")]
    pub(crate) old: Vec<u8>,
    #[serde(with = "raw")]
    pub(crate) new: Vec<u8>,
}

impl Plan<'_> {
    /// What stays known.
    pub(crate) fn note(&self) -> Option<&Note> {
        self.step.note.as_ref()
    }

    /// The step that takes this one back, if need be. The same whoever takes it back, and however often.
    pub(crate) fn undo(&self) -> Result<StepId> {
        let digest = Digest::of(self.step.id.as_str().as_bytes()).to_string();
        format!("s-{}", &digest[..16]).parse()
    }
}

/// What is known of a task, and since which step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Noted {
    pub(crate) step: StepId,
    pub(crate) note: Note,
}

/// Bytes as text, one character for each, so that any of them survive JSON.
mod raw {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        match str::from_utf8(bytes) {
            // The same, and nearly always so.
            Ok(text) if text.is_ascii() => serializer.serialize_str(text),
            _ => serializer.serialize_str(&bytes.iter().map(|byte| char::from(*byte)).collect::<String>()),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.chars().map(|c| u8::try_from(c).map_err(D::Error::custom)).collect()
    }
}

/// A line as it is written.
#[derive(Serialize)]
pub(crate) enum Line<'a> {
    /// Nothing was known when this was written, which is the first line. The number is another each time.
    Start(u32),
    /// This is about to be done.
    Plan(&'a Plan<'a>),
    /// It was done, and the task has this name now.
    Done(&'a TaskName),
    /// It was taken back.
    Undone,
    /// This is known of a task.
    Noted(&'a TaskName, &'a Noted),
}

/// A line as it is read. A plan is only taken apart when it is known what came of it.
#[derive(Deserialize)]
enum Mark {
    Start(IgnoredAny),
    Done(TaskName),
    Undone,
    Noted(TaskName, Box<Noted>),
}

/// A plan that was carried out: what is left of it.
#[derive(Deserialize)]
struct InForce {
    step: StepInForce,
}

#[derive(Deserialize)]
struct StepInForce {
    id: StepId,
    task: TaskName,
    note: Option<Note>,
}

/// The line of a plan, of which this is wanted.
#[derive(Deserialize)]
enum Planned<T> {
    Plan(T),
}

fn planned<'a, T: Deserialize<'a>>(json: &'a [u8], path: &Path) -> Result<T> {
    let Planned::Plan(plan) = serde_json::from_slice(json).map_err(|error| Fault::damaged(path, error))?;
    Ok(plan)
}

/// How the JSON of a plan begins.
const PLAN: &[u8] = br#"{"Plan":"#;

/// What a log says, with the bytes that say it.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// What is known of each task that is not final.
    pub(crate) notes: BTreeMap<TaskName, Arc<Noted>>,
    /// Where in the bytes the JSON of the step without a mark is.
    pending: Option<Range<usize>>,
    /// The whole lines, and the zero after them.
    bytes: Vec<u8>,
    /// The digits of the last of them.
    end: u32,
}

impl Known {
    /// What this log says now. Without the lock, what it says of a task that somebody deals with may be a step old.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        match File::open(path) {
            Ok(file) => Self::of(&file, path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).at("open", path),
        }
    }

    /// The same, if some of it is known already: nearly always nothing has changed.
    pub(crate) fn read_again(&mut self, file: &File, path: &Path) -> Result<()> {
        // Behind what is known.
        let len = self.bytes.len();
        self.bytes.reserve(len.max(FEW));
        let room = self.bytes.capacity() - len;
        let read = rustix::io::pread(file, spare_capacity(&mut self.bytes), 0);
        let mut bytes = std::mem::take(&mut self.bytes);
        let is_same = {
            let (known, new) = bytes.split_at(len);
            if known.is_empty() { new.is_empty() } else { new.starts_with(known) }
        };
        if is_same || read.is_err() {
            bytes.truncate(len);
            self.bytes = bytes;
            return read.map(drop).at("read", path);
        }
        bytes.drain(..len);
        *self = match Self::parse(&bytes, path, bytes.len() < room)? {
            Some((known, whole)) => {
                bytes.truncate(whole);
                bytes.push(END);
                Self { bytes, ..known }
            }
            None => Self::of(file, path)?,
        };
        Ok(())
    }

    fn of(file: &File, path: &Path) -> Result<Self> {
        let (mut bytes, mut read) = (Vec::new(), 0);
        loop {
            bytes.resize(bytes.len().max(ENOUGH / 2) * 2, END);
            read += file.read_at(&mut bytes[read..], read as u64).at("read", path)?;
            if let Some((known, whole)) = Self::parse(&bytes[..read], path, read < bytes.len())? {
                bytes.truncate(whole);
                bytes.push(END);
                return Ok(Self { bytes, ..known });
            }
        }
    }

    /// What these bytes say, and how many of them are whole lines. `None` if more may follow that would count.
    fn parse(bytes: &[u8], path: &Path, all: bool) -> Result<Option<(Self, usize)>> {
        let mut known = Self::default();
        let (mut at, mut pending) = (0, None);
        let ended = loop {
            if bytes.get(at) == Some(&END) {
                break true;
            }
            let Some(len) = bytes[at..].iter().position(|byte| *byte == b'\n') else { break false };
            let line = &bytes[at..at + len];
            let Some(json) = line.get(DIGITS + 1..) else { break true };
            let digits = check(known.end, json);
            if line[..DIGITS] != digits_of(digits) {
                // Cut short, or older than the line before it.
                break true;
            }
            if json.starts_with(PLAN) {
                pending = Some(at + DIGITS + 1..at + len);
            } else {
                match serde_json::from_slice(json).map_err(|error| Fault::damaged(path, error))? {
                    Mark::Start(_) => {}
                    Mark::Undone => pending = None,
                    Mark::Done(landed) => {
                        if let Some(plan) = pending.take() {
                            let InForce { step: StepInForce { id, task, note } } =
                                planned(&bytes[plan], path)?;
                            known.settle(&task, &landed, note.map(|note| Noted { step: id, note }));
                        }
                    }
                    Mark::Noted(task, noted) => drop(known.notes.insert(task, (*noted).into())),
                }
            }
            known.end = digits;
            at += len + 1;
        };
        if !ended && !all {
            return Ok(None);
        }
        known.pending = pending;
        Ok(Some((known, at)))
    }

    /// Whether there is a step without a mark.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// The step without a mark, which is under way or was cut short.
    pub(crate) fn pending(&self, path: &Path) -> Result<Option<Plan<'static>>> {
        self.pending.clone().map(|plan| planned(&self.bytes[plan], path)).transpose()
    }

    /// A step was done: what was known of the first name is void, this is known of the second.
    pub(crate) fn settle(&mut self, task: &TaskName, landed: &TaskName, noted: Option<Noted>) {
        self.notes.remove(task);
        if let Some(noted) = noted {
            self.notes.insert(landed.clone(), Arc::new(noted));
        }
    }

    /// Adds a line. The answer is what is to be written, and where.
    pub(crate) fn add(&mut self, line: &Line<'_>) -> Result<(usize, &[u8])> {
        let at = self.bytes.len().saturating_sub(1);
        if at == 0 {
            self.put(&Line::Start(self.end))?;
        }
        self.put(line)?;
        Ok((at, &self.bytes[at..]))
    }

    /// The same in fewer words.
    pub(crate) fn anew(&self) -> Result<Self> {
        let mut anew = Self { notes: self.notes.clone(), end: self.end, ..Self::default() };
        anew.begin_anew()?;
        Ok(anew)
    }

    /// The whole log.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The step has a mark now.
    pub(crate) fn settled(&mut self) {
        self.pending = None;
    }

    /// Begins anew, with what is known. The answer is the whole log.
    pub(crate) fn begin_anew(&mut self) -> Result<&[u8]> {
        let number = std::mem::take(&mut self.end);
        self.bytes.clear();
        self.put(&Line::Start(number))?;
        for (task, noted) in std::mem::take(&mut self.notes) {
            self.put(&Line::Noted(&task, &noted))?;
            self.notes.insert(task, noted);
        }
        Ok(&self.bytes)
    }

    fn put(&mut self, line: &Line<'_>) -> Result<()> {
        self.bytes.pop();
        let at = self.bytes.len();
        self.bytes.extend([b' '; DIGITS + 1]);
        serde_json::to_writer(&mut self.bytes, line).map_err(|error| Fault::invalid(error.to_string()))?;
        self.end = check(self.end, &self.bytes[at + DIGITS + 1..]);
        self.bytes[at..at + DIGITS].copy_from_slice(&digits_of(self.end));
        self.bytes.extend([b'\n', END]);
        Ok(())
    }
}

/// How many digits a line begins with.
const DIGITS: usize = 8;

/// The CRC-32 of the JSON, carried on from that of the line before.
fn check(before: u32, json: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(before);
    hasher.update(json);
    hasher.finalize()
}

fn digits_of(number: u32) -> [u8; DIGITS] {
    hex_digits(number.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vault::state::Slot;
    use std::fs;

    fn note(known: &mut Known, task: &str) -> (usize, Vec<u8>) {
        let task: TaskName = task.parse().unwrap();
        let noted = Noted { step: StepId::new().unwrap(), note: Note::new(Slot::NEEDS_ACTION) };
        let (at, bytes) = known.add(&Line::Noted(&task, &noted)).unwrap();
        let written = (at, bytes.to_vec());
        known.notes.insert(task, Arc::new(noted));
        written
    }

    fn long() -> Known {
        let mut known = Known::default();
        for number in 0..100 {
            note(&mut known, &format!("task {number}"));
        }
        assert!(known.bytes.len() > 2 * ENOUGH);
        known
    }

    #[test]
    fn neither_a_line_that_was_cut_short_nor_an_older_log_counts() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let old = long();
        let mut new = Known { end: old.end, ..Known::default() };
        new.begin_anew().unwrap();
        let start = new.bytes.len() - 1;
        note(&mut new, "new");
        for cut in 1..=new.bytes.len() {
            let mixed = [&new.bytes[..cut], &old.bytes[cut..]].concat();
            fs::write(&path, &mixed).unwrap();
            let known = Known::read(&path).unwrap();
            if mixed == old.bytes {
                // As if nothing had been written yet.
                assert_eq!(known.notes.len(), 100);
            } else {
                assert_eq!(known.notes.len(), usize::from(cut >= new.bytes.len() - 1), "after {cut} bytes");
                assert_eq!(
                    known.bytes.len() - 1,
                    if cut >= new.bytes.len() - 1 {
                        new.bytes.len() - 1
                    } else if cut >= start {
                        start
                    } else {
                        0
                    }
                );
            }
        }
    }

    #[test]
    fn who_reads_again_sees_what_others_wrote() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let mut writer = Known::default();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let (mut often, mut seldom) = (Known::default(), Known::default());
        for number in 0..60 {
            let (at, bytes) = note(&mut writer, &format!("task {number}"));
            file.write_all_at(&bytes, at as u64).unwrap();
            often.read_again(&file, &path).unwrap();
            assert_eq!((&often.notes, &often.bytes), (&writer.notes, &writer.bytes));
            if number % 13 == 0 {
                seldom.read_again(&file, &path).unwrap();
                seldom.read_again(&file, &path).unwrap();
                assert_eq!(seldom.notes, writer.notes);
            }
        }
        writer.notes.clear();
        file.write_all_at(writer.begin_anew().unwrap(), 0).unwrap();
        for known in [&mut often, &mut seldom] {
            known.read_again(&file, &path).unwrap();
            assert!(known.notes.is_empty());
        }
    }
}
