//! Edits of people on the branch to tasks that an agent is working on here.
//!
//! The agent's file stays as it is. The edit is remembered as two objects, before and after, and merged into the text when
//! the task leaves the agent. Lines of both stay.

use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::branch::Branch;
use super::card::ref_of;
use super::file::read;
use super::process::Given;
use super::run::failed;
use crate::folder::FolderStore;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::name::random_id;
use tollgate_base::task::TaskName;

/// The remembered edits, one file for each task.
#[derive(Debug, Clone)]
pub(super) struct Edits {
    pub(super) folder: PathBuf,
}

/// An edit on the branch: the objects before and after it.
#[derive(Debug, Serialize, Deserialize)]
struct Edited {
    base: String,
    theirs: String,
}

impl Edits {
    fn path(&self, task: &TaskName) -> PathBuf {
        self.folder.join(ref_of(task))
    }

    /// Remembers an edit. After several edits, the first base counts.
    pub(super) fn remember(
        &self,
        store: &FolderStore,
        task: &TaskName,
        base: &str,
        theirs: &str,
    ) -> Result<()> {
        let path = self.path(task);
        let earlier = read(&path)?.and_then(|bytes| serde_json::from_slice::<Edited>(&bytes).ok());
        let base = earlier.map_or_else(|| base.to_owned(), |earlier| earlier.base);
        let edited = Edited { base, theirs: theirs.to_owned() };
        let bytes = serde_json::to_vec(&edited).map_err(|error| Fault::invalid(error.to_string()))?;
        // Flushed: the next release would otherwise revert the edit.
        store.disk().replace_file(&path, &bytes, store.disk().durability)
    }

    /// The agent's text together with the edit, if there is one.
    pub(super) fn merged(
        &self,
        store: &FolderStore,
        branch: &Branch,
        task: &TaskName,
        ours: Vec<u8>,
    ) -> Result<Vec<u8>> {
        let Some(bytes) = read(&self.path(task))? else { return Ok(ours) };
        let Ok(edited) = serde_json::from_slice::<Edited>(&bytes) else { return Ok(ours) };
        let contents = branch.blobs([edited.base.as_str(), edited.theirs.as_str()])?;
        let files = [ours.as_slice(), &contents[&edited.base], &contents[&edited.theirs]];
        let word = random_id()?;
        let paths: Vec<PathBuf> = (0..3).map(|n| store.stage(&format!("{word}-{n}"))).collect();
        for (path, bytes) in paths.iter().zip(files) {
            fs::write(path, bytes).at("write", path)?;
        }
        let names: Vec<&str> = paths.iter().filter_map(|path| path.to_str()).collect();
        let mut arguments = vec!["merge-file", "--union", "-p", "--"];
        arguments.extend(names);
        let ran = branch.git.local(&arguments, &Given::Nothing)?;
        for path in &paths {
            let _ = fs::remove_file(path);
        }
        if ran.ok { Ok(ran.out) } else { Err(failed("merge-file", &ran)) }
    }

    /// Forgets the edit of a task, because it is in the text on the branch.
    pub(super) fn forget(&self, task: &TaskName) {
        let _ = fs::remove_file(self.path(task));
    }
}
