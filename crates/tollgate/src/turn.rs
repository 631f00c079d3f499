//! A turn: what one agent has read, and what it may therefore overwrite.
//!
//! Invariants: the first sighting of a path never changes; a new turn knows nothing; an ended turn leaves nothing.
//! The rules are in [`Sighting`], which does no I/O. [`Turn`] keeps sightings in memory; [`crate::shared_turn`] keeps
//! the same sightings in a folder, for processes that live shorter than the turn.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::Result;
use crate::name::{Agent, TurnId};
use crate::path::FilePath;

/// What a file was at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileState {
    /// It was there and had these bytes.
    Present(Digest),
    /// There was no such file.
    Absent,
    /// It was there and could not be read: nothing is known about its bytes.
    Unreadable,
}

impl FileState {
    /// The hash, if there were bytes to hash.
    pub fn digest(self) -> Option<Digest> {
        match self {
            Self::Present(digest) => Some(digest),
            Self::Absent | Self::Unreadable => None,
        }
    }
}

/// How much of a file a read showed, or a write replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All of it: a whole read; an overwrite, a deletion, a move.
    Whole,
    /// Some of it: a range of lines; an edit from old text to new text.
    Part,
}

/// What the agent knew of one file: first, and last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    first: FileState,
    last: FileState,
    /// A newer state of which the agent, after a refusal, has seen a part: enough for edits, not for an overwrite.
    part: Option<FileState>,
    /// The last thing the agent heard of this file was a refusal.
    refused: bool,
}

impl Sighting {
    /// The file was seen for the first time in this turn.
    pub fn new(state: FileState) -> Self {
        Self { first: state, last: state, part: None, refused: false }
    }

    /// The first sighting. It never changes.
    pub fn initial(&self) -> FileState {
        self.first
    }

    /// What the disk must hold for a write of this extent.
    pub fn baseline(&self, write: Extent) -> FileState {
        match (write, self.part) {
            (Extent::Part, Some(part)) => part,
            _ => self.last,
        }
    }

    /// The agent read the file again.
    pub fn read(&mut self, state: FileState, shown: Extent) {
        match shown {
            Extent::Whole => self.knows(state),
            // Before a refusal the agent does not suspect that the rest has changed too, so a part moves nothing.
            Extent::Part if self.refused => self.part = Some(state),
            Extent::Part => {}
        }
    }

    /// The agent wrote the file itself.
    pub fn wrote(&mut self, state: FileState) {
        self.knows(state);
    }

    /// The agent was refused.
    pub fn refused(&mut self) {
        self.refused = true;
    }

    /// For writing it down: first, last, part, refused.
    pub(crate) fn parts(&self) -> (FileState, FileState, Option<FileState>, bool) {
        (self.first, self.last, self.part, self.refused)
    }

    /// What was written down.
    pub(crate) fn from_parts(
        first: FileState,
        last: FileState,
        part: Option<FileState>,
        refused: bool,
    ) -> Self {
        Self { first, last, part, refused }
    }

    fn knows(&mut self, state: FileState) {
        self.last = state;
        self.part = None;
        self.refused = false;
    }
}

/// Where the sightings of one turn are kept. Shared references throughout: one turn may serve several calls at once.
pub trait Sightings {
    /// The turn's id.
    fn id(&self) -> &TurnId;

    /// Whose turn it is.
    fn agent(&self) -> &Agent;

    /// What the turn knows of this file.
    fn get(&self, path: &FilePath) -> Result<Option<Sighting>>;

    /// Change what the turn knows of this file, as one step.
    fn update(&self, path: &FilePath, change: &mut dyn FnMut(Option<Sighting>) -> Sighting) -> Result<()>;

    /// What the agent last knew of this file in an earlier turn of the same session.
    fn known(&self, path: &FilePath) -> Result<Option<FileState>>;

    /// Keep bytes that the agent was shown, so that a later refusal can tell what changed. May decline.
    fn keep_text(&self, digest: Digest, bytes: &[u8]) -> Result<()>;

