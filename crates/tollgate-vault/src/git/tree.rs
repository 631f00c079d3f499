//! tollgate's own copy of the vault's folders, which shows the branch.
//!
//! The person's working tree is theirs. Workers, locks and moves live in this tree, which contains the vault's folders and
//! nothing else. So nothing that a person has half finished gets into our commits, and no move of ours gets into theirs.
//!
//! Invariants: nothing is lost. A file that was changed here and is deleted on the branch is set aside for a person; a file
//! that an agent works on here and that was edited on the branch keeps both edits. A file that is brought in is complete
//! when it gets its name.
//!
//! If a person edits a task on the branch while an agent is working on it here, the agent's file stays as it is. The edit is
//! remembered as two objects, before and after, and merged into the text when the task leaves the agent. Lines of both stay.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::branch::{Branch, Delta};
use super::card::ref_of;
use crate::folder::FolderStore;
use crate::folder::disk;
use crate::state::State;
use crate::store::Store;
use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::name::random_id;
use tollgate_base::private;
use tollgate_base::task::TaskName;

/// The tree, and the branch that it shows.
#[derive(Clone)]
pub(super) struct Tree {
    pub(super) branch: Branch,
    pub(super) folder: FolderStore,
    /// The folder of the remembered edits, one file for each task.
    pub(super) edits: PathBuf,
    /// The folder of the files that were set aside.
    pub(super) aside: PathBuf,
    /// The id of this clone.
    pub(super) clone: String,
}

/// An edit on the branch: the objects before and after it.
#[derive(Debug, Serialize, Deserialize)]
struct Edited {
    base: String,
    theirs: String,
}

/// All bytes of a file; `None` if it does not exist.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    match private::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error).at("read", path),
    }
}

impl Tree {
    /// Brings the tree from one commit to another.
    pub(super) fn import(&self, from: Option<&str>, to: &str) -> Result<()> {
        let deltas = match from.map(|from| self.branch.diff(Some(from), to)) {
            Some(Ok(deltas)) => deltas,
            // The old commit is gone: somebody rewrote the branch, and the user's git has collected the garbage.
            Some(Err(_)) | None => self.all_of(to)?,
        };
        let contents =
            self.branch.blobs(deltas.iter().flat_map(|delta| [&delta.old, &delta.new]).flatten())?;
        let mut touched = BTreeSet::new();
        for delta in &deltas {
            let of = |oid: &Option<String>| oid.as_ref().and_then(|oid| contents.get(oid)).map(Vec::as_slice);
            touched.extend(self.apply(delta, of(&delta.old), of(&delta.new))?);
        }
        for folder in touched {
            self.folder.disk().sync_folder(&folder)?;
        }
        Ok(())
    }

    /// The folder that was changed, if one was.
    fn apply(&self, delta: &Delta, old: Option<&[u8]>, new: Option<&[u8]>) -> Result<Option<PathBuf>> {
        let path = self.folder.path(&delta.task, &delta.slot);
        let local = read(&path)?;
        if local.as_deref() == new {
            return Ok(None);
        }
        let changed_here = local.is_some() && local.as_deref() != old;
        if changed_here
            && delta.slot.agent().is_some()
            && let (Some(base), Some(theirs)) = (&delta.old, &delta.new)
        {
            self.remember(&delta.task, base, theirs)?;
            return Ok(None);
        }
        if changed_here {
            self.set_aside(&path, &delta.task)?;
        } else if local.is_some() && new.is_none() {
            self.folder.disk().remove(&path)?;
        }
        if let Some(new) = new {
            self.put(&path, new)?;
        }
        Ok(path.parent().map(Path::to_owned))
    }

    /// Puts a file with these bytes there, complete when it gets its name.
    pub(super) fn put(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let disk = self.folder.disk();
        let stage = self.folder.stage(&random_id()?);
        let file = disk.create(&stage, bytes)?;
        // Files that arrive together would have the same age. Each clone gives them another order, because otherwise all
        // clones would try to claim the same task, again and again.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let order = Digest::of(format!("{} {name}", self.clone).as_bytes()).as_bytes()[0];
        disk::date_back(&file, 1 + u64::from(order) * 1_000_000).at("date", &stage)?;
        if let Some(folder) = path.parent() {
            disk.make_folder(folder)?;
        }
        disk.replace(&stage, path)
    }

