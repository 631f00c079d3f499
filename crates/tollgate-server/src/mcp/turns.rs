//! The turns of a server, and when they end.
//!
//! Any connection can find a turn by its id, because a client without a session has nothing but the id. Ids are random, and
//! only the client that began the turn learns its id.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use tollgate::digest::Digest;
use tollgate::error::Result;
use tollgate::gate::Gate;
use tollgate::name::{Agent, TurnId};
use tollgate::path::FilePath;
use tollgate::turn::{Session, Turn, TurnState};

/// The number of running turns. Each may keep some megabytes for diffs, and a server that runs for weeks must not grow with
/// turns that were never ended. The turn that was unused for longest is ended first.
const MOST: usize = 256;

/// With this number of locks, calls on different files of one turn rarely wait for each other.
const LANES: usize = 64;

/// A running turn. It ends, with its line in the ledger, when the last call that uses it has finished.
pub(crate) struct RunningTurn {
    gate: Gate,
    turn: Option<Turn>,
    recorded: bool,
    used: Mutex<Instant>,
    lanes: [RwLock<()>; LANES],
}

impl RunningTurn {
    /// Dropping the last reference writes to the disk, so do not drop it on the runtime's thread.
    fn begin(gate: &Gate, agent: &Agent, session: Session) -> Result<Arc<Self>> {
        Ok(Self::new(gate, gate.begin_turn_in(agent.clone(), session)?, true))
    }

    /// A turn for one call. It is not recorded in the ledger.
    pub(crate) fn for_one_call(gate: &Gate, agent: &Agent) -> Result<Arc<Self>> {
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

    /// Locks the file for reading: no other call of the turn can write it until the lock is dropped.
    ///
    /// Without the lock, a read that starts before a write of the same turn and ends after it would reset the turn's
    /// baseline to the old content, and the agent's next write would be refused because of its own earlier write.
    pub(crate) fn reading(&self, path: &FilePath) -> RwLockReadGuard<'_, ()> {
        self.lanes[lane(path)].read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the files for writing: no other call of the turn can read or write them until the locks are dropped.
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

impl Drop for RunningTurn {
    fn drop(&mut self) {
        if let Some(turn) = self.turn.take()
            && self.recorded
        {
            // If the ledger line cannot be written, nobody is left to report that to.
            let _ = self.gate.end_turn(turn);
        }
    }
}

/// All turns of a server, by id.
pub(crate) struct Turns {
    agent: Agent,
    idle: Duration,
    running: Mutex<HashMap<String, Arc<RunningTurn>>>,
    /// What the agent knows from all its connections.
    session: Session,
}

impl Turns {
    pub(crate) fn new(agent: Agent, idle: Duration, session: Session) -> Self {
        Self { agent, idle, running: Mutex::default(), session }
    }

    pub(crate) fn session(&self) -> Session {
        self.session.clone()
    }

    pub(crate) fn begin(&self, gate: &Gate, session: Session) -> Result<Arc<RunningTurn>> {
        let begun = RunningTurn::begin(gate, &self.agent, session)?;
        // Dropped after the lock is released.
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

    /// The turn with this id, if it is still running.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<RunningTurn>> {
        let mut running = lock(&self.running);
        let turn = running.get(id)?.clone();
        if lock(&turn.used).elapsed() > self.idle {
            running.remove(id);
            return None;
        }
        turn.touch();
        Some(turn)
    }

    /// Removes the turn with this id. The turn ends when the returned reference is dropped.
    pub(crate) fn end(&self, id: &str) -> Option<Arc<RunningTurn>> {
        lock(&self.running).remove(id)
    }

    /// Ends the turns that were idle for too long. Blocks.
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

/// Every change under these locks is one assignment, so a panic cannot leave the data half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use tollgate::workspace::{Options, Workspace};

    fn turns(folder: &Path) -> (Gate, Turns) {
        let gate = Gate::new(Workspace::open(folder, Options::default()).unwrap());
        (gate, Turns::new("blue".parse().unwrap(), Duration::MAX, Session::default()))
    }

    #[test]
    fn many_calls_of_a_turn_read_a_file_or_one_writes_it() {
        let folder = tempfile::tempdir().unwrap();
        let (gate, turns) = turns(folder.path());
        let turn = turns.begin(&gate, turns.session()).unwrap();
        let [a, same] = ["a", "./a"].map(|name| gate.workspace().canonical(name).unwrap());
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
    fn the_turn_that_was_unused_for_longest_is_ended_first() {
        let folder = tempfile::tempdir().unwrap();
        let (gate, turns) = turns(folder.path());
        let ids: Vec<String> =
            (0..256).map(|_| turns.begin(&gate, turns.session()).unwrap().id().to_owned()).collect();
        assert!(turns.find(&ids[0]).is_some());
        turns.begin(&gate, turns.session()).unwrap();
        assert!(turns.find(&ids[0]).is_some(), "it was used a moment ago");
        assert!(turns.find(&ids[1]).is_none());
        assert_eq!(lock(&turns.running).len(), 256);
    }
}
