//! A staged file: new bytes, written to a file of their own before they take their place.

use rustix::fs::Mode;

use super::journal::{Intent, Journal};
use crate::disk::{Model, Ownership, Spot, Target};
use crate::root::Root;
use crate::stage::{ChangeId, unfinished_name};
use crate::stripe_lock::stripe;
use tollgate_base::error::Result;

/// A file with new bytes.
pub(super) struct Staged {
    pub(super) spot: Spot,
    pub(super) file: Target,
    /// The file whose owner, mode and attributes it has. `None` if it will be a new file.
    pub(super) model: Option<Model>,
    pub(super) ownership: Ownership,
    pub(super) exposure: Exposure,
    /// Names a file that was created beside the target, until the journal of the commit does.
    intent: Option<Journal>,
}

/// Whether other programs may have seen a staged file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exposure {
    /// They have not, so it may be used again or deleted.
    Hidden,
    /// It was visible at the path for a moment, so a program may have opened it there. It stays for the late-write check.
    Exposed,
}

/// The name of a staged or deleted file that is not in the stage but beside its target, because the target is on another
/// file system than the state.
pub(super) fn name_beside(id: &ChangeId) -> String {
    format!(".tollgate-{}", id.as_str())
}

/// Whether a file has such a name.
pub(super) fn is_beside(spot: &Spot) -> bool {
    spot.name().as_encoded_bytes().starts_with(b".tollgate-")
}

impl Staged {
    /// Creates the file, still empty, for a change of `spot`.
    pub(super) fn create(root: &Root, change: Intent<'_>, spot: &Spot, model: Option<Model>) -> Result<Self> {
        // Private until it has the mode of its model. A new file gets the usual mode, less the umask.
        let mode = if model.is_some() { Mode::RUSR | Mode::WUSR } else { Mode::from_raw_mode(0o666) };
        let beside = spot.beside(name_beside(change.id));
        let (spot, file, intent) = if !spot.folder().same_device(root.stage()) {
            // No sweep looks beside the target, so the intent names the file until the journal does.
            let intent = Journal::of_file(root, change, beside.name())?;
            let file = beside.create(mode)?;
            (beside, file, Some(intent))
        } else {
            let staged_at = root.staged(unfinished_name(stripe(change.path), change.id));
            let file = if model.is_none() && spot.folder().marks_new_files()? {
                create_and_move(root, change, &beside, &staged_at, mode)?
            } else {
                staged_at.create(mode)?
            };
            (staged_at, file, None)
        };
        Ok(Self { spot, file, model, ownership: Ownership::Kept, exposure: Exposure::Hidden, intent })
    }

    /// Writes the bytes, with the owner, mode and attributes of the file that they replace.
    pub(super) fn fill(&mut self, root: &Root, bytes: &[u8], replaces: Option<&Target>) -> Result<()> {
        self.file.write(bytes)?;
        if let Some(target) = replaces {
            self.ownership = self.file.take_after(target)?;
        }
        self.file.flush(root.durability())
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

/// Creates a new file in the folder of its target, because it inherits the folder's group or ACL, and moves it to the stage.
fn create_and_move(
    root: &Root,
    change: Intent<'_>,
    created_at: &Spot,
    staged_at: &Spot,
    mode: Mode,
) -> Result<Target> {
    let intent = Journal::of_file(root, change, created_at.name())?;
    let created = created_at.create(mode).and_then(|file| created_at.rename(staged_at).map(|()| file));
    if created.is_err() {
        created_at.remove()?;
    }
    intent.remove()?;
    created
}
