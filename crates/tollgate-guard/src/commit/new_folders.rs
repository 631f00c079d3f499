//! Folders that a change creates for its file, and deletes again if the change is not made.

use std::path::PathBuf;

use super::journal::{Intent, Journal};
use super::undo::remove_folder;
use crate::disk::{Folder, Spot};
use crate::root::Root;
use tollgate_base::error::Result;

/// The folders that one change has created.
#[derive(Default)]
pub(super) struct NewFolders {
    paths: Vec<PathBuf>,
    parents: Vec<Folder>,
    /// Names the folders until the change is made or undone, so that a crash does not leave them behind.
    intent: Option<Journal>,
}

impl NewFolders {
    /// Creates these folders, outermost first. Another process may have created some of them.
    pub(super) fn make(&mut self, root: &Root, change: Intent<'_>, missing: &[PathBuf]) -> Result<()> {
        if missing.is_empty() {
            return Ok(());
        }
        if self.intent.is_none() {
            self.intent = Some(Journal::of_folders(root, change, missing.to_vec())?);
        }
        for folder in missing {
            let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else { continue };
            let parent = root.folder().open_below(parent)?;
            if Spot::new(&parent, name).make_folder()? {
                self.paths.push(folder.clone());
                self.parents.push(parent);
            }
        }
        Ok(())
    }

    pub(super) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// The folders in which they were created.
    pub(super) fn parents(&self) -> &[Folder] {
        &self.parents
    }

    /// The change was not made: deletes those that are empty.
    pub(super) fn remove(&mut self, root: &Root) -> Result<()> {
        for folder in self.paths.iter().rev() {
            remove_folder(root, folder)?;
        }
        self.keep()
    }

    /// The change was made: the folders stay.
    pub(super) fn keep(&mut self) -> Result<()> {
        self.intent.take().map_or(Ok(()), Journal::remove)
    }
}
