//! Rolling back, or completing, a commit whose process died: from its journal and the state of the disk.
//!
//! Every step looks at the disk and not at how far the commit came, so a rollback may be interrupted and repeated.

use std::path::Path;

use super::journal::{JournalContent, JournalRecord};
use super::undo::{finish_swap, give_back, put_back, remove_folder, take_back};
use crate::disk::{Found, Spot};
use crate::recovery::{keep_copy, keep_foreign};
use crate::root::Root;
use crate::stage::{ChangeId, StageName, Standing, TargetName};
use crate::turn::FileState;
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;

/// Completes a commit that was made: copies replaced files to recovery that are still beside their targets, because they are
/// on another file system.
pub(crate) fn finish(root: &Root, content: &JournalContent) -> Result<()> {
    for record in &content.records {
        let (Some(name), Some(id)) = (&record.staged, ChangeId::parse(&record.id)) else { continue };
        let Ok(spot) = root.place_of(&record.path).spot(root.folder()) else { continue };
        let staged = staged_spot(root, &spot, name);
        if !is_beside(name) || staged.inode()?.is_none() {
            continue;
        }
        if record.base.is_none() {
            // The second name of a new file.
            staged.remove()?;
            continue;
        }
        keep_copy(root, &staged, &stage_of(record, id, content))?;
    }
    Ok(())
}

/// The name that the file would have in the stage.
fn stage_of(record: &JournalRecord, id: ChangeId, content: &JournalContent) -> StageName {
    let state = |digest: Option<Digest>| digest.map_or(FileState::Absent, FileState::Present);
    StageName {
        standing: Standing::Open,
        id,
        base: state(record.base),
        new: state(record.new),
        agent: content.agent.clone(),
        target: TargetName::Path(record.path.clone()),
    }
}

fn is_beside(name: &Path) -> bool {
    name.as_os_str().as_encoded_bytes().starts_with(b".tollgate-")
}

/// Undoes what was done of a commit. The caller holds the locks of its paths.
pub(crate) fn roll_back(root: &Root, content: &JournalContent) -> Result<()> {
    for record in content.records.iter().rev() {
        undo_record(root, record, content)?;
    }
    for record in content.records.iter().rev() {
        for folder in record.made.iter().rev() {
            remove_folder(root, folder)?;
        }
    }
    // Before the journal is deleted: without it, nobody would undo what a power failure brings back.
    let durability = root.durability();
    root.stage().flush(durability)?;
    for path in content.records.iter().flat_map(|record| [Some(&record.path), record.to.as_ref()]).flatten() {
        if let Ok(spot) = root.place_of(path).spot(root.folder()) {
            spot.folder().flush(durability)?;
        }
    }
    Ok(())
}

fn undo_record(root: &Root, record: &JournalRecord, content: &JournalContent) -> Result<()> {
    let Ok(spot) = root.place_of(&record.path).spot(root.folder()) else {
        // The folder is gone, so nothing can be put back there. The sweep keeps what is in the stage.
        return Ok(());
    };
    if let Some(to) = &record.to {
        return undo_move(root, record, &spot, to);
    }
    let Some(staged) = record.staged.as_ref().map(|name| staged_spot(root, &spot, name)) else {
        return Ok(());
    };
    if (record.base, record.new) == (None, None) {
        // An intent: the file was created, and nothing else happened to it.
        return staged.remove();
    }
    finish_swap(&staged)?;
    let has = |spot: &Spot, digest: Option<Digest>| -> Result<bool> {
        match (spot.open()?, digest) {
            (Found::File(file), Some(digest)) => Ok(file.hash()? == digest),
            _ => Ok(false),
        }
    };
    let ours = |spot: &Spot| has(spot, record.new);
    match (record.base, record.new) {
        (Some(_), Some(_)) => {
            if staged.inode()?.is_none() || ours(&staged)? {
                // Not swapped, or already swapped back.
            } else if ours(&spot)? {
                // The replaced file belongs at the path, whether it has the old bytes or a foreign save.
                put_back(root, &spot, &staged, &ours)?;
            } else {
                // Another program saved over our bytes. Its save stays, and the replaced file is kept.
                keep_foreign(root, &staged)?;
            }
        }
        (None, Some(_)) => {
            let made = match staged.inode()? {
                // Two names of one file. Equal bytes are no proof: another program may have created that file.
                Some(_) => staged.is_same_file(&spot)?,
                // Where files cannot have two names, it was moved to the path.
                None => ours(&spot)?,
            };
            if made {
                take_back(root, &spot, &staged, &ours)?;
            }
        }
        (_, None) => {
            if staged.inode()?.is_some() {
                give_back(root, &spot, &staged)?;
            }
        }
    }
    // No sweep looks beside the target.
    if is_beside(Path::new(staged.name())) && staged.inode()?.is_some() {
        match ChangeId::parse(&record.id) {
            Some(id) if !ours(&staged)? => {
                keep_copy(root, &staged, &stage_of(record, id, content))?;
            }
            _ => staged.remove()?,
        }
    }
    Ok(())
}

fn undo_move(root: &Root, record: &JournalRecord, spot: &Spot, to: &Path) -> Result<()> {
    let Ok(to) = root.place_of(to).spot(root.folder()) else { return Ok(()) };
    let moved_away = spot.inode()?.is_none() || spot.is_same_file(&to)?;
    if moved_away
        && let Found::File(moved) = to.open()?
        && Some(moved.hash()?) == record.base
    {
        to.rename_new(spot)?;
    }
    Ok(())
}

fn staged_spot(root: &Root, spot: &Spot, name: &Path) -> Spot {
    if is_beside(name) { spot.beside(name) } else { root.staged(name) }
}
