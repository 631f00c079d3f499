//! A look at a file: what it is at one moment.

use std::time::Duration;

use crate::content;
use crate::disk::{Found, Quiet, Spot};
use crate::path::FilePath;
use crate::root::Root;
use crate::turn::{FileState, TEXT_PER_FILE, TurnState};
use tollgate_base::error::Result;
use tollgate_base::lock::Pauses;
use tollgate_base::settings::Durability;

/// How long a reader waits while a file is being written, before it takes the bytes that are there.
pub(crate) const READ_WAIT: Duration = Duration::from_millis(50);

/// A file at one moment.
#[derive(Debug)]
pub struct Look {
    /// What it is.
    pub state: FileState,
    /// Its bytes, if they are few enough to be kept for diffs.
    pub text: Option<Vec<u8>>,
    /// `Busy`: another process was writing it the whole time.
    pub(crate) quiet: Quiet,
    /// Who may read it.
    pub(crate) mode: u32,
    /// When its metadata last changed, by the clock of the file system, in nanoseconds since 1970.
    pub(crate) changed: i128,
}

impl Look {
    /// Looks at a file. Waits a moment if a program is writing it.
    pub(crate) fn at(root: &Root, path: &FilePath) -> Result<Self> {
        Self::within(root, path, READ_WAIT)
    }

    /// Waits at most this long for another process to stop writing it.
    pub(crate) fn within(root: &Root, path: &FilePath, wait: Duration) -> Result<Self> {
        let spot = root.spot_anywhere(path)?;
        let (found, quiet) = spot.map_or(Ok((Found::Nothing, Quiet::Held)), |spot| spot.steady(wait))?;
        let mut look = Self { state: FileState::Unreadable, text: None, quiet, mode: 0, changed: i128::MAX };
        match found {
            Found::File(file) => {
                look.changed = file.changed();
                look.mode = file.as_model().mode();
                look.state = if file.len() <= TEXT_PER_FILE as u64 {
                    let (bytes, digest) = file.read()?;
                    look.text = Some(bytes);
                    FileState::Present(digest)
                } else {
                    FileState::Present(file.hash()?)
                };
            }
            Found::Nothing => look.state = FileState::Absent,
            Found::Unreadable | Found::NotAFile => {}
        }
        Ok(look)
    }

    /// Keeps the bytes of a file in the workspace, because an agent's own tool overwrites or has written it. Nothing else keeps them:
    /// only tollgate moves a file away before it replaces it.
    pub(crate) fn keep(&self, root: &Root, path: &FilePath) {
        if let Some(text) = &self.text
            && path.as_path().starts_with(root.path())
        {
            // The tool may run without it.
            let _ = content::put(root, text, Some(self.mode), Durability::Fast);
        }
    }

    /// Keeps the bytes in the turn, if that is possible. Without them, a later refusal has no diff.
    pub(crate) fn keep_text(&self, turn: &dyn TurnState) {
        if let (Some(digest), Some(text)) = (self.state.digest(), &self.text) {
            let _ = turn.keep_text(digest, text);
        }
    }
}

/// Opens a file once nobody is writing it. Some editors move the old file away before they write the new one, so a file that
/// the turn has seen may be missing for a moment.
pub(crate) fn steady(spot: &Spot, seen: bool) -> Result<(Found, Quiet)> {
    let mut pauses = Pauses::lasting(READ_WAIT);
    loop {
        match spot.steady(READ_WAIT)? {
            (Found::Nothing, _) if seen && pauses.pause() => {}
            found => return Ok(found),
        }
    }
}
