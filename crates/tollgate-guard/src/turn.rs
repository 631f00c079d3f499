//! A turn: what one agent has read, and what it may therefore overwrite.
//!
//! Invariants: the hash of the first read of a path never changes; a new turn knows nothing; an ended turn leaves nothing
//! but what its session knows.
//! The rules are in [`Sighting`], which does no I/O. [`Turn`] keeps sightings in memory. [`crate::shared_turn`] keeps
//! them in a folder, for processes that end before the turn does.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use jiff::Timestamp;

pub use crate::file_state::{FileState, Stamp};
use crate::path::FilePath;
use crate::session::lock;
pub use crate::session::{Known, Session};
pub use crate::sighting::{Extent, Sighting};
pub use crate::turn_notes::{Asked, Head, READS_PER_TURN, TurnRead, TurnStart};
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_base::name::{Agent, TurnId};

/// From what a turn knows of a file to what it knows next. `None`: nothing, as before.
pub type SightingChange<'a> = dyn FnMut(Option<Sighting>) -> Option<Sighting> + 'a;

/// What a turn remembers. All methods take `&self`, because one turn may serve several calls at the same time.
pub trait TurnState {
    /// The turn's id.
    fn id(&self) -> &TurnId;

    /// The agent whose turn it is.
    fn agent(&self) -> &Agent;

    /// What the turn knows of this file.
    fn get(&self, path: &FilePath) -> Result<Option<Sighting>>;

