//! tollgate's own copy of the vault's folders, brought up to what is on the branch.
//!
//! The person's working tree is theirs. Workers, locks and moves live in this tree, which holds the vault's folders and
//! nothing else, so nothing that a person has half finished can get into a record, and no move of ours can get into a
//! person's commit.
//!
//! Invariants: nothing is lost. A file that was changed here and is taken away on the branch is put aside for a person;
//! one that is in an agent's hands here and was edited on the branch keeps both edits. What is brought in is complete
//! when it gets its name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::card::{is_oid, ref_of};
use super::run::{Git, Given, failed};
use crate::digest::Digest;
use crate::error::{At, Fault, Result};
use crate::name::{Agent, random_id};
use crate::vault::folder::FolderStore;
use crate::vault::folder::disk::{self, Moved};
use crate::vault::name::TaskName;
use crate::vault::state::{Slot, State};

/// The tree, and the part of the repository that it shows.
#[derive(Clone)]
pub(super) struct Tree {
    pub(super) git: Git,
    pub(super) folder: FolderStore,
    /// Where the vault is in the repository: empty, or ending in a slash.
    pub(super) prefix: String,
    /// Where what nobody asked for any more is kept.
    pub(super) aside: PathBuf,
    /// What was edited on the branch while it is in somebody's hands here.
    pub(super) edits: PathBuf,
    /// Which clone this is.
    pub(super) clone: String,
}

/// How one file differs between two commits.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Delta {
    task: TaskName,
    slot: Slot,
    old: Option<String>,
    new: Option<String>,
}

/// An edit that is to be kept when the task is let go.
#[derive(Debug, Serialize, Deserialize)]
struct Edited {
    base: String,
    theirs: String,
}

impl Tree {
    /// A task's path in the repository.
    pub(super) fn path_of(&self, task: &TaskName, slot: &Slot) -> Vec<u8> {
        format!("{}{slot}/{task}", self.prefix).into_bytes()
    }

    /// The task that a path of the repository is, if it is one.
    fn task_at(&self, path: &[u8]) -> Option<(TaskName, Slot)> {
        let path = str::from_utf8(path).ok()?.strip_prefix(&self.prefix)?;
        let (folder, rest) = path.split_once('/')?;
        let state = State::ALL.into_iter().find(|state| state.as_str() == folder)?;
        let (slot, name) = match state {
            State::InProgress => {
                let (agent, name) = rest.split_once('/')?;
                (Slot::InProgress(agent.parse::<Agent>().ok()?), name)
            }
            state => (Slot::Free(state), rest),
        };
        Some((TaskName::of_file(name).ok()?, slot))
    }

    /// Brings the tree from one commit to another. The answer is what was put aside.
    pub(super) fn import(&self, from: Option<&str>, to: &str) -> Result<Vec<PathBuf>> {
        if from == Some(to) {
            return Ok(Vec::new());
        }
        let deltas = match from.map(|from| self.diff(from, to)).transpose() {
            Ok(Some(deltas)) => deltas,
            // The old commit is gone: the branch was made anew, and the user's git has cleaned up.
            Ok(None) | Err(_) => self.all_of(to)?,
        };
        let contents = self.contents(&deltas)?;
        let (mut aside, mut touched) = (Vec::new(), BTreeSet::new());
        for delta in &deltas {
            let of = |oid: &Option<String>| oid.as_ref().and_then(|oid| contents.get(oid)).map(Vec::as_slice);
            aside.extend(self.apply(delta, of(&delta.old), of(&delta.new), &mut touched)?);
        }
        for folder in touched {
            self.folder.disk().sync_folder(&folder)?;
        }
        Ok(aside)
    }

    fn apply(
        &self,
        delta: &Delta,
        old: Option<&[u8]>,
        new: Option<&[u8]>,
        touched: &mut BTreeSet<PathBuf>,
    ) -> Result<Option<PathBuf>> {
        let path = self.folder.path(&delta.task, &delta.slot);
        let local = read(&path)?;
        if local.as_deref() == new {
            return Ok(None);
        }
        touched.extend(path.parent().map(Path::to_owned));
        let changed_here = local.is_some() && local.as_deref() != old;
        if changed_here
            && delta.slot.agent().is_some()
            && let (Some(base), Some(theirs)) = (&delta.old, &delta.new)
        {
            self.remember(&delta.task, base, theirs)?;
            return Ok(None);
        }
        let mut aside = None;
        if changed_here {
            aside = self.put_aside(&path, &delta.task)?;
        } else if local.is_some() && new.is_none() {
            self.folder.disk().remove(&path)?;
        }
        if let Some(new) = new {
            self.put(&path, new)?;
        }
        Ok(aside)
    }