    /// Bytes that were kept.
    fn text(&self, digest: Digest) -> Result<Option<Arc<[u8]>>>;

    /// Record a read.
    fn observe(&self, path: &FilePath, state: FileState, shown: Extent) -> Result<()> {
        self.update(path, &mut |seen| match seen {
            None => Sighting::new(state),
            Some(mut sighting) => {
                sighting.read(state, shown);
                sighting
            }
        })
    }

    /// Record a refusal. Of a file that was never seen there is nothing to remember.
    fn refused(&self, path: &FilePath) -> Result<()> {
        let Some(seen) = self.get(path)? else { return Ok(()) };
        self.update(path, &mut |now| {
            let mut sighting = now.unwrap_or(seen);
            sighting.refused();
            sighting
        })
    }

    /// Record the agent's own write.
    fn wrote(&self, path: &FilePath, state: FileState) -> Result<()> {
        self.update(path, &mut |seen| match seen {
            None => Sighting::new(state),
            Some(mut sighting) => {
                sighting.wrote(state);
                sighting
            }
        })
    }
}

/// Bytes kept for diffs, per file: larger files get a refusal without a diff.
pub const TEXT_PER_FILE: usize = 256 * 1024;

/// Bytes kept for diffs, per turn: what a busy turn may cost in memory.
pub const TEXT_PER_TURN: usize = 64 * 1024 * 1024;

/// What an agent knew at the end of its turns, for the policy `unread = "known"`. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Session(Arc<Mutex<HashMap<FilePath, FileState>>>);

/// A turn kept in memory by the process that owns it.
#[derive(Debug)]
pub struct Turn {
    id: TurnId,
    agent: Agent,
    session: Session,
    memory: Mutex<Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    files: HashMap<FilePath, Sighting>,
    texts: HashMap<Digest, Arc<[u8]>>,
    text_bytes: usize,
}

impl Turn {
    /// Starts empty.
    pub fn begin(id: TurnId, agent: Agent) -> Self {
        Self::begin_in(id, agent, Session::default())
    }

    /// Starts empty; what it knows at its end stays with the session.
    pub fn begin_in(id: TurnId, agent: Agent, session: Session) -> Self {
        Self { id, agent, session, memory: Mutex::default() }
    }

    /// The hash of the file when this turn first saw it, by its canonical path. No file is touched.
    pub fn get_initial_hash(&self, path: &Path) -> Option<Digest> {
        self.memory().files.get(path).and_then(|sighting| sighting.initial().digest())
    }

    /// Every file the turn knows, in no order.
    pub fn files(&self) -> Vec<(FilePath, Sighting)> {
        self.memory().files.iter().map(|(path, sighting)| (path.clone(), *sighting)).collect()
    }

    /// The turn is over. Only what the session is to know stays.
    pub fn end(self) {
        let memory = self.memory.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut known = lock(&self.session.0);
        known.extend(memory.files.into_iter().map(|(path, sighting)| (path, sighting.last)));
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        lock(&self.memory)
    }
}

