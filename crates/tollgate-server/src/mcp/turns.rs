//! The turns of a server: which there are, who uses them, and when they are over.
//!
//! A turn is found by its id from any connection, because a client without a lasting connection has nothing but the
//! id. Ids are random and only ever told to the client that began the turn.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use tollgate::digest::Digest;
use tollgate::error::Result;
use tollgate::gate::Gate;
use tollgate::name::{Agent, TurnId};
use tollgate::path::FilePath;
use tollgate::turn::{Session, Sightings, Turn};

/// How many turns may be under way. Each may keep some megabytes for diffs; a server that lives for weeks must not grow
/// with the turns that were begun and never ended. The one that was not used for longest goes first.
const MOST: usize = 256;

/// Calls on different files of one turn rarely meet with this many.
const LANES: usize = 64;

/// A turn that is under way. It ends, with its line in the ledger, when the last call that uses it is done.
pub(crate) struct Running {
    gate: Gate,
    turn: Option<Turn>,
    recorded: bool,
    used: Mutex<Instant>,
    lanes: [RwLock<()>; LANES],
}

impl Running {
    /// Dropping the last of it writes to the disk: not on a thread that must not wait.
    fn begin(gate: &Gate, agent: &Agent, session: Session) -> Result<Arc<Self>> {
        Ok(Self::new(gate, gate.begin_turn_in(agent.clone(), session)?, true))
    }

    /// A turn for one call, of which nothing is remembered.
    pub(crate) fn passing(gate: &Gate, agent: &Agent) -> Result<Arc<Self>> {
        Ok(Self::new(gate, Turn::begin(TurnId::new()?, agent.clone()), false))
    }

    fn new(gate: &Gate, turn: Turn, recorded: bool) -> Arc<Self> {
        Arc::new(Self {
            gate: gate.clone(),
            turn: Some(turn),
            recorded,
            used: Mutex::new(Instant::now()),
            lanes: std::array::from_fn(|_| RwLock::new(())),
        })
    }

    pub(crate) fn turn(&self) -> &Turn {
        self.turn.as_ref().expect("a turn is taken only when it is dropped")
    }

    pub(crate) fn id(&self) -> &str {
        self.turn().id().as_str()
    }

    /// Until this is dropped, no other call of the turn writes the file.
    ///
    /// Without it, a read that began before a write of the same turn and ended after it would set the turn's knowledge
    /// back to what the file was, and the agent's next write would be refused because of its own.
    pub(crate) fn reading(&self, path: &FilePath) -> RwLockReadGuard<'_, ()> {
        self.lanes[lane(path)].read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until this is dropped, no other call of the turn reads or writes these files.
    pub(crate) fn writing<'a>(
        &self,
        paths: impl IntoIterator<Item = &'a FilePath>,
    ) -> Vec<RwLockWriteGuard<'_, ()>> {
        // In one order, so that nobody waits in a circle.
        let mut lanes: Vec<usize> = paths.into_iter().map(lane).collect();
        lanes.sort_unstable();
        lanes.dedup();
        lanes
            .into_iter()
            .map(|lane| self.lanes[lane].write().unwrap_or_else(PoisonError::into_inner))
            .collect()
    }

    /// Until this is dropped, no other call of the turn reads or writes any file: for folders that move.
    pub(crate) fn alone(&self) -> Vec<RwLockWriteGuard<'_, ()>> {
        self.lanes.iter().map(|lane| lane.write().unwrap_or_else(PoisonError::into_inner)).collect()
    }

    fn touch(&self) {
        *lock(&self.used) = Instant::now();
    }
}

fn lane(path: &FilePath) -> usize {
    let path: &Path = path.as_path();
    usize::from(Digest::of(path.as_os_str().as_encoded_bytes()).as_bytes()[0]) % LANES
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(turn) = self.turn.take()
            && self.recorded
        {
            // If its line cannot be written, there is nobody left to tell.
            let _ = self.gate.end_turn(turn);
        }
    }
}

