//! Removing what nothing refers to any more: locks of claims that never were, notes of tasks that are gone.
//!
//! Invariant: a slot is emptied only while its lock is held and no note speaks of its claim; a note only under the
//! lock of its task and if no file of that name is anywhere.

use std::fs;
use std::os::unix::fs::MetadataExt;

use jiff::Timestamp;

use super::FolderStore;
use super::settle::names_in;
use crate::error::Result;
use crate::vault::claim::{ClaimId, Note};
use crate::vault::hold::{self, Hold, Owner};
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
            if !fs::symlink_metadata(&path).is_ok_and(old) {
                continue;
            }
            self.disk.remove(&path)?;
        }
        Ok(())
    }

    fn sweep_held(&self) -> Result<()> {
        for (claim, stripe) in hold::all(&self.held())? {
            // Whoever made it is gone for good, so no note can come to speak of it after we have looked.
            let Owner::Gone(hold) = Hold::try_take(&self.held(), &claim)? else { continue };
            let known = self.stripes.read(stripe)?;
            let pending = known.pending.as_ref().and_then(|plan| plan.note());
            let mut notes = known.notes.values().map(|noted| &noted.note).chain(pending);
            if let (false, Some(slot)) = (notes.any(|note| speaks_of(note, &claim)), hold.slot()) {
                self.disk.write_at(&slot.file, &slot.path, slot.at, &hold::Slot::EMPTY)?;
            }
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
                let nowhere = log.known.pending.is_none() && !found(&task, &self.places(None)?);
                if nowhere {
                    log.forget(&self.disk, &task)?;
                }
            }
        }
        Ok(())
    }
}

fn speaks_of(note: &Note, claim: &ClaimId) -> bool {
    note.claim.as_ref().is_some_and(|noted| noted.id == *claim)
}
