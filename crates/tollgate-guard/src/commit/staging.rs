//! What a change creates before it is made: a staged file with the new bytes, and the folders that its path lacks.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;

use super::journal::CommitJournal;
use super::plan::NewContent;
use crate::disk::{Folder, Found, Model, Ownership, Spot, Target, gone_is_none};
use crate::root::Root;
use crate::stage::{StageName, name_beside, unfinished_name};
use crate::stripe_lock::stripe;
use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};

/// A new file for the new bytes.
pub(super) struct Staged {
    /// In the stage, or beside the target.
    pub(super) name: OsString,
    pub(super) file: Target,
    /// Names a file that was created beside the target, until the journal of the commit does.
    pub(super) intent: Option<CommitJournal>,
}

impl Staged {
    /// Creates the file, still empty, for a change of `spot`. `model` is the file whose owner, mode and attributes it will
    /// have.
    pub(super) fn create(
        root: &Root,
        change: &StageName,
        spot: &Spot,
        model: Option<Model>,
        content: &NewContent,
    ) -> Result<Self> {
        // Private until it has the mode of its model. A new file gets the usual mode, less the umask.
        let mode = match (model, content) {
            (Some(_), _) => Mode::RUSR | Mode::WUSR,
            (None, NewContent::Program(_)) => Mode::from_raw_mode(0o777),
            (None, _) => Mode::from_raw_mode(0o666),
        };
        let path = root.target_path(&change.target)?;
        let staged_at = root.staged(unfinished_name(stripe(&path), &change.id));
        let staged = |spot: &Spot, file, intent| Ok(Self { name: spot.name().to_owned(), file, intent });
        let create = |spot: &Spot| match content {
            NewContent::Link(path) => spot.create_link(path),
            NewContent::Bytes(_) | NewContent::Program(_) | NewContent::Copy(_) => spot.create(mode),
        };
        let same_device = spot.folder().same_device(&root.stage);
        if same_device && (model.is_some() || !spot.folder().marks_new_files()?) {
            let file = create(&staged_at)?;
            return staged(&staged_at, file, None);
        }
        // No sweep looks beside the target, so the intent names the file until the journal does.
        let beside = spot.beside(name_beside(&change.id));
        let intent = CommitJournal::of_intent(root, change, Some(beside.name()), &[])?;
        let created = create(&beside).and_then(|file| match same_device {
            // A new file, which has the group or the ACL of its folder now.
            true => beside.rename(&staged_at).map(|()| file),
            false => Ok(file),
        });
        let file = match created {
            Ok(file) if !same_device => return staged(&beside, file, Some(intent)),
            Ok(file) => Ok(file),
            Err(fault) => beside.remove().and(Err(fault)),
        };
        intent.remove()?;
        staged(&staged_at, file?, None)
    }
}

/// Writes the new bytes.
pub(super) fn fill(
    root: &Root,
    staged: &mut Target,
    bytes: &[u8],
    replaces: Option<&Target>,
) -> Result<Ownership> {
    staged.write(bytes, 0)?;
    let ownership = match replaces {
        Some(target) => staged.take_after(target)?,
        None => Ownership::Kept,
    };
    staged.flush(root.durability())?;
    Ok(ownership)
}

/// Copies the bytes and the metadata of a file that a command has written. Returns the hash of the bytes.
pub(super) fn copy(root: &Root, staged: &mut Target, from: &Path) -> Result<Digest> {
    let Found::File(source) = root.spot_of_command(from)?.open()? else {
        return Err(Fault::no_file(from));
    };
    let (mut at, has_holes) = (0, source.has_holes());
    let digest = source.stream(|chunk| {
        // A disk image may be longer than the disk has room.
        if !(has_holes && chunk.iter().all(|&byte| byte == 0)) {
            staged.write(chunk, at)?;
        }
        at += chunk.len() as u64;
        Ok(())
    })?;
    if has_holes {
        staged.set_len(at)?;
    }
    staged.take_after(&source)?;
    staged.take_times(&source)?;
    staged.flush(root.durability())?;
    Ok(digest)
}

/// The folders that a commit creates.
#[derive(Default)]
pub(super) struct NewFolders {
    wanted: BTreeSet<PathBuf>,
    pub(super) made: Vec<PathBuf>,
    /// Names the folders until the commit is made or undone, so that a crash does not leave them behind.
    intent: Option<CommitJournal>,
}

impl NewFolders {
    /// `change` is one of the changes of the commit.
    pub(super) fn new(root: &Root, change: &StageName, wanted: BTreeSet<PathBuf>) -> Result<Self> {
        let intent = match wanted.is_empty() {
            true => None,
            false => Some(CommitJournal::of_intent(root, change, None, &wanted)?),
        };
        Ok(Self { wanted, made: Vec::new(), intent })
    }

    /// Creates those that do not exist. Outermost first: a set of paths is sorted that way.
    pub(super) fn make(&mut self, root: &Root) -> Result<()> {
        for path in &self.wanted {
            if root.spot(path)?.make_folder()? {
                self.made.push(path.clone());
            }
        }
        Ok(())
    }

    /// The commit was not made: deletes those that are empty.
    pub(super) fn remove(&mut self, root: &Root) -> Result<()> {
        remove_folders(root, &self.made)?;
        self.keep()
    }

    /// The commit was made: the folders stay.
    pub(super) fn keep(&mut self) -> Result<()> {
        self.intent.take().map_or(Ok(()), CommitJournal::remove)
    }
}

/// Creates these folders, outermost first, and adds each to `made`, unless another process was faster.
pub(crate) fn make_folders<'a>(
    root: &Root,
    folders: impl IntoIterator<Item = &'a PathBuf>,
    made: &mut Vec<(PathBuf, Folder)>,
) -> Result<()> {
    for path in folders {
        let spot = root.spot(path)?;
        if spot.make_folder()? {
            made.push((path.clone(), spot.folder().clone()));
        }
    }
    Ok(())
}

/// Deletes those of these folders that are empty, innermost first.
pub(crate) fn remove_folders<P: AsRef<Path>>(
    root: &Root,
    folders: impl IntoIterator<Item = P, IntoIter: DoubleEndedIterator>,
) -> Result<()> {
    for folder in folders.into_iter().rev() {
        if let Some(spot) = gone_is_none(root.spot(folder.as_ref()))? {
            spot.remove_empty_folder()?;
        }
    }
    Ok(())
}