    /// A file with these bytes, complete when it gets its name.
    pub(super) fn put(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let disk = self.folder.disk();
        let stage = self.folder.stage(&random_id()?);
        let file = disk.create(&stage, bytes)?;
        // What comes in together is equally old here. Each clone has an order of its own for it, or all of them would go
        // for the same task, again and again.
        let order = Digest::of(order_of(&self.clone, path).as_bytes()).as_bytes()[0];
        disk::date_back_by(&file, 1 + i64::from(order) * 1_000_000).at("date", &stage)?;
        if let Some(folder) = path.parent() {
            disk.make_folder(folder)?;
        }
        disk.replace(&stage, path)
    }

    /// Moves a file out of the way, to where a person finds it. `None` if it is not there.
    pub(super) fn put_aside(&self, path: &Path, task: &TaskName) -> Result<Option<PathBuf>> {
        let to = self.aside.join(task.beside(&random_id()?).as_str());
        let moved = self.folder.disk().transfer(path, &to, 0)?;
        Ok((moved == Moved::Done).then_some(to))
    }

    fn diff(&self, from: &str, to: &str) -> Result<Vec<Delta>> {
        let folders: Vec<String> = State::ALL.iter().map(|state| format!("{}{state}", self.prefix)).collect();
        let mut arguments = vec![
            "--literal-pathspecs",
            "diff-tree",
            "-r",
            "-z",
            "--raw",
            "--no-renames",
            "--no-abbrev",
            from,
            to,
            "--",
        ];
        arguments.extend(folders.iter().map(String::as_str));
        let ran = self.git.local(&arguments, &Given::Nothing)?;
        if !ran.ok {
            return Err(failed("diff-tree", &ran));
        }
        let mut parts = ran.out.split(|byte| *byte == 0);
        let mut deltas = Vec::new();
        while let (Some(head), Some(path)) = (parts.next(), parts.next()) {
            let head = String::from_utf8_lossy(head);
            let words: Vec<&str> = head.trim_start_matches(':').split(' ').collect();
            let [old_mode, new_mode, old, new, ..] = words[..] else { continue };
            let Some((task, slot)) = self.task_at(path) else { continue };
            let (old, new) = (plain_file(old_mode, old), plain_file(new_mode, new));
            deltas.push(Delta { task, slot, old, new });
        }
        Ok(deltas)
    }

    /// Everything on the branch, and everything here that is not there.
    fn all_of(&self, commit: &str) -> Result<Vec<Delta>> {
        let mut here: BTreeMap<(TaskName, Slot), Option<String>> = BTreeMap::new();
        for state in State::ALL {
            for listed in self.folder.scan_names(state)? {
                here.insert(listed, None);
            }
        }
        for (task, slot, oid) in self.listed(commit)? {
            here.insert((task, slot), Some(oid));
        }
        Ok(here.into_iter().map(|((task, slot), new)| Delta { task, slot, old: None, new }).collect())
    }

    /// All tasks on the branch.
    pub(super) fn listed(&self, commit: &str) -> Result<Vec<(TaskName, Slot, String)>> {
        let ran = self.git.local(&["ls-tree", "-r", "-z", "--full-tree", commit], &Given::Nothing)?;
        if !ran.ok {
            return Err(failed("ls-tree", &ran));
        }
        let mut found = Vec::new();
        for entry in ran.out.split(|byte| *byte == 0) {
            let Some(tab) = entry.iter().position(|byte| *byte == b'\t') else { continue };
            let head = String::from_utf8_lossy(&entry[..tab]);
            let words: Vec<&str> = head.split(' ').collect();
            let [mode, _, oid] = words[..] else { continue };
            if let (Some((task, slot)), Some(oid)) = (self.task_at(&entry[tab + 1..]), plain_file(mode, oid))
            {
                found.push((task, slot, oid));
            }
        }
        Ok(found)
    }

    /// The bytes of all files that the deltas speak of.
    fn contents(&self, deltas: &[Delta]) -> Result<BTreeMap<String, Vec<u8>>> {
        let wanted: BTreeSet<&String> =
            deltas.iter().flat_map(|delta| [&delta.old, &delta.new]).flatten().collect();
        self.blobs(wanted.into_iter().map(String::as_str))
    }

