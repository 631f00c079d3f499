//! Undoing single changes of names.
//!
//! Each function looks at the disk and not at how far the change came, so it may be interrupted and repeated. A save that
//! another program made in the meantime stays at the path; the file that cannot go back there is kept in recovery.

use std::path::Path;

use crate::disk::{Found, Spot, Target};
use crate::recovery::{keep_foreign, settle};
use crate::root::Root;
use crate::stage::{StageName, aside_name};
use crate::turn::FileState;
use tollgate_base::error::{Fault, Result};

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
        let Found::File(put) = staged.open()? else { break };
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
            if !aside.rename_new(spot)? {
                keep_foreign(root, &aside)?;
            }
        }
    }
    settle(root, staged)
}

/// Undoes a removal, unless the path has a new file by now.
pub(crate) fn give_back(root: &Root, spot: &Spot, kept: &Spot) -> Result<()> {
    if kept.rename_new(spot)? { Ok(()) } else { keep_foreign(root, kept) }
}

/// Deletes a folder, given relative to the workspace, if it is empty.
pub(crate) fn remove_folder(root: &Root, folder: &Path) -> Result<()> {
    let Some(name) = folder.file_name() else { return Ok(()) };
    let parent = folder.parent().unwrap_or(Path::new(""));
    match gone_is_none(root.folder().open_below(parent))? {
        Some(parent) => Spot::new(&parent, name).remove_empty_folder(),
        None => Ok(()),
    }
}

/// Turns "not found" into `None`.
pub(crate) fn gone_is_none<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(Fault::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(fault) => Err(fault),
    }
}
