//! tollgate's own copy of the vault's folders, which shows the branch.
//!
//! The person's working tree is theirs. Workers, locks and moves live in this tree, which contains the vault's folders and
//! nothing else. So nothing that a person has half finished gets into our commits, and no move of ours gets into theirs.
//!
//! Invariants: nothing is lost. A file that was changed here and is deleted on the branch is set aside for a person; a file
//! that an agent works on here and that was edited on the branch keeps both edits. A file that is brought in is complete
//! when it gets its name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::branch::{Branch, Delta};
use super::edits::Edits;
use super::file::read;
use crate::folder::FolderStore;
use crate::folder::disk::{Moved, date_back};
use crate::state::{Slot, State};
use crate::store::Store;
use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Result};
use tollgate_base::name::random_id;
use tollgate_base::task::TaskName;

/// The tree, and the branch that it shows.
#[derive(Clone)]
pub(super) struct Tree {
    pub(super) branch: Branch,
    pub(super) folder: FolderStore,
    pub(super) edits: Edits,
    /// The folder of the files that were set aside.
    pub(super) aside: PathBuf,
    /// The id of this clone.
    pub(super) clone: String,
}

impl Tree {
    /// Brings the tree from one commit to another. The answer is the files that were set aside.
    pub(super) fn import(&self, from: Option<&str>, to: &str) -> Result<Vec<PathBuf>> {
        if from == Some(to) {
            return Ok(Vec::new());
        }
        let deltas = match from.map(|from| self.branch.diff(from, to)).transpose() {
            Ok(Some(deltas)) => deltas,
            // The old commit is gone: somebody rewrote the branch, and the user's git has collected the garbage.
            Ok(None) | Err(_) => self.all_of(to)?,
        };
        let wanted = deltas.iter().flat_map(|delta| [&delta.old, &delta.new]).flatten();
        let contents = self.branch.blobs(wanted.map(String::as_str))?;
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
            self.edits.remember(&self.folder, &delta.task, base, theirs)?;
            return Ok(None);
        }
        let mut aside = None;
        if changed_here {
            aside = self.set_aside(&path, &delta.task)?;
        } else if local.is_some() && new.is_none() {
            self.folder.disk().remove(&path)?;
        }
        if let Some(new) = new {
            self.put(&path, new)?;
        }
        Ok(aside)
    }

    /// Puts a file with these bytes there, complete when it gets its name.
    pub(super) fn put(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let disk = self.folder.disk();
        let stage = self.folder.stage(&random_id()?);
        let file = disk.create(&stage, bytes)?;
        // Files that arrive together would have the same age. Each clone gives them another order, because otherwise all
        // clones would try to claim the same task, again and again.
        let order = Digest::of(order_of(&self.clone, path).as_bytes()).as_bytes()[0];
        date_back(&file, 1 + u64::from(order) * 1_000_000).at("date", &stage)?;
        if let Some(folder) = path.parent() {
            disk.make_folder(folder)?;
        }
        disk.replace(&stage, path)
    }

    /// Moves a file to the folder where a person finds it. `None` if the file is not there.
    pub(super) fn set_aside(&self, path: &Path, task: &TaskName) -> Result<Option<PathBuf>> {
        let to = self.aside.join(task.beside(&random_id()?).as_str());
        let moved = self.folder.disk().transfer(path, &to, 0)?;
        Ok((moved == Moved::Done).then_some(to))
    }

    /// Everything on the branch, and everything here that is not on the branch.
    fn all_of(&self, commit: &str) -> Result<Vec<Delta>> {
        let mut here: BTreeMap<(TaskName, Slot), Option<String>> = BTreeMap::new();
        for state in State::ALL {
            // Only the names count, and they do not depend on the time.
            for task in self.folder.scan(state, Timestamp::UNIX_EPOCH)?.tasks {
                here.insert((task.name, task.slot), None);
            }
        }
        for (task, slot, oid) in self.branch.listed(commit)? {
            here.insert((task, slot), Some(oid));
        }
        Ok(here.into_iter().map(|((task, slot), new)| Delta { task, slot, old: None, new }).collect())
    }

    /// The text of a task that leaves an agent, with the edits that people made on the branch in the meantime.
    pub(super) fn with_edits(&self, task: &TaskName, text: Vec<u8>) -> Result<Vec<u8>> {
        self.edits.merged(&self.folder, &self.branch, task, text)
    }

    /// The files that were set aside and that nobody has deleted yet.
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
