//! Removing what nothing refers to any more: notes of tasks that are gone, what was staged by somebody who died.
//!
//! Invariant: a note goes only under the lock of its task and if no file of that name is anywhere.

use std::fs;
use std::os::unix::fs::MetadataExt;

use jiff::Timestamp;

use super::FolderStore;
use super::settle::names_in;
use crate::error::Result;
use crate::vault::name::TaskName;

/// What is staged is moved at once; what is still there after this time was left by somebody who died.
const STAGED_S: i64 = 3600;

impl FolderStore {
    pub(super) fn sweep_all(&self, now: Timestamp) -> Result<()> {
        self.sweep_notes()?;
        for name in names_in(&self.private.join("stage"))? {
            let path = self.private("stage", &name);
            let old = |found: fs::Metadata| now.as_second() - found.ctime() > STAGED_S;
            if !fs::symlink_metadata(&path).is_ok_and(old) {
                continue;
            }
            self.disk.remove(&path)?;
        }
        Ok(())
    }

    fn sweep_notes(&self) -> Result<()> {
        for stripe in 0..=u8::MAX {
            let notes = self.stripes.read(stripe)?.notes;
            let found = |task: &TaskName, slots: &[_]| {
                slots.iter().any(|slot| fs::symlink_metadata(self.path(task, slot)).is_ok())
            };
            for (task, noted) in notes {
                if found(&task, std::slice::from_ref(&noted.note.slot)) {
                    continue;
                }
                let Some(mut log) = self.stripes.lock(stripe, std::time::Duration::ZERO)? else { continue };
                let nowhere = !log.known.is_pending() && !found(&task, &self.places(None)?);
                if nowhere {
                    log.forget(&self.disk, &task)?;
                }
            }
        }
        Ok(())
    }
}