    /// The bytes of these objects.
    pub(super) fn blobs<'a>(
        &self,
        wanted: impl IntoIterator<Item = &'a str>,
    ) -> Result<BTreeMap<String, Vec<u8>>> {
        let wanted: String = wanted.into_iter().flat_map(|oid| [oid, "\n"]).collect();
        let mut found = BTreeMap::new();
        if wanted.is_empty() {
            return Ok(found);
        }
        let ran = self.git.local(&["cat-file", "--batch"], &Given::Bytes(wanted.as_bytes()))?;
        let mut rest = ran.out.as_slice();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let head = String::from_utf8_lossy(&rest[..end]).into_owned();
            rest = &rest[end + 1..];
            let mut words = head.split(' ');
            let (Some(oid), Some("blob"), Some(len)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let len = len.parse::<usize>().unwrap_or(usize::MAX);
            let Some(bytes) = rest.get(..len) else { break };
            found.insert(oid.to_owned(), bytes.to_vec());
            rest = rest.get(len + 1..).unwrap_or_default();
        }
        if found.len() != wanted.lines().count() {
            return Err(failed("cat-file", &ran));
        }
        Ok(found)
    }

    /// Whether one of these tasks is not there on the branch.
    pub(super) fn missing<'a>(
        &self,
        commit: &str,
        places: impl IntoIterator<Item = (&'a TaskName, &'a Slot)>,
    ) -> Result<bool> {
        let mut names = Vec::new();
        for (task, slot) in places {
            names.extend(commit.bytes().chain([b':']));
            names.extend(self.path_of(task, slot));
            names.push(b'\n');
        }
        let ran = self.git.local(&["cat-file", "--batch-check=%(objecttype)"], &Given::Bytes(&names))?;
        if !ran.ok {
            return Err(failed("cat-file", &ran));
        }
        Ok(ran.text().lines().any(|line| line != "blob"))
    }

    fn edits_of(&self, task: &TaskName) -> PathBuf {
        self.edits.join(ref_of(task))
    }

    /// Edited on the branch while somebody here works on it. The first base counts.
    fn remember(&self, task: &TaskName, base: &str, theirs: &str) -> Result<()> {
        let path = self.edits_of(task);
        let earlier = read(&path)?.and_then(|bytes| serde_json::from_slice::<Edited>(&bytes).ok());
        let base = earlier.map_or_else(|| base.to_owned(), |earlier| earlier.base);
        let edited = Edited { base, theirs: theirs.to_owned() };
        let bytes = serde_json::to_vec(&edited).map_err(|error| Fault::invalid(error.to_string()))?;
        fs::write(&path, bytes).at("write", &path)
    }

    /// What is to be written, with what was edited on the branch meanwhile: lines of both, none lost.
    pub(super) fn with_edits(&self, task: &TaskName, ours: Vec<u8>) -> Result<Vec<u8>> {
        let Some(bytes) = read(&self.edits_of(task))? else { return Ok(ours) };
        let Ok(edited) = serde_json::from_slice::<Edited>(&bytes) else { return Ok(ours) };
        let contents = self.blobs([edited.base.as_str(), edited.theirs.as_str()])?;
        let files = [ours.as_slice(), &contents[&edited.base], &contents[&edited.theirs]];
        let word = random_id()?;
        let paths: Vec<PathBuf> = (0..3).map(|n| self.folder.stage(&format!("{word}-{n}"))).collect();
        for (path, bytes) in paths.iter().zip(files) {
            fs::write(path, bytes).at("write", path)?;
        }
        let names: Vec<&str> = paths.iter().filter_map(|path| path.to_str()).collect();
        let mut arguments = vec!["merge-file", "--union", "-p", "--"];
        arguments.extend(names);
        let ran = self.git.local(&arguments, &Given::Nothing)?;
        for path in &paths {
            let _ = fs::remove_file(path);
        }
        if ran.ok { Ok(ran.out) } else { Err(failed("merge-file", &ran)) }
    }

    /// The edits are in.
    pub(super) fn edits_kept(&self, task: &TaskName) {
        let _ = fs::remove_file(self.edits_of(task));
    }

    /// What was put aside and nobody has looked at.
    pub(super) fn kept_aside(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(&self.aside) else { return Vec::new() };
        let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        found.sort();
        found
    }
}

fn order_of(clone: &str, path: &Path) -> String {
    format!("{clone} {}", path.file_name().unwrap_or_default().to_string_lossy())
}

/// The object, if it is a plain file: a link or a submodule is no task.
fn plain_file(mode: &str, oid: &str) -> Option<String> {
    (mode.starts_with("100") && is_oid(oid)).then(|| oid.to_owned())
}

/// All bytes of a file, `None` if there is none.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error).at("read", path),
    }
}
