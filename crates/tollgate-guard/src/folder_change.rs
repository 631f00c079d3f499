//! Creating and moving folders.
//!
//! A folder has no bytes to lose, so it is not compared with a baseline. When a folder moves, the turn still knows the files
//! in it. Other agents that knew these files find them missing.

use std::path::{Path, PathBuf};

use crate::commit::{Journal, folder_moved, remove_folder};
use crate::disk::Spot;
use crate::explain::refuse;
use crate::folder::files_below;
use crate::guard::{Locking, changeable, lock};
use crate::outcome::Outcome;
use crate::path::FilePath;
use crate::place::Located;
use crate::refusal::{Reason, Refusal};
use crate::request::Request;
use crate::root::Root;
use crate::stage::ChangeId;
use crate::turn::FileState;
use tollgate_base::error::{Fault, Result};
use tollgate_base::event::{Event, Mutation, MutationStatus};

/// Creates a folder and its missing parents. Does nothing if it exists.
pub(crate) fn create(request: &Request<'_>, path: &Path) -> Result<Outcome<FilePath>> {
    let root = request.root;
    if let Located::Root(path) = root.locate(path)? {
        return Ok(Outcome::Done(path));
    }
    let mut refusals = Vec::new();
    let Some(place) = changeable(root, path, Reason::Protected, &mut refusals)? else {
        return refuse(request, refusals).map(Outcome::Refused);
    };
    let mut folders = place.missing.clone();
    folders.push(place.relative.clone());
    make_folders(root, &folders)?;
    match root.folder().open_below(&place.relative) {
        Ok(_) => Ok(Outcome::Done(place.path)),
        Err(_) => Err(Fault::invalid(format!("`{}` exists and is not a folder", place.path))),
    }
}

/// Moves a folder to another path, which must be free.
pub(crate) fn move_to(request: &Request<'_>, path: &Path, to: &Path) -> Result<Outcome<FilePath>> {
    let root = request.root;
    let mut refusals = Vec::new();
    let from = changeable(root, path, Reason::Protected, &mut refusals)?;
    let to = changeable(root, to, Reason::Protected, &mut refusals)?;
    let (Some(from), Some(to)) = (from, to) else {
        return refuse(request, refusals).map(Outcome::Refused);
    };
    if to.relative.starts_with(&from.relative) {
        return Err(Fault::invalid(format!("`{}` cannot be moved into itself", from.path)));
    }
    let files = files_below(root, &from.relative)?;
    if files.iter().any(|file| root.is_protected(file)) {
        let refusal = Refusal::new(from.path, Reason::Protected);
        return refuse(request, vec![refusal]).map(Outcome::Refused);
    }
    // Waits for agents that are writing one of these files. Agents that come later find them missing.
    let mut paths: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    paths.extend([from.relative.as_path(), to.relative.as_path()]);
    let locks = match lock(request, &paths, None)? {
        Locking::Locked(locks) => locks,
        Locking::Busy { index, holder } => {
            let refusal = Refusal::new(root.canonical(paths[index])?, Reason::Busy { holder });
            return refuse(request, vec![refusal]).map(Outcome::Refused);
        }
    };
    // From now on, the next process completes or undoes what this one leaves unfinished.
    locks.mark()?;
    let id = ChangeId::new(root.now())?;
    let both = (from.relative.as_path(), to.relative.as_path());
    let journal = Journal::of_move(root, request.author(), &id, both, to.missing.clone())?;
    make_folders(root, &to.missing)?;
    let (source, target) = (from.spot(root.folder())?, to.spot(root.folder())?);
    if !source.rename_new(&target)? {
        for folder in to.missing.iter().rev() {
            remove_folder(root, folder)?;
        }
        journal.remove_for_good(root)?;
        locks.clear()?;
        return Err(Fault::invalid(format!("`{}` exists already", to.path)));
    }
    // Without these, a power failure could bring the old name back, or lose both.
    target.folder().flush(root.durability())?;
    source.folder().flush(root.durability())?;
    for file in &files {
        let Ok(rest) = file.strip_prefix(&from.relative) else { continue };
        let old = FilePath::trusted(root.path().join(file));
        let new = FilePath::trusted(to.path.as_path().join(rest));
        if let Some(sighting) = request.turn.get(&old)? {
            request.turn.update(&new, &mut |_| sighting)?;
            request.turn.wrote(&old, FileState::Absent)?;
        }
    }
    let moved = folder_moved(id.as_str(), request.tool, both, files.len());
    let event = Event::Mutation(Mutation::Folder(moved), MutationStatus::Applied);
    root.ledger().append(&[request.author().entry(root, event)], root.durability())?;
    // The move is final. If this fails, the next process finds the ledger line and deletes the journal.
    let _ = journal.remove().and_then(|()| locks.clear());
    Ok(Outcome::Done(to.path))
}

