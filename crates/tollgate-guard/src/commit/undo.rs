//! Undoing single changes of names, and rolling back or completing a commit whose process died, from its journal.
//!
//! Each function looks at the disk and not at how far the change came, so it may be interrupted and repeated. A save that
//! another program made in the meantime stays at the path; the file that cannot go back there is kept in recovery. Of a
//! foreign save that does go back, a copy is kept: a program that read the path before may replace the save.

use std::path::Path;

use super::journal::{JournalContent, JournalRecord};
use super::staging::remove_folders;
use crate::disk::{Found, Spot, Target, gone_is_none};
use crate::recovery::{keep_before_return, keep_copy, keep_foreign, settle};
use crate::root::Root;
use crate::stage::{ChangeId, StageName, Standing, TargetName, aside_name, is_beside};
use crate::turn::FileState;
use tollgate_base::error::Result;

/// The most swaps that one undo makes. Each round ends the undo, unless another foreign save comes within microseconds.
const SWAPS: usize = 64;

/// Undoes a swap: the replaced file goes back to the path, unless another program has saved over our bytes. In that case its
/// save is the newest and stays, and the replaced file goes to recovery. Our own file stays in the stage, settled.
pub(crate) fn put_back(
    root: &Root,
    spot: &Spot,
    staged: &Spot,
    ours: &dyn Fn(&Spot) -> Result<bool>,
) -> Result<()> {
    // The file that the previous swap put at the path. Kept open, so that its inode number is not reused.
    let mut put_before: Option<Target> = None;
    for _ in 0..SWAPS {
        let Found::File(put) = staged.open_itself()? else { break };
        keep_before_return(root, staged);
        match gone_is_none(staged.swap(spot))? {
            // Another program deleted our bytes at the path, so it wants no file there.
            None => break,
            Some(_) if ours(staged)? => return settle(root, staged),
            Some(_) => {}
        }
        // A foreign save came out, which is newer than the file just put at the path: swap again. If the file that the
        // previous swap put there comes out, nobody has saved in between, and the newest save is at the path.
        if put_before.as_ref().is_some_and(|before| staged.holds(before).unwrap_or(false)) {
            break;
        }
        put_before = Some(put);
    }
    keep_foreign(root, staged)
}

/// Makes the last step of a two-step swap that a crash interrupted: the file set aside is the replaced one. Returns whether
/// there was such a file.
pub(crate) fn finish_swap(staged: &Spot) -> Result<bool> {
    let replaces = StageName::parse(staged.name()).is_none_or(|stage| stage.base != FileState::Absent);
    if !replaces || staged.inode()?.is_some() {
        return Ok(false);
    }
    Ok(gone_is_none(staged.beside(aside_name(staged.name())).rename(staged))?.is_some())
}

/// Undoes a creation: removes our file from the path, unless the path has another file by now.
pub(crate) fn take_back(
    root: &Root,
    spot: &Spot,
    staged: &Spot,
    ours: &dyn Fn(&Spot) -> Result<bool>,
) -> Result<()> {
    // First rename, then look. Between a look and a deletion, another program could save, and its save would be deleted.
    let aside = staged.beside(aside_name(staged.name()));
    if gone_is_none(spot.rename_new(&aside))? == Some(true) {
        if ours(&aside)? {
            if staged.is_same_file(&aside)? {
                // Two names of one file. The other name stays for the late-write check.
                aside.remove()?;
            } else {
                aside.rename(staged)?;
            }
        } else {
            if staged.is_same_file(&aside)? {
                // Another program has written into our file. It is theirs now, and must not have a second name.
                staged.remove()?;
            }
            give_back(root, spot, &aside)?;
        }
    }
    settle(root, staged)
}

/// Gives a file its path back, unless the path has a new file by now.
pub(crate) fn give_back(root: &Root, spot: &Spot, kept: &Spot) -> Result<()> {
    keep_before_return(root, kept);
    if kept.rename_new(spot)? { Ok(()) } else { keep_foreign(root, kept) }
}

/// Completes a commit that was made: copies replaced files to recovery that are still beside their targets, because they are
/// on another file system.
pub(crate) fn complete(root: &Root, content: &JournalContent) -> Result<()> {
    for record in &content.records {
        let (Some(name), Some(id)) = (&record.staged, ChangeId::parse(&record.id)) else { continue };
        let Ok(spot) = root.spot(&record.path) else { continue };
        let staged = staged_spot(root, &spot, name);
        if !is_beside(staged.name()) || staged.inode()?.is_none() {
            continue;
        }
        if record.base.is_none() {
            // The second name of a new file.
            staged.remove()?;
            continue;
        }
        keep_copy(root, &staged, &stage_of(record, id, content))?;
    }
    content.later.iter().try_for_each(|folder| folder.make(root))
}

/// The name that the file would have in the stage.
fn stage_of(record: &JournalRecord, id: ChangeId, content: &JournalContent) -> StageName {
    StageName {
        standing: Standing::Open,
        id,
        base: record.base.into(),
        new: record.new.into(),
        agent: content.agent.clone(),
        target: TargetName::Path(record.path.0.clone()),
    }
}

