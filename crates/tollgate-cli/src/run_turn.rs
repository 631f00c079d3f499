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

use crate::session_turns::{WorkspaceTurn, key_of_turn, put_own, turns_of};

/// A turn that stays as it is.
pub(crate) struct RunTurn {
    /// What the agent knows, in the workspace of the run and in those inside it and around it, the inner ones first.
    turns: Vec<WorkspaceTurn>,
    /// The place of the turn in that list.
    own: usize,
    learned: Turn,
}

impl RunTurn {
    /// The turn of this id in this folder of turns, for a run in this workspace. `places` are the folders that hold the turns of all
    /// workspaces.
    pub(crate) fn open(
        root: &Path,
        folder: PathBuf,
        id: &TurnId,
        mut places: Vec<PathBuf>,
    ) -> Result<Self, Fault> {
        let turn = SharedTurns::new(folder.clone())?.open(id)?;
        let learned = Turn::begin(id.clone(), turn.agent().clone());
        places.extend(folder.parent().map(Path::to_owned));
        places.sort();
        places.dedup();
        let mut turns = key_of_turn(&folder, id).map_or(Vec::new(), |key| turns_of(&key, &places));
        turns.retain(|found| found.root.starts_with(root) || root.starts_with(&found.root));
        let own = put_own(&mut turns, WorkspaceTurn { root: root.to_owned(), turn });
        Ok(Self { turns, own, learned })
    }

    fn turn(&self) -> &SharedTurn {
        &self.turns[self.own].turn
    }

    /// What the agent knew of a file before the run. The nearest workspace counts first, because it judges changes of the file. A
    /// file that is in none of them is judged by the workspace of the run.
    fn before(&self, path: &FilePath) -> Result<Option<Sighting>, Fault> {
        let is_judge = |(at, found): &(usize, &WorkspaceTurn)| {
            *at == self.own || path.as_path().starts_with(&found.root)
        };
        first(self.turns.iter().enumerate().filter(is_judge).map(|(_, found)| &found.turn), |turn| {
            turn.get(path)
        })
    }

    fn first<T>(&self, look: impl Fn(&SharedTurn) -> Result<Option<T>, Fault>) -> Result<Option<T>, Fault> {
        first(self.turns.iter().map(|found| &found.turn), look)
    }
}

/// The first answer.
fn first<'t, T>(
    turns: impl Iterator<Item = &'t SharedTurn>,
    look: impl Fn(&SharedTurn) -> Result<Option<T>, Fault>,
) -> Result<Option<T>, Fault> {
    for turn in turns {
        if let Some(found) = look(turn)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

impl TurnState for RunTurn {
    fn id(&self) -> &TurnId {
        self.turn().id()
    }

    fn agent(&self) -> &Agent {
        self.turn().agent()
    }

    fn get(&self, path: &FilePath) -> Result<Option<Sighting>, Fault> {
        match self.learned.get(path)? {
            Some(sighting) => Ok(Some(sighting)),
            None => self.before(path),
        }
    }

    fn update(&self, path: &FilePath, change: &mut SightingChange<'_>) -> Result<(), Fault> {
        if path.as_path().iter().any(|part| part == ".git") {
            // The record does not say what a command did with git. If the folder of the turn is read-only, git's is, too.
            let _ = self.turn().update(path, change);
        }
        let before = self.before(path)?;
        self.learned.update(path, &mut |learned| change(learned.or(before)))
    }

    fn led_to(&self, name: &Path) -> Result<Option<FilePath>, Fault> {
        match self.learned.led_to(name)? {
            Some(path) => Ok(Some(path)),
            None => self.first(|turn| turn.led_to(name)),
        }
    }

    fn set_lead(&self, name: &Path, path: &FilePath) -> Result<(), Fault> {
        self.learned.set_lead(name, path)
    }

    fn names(&self) -> Result<Vec<PathBuf>, Fault> {
        let mut names = self.learned.names()?;
        for found in &self.turns {
            names.extend(found.turn.names()?);
        }
        Ok(names)
    }

    fn session(&self) -> &dyn Known {
        self.turn().session()
    }

    fn stamped(&self, path: &FilePath, stamp: &Stamp) -> Result<Option<Digest>, Fault> {
        match self.learned.stamped(path, stamp)? {
            Some(digest) => Ok(Some(digest)),
            None => self.turn().stamped(path, stamp),
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
            None => self.first(|turn| turn.text(digest)),
        }
    }
}