/// Creates these folders, outermost first.
fn make_folders(root: &Root, folders: &[PathBuf]) -> Result<()> {
    for relative in folders {
        let (Some(parent), Some(name)) = (relative.parent(), relative.file_name()) else { continue };
        let parent = root.folder().open_below(parent)?;
        if Spot::new(&parent, name).make_folder()? {
            // Without this, a power failure could delete a folder that was acknowledged, with all files in it.
            parent.flush(root.durability())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Expected;
    use crate::edit::Edit;
    use crate::folder::EntryKind;
    use crate::gate::Gate;
    use crate::part::Part;
    use crate::turn::Turn;
    use crate::workspace::{Options, Workspace};
    use std::ffi::OsString;

    fn world() -> (tempfile::TempDir, Gate, Turn) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("d/sub")).unwrap();
        std::fs::write(folder.path().join("d/sub/a"), "one").unwrap();
        std::os::unix::fs::symlink("/etc", folder.path().join("out")).unwrap();
        let gate = Gate::new(Workspace::open(folder.path(), Options::default()).unwrap());
        let turn = gate.begin_turn("blue".parse().unwrap()).unwrap();
        (folder, gate, turn)
    }

    fn done<T>(outcome: Result<Outcome<T>>) -> T {
        match outcome.unwrap() {
            Outcome::Done(done) => done,
            Outcome::Refused(refused) => panic!("{refused:?}"),
        }
    }

    #[test]
    fn a_listing_leaves_out_the_state_and_never_leaves_the_workspace() {
        let (_keep, gate, _turn) = world();
        let workspace = gate.workspace();
        let names: Vec<(OsString, EntryKind)> =
            done(workspace.list("")).entries.into_iter().map(|entry| (entry.name, entry.kind)).collect();
        assert_eq!(names, [("d".into(), EntryKind::Folder), ("out".into(), EntryKind::Link)]);
        assert!(matches!(workspace.list("out"), Ok(Outcome::Refused(_))));
        assert!(matches!(workspace.look_at("out/passwd"), Ok(Outcome::Refused(_))));
        assert_eq!(done(workspace.look_at("d/sub/a")).metadata.len(), 3);
        assert!(matches!(workspace.look_at("d/gone"), Err(Fault::Missing { .. })));
    }

    #[test]
    fn a_turn_still_knows_the_files_of_a_moved_folder() {
        let (keep, gate, turn) = world();
        done(gate.read(&turn, "d/sub/a", Part::Whole));
        std::fs::write(keep.path().join("d/sub/a"), "foreign").unwrap();
        done(gate.move_folder(&turn, "d", "x/y"));
        let refused = gate.write(&turn, "x/y/sub/a", "mine", Expected::Baseline).unwrap();
        assert!(matches!(refused, Outcome::Refused(_)), "the agent has not seen the foreign change");
        done(gate.create_folder(&turn, "d"));
        assert!(gate.move_folder(&turn, "d", "x/y").is_err(), "the new path is taken");
        assert!(gate.move_folder(&turn, "x", "x/y/z").is_err());
        assert!(matches!(gate.move_folder(&turn, ".tollgate", "t"), Ok(Outcome::Refused(_))));
    }

    #[test]
    fn a_preview_is_not_a_read() {
        let (keep, gate, turn) = world();
        done(gate.read(&turn, "d/sub/a", Part::Whole));
        std::fs::write(keep.path().join("d/sub/a"), "one two").unwrap();
        let preview = done(gate.preview("d/sub/a", &[Edit::once("one", "1")]));
        assert_eq!((preview.before.as_slice(), preview.after.as_slice()), (&b"one two"[..], &b"1 two"[..]));
        let refused = gate.write(&turn, "d/sub/a", "1", Expected::Baseline).unwrap();
        assert!(matches!(refused, Outcome::Refused(_)));
    }
}