    /// Moves a file, if it is there, to the folder where a person finds it.
    pub(super) fn set_aside(&self, path: &Path, task: &TaskName) -> Result<()> {
        let to = self.aside_path(task)?;
        self.folder.disk().transfer(path, &to, 0).map(drop)
    }

    /// A new name for a file of this task that is set aside.
    fn aside_path(&self, task: &TaskName) -> Result<PathBuf> {
        Ok(self.aside.join(task.beside(&random_id()?).as_str()))
    }

    /// Everything on the branch, and everything here that is not on the branch.
    fn all_of(&self, commit: &str) -> Result<Vec<Delta>> {
        let mut all = BTreeMap::new();
        for state in State::ALL {
            // Only the names count, and they do not depend on the time.
            let listed = self.folder.scan(state, Timestamp::UNIX_EPOCH)?.tasks;
            all.extend(listed.into_iter().map(|task| ((task.name, task.slot), None)));
        }
        let there = self.branch.diff(None, commit)?;
        all.extend(there.into_iter().map(|Delta { task, slot, new, .. }| ((task, slot), new)));
        Ok(all.into_iter().map(|((task, slot), new)| Delta { task, slot, old: None, new }).collect())
    }

    fn edit_of(&self, task: &TaskName) -> Result<Option<Edited>> {
        let bytes = read(&self.edits.join(ref_of(task)))?;
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// Remembers an edit on the branch. After several edits, the first base counts.
    fn remember(&self, task: &TaskName, base: &str, theirs: &str) -> Result<()> {
        let base = self.edit_of(task)?.map_or_else(|| base.to_owned(), |earlier| earlier.base);
        let edited = Edited { base, theirs: theirs.to_owned() };
        let bytes = serde_json::to_vec(&edited).map_err(|error| Fault::invalid(error.to_string()))?;
        // Flushed: the next release would otherwise revert the edit.
        let disk = self.folder.disk();
        disk.replace_file(&self.edits.join(ref_of(task)), &bytes, disk.durability)
    }

    /// The text of a task that leaves an agent, with the edits that people made on the branch in the meantime. What cannot be
    /// merged is set aside for a person, so that the task is not stuck.
    pub(super) fn with_edits(&self, task: &TaskName, ours: Vec<u8>) -> Result<Vec<u8>> {
        let Some(Edited { base, theirs }) = self.edit_of(task)? else { return Ok(ours) };
        let left = self.branch.blobs_left(&BTreeSet::from([&base, &theirs]))?;
        let (base, theirs) = match (left.get(&base), left.get(&theirs)) {
            (Some(base), Some(theirs)) => (base, theirs),
            // Somebody rewrote the branch, and the user's git has collected the garbage.
            (_, theirs) => {
                if let Some(theirs) = theirs {
                    self.folder.disk().create(&self.aside_path(task)?, theirs)?;
                    // Otherwise a power cut could take the only copy that a person finds.
                    self.folder.disk().sync_folder(&self.aside)?;
                }
                self.forget_edits(task);
                return Ok(ours);
            }
        };
        let word = random_id()?;
        let mut paths = Vec::new();
        for (n, bytes) in [&ours, base, theirs].into_iter().enumerate() {
            let path = self.folder.stage(&format!("{word}-{n}"));
            private::write(&path, bytes).at("write", &path)?;
            paths.push(path);
        }
        let mut arguments = vec!["merge-file", "--union", "-p", "--"];
        arguments.extend(paths.iter().filter_map(|path| path.to_str()));
        let ran = self.branch.git.must(&arguments, &[]);
        for path in &paths {
            let _ = private::remove_file(path);
        }
        Ok(ran?.out)
    }

    /// Forgets the edits of a task, because they are in the text on the branch.
    pub(super) fn forget_edits(&self, task: &TaskName) {
        let _ = private::remove_file(&self.edits.join(ref_of(task)));
    }

    /// The files that were set aside and that nobody has deleted yet.
    pub(super) fn kept_aside(&self) -> Vec<PathBuf> {
        let Ok(names) = private::names(&self.aside) else { return Vec::new() };
        let mut found: Vec<PathBuf> = names.into_iter().map(|name| self.aside.join(name)).collect();
        found.sort();
        found
    }
}