    /// Changes what the turn knows of this file, atomically.
    fn update(&self, path: &FilePath, change: &mut SightingChange<'_>) -> Result<()>;

    /// The file to which this name led when the agent last used it: a path through a symbolic link.
    fn led_to(&self, name: &Path) -> Result<Option<FilePath>>;

    /// Remembers where a name leads.
    fn set_lead(&self, name: &Path, path: &FilePath) -> Result<()>;

    /// All names under which the turn knows files: their paths, and the paths through symbolic links that led to them.
    fn names(&self) -> Result<Vec<PathBuf>>;

    /// What the agent's session knows, from all its turns.
    fn session(&self) -> &dyn Known;

    /// The hash that a file had when it was as this stamp says.
    fn stamped(&self, path: &FilePath, stamp: &Stamp) -> Result<Option<Digest>>;

    /// Keeps the hash of a file that was as this stamp says.
    fn keep_stamp(&self, path: &FilePath, stamp: &Stamp, digest: Digest) -> Result<()>;

    /// Notes when a command of the agent ran of which nobody saw what it did.
    fn ran(&self, _from: Timestamp, _to: Timestamp) -> Result<()> {
        Ok(())
    }

    /// Whether such a command ran at this time, in nanoseconds since 1970, and none of another agent. What was saved then is probably the
    /// agent's own work.
    fn ran_alone_at(&self, _time: i128) -> Result<bool> {
        Ok(false)
    }

    /// Keeps bytes that the agent was shown, so that a later refusal can show what changed. May keep nothing.
    fn keep_text(&self, digest: Digest, bytes: &[u8]) -> Result<()>;

    /// The bytes that were kept for this digest.
    fn text(&self, digest: Digest) -> Result<Option<Arc<[u8]>>>;

    /// Where a turn in the memory of one process keeps the lock by which others see that it goes on.
    fn alive(&self) -> Option<&OnceLock<File>> {
        None
    }

    /// Notes how the turn began, for its record.
    fn began(&self, _start: &TurnStart) -> Result<()> {
        Ok(())
    }

    /// How the turn began, if it was noted.
    fn start(&self) -> Result<Option<TurnStart>> {
        Ok(None)
    }

    /// Notes a read for the turn's record.
    fn note_read(&self, _read: &TurnRead) -> Result<()> {
        Ok(())
    }

    /// The reads that were noted, in their order.
    fn reads(&self) -> Result<Vec<TurnRead>> {
        Ok(Vec::new())
    }

    /// Notes that the agent has changed something, for the turn's record.
    fn note_change(&self) -> Result<()> {
        Ok(())
    }

    /// Whether that was noted.
    fn has_changed(&self) -> Result<bool> {
        Ok(false)
    }

    /// Records that the agent was shown a file at this time. Notes it for the turn's record if it was new to the turn.
    fn was_shown(&self, path: &FilePath, state: FileState, shown: Extent, now: Timestamp) -> Result<()> {
        let mut is_new = false;
        self.update(path, &mut |seen| {
            is_new = !seen.is_some_and(|seen| seen.covers(state, shown));
            Some(Sighting::after_read(seen, state, shown))
        })?;
        match state {
            FileState::Present(hash) if is_new => {
                self.note_read(&TurnRead { path: path.as_path().to_owned(), hash, shown, time: now })
            }
            _ => Ok(()),
        }
    }

    /// Records what the agent knows of a file, as if it had read it.
    fn observe(&self, path: &FilePath, state: FileState, shown: Extent) -> Result<()> {
        self.update(path, &mut |seen| Some(Sighting::after_read(seen, state, shown)))
    }

    /// Whether the agent has seen all of this state of a file or made it, in this turn or an earlier one of its session.
    fn has_seen(&self, path: &FilePath, state: FileState) -> Result<bool> {
        let is_seen = |sighting: Option<Sighting>| sighting.is_some_and(|sighting| sighting.is_all_of(state));
        Ok(is_seen(self.get(path)?) || is_seen(self.session().get(path)?))
    }

    /// Records a refusal. Does nothing for a file that the agent has never seen.
    fn refused(&self, path: &FilePath) -> Result<()> {
        self.update(path, &mut |seen| seen.map(Sighting::refused))
    }

    /// Records the agent's own write.
    fn wrote(&self, path: &FilePath, state: FileState) -> Result<()> {
        self.note_change()?;
        self.update(path, &mut |seen| Some(seen.map_or(Sighting::unread(state), |seen| seen.wrote(state))))
    }

    /// Records that the agent made a symbolic link here, which leads to this file. `state` is that of the link itself.
    fn made_link(&self, link: &FilePath, state: FileState, target: &FilePath) -> Result<()> {
        self.wrote(link, state)?;
        self.set_lead(link.as_path(), target)
    }

    /// The agent has used a file under these names.
    fn used(&self, names: &[PathBuf], path: &FilePath) -> Result<()> {
        for name in names {
            if self.led_to(name)?.as_ref() != Some(path) {
                self.set_lead(name, path)?;
            }
        }
        // A link that was here led elsewhere.
        if self.led_to(path.as_path())?.is_some_and(|before| before != *path) {
            self.set_lead(path.as_path(), path)?;
        }
        Ok(())
    }

    /// What the agent knew in earlier turns of the file that it means by these names.
    fn known(&self, names: &[PathBuf], path: &FilePath) -> Result<Option<FileState>> {
        let session = self.session();
        for name in names.iter().map(PathBuf::as_path).chain([path.as_path()]) {
            let before = session.led_to(name)?.unwrap_or_else(|| FilePath::trusted(name.to_owned()));
            if before != *path
                && let Some(sighting) = session.get(&before)?
            {
                return Ok(Some(sighting.last));
            }
        }
        Ok(session.get(path)?.map(|sighting| sighting.last))
    }

    /// What the turn knows of another file that the agent means by these names: one of them led there when the agent last used
    /// it, or was a file itself.
    fn meant_elsewhere(&self, names: &[PathBuf], path: &FilePath) -> Result<Option<Sighting>> {
        for name in names.iter().map(PathBuf::as_path).chain([path.as_path()]) {
            let before = self.led_to(name)?.unwrap_or_else(|| FilePath::trusted(name.to_owned()));
            if before != *path
                && let Some(meant) = self.get(&before)?
            {
                return Ok(Some(meant));
            }
        }
        Ok(None)
    }

    /// What the turn knows of the file that the agent means by these names. What it knew of another file that it means must now
    /// be at this path.
    fn meant(&self, names: &[PathBuf], path: &FilePath) -> Result<Option<Sighting>> {
        let seen = self.get(path)?;
        Ok(self.meant_elsewhere(names, path)?.map(|meant| meant.moved_over(seen)).or(seen))
    }

    /// The agent is about to change a file under these names: the turn remembers which file it means.
    fn about_to_change(&self, names: &[PathBuf], path: &FilePath) -> Result<()> {
        let Some(meant) = self.meant_elsewhere(names, path)? else { return Ok(()) };
        self.update(path, &mut |seen| Some(meant.moved_over(seen)))?;
        self.used(names, path)
    }
}

/// The largest file that is kept for diffs. For larger files, a refusal has no diff.
pub const TEXT_PER_FILE: usize = 256 * 1024;

/// The number of bytes that one turn keeps for diffs, which limits its memory.
pub const TEXT_PER_TURN: usize = 64 * 1024 * 1024;

/// A turn kept in memory by the process that owns it.
#[derive(Debug)]
pub struct Turn {
    id: TurnId,
    agent: Agent,
    session: Session,
    memory: Mutex<Memory>,
    alive: OnceLock<File>,
}

#[derive(Debug, Default)]
struct Memory {
    files: HashMap<FilePath, Sighting>,
    leads: HashMap<PathBuf, FilePath>,
    stamps: HashMap<FilePath, (Stamp, Digest)>,
    texts: HashMap<Digest, Arc<[u8]>>,
    text_bytes: usize,
    start: Option<TurnStart>,
    reads: Vec<TurnRead>,
    has_changed: bool,
}

impl Turn {
    /// Begins a turn that knows nothing.
    pub fn begin(id: TurnId, agent: Agent) -> Self {
        Self::begin_in(id, agent, Session::default())
    }

    /// Begins a turn that knows nothing. The session learns what the turn knows.
    pub fn begin_in(id: TurnId, agent: Agent, session: Session) -> Self {
        Self { id, agent, session, memory: Mutex::default(), alive: OnceLock::new() }
    }

