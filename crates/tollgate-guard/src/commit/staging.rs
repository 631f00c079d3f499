//! What a change creates before it is made: a staged file with the new bytes, and the folders that its path lacks.

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

pub(super) struct Staged {
    pub(super) spot: Spot,
    pub(super) file: Target,
    /// The file whose owner, mode and attributes it has. `None` if it will be a new file.
    pub(super) model: Option<Model>,
    /// It was visible at the path for a moment, so a program may have opened it there: it stays for the late-write check.
    /// Until then it may be used again or deleted.
    pub(super) exposed: bool,
    /// Names a file that was created beside the target, until the journal of the commit does.
    intent: Option<CommitJournal>,
}

impl Staged {
    /// Creates the file, still empty, for a change of `spot`.
    pub(super) fn create(
        root: &Root,
        change: &StageName,
        spot: &Spot,
        model: Option<Model>,
        content: &NewContent,
    ) -> Result<Self> {
        // Private until it has the mode of its model. A new file gets the usual mode, less the umask.
        let mode = if model.is_some() { Mode::RUSR | Mode::WUSR } else { Mode::from_raw_mode(0o666) };
        let path = root.target_path(&change.target)?;
        let staged_at = root.staged(unfinished_name(stripe(&path), &change.id));
        let staged = |spot, file, intent| Ok(Self { spot, file, model, exposed: false, intent });
        let create = |spot: &Spot| match content {
            NewContent::Link(path) => spot.create_link(path),
            NewContent::Bytes(_) | NewContent::Copy(_) => spot.create(mode),
        };
        let same_device = spot.folder().same_device(&root.stage);
        if same_device && (model.is_some() || !spot.folder().marks_new_files()?) {
            let file = create(&staged_at)?;
            return staged(staged_at, file, None);
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
            Ok(file) if !same_device => return staged(beside, file, Some(intent)),
            Ok(file) => Ok(file),
            Err(fault) => beside.remove().and(Err(fault)),
        };
        intent.remove()?;
        staged(staged_at, file?, None)
    }

    pub(super) fn fill(&mut self, root: &Root, bytes: &[u8], replaces: Option<&Target>) -> Result<Ownership> {
        self.file.write(bytes, 0)?;
        let ownership = match replaces {
            Some(target) => self.file.take_after(target)?,
            None => Ownership::Kept,
        };
        self.file.flush(root.durability())?;
        Ok(ownership)
    }

    /// Gets the bytes and the metadata of a file that a command has written. Returns the hash of the bytes.
    pub(super) fn copy(&mut self, root: &Root, from: &Path) -> Result<Digest> {
        let Found::File(source) = root.spot_of_command(from)?.open()? else {
            return Err(Fault::Missing { what: format!("`{}`", from.display()) });
        };
        let (mut at, has_holes) = (0, source.has_holes());
        let digest = source.stream(|chunk| {
            // A disk image may be longer than the disk has room.
            if !(has_holes && chunk.iter().all(|&byte| byte == 0)) {
                self.file.write(chunk, at)?;
            }
            at += chunk.len() as u64;
            Ok(())
        })?;
        if has_holes {
            self.file.set_len(at)?;
        }
        self.file.take_after(&source)?;
        self.file.take_times(&source)?;
        self.file.flush(root.durability())?;
        Ok(digest)
    }

    /// Closes the file, which stays where it is. Returns its intent.
    pub(super) fn close(self) -> Option<CommitJournal> {
        self.intent
    }

    /// Deletes the intent, because the journal of the commit names the file now.
    ///
    /// The deletion must be durable before the swap. If a power failure brought the intent back, healing would delete the
    /// file that it names, which by then is the replaced one.
    pub(super) fn forget_intent(&mut self, root: &Root) -> Result<()> {
        self.intent.take().map_or(Ok(()), |intent| intent.remove_for_good(root))
    }

    /// Deletes the file. Its name may be used again, so the intent must not come back either.
    pub(super) fn discard(mut self, root: &Root) -> Result<()> {
        self.spot.remove()?;
        self.forget_intent(root)
    }
}

/// The folders that one change has created.
#[derive(Default)]
pub(super) struct NewFolders {
    /// Each with the folder in which it was created.
    pub(super) made: Vec<(PathBuf, Folder)>,
    /// Names the folders until the change is made or undone, so that a crash does not leave them behind.
    intent: Option<CommitJournal>,
}

impl NewFolders {
    pub(super) fn make(&mut self, root: &Root, change: &StageName, missing: &[PathBuf]) -> Result<()> {
        if !missing.is_empty() && self.intent.is_none() {
            self.intent = Some(CommitJournal::of_intent(root, change, None, missing)?);
        }
        make_folders(root, missing, &mut self.made)
    }

    /// The change was not made: deletes those that are empty.
    pub(super) fn remove(&mut self, root: &Root) -> Result<()> {
        remove_folders(root, self.made.iter().map(|(path, _)| path))?;
        self.keep()
    }

    /// The change was made: the folders stay.
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
