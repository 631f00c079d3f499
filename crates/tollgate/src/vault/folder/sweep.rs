//! Removing what nothing refers to any more: locks of claims that never were, notes of tasks that are gone.
//!
//! Invariant: a lock file is removed only while its lock is held and no note speaks of its claim; a note only under the
//! lock of its task and if no file of that name is anywhere.

use std::fs;
use std::os::unix::fs::MetadataExt;

use jiff::Timestamp;

use super::FolderStore;
use super::carry::names_in;
use super::plan::Plan;
use crate::error::Result;
use crate::vault::claim::ClaimId;
use crate::vault::hold::{Hold, Owner};
use crate::vault::name::TaskName;

/// What is staged is moved at once; what is still there after this time was left by somebody who died.
const STAGED_S: i64 = 3600;

impl FolderStore {
    pub(super) fn sweep_all(&self, now: Timestamp) -> Result<()> {
        self.sweep_held()?;
        self.sweep_notes()?;
        for name in names_in(&self.private.join("stage"))? {
            let path = self.private("stage", &name);
            let old = |found: fs::Metadata| now.as_second() - found.ctime() > STAGED_S;
            if fs::symlink_metadata(&path).is_ok_and(old) {
                self.disk.remove(&path)?;
            }
        }
        Ok(())
    }

    fn sweep_held(&self) -> Result<()> {
        let folder = self.private.join("held");
        for name in names_in(&folder)? {
            let Ok(claim) = name.parse::<ClaimId>() else { continue };
            // Whoever made it is gone for good, so no note can come to speak of it after we have looked.
            let Owner::Gone(hold) = Hold::try_take(&folder, &claim)? else { continue };
            let task =
                fs::read_to_string(folder.join(&name)).ok().and_then(|name| TaskName::of_file(&name).ok());
            let spoken_of = match &task {
                None => false,
                Some(task) => {
                    let under_way = fs::symlink_metadata(self.private("steps", &task.key())).is_ok();
                    under_way || self.load_note(task)?.is_some_and(|plan| speaks_of(&plan, &claim))
                }
            };
            if !spoken_of {
                hold.remove();
            }
        }
        Ok(())
    }

    fn sweep_notes(&self) -> Result<()> {
        for key in names_in(&self.private.join("notes"))? {
            let path = self.private("notes", &key);
            let Some(plan) = Plan::load(&path)? else { continue };
            let task = &plan.step.task;
            let found =
                |slots: &[_]| slots.iter().any(|slot| fs::symlink_metadata(self.path(task, slot)).is_ok());
            let slot = plan.note().map(|note| note.slot.clone());
            if found(slot.as_slice()) {
                continue;
            }
            let Some(_lock) = self.lock(&key, std::time::Duration::ZERO)? else { continue };
            if !found(&self.places(None, None)?) && fs::symlink_metadata(self.private("steps", &key)).is_err()
            {
                self.disk.remove(&path)?;
            }
        }
        Ok(())
    }
}

fn speaks_of(plan: &Plan, claim: &ClaimId) -> bool {
    plan.note().and_then(|note| note.claim.as_ref()).is_some_and(|noted| noted.id == *claim)
}