/// All turns of a server that can be asked for by id.
pub(crate) struct Turns {
    gate: Gate,
    agent: Agent,
    idle: Duration,
    running: Mutex<HashMap<String, Arc<Running>>>,
    /// What turns without a lasting connection knew at their end.
    session: Session,
}

impl Turns {
    pub(crate) fn new(gate: Gate, agent: Agent, idle: Duration) -> Self {
        Self { gate, agent, idle, running: Mutex::default(), session: Session::default() }
    }

    pub(crate) fn session(&self) -> Session {
        self.session.clone()
    }

    pub(crate) fn begin(&self, session: Session) -> Result<Arc<Running>> {
        let begun = Running::begin(&self.gate, &self.agent, session)?;
        // Dropped after the lock is let go.
        let mut over = Vec::new();
        let mut running = lock(&self.running);
        while running.len() >= MOST {
            let oldest = running.iter().min_by_key(|(_, turn)| *lock(&turn.used)).map(|(id, _)| id.clone());
            let Some(oldest) = oldest else { break };
            over.extend(running.remove(&oldest));
        }
        running.insert(begun.id().to_owned(), begun.clone());
        Ok(begun)
    }

    /// The turn of this id, if it is under way.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<Running>> {
        let mut running = lock(&self.running);
        let turn = running.get(id)?.clone();
        if lock(&turn.used).elapsed() > self.idle {
            running.remove(id);
            return None;
        }
        turn.touch();
        Some(turn)
    }

    /// The turn of this id can no longer be asked for. It is over when what is returned is dropped.
    pub(crate) fn end(&self, id: &str) -> Option<Arc<Running>> {
        lock(&self.running).remove(id)
    }

    /// Ends what nobody used for too long. Blocks.
    pub(crate) fn expire(&self) {
        let mut over = Vec::new();
        lock(&self.running).retain(|_, turn| {
            let keep = lock(&turn.used).elapsed() <= self.idle;
            if !keep {
                over.push(turn.clone());
            }
            keep
        });
    }

    pub(crate) fn idle(&self) -> Duration {
        self.idle
    }
}

/// Every change under these locks is one assignment, so a panic elsewhere leaves nothing half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use tollgate::workspace::{Options, Workspace};

    fn turns(folder: &Path, idle: Duration) -> Turns {
        let gate = Gate::new(Workspace::open(folder, Options::default()).unwrap());
        Turns::new(gate, "blue".parse().unwrap(), idle)
    }

    #[test]
    fn a_file_is_read_by_many_or_written_by_one_call_of_a_turn() {
        let folder = tempfile::tempdir().unwrap();
        let turns = turns(folder.path(), Duration::MAX);
        let turn = turns.begin(turns.session()).unwrap();
        let [a, same] = ["a", "./a"].map(|name| turns.gate.workspace().canonical(name).unwrap());
        let (first, second) = (turn.reading(&a), turn.reading(&same));
        assert!(turn.lanes[lane(&a)].try_write().is_err(), "a write waits for the reads");
        drop((first, second));
        let writing = turn.writing([&a, &same]);
        assert_eq!(writing.len(), 1, "one file named twice is one lane");
        assert!(turn.lanes[lane(&a)].try_read().is_err(), "a read waits for the write");
        drop(writing);
        assert_eq!(turn.alone().len(), LANES);
    }

    #[test]
    fn the_turn_that_was_unused_for_longest_makes_room() {
        let folder = tempfile::tempdir().unwrap();
        let turns = turns(folder.path(), Duration::MAX);
        let ids: Vec<String> =
            (0..MOST).map(|_| turns.begin(turns.session()).unwrap().id().to_owned()).collect();
        assert!(turns.find(&ids[0]).is_some());
        turns.begin(turns.session()).unwrap();
        assert!(turns.find(&ids[0]).is_some(), "it was used a moment ago");
        assert!(turns.find(&ids[1]).is_none());
        assert_eq!(lock(&turns.running).len(), MOST);
    }
}
