//! The bytes of a state that the ledger names by its hash: on disk, in the memory of a turn, or kept.

use crate::disk::Found;
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
        if let OnDisk { digest: Some(found), bytes: Some(bytes), .. } = on_disk(self.root, path)?
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

/// A file on disk, or the path in a symbolic link.
#[derive(Debug, Default)]
pub(super) struct OnDisk {
    /// `None` if there is no such file.
    pub(super) digest: Option<Digest>,
    /// The bytes, if they are few enough to be merged.
    pub(super) bytes: Option<Vec<u8>>,
    pub(super) is_link: bool,
    pub(super) is_executable: bool,
}

pub(super) fn on_disk(root: &Root, path: &FilePath) -> Result<OnDisk> {
    let Some(spot) = root.spot_anywhere(path)? else { return Ok(OnDisk::default()) };
    let Found::File(file) = spot.open_itself()? else { return Ok(OnDisk::default()) };
    let (is_link, is_executable) = (file.is_link(), file.as_model().mode() & 0o100 != 0);
    let (digest, bytes) = if file.len() <= TEXT_PER_FILE as u64 {
        let (bytes, digest) = file.read()?;
        (digest, Some(bytes))
    } else {
        (file.hash()?, None)
    };
    Ok(OnDisk { digest: Some(digest), bytes, is_link, is_executable })
}