    /// Every file that the turn knows, in no particular order.
    pub fn files(&self) -> Vec<(FilePath, Sighting)> {
        self.memory().files.iter().map(|(path, sighting)| (path.clone(), *sighting)).collect()
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        lock(&self.memory)
    }
}

impl TurnState for Turn {
    fn id(&self) -> &TurnId {
        &self.id
    }

    fn agent(&self) -> &Agent {
        &self.agent
    }

    fn get(&self, path: &FilePath) -> Result<Option<Sighting>> {
        Ok(self.memory().files.get(path).copied())
    }

    fn update(&self, path: &FilePath, change: &mut SightingChange<'_>) -> Result<()> {
        let mut memory = self.memory();
        let Some(sighting) = change(memory.files.get(path).copied()) else { return Ok(()) };
        memory.files.insert(path.clone(), sighting);
        // Under the lock, so that the session does not learn an older state last.
        self.session.set(path, sighting)
    }

    fn led_to(&self, name: &Path) -> Result<Option<FilePath>> {
        Ok(self.memory().leads.get(name).cloned())
    }

    fn set_lead(&self, name: &Path, path: &FilePath) -> Result<()> {
        self.memory().leads.insert(name.to_owned(), path.clone());
        self.session.set_lead(name, path)
    }

    fn names(&self) -> Result<Vec<PathBuf>> {
        let memory = self.memory();
        let files = memory.files.keys().map(|path| path.as_path().to_owned());
        Ok(files.chain(memory.leads.keys().cloned()).collect())
    }

    fn session(&self) -> &dyn Known {
        &self.session
    }

    fn stamped(&self, path: &FilePath, stamp: &Stamp) -> Result<Option<Digest>> {
        Ok(self.memory().stamps.get(path).filter(|(kept, _)| kept == stamp).map(|(_, digest)| *digest))
    }

    fn keep_stamp(&self, path: &FilePath, stamp: &Stamp, digest: Digest) -> Result<()> {
        self.memory().stamps.insert(path.clone(), (*stamp, digest));
        Ok(())
    }

    fn alive(&self) -> Option<&OnceLock<File>> {
        Some(&self.alive)
    }

    fn began(&self, start: &TurnStart) -> Result<()> {
        self.memory().start = Some(start.clone());
        Ok(())
    }

    fn start(&self) -> Result<Option<TurnStart>> {
        Ok(self.memory().start.clone())
    }

    fn note_read(&self, read: &TurnRead) -> Result<()> {
        let mut memory = self.memory();
        if memory.reads.len() < READS_PER_TURN {
            memory.reads.push(read.clone());
        }
        Ok(())
    }

    fn reads(&self) -> Result<Vec<TurnRead>> {
        Ok(self.memory().reads.clone())
    }

    fn note_change(&self) -> Result<()> {
        self.memory().has_changed = true;
        Ok(())
    }

    fn has_changed(&self) -> Result<bool> {
        Ok(self.memory().has_changed)
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

    /// Each row: what happened to a file, and the state that an overwrite and an edit must then find on disk.
    #[test]
    fn the_baseline_follows_these_rules_and_the_initial_state_never_changes() {
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
                sighting = match did {
                    Read(extent, text) => sighting.read(state(text), *extent),
                    Wrote(text) => sighting.wrote(state(text)),
                    Refused => sighting.refused(),
                };
            }
            assert_eq!(sighting.baseline(Whole), state(overwrite), "overwrite after story {index}");
            assert_eq!(sighting.baseline(Part), state(edit), "edit after story {index}");
            assert_eq!(sighting.initial(), state("a").digest(), "initial after story {index}");
        }
    }

    #[test]
    fn the_initial_hash_is_that_of_the_first_successful_read() {
        let digest = |text: &str| state(text).digest();
        for failed in [FileState::Unreadable, FileState::Absent] {
            let sighting = Sighting::new(failed);
            assert_eq!(sighting.initial(), None);
            assert_eq!(sighting.read(state("a"), Extent::Whole).initial(), digest("a"));
            assert_eq!(sighting.wrote(state("b")).initial(), None);
            assert_eq!(sighting.wrote(state("b")).read(state("c"), Extent::Part).initial(), digest("c"));
        }
    }

    #[test]
    fn a_new_turn_knows_nothing_and_the_session_knows_the_last_state() {
        let path = FilePath::trusted("/w/a".into());
        let session = Session::default();
        let turn = |id: &str| Turn::begin_in(id.parse().unwrap(), "a".parse().unwrap(), session.clone());
        let first = turn("t1");
        first.observe(&path, state("one"), Extent::Whole).unwrap();
        first.wrote(&path, state("two")).unwrap();
        assert_eq!(first.get(&path).unwrap().unwrap().initial(), state("one").digest());
        let second = turn("t2");
        assert!(second.get(&path).unwrap().is_none());
        assert_eq!(second.known(&[], &path).unwrap(), Some(state("two")), "the first turn has not ended");
        drop(first);
        assert_eq!(second.known(&[], &path).unwrap(), Some(state("two")));
    }

    #[test]
    fn kept_texts_are_limited() {
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
