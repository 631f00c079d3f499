//! The bytes of a state that the ledger names by its hash: on disk, in recovery, or in the memory of a turn.

use std::cell::OnceCell;

use super::fold::Side;
use super::history::Step;
use crate::disk::Found;
use crate::path::FilePath;
use crate::recovery::{self, RecoveryEntry};
use crate::root::Root;
use crate::turn::{TEXT_PER_FILE, TurnState};
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;

/// Where to look for texts.
pub(super) struct Texts<'a> {
    pub(super) root: &'a Root,
    /// The agent's turn first, then others: who changes a file has usually read it.
    pub(super) turns: &'a [&'a dyn TurnState],
    kept: OnceCell<Vec<RecoveryEntry>>,
}

impl<'a> Texts<'a> {
    pub(super) fn new(root: &'a Root, turns: &'a [&'a dyn TurnState]) -> Self {
        Self { root, turns, kept: OnceCell::new() }
    }

    /// The bytes with this hash, if they are still somewhere.
    pub(super) fn find(
        &self,
        path: &FilePath,
        step: &Step,
        side: Side,
        digest: Digest,
    ) -> Result<Option<Vec<u8>>> {
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
        self.in_recovery(step, side, digest)
    }

    fn in_recovery(&self, step: &Step, side: Side, digest: Digest) -> Result<Option<Vec<u8>>> {
        let kept = match self.kept.get() {
            Some(kept) => kept,
            None => {
                let listed = recovery::list(self.root)?;
                self.kept.get_or_init(|| listed)
            }
        };
        let is_it = |entry: &&RecoveryEntry| {
            let is_small = entry.size <= TEXT_PER_FILE as u64;
            is_small && (entry.sha256 == Some(digest) || side == Side::Before && entry.id == step.id)
        };
        for entry in kept.iter().filter(is_it) {
            if let Some((_, bytes)) = recovery::read_entry(self.root, entry.clone())?
                && Digest::of(&bytes) == digest
            {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
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
