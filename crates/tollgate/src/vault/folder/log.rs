//! What is under way, and what is known: one small log for each of 256 stripes of task names.
//!
//! A step is appended to its stripe's log as a [`Plan`], whole and flushed, before anything is done; a mark after it says
//! that it was carried out (then the plan's note is in force) or taken back. A plan without a mark is under way, or was
//! cut short. Nothing is created or removed for a step, because file systems are slow at that: ext4 takes a
//! millisecond to find an inode when many were removed a moment ago. A log in which nothing is left is emptied; one that
//! has grown is written anew.
//!
//! Invariants: a log is written only under the lock of its stripe. A line that was cut short is as good as none, since
//! nothing was done before it was whole. A task and the name beside it are in one stripe.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::disk::Disk;
use crate::digest::Digest;
use crate::error::{At, Fault, Result};
use crate::lock::Lock;
use crate::vault::claim::{Note, StepId};
use crate::vault::name::TaskName;
use crate::vault::store::Step;

/// The version of everything in `<vault>/.tollgate/vault/`.
pub(crate) const FORMAT: u32 = 1;

/// More than most logs have.
const ENOUGH: usize = 4 << 10;

/// A log that has grown past this is written anew. About forty steps: small enough to read for each of them.
const LARGE: u64 = 64 << 10;

/// A step and all that is needed to carry it out, again or back.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) step: Step,
    /// The inode of the task's file, by which it is known wherever it lies.
    pub(crate) ino: u64,
    /// How long it was.
    pub(crate) len: u64,
    /// The journal that the events belong into.
    pub(crate) journal: String,
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

impl Plan {
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
        serializer.serialize_str(&bytes.iter().map(|byte| char::from(*byte)).collect::<String>())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.chars().map(|c| u8::try_from(c).map_err(D::Error::custom)).collect()
    }
}

/// A line as it is written.
#[derive(Serialize)]
enum Line<'a> {
    /// The format of what follows.
    Format(u32),
    /// This is about to be done.
    Plan(&'a Plan),
    /// It was done: what was known of the first name is void, this is known of the second.
    Done(&'a TaskName, &'a TaskName, Option<&'a Noted>),
    /// It was taken back.
    Undone,
}

/// A line as it is read. A plan is only taken apart if it turns out to be without a mark.
#[derive(Deserialize)]
enum Mark {
    Format(u32),
    Done(TaskName, TaskName, Option<Box<Noted>>),
    Undone,
}

/// How the line of a plan begins.
const PLAN: &[u8] = br#"{"Plan":"#;

/// What a log says.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// What is known of each task that is not final.
    pub(crate) notes: BTreeMap<TaskName, Noted>,
    /// The step without a mark.
    pub(crate) pending: Option<Box<Plan>>,
    /// How many bytes of the log are whole lines.
    whole: u64,
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

    fn of(mut file: &File, path: &Path) -> Result<Self> {
        // Nearly always all of it comes with one call.
        let mut bytes = vec![0; ENOUGH];
        let read = file.read_at(&mut bytes, 0).at("read", path)?;
        bytes.truncate(read);
        if read == ENOUGH {
            bytes.clear();
            file.read_to_end(&mut bytes).at("read", path)?;
        }
        let mut known = Self::default();
        let mut pending = None;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            // Not whole, or not ours: whoever wrote it got no further.
            let Some(text) = line.strip_suffix(b"\n") else { break };
            if text.starts_with(PLAN) {
                pending = Some(text);
            } else {
                match serde_json::from_slice(text) {
                    Ok(Mark::Format(found)) if found > FORMAT => {
                        return Err(Fault::NewerFormat { path: path.to_owned(), found, known: FORMAT });
                    }
                    Ok(Mark::Format(_)) => {}
                    Ok(Mark::Undone) => pending = None,
                    Ok(Mark::Done(task, landed, noted)) => {
                        pending = None;
                        known.done(&task, landed, noted.map(|noted| *noted));
                    }
                    Err(_) => break,
                }
            }
            known.whole += line.len() as u64;
        }
        if let Some(text) = pending {
            #[derive(Deserialize)]
            enum Pending {
                Plan(Box<Plan>),
            }
            let parsed = serde_json::from_slice(text).map_err(|error| Fault::damaged(path, error))?;
            let Pending::Plan(plan) = parsed;
            known.pending = Some(plan);
        }
        Ok(known)
    }

    fn done(&mut self, task: &TaskName, landed: TaskName, noted: Option<Noted>) {
        self.notes.remove(task);
        if let Some(noted) = noted {
            self.notes.insert(landed, noted);
        }
    }
}

