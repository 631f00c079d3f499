//! Folders: listing them, looking at what is in them, creating and moving them.
//!
//! A folder has no bytes to lose, so it is not compared with a baseline. But the border of the workspace holds: every path is
//! resolved first, and then opened below the root with links forbidden. When a folder moves, the turn still knows the files
//! in it. Other agents that knew these files find them missing.

use std::ffi::OsString;
use std::fs::Metadata;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use crate::commit::{CommitJournal, folder_moved, make_folders, remove_folders};
use crate::disk::gone_is_none;
use crate::explain::refuse;
use crate::guard::{changeable, lock};
use crate::lost_claim::fenced;
use crate::open_turn;
use crate::other_tree;
use crate::path::FilePath;
use crate::place::{LastLink, Located};
use crate::refusal::{Outcome, Reason, Refusal};
use crate::request::Request;
use crate::root::Root;
use crate::stage::ChangeId;
use crate::state_folder::STATE_FOLDER;
use crate::turn::FileState;
use tollgate_base::error::{At, Fault, MissingKind, Result};
use tollgate_base::event::{Event, Mutation, MutationStatus};

/// What kind of thing a name in a folder is. Links are not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A FIFO, a socket, a device.
    Other,
}

/// A name in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderEntry {
    /// The name.
    pub name: OsString,
    /// What it is.
    pub kind: EntryKind,
}

/// The content of a folder, sorted by name. The state of tollgate itself is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The folder.
    pub path: FilePath,
    /// The names in it.
    pub entries: Vec<FolderEntry>,
}

pub(crate) fn list(root: &Root, path: &Path) -> Result<Outcome<Listing>> {
    let (path, below) = match root.locate(path, LastLink::Follow)? {
        Located::Inside(place) => (place.way.path, place.relative),
        Located::Root(path) => (path, PathBuf::new()),
        Located::Outside(path) => return Ok(Outcome::refused(path, Reason::Outside)),
    };
    let is_state = |name: &OsString| name == STATE_FOLDER && below.as_os_str().is_empty();
    let entry = |(name, kind)| {
        let kind = match kind {
            FileType::RegularFile => EntryKind::File,
            FileType::Directory => EntryKind::Folder,
            FileType::Symlink => EntryKind::Link,
            _ => EntryKind::Other,
        };
        FolderEntry { name, kind }
    };
    let found = root.folder.open_below(&below)?.entries()?.into_iter();
    let mut entries: Vec<FolderEntry> = found.filter(|(name, _)| !is_state(name)).map(entry).collect();
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Outcome::Done(Listing { path, entries }))
}

/// The metadata of a file or folder. Follows a link that stays in the workspace.
pub(crate) fn look_at(root: &Root, path: &Path) -> Result<Outcome<Metadata>> {
    let place = match root.locate(path, LastLink::Follow)? {
        Located::Inside(place) => place,
        Located::Root(path) => return std::fs::metadata(&path).at("look at", &path).map(Outcome::Done),
        Located::Outside(path) => return Ok(Outcome::refused(path, Reason::Outside)),
    };
    let found = match place.missing.is_empty() {
        true => gone_is_none(root.spot(&place.relative)?.metadata())?,
        false => None,
    };
    found.map(Outcome::Done).ok_or_else(|| Fault::missing(MissingKind::Path, format!("`{}`", place.path())))
}

/// Creates a folder and its missing parents. Does nothing if it exists.
pub(crate) fn create(request: &Request<'_>, path: &Path) -> Result<Outcome<FilePath>> {
    let root = request.root;
    if let Located::Root(path) = root.locate(path, LastLink::Follow)? {
        return Ok(Outcome::Done(path));
    }
    let mut refusals = Vec::new();
    let Some(place) = changeable(root, path, LastLink::Follow, Reason::Protected, &mut refusals)? else {
        return refuse(request, refusals);
    };
    if let Some(refusal) = fenced(request, place.path())?.or(other_tree::refusal(request, place.path())?) {
        return refuse(request, vec![refusal]);
    }
    make_durable_folders(root, place.missing.iter().chain([&place.relative]))?;
    match root.folder.open_below(&place.relative) {
        Ok(_) => Ok(Outcome::Done(place.way.path)),
        Err(_) => Err(Fault::invalid(format!("`{}` exists and is not a folder", place.path()))),
    }
}