/// Undoes what was done of a commit. The caller holds the locks of its paths.
pub(crate) fn roll_back(root: &Root, content: &JournalContent) -> Result<()> {
    for record in content.records.iter().rev() {
        undo_record(root, record, content, None)?;
    }
    flush_undone(root, content)
}

/// Makes an undo durable.
pub(super) fn flush_undone(root: &Root, content: &JournalContent) -> Result<()> {
    // Before the journal is deleted: without it, nobody would undo what a power failure brings back.
    let durability = root.durability();
    root.stage.flush(durability)?;
    for folder in content.folders() {
        if let Ok(folder) = root.folder.open_below(&folder) {
            folder.flush(durability)?;
        }
    }
    Ok(())
}

/// What the process that has just made a change still has open of it.
#[derive(Clone, Copy)]
pub(super) struct Held<'a> {
    /// The path.
    pub(super) spot: &'a Spot,
    /// The new path of a moved file.
    pub(super) to: Option<&'a Spot>,
    /// The file that the change has put there.
    pub(super) file: &'a Target,
}

/// Undoes one change. If nothing of it is held, only the disk tells whether it was made, and its files are known by their bytes.
pub(super) fn undo_record(
    root: &Root,
    record: &JournalRecord,
    content: &JournalContent,
    held: Option<Held<'_>>,
) -> Result<()> {
    undo_file(root, record, content, held)?;
    // Before the next one: a file that was removed may have had the name of a folder.
    remove_folders(root, record.made.iter().map(|folder| &folder.0))?;
    // Outermost first. If another program has put something there since, it stays.
    for (path, mode) in record.clears.iter().rev() {
        if let Ok(spot) = root.spot(path)
            && spot.make_folder()?
        {
            spot.set_mode(*mode)?;
        }
    }
    Ok(())
}

fn undo_file(
    root: &Root,
    record: &JournalRecord,
    content: &JournalContent,
    held: Option<Held<'_>>,
) -> Result<()> {
    let Ok(spot) = held.map_or_else(|| root.spot(&record.path), |held| Ok(held.spot.clone())) else {
        // The folder is gone, so nothing can be put back there. The sweep keeps what is in the stage.
        return Ok(());
    };
    if let Some([before, after]) = record.mode {
        // Not if another program has changed it since.
        return if spot.mode()? == Some(after) { spot.set_mode(before) } else { Ok(()) };
    }
    if let Some(to) = &record.to {
        return undo_move(root, record, &spot, to, held);
    }
    let Some(staged) = record.staged.as_ref().map(|name| staged_spot(root, &spot, name)) else {
        return Ok(());
    };
    if (record.base, record.new) == (None, None) {
        // An intent: the file was created, and nothing else happened to it.
        return staged.remove();
    }
    finish_swap(&staged)?;
    let ours = |spot: &Spot| match held {
        _ if record.new.is_none() => Ok(false),
        Some(held) => spot.holds(held.file),
        None => Ok(spot.hash()? == record.new),
    };
    match (record.base, record.new) {
        (Some(_), Some(_)) => {
            if held.is_none() && (staged.inode()?.is_none() || ours(&staged)?) {
                // Not swapped, or already swapped back.
            } else if held.is_some() || ours(&spot)? {
                // The replaced file belongs at the path, whether it has the old bytes or a foreign save.
                put_back(root, &spot, &staged, &ours)?;
            } else {
                // Another program saved over our bytes. Its save stays, and the replaced file is kept.
                keep_foreign(root, &staged)?;
            }
        }
        (None, Some(_)) => {
            let is_made = match staged.inode()? {
                _ if held.is_some() => true,
                // Two names of one file. Equal bytes are no proof: another program may have created that file.
                Some(_) => staged.is_same_file(&spot)?,
                // Where files cannot have two names, it was moved to the path.
                None => ours(&spot)?,
            };
            if is_made {
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
    if is_beside(staged.name()) && staged.inode()?.is_some() {
        match ChangeId::parse(&record.id) {
            Some(id) if !ours(&staged)? => {
                keep_copy(root, &staged, &stage_of(record, id, content))?;
            }
            _ => staged.remove()?,
        }
    }
    Ok(())
}

fn undo_move(
    root: &Root,
    record: &JournalRecord,
    spot: &Spot,
    to: &Path,
    held: Option<Held<'_>>,
) -> Result<()> {
    let held_to = held.and_then(|held| held.to.cloned());
    let Ok(to) = held_to.map_or_else(|| root.spot(to), Ok) else { return Ok(()) };
    let moved_away = spot.inode()?.is_none() || spot.is_same_file(&to)?;
    // Not if another program has saved another file there.
    let is_moved = match held {
        Some(held) => to.holds(held.file)?,
        None => record.base.is_some() && to.hash()? == record.base,
    };
    if moved_away && is_moved {
        to.rename_new(spot)?;
    }
    Ok(())
}

fn staged_spot(root: &Root, spot: &Spot, name: &Path) -> Spot {
    if is_beside(name.as_os_str()) { spot.beside(name) } else { root.staged(name) }
}
