//! The turn of an agent, as a command sees it that the agent's hook lets run through `tollgate run`.
//!
//! The run must know what the agent has seen. But the turn must not learn from it directly: a command reads many files
//! that the agent is never shown, and in a sandbox the folder of the turn may be read-only. So what the run learns stays in
//! memory, and the hook after the tool takes it from the record.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tollgate::digest::Digest;
use tollgate::error::Fault;
use tollgate::name::{Agent, TurnId};
use tollgate::path::FilePath;
use tollgate::shared_turn::{SharedTurn, SharedTurns};
use tollgate::turn::{Known, Sighting, SightingChange, Stamp, Turn, TurnState};

/// A turn that stays as it is.
pub(crate) struct RunTurn {
    turn: SharedTurn,
    learned: Turn,
}

impl RunTurn {
    /// The turn of this id in this folder of turns.
    pub(crate) fn open(folder: PathBuf, id: &TurnId) -> Result<Self, Fault> {
        let turn = SharedTurns::new(folder)?.open(id)?;
        let learned = Turn::begin(id.clone(), turn.agent().clone());
        Ok(Self { turn, learned })
    }
}

impl TurnState for RunTurn {
    fn id(&self) -> &TurnId {
        self.turn.id()
    }

    fn agent(&self) -> &Agent {
        self.turn.agent()
    }

    fn get(&self, path: &FilePath) -> Result<Option<Sighting>, Fault> {
        match self.learned.get(path)? {
            Some(sighting) => Ok(Some(sighting)),
            None => self.turn.get(path),
        }
    }

    fn update(&self, path: &FilePath, change: &mut SightingChange<'_>) -> Result<(), Fault> {
        let before = self.turn.get(path)?;
        self.learned.update(path, &mut |learned| change(learned.or(before)))
    }

    fn led_to(&self, name: &Path) -> Result<Option<FilePath>, Fault> {
        match self.learned.led_to(name)? {
            Some(path) => Ok(Some(path)),
            None => self.turn.led_to(name),
        }
    }

    fn set_lead(&self, name: &Path, path: &FilePath) -> Result<(), Fault> {
        self.learned.set_lead(name, path)
    }

    fn names(&self) -> Result<Vec<PathBuf>, Fault> {
        let mut names = self.turn.names()?;
        names.extend(self.learned.names()?);
        Ok(names)
    }

    fn session(&self) -> &dyn Known {
        self.turn.session()
    }

    fn stamped(&self, path: &FilePath, stamp: &Stamp) -> Result<Option<Digest>, Fault> {
        match self.learned.stamped(path, stamp)? {
            Some(digest) => Ok(Some(digest)),
            None => self.turn.stamped(path, stamp),
        }
    }

    fn keep_stamp(&self, path: &FilePath, stamp: &Stamp, digest: Digest) -> Result<(), Fault> {
        self.learned.keep_stamp(path, stamp, digest)
    }

    fn keep_text(&self, digest: Digest, bytes: &[u8]) -> Result<(), Fault> {
        self.learned.keep_text(digest, bytes)
    }

    fn text(&self, digest: Digest) -> Result<Option<Arc<[u8]>>, Fault> {
        match self.learned.text(digest)? {
            Some(text) => Ok(Some(text)),
            None => self.turn.text(digest),
        }
    }
}