/// A log under its lock.
pub(crate) struct Log {
    _lock: Lock,
    pub(crate) known: Known,
    pub(crate) stripe: u8,
    file: File,
    path: PathBuf,
    len: u64,
}

impl Log {
    pub(crate) fn open(lock: Lock, path: PathBuf, stripe: u8) -> Result<Self> {
        let file = crate::lock::open(&path)?;
        let known = Known::of(&file, &path)?;
        // The next line is written over one that was cut short. What may be left of that has no end of line, so it is
        // not read.
        let len = known.whole;
        Ok(Self { _lock: lock, known, stripe, file, path, len })
    }

    fn append(&mut self, disk: &Disk, line: &Line<'_>) -> Result<()> {
        let mut bytes = Vec::with_capacity(2048);
        if self.len == 0 {
            bytes.extend(encode(&Line::Format(FORMAT))?);
        }
        bytes.extend(encode(line)?);
        disk.write_at(&self.file, &self.path, self.len, &bytes)?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Writes down what is about to be done.
    pub(crate) fn begin(&mut self, disk: &Disk, plan: &Plan) -> Result<()> {
        self.append(disk, &Line::Plan(plan))?;
        // Without it a power cut could leave a step half made and nobody who knows.
        disk.sync(&self.file, &self.path)
    }

    /// It was done.
    pub(crate) fn done(&mut self, disk: &Disk, plan: &Plan, landed: &TaskName) -> Result<()> {
        let noted = plan.note().map(|note| Noted { step: plan.step.id.clone(), note: note.clone() });
        self.known.pending = None;
        self.known.done(&plan.step.task, landed.clone(), noted.clone());
        self.mark(disk, &Line::Done(&plan.step.task, landed, noted.as_ref()))
    }

    /// It was taken back.
    pub(crate) fn undone(&mut self, disk: &Disk) -> Result<()> {
        self.known.pending = None;
        self.mark(disk, &Line::Undone)
    }

    /// Forgets a task that is nowhere any more.
    pub(crate) fn forget(&mut self, disk: &Disk, task: &TaskName) -> Result<()> {
        self.known.notes.remove(task);
        self.rewrite(disk)
    }

    /// What was marked survives a power cut from here on.
    pub(crate) fn sync(&self, disk: &Disk) -> Result<()> {
        disk.sync(&self.file, &self.path)
    }

    fn mark(&mut self, disk: &Disk, line: &Line<'_>) -> Result<()> {
        if self.known.notes.is_empty() {
            // Nothing is left to know: emptying the log is the mark.
            disk.cut(&self.file, &self.path, 0)?;
            self.len = 0;
            return Ok(());
        }
        self.append(disk, line)?;
        if self.len > LARGE { self.rewrite(disk) } else { Ok(()) }
    }

    /// The same in fewer words. By rename, so that readers without the lock see the old or the new one.
    fn rewrite(&mut self, disk: &Disk) -> Result<()> {
        let mut bytes = encode(&Line::Format(FORMAT))?;
        for (task, noted) in &self.known.notes {
            bytes.extend(encode(&Line::Done(task, task, Some(noted)))?);
        }
        let stage = self.path.with_extension("new");
        let _ = std::fs::remove_file(&stage);
        self.file = disk.create(&stage, &bytes)?;
        disk.replace(&stage, &self.path)?;
        self.len = bytes.len() as u64;
        Ok(())
    }
}

fn encode(line: &Line<'_>) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(line).map_err(|error| Fault::invalid(error.to_string()))?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// One byte for each stripe: 1 while something is under way there, so that looking for what was cut short costs one
/// small read. Only a hint: whoever locks a stripe looks into its log anyway, and opening the vault looks into all.
#[derive(Debug)]
pub(crate) struct UnderWay(File, PathBuf);

impl UnderWay {
    /// The byte that says that some ledger is owed lines.
    pub(crate) const OWED: usize = 256;

    pub(crate) fn open(path: PathBuf) -> Result<Self> {
        let file = crate::lock::open(&path)?;
        Ok(Self(file, path))
    }

    pub(crate) fn set(&self, at: usize, under_way: bool) -> Result<()> {
        self.0.write_all_at(&[u8::from(under_way)], at as u64).at("write", &self.1)
    }

    /// Those that are set.
    pub(crate) fn all(&self) -> Result<Vec<usize>> {
        let mut bytes = [0; Self::OWED + 1];
        let read = self.0.read_at(&mut bytes, 0).at("read", &self.1)?;
        Ok((0..read).filter(|at| bytes[*at] != 0).collect())
    }
}
