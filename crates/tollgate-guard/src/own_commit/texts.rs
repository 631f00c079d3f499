//! The bytes of a state that the ledger names by its hash: on disk, in the memory of a turn, or kept.

use crate::on_disk::OnDisk;
use crate::path::FilePath;
use crate::recovery;
use crate::root::Root;
use crate::turn::{TEXT_PER_FILE, TurnState};
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;

/// Where to look for texts.
pub(super) struct Texts<'a> {
    pub(super) root: &'a Root,
    /// The agent's turn first, then others: who changes a file has usually read it.
    pub(super) turns: &'a [&'a dyn TurnState],
}

impl Texts<'_> {
    /// The bytes with this hash, if they are still somewhere.
    pub(super) fn find(&self, path: &FilePath, digest: Digest) -> Result<Option<Vec<u8>>> {
        if let Some(OnDisk { digest: found, bytes: Some(bytes), .. }) = on_disk(self.root, path)?
            && found == digest
        {
            return Ok(Some(bytes));
        }
        for turn in self.turns {
            // A turn that has just ended has no texts.
            if let Ok(Some(text)) = turn.text(digest) {
                return Ok(Some(text.to_vec()));
            }
        }
        Ok(recovery::find(self.root, digest)?.bytes().filter(|bytes| bytes.len() <= TEXT_PER_FILE))
    }
}

/// The file at a path, with its bytes if they are few enough to be merged.
pub(super) fn on_disk(root: &Root, path: &FilePath) -> Result<Option<OnDisk>> {
    crate::on_disk::on_disk(root, path, TEXT_PER_FILE as u64)
}