/// Moves a folder to another path, which must be free. The turn still knows the files in it.
pub(crate) fn move_to(request: &Request<'_>, path: &Path, to: &Path) -> Result<Outcome<FilePath>> {
    let Request { root, turn, .. } = *request;
    let mut refusals = Vec::new();
    let from = changeable(root, path, LastLink::Follow, Reason::Protected, &mut refusals)?;
    let to = changeable(root, to, LastLink::Follow, Reason::Protected, &mut refusals)?;
    let (Some(from), Some(to)) = (from, to) else { return refuse(request, refusals) };
    for end in [&from, &to] {
        refusals.extend(other_tree::refusal(request, end.path())?);
    }
    if !refusals.is_empty() {
        return refuse(request, refusals);
    }
    if to.relative.starts_with(&from.relative) {
        return Err(Fault::invalid(format!("`{}` cannot be moved into itself", from.path())));
    }
    let files = root.files_below(&from.relative)?;
    let is_protected = |file: &Path| root.protects(file, &root.path().join(file));
    let new_name = |file: &PathBuf| Some(to.relative.join(file.strip_prefix(&from.relative).ok()?));
    if files.iter().any(|file| is_protected(file) || new_name(file).is_some_and(|new| is_protected(&new)))
        || !root.protected_within(from.path()).is_empty()
    {
        return refuse(request, vec![Refusal::new(from.way.path, Reason::Protected)]);
    }
    // Waits for agents that are writing one of these files. Agents that come later find them missing.
    let mut paths: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    paths.extend([from.relative.as_path(), to.relative.as_path()]);
    let locks = match lock(request, &paths, None)? {
        Ok(locks) => locks,
        Err(refusal) => return refuse(request, vec![refusal]),
    };
    // From now on, the next process completes or undoes what this one leaves unfinished.
    locks.mark()?;
    let id = ChangeId::new(root.now())?;
    let both = (from.relative.as_path(), to.relative.as_path());
    let journal = CommitJournal::of_move(request, &id, both, &to.missing)?;
    make_durable_folders(root, &to.missing)?;
    let (source, target) = (root.spot(&from.relative)?, root.spot(&to.relative)?);
    if !source.rename_new(&target)? {
        remove_folders(root, &to.missing)?;
        journal.remove_for_good(root)?;
        locks.clear()?;
        return Err(Fault::invalid(format!("`{}` exists already", to.path())));
    }
    // Without these, a power failure could bring the old name back, or lose both.
    target.folder().flush(root.durability())?;
    source.folder().flush(root.durability())?;
    turn.note_change()?;
    open_turn::changed(root, turn.id(), &[(to.path(), FileState::Absent, FileState::Absent)]);
    for file in &files {
        let Ok(rest) = file.strip_prefix(&from.relative) else { continue };
        let old = FilePath::trusted(root.path().join(file));
        let new = FilePath::trusted(to.path().as_path().join(rest));
        if let Some(sighting) = turn.get(&old)? {
            turn.update(&new, &mut |_| Some(sighting))?;
            turn.wrote(&old, FileState::Absent)?;
        }
    }
    let moved = folder_moved(id.as_str(), request.tool, both, files.len());
    let event = Event::Mutation(Mutation::Folder(moved), MutationStatus::Applied);
    root.record(Some(turn.agent()), Some(turn.id()), event)?;
    // The move is final. If this fails, the next process finds the ledger line and deletes the journal.
    let _ = journal.remove().and_then(|()| locks.clear());
    Ok(Outcome::Done(to.way.path))
}

/// Creates these folders, outermost first.
fn make_durable_folders<'a>(root: &Root, folders: impl IntoIterator<Item = &'a PathBuf>) -> Result<()> {
    let mut made = Vec::new();
    make_folders(root, folders, &mut made)?;
    // Without this, a power failure could delete a folder that was acknowledged, with all files in it.
    made.iter().try_for_each(|(_, parent)| parent.flush(root.durability()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Expected;
    use crate::edit::Edit;
    use crate::gate::Gate;
    use crate::part::Part;
    use crate::turn::Turn;
    use crate::workspace::{Options, Workspace};

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
        assert_eq!(done(workspace.look_at("d/sub/a")).len(), 3);
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