/// Every change under these locks is one assignment, so a panic elsewhere leaves nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sightings for Turn {
    fn id(&self) -> &TurnId {
        &self.id
    }

    fn agent(&self) -> &Agent {
        &self.agent
    }

    fn get(&self, path: &FilePath) -> Result<Option<Sighting>> {
        Ok(self.memory().files.get(path).copied())
    }

    fn update(&self, path: &FilePath, change: &mut dyn FnMut(Option<Sighting>) -> Sighting) -> Result<()> {
        let mut memory = self.memory();
        let sighting = change(memory.files.get(path).copied());
        memory.files.insert(path.clone(), sighting);
        Ok(())
    }

    fn known(&self, path: &FilePath) -> Result<Option<FileState>> {
        Ok(lock(&self.session.0).get(path).copied())
    }

    fn keep_text(&self, digest: Digest, bytes: &[u8]) -> Result<()> {
        let mut memory = self.memory();
        let room = bytes.len() <= TEXT_PER_FILE && memory.text_bytes + bytes.len() <= TEXT_PER_TURN;
        if room && !memory.texts.contains_key(&digest) {
            memory.text_bytes += bytes.len();
            memory.texts.insert(digest, bytes.into());
        }
        Ok(())
    }

    fn text(&self, digest: Digest) -> Result<Option<Arc<[u8]>>> {
        Ok(self.memory().texts.get(&digest).cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(text: &str) -> FileState {
        FileState::Present(Digest::of(text.as_bytes()))
    }

    /// What happened to a file, and what an overwrite and an edit must then find on disk.
    #[test]
    fn baseline_moves_by_these_rules_and_initial_never() {
        enum Did {
            Read(Extent, &'static str),
            Wrote(&'static str),
            Refused,
        }
        use Did::{Read, Refused, Wrote};
        use Extent::{Part, Whole};
        let table: &[(&[Did], &str, &str)] = &[
            (&[], "a", "a"),
            (&[Read(Whole, "b")], "b", "b"),
            (&[Read(Part, "b")], "a", "a"),
            (&[Wrote("b")], "b", "b"),
            (&[Refused], "a", "a"),
            (&[Refused, Read(Whole, "b")], "b", "b"),
            (&[Refused, Read(Part, "b")], "a", "b"),
            (&[Refused, Read(Part, "b"), Read(Part, "c")], "a", "c"),
            (&[Refused, Read(Part, "b"), Read(Whole, "c")], "c", "c"),
            (&[Refused, Read(Part, "b"), Wrote("c")], "c", "c"),
            (&[Refused, Read(Whole, "b"), Read(Part, "c")], "b", "b"),
        ];
        for (index, (story, overwrite, edit)) in table.iter().enumerate() {
            let mut sighting = Sighting::new(state("a"));
            for did in *story {
                match did {
                    Read(extent, text) => sighting.read(state(text), *extent),
                    Wrote(text) => sighting.wrote(state(text)),
                    Refused => sighting.refused(),
                }
            }
            assert_eq!(sighting.baseline(Whole), state(overwrite), "overwrite after story {index}");
            assert_eq!(sighting.baseline(Part), state(edit), "edit after story {index}");
            assert_eq!(sighting.initial(), state("a"), "initial after story {index}");
        }
    }

    #[test]
    fn a_new_turn_knows_nothing_and_the_session_knows_the_last() {
        let path = FilePath::trusted("/w/a".into());
        let session = Session::default();
        let turn = |id: &str| Turn::begin_in(id.parse().unwrap(), "a".parse().unwrap(), session.clone());
        let first = turn("t1");
        first.observe(&path, state("one"), Extent::Whole).unwrap();
        first.wrote(&path, state("two")).unwrap();
        assert_eq!(first.get_initial_hash(Path::new("/w/a")), state("one").digest());
        first.end();
        let second = turn("t2");
        assert!(second.get(&path).unwrap().is_none());
        assert_eq!(second.get_initial_hash(Path::new("/w/a")), None);
        assert_eq!(second.known(&path).unwrap(), Some(state("two")));
    }

    #[test]
    fn kept_texts_are_bounded() {
        let turn = Turn::begin("t".parse().unwrap(), "a".parse().unwrap());
        let large = vec![b'x'; TEXT_PER_FILE + 1];
        turn.keep_text(Digest::of(&large), &large).unwrap();
        assert!(turn.text(Digest::of(&large)).unwrap().is_none());
        for index in 0..TEXT_PER_TURN / TEXT_PER_FILE + 1 {
            let mut bytes = vec![b'x'; TEXT_PER_FILE];
            bytes[..8].copy_from_slice(&index.to_le_bytes());
            turn.keep_text(Digest::of(&bytes), &bytes).unwrap();
        }
        assert_eq!(turn.memory().text_bytes, TEXT_PER_TURN);
    }
}
