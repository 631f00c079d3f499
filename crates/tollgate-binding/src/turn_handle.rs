//! A turn of one agent: what it reads, and what it may therefore write.
//!
//! Invariants: calls of one turn wait for each other, because each is judged by what the turn knows from those before it. An
//! ended turn answers nothing more. Once a claim under which the turn works is lost, the turn writes nothing until the agent
//! has heard of the loss.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tollgate::change_list::{ListedChange, changes};
use tollgate::commit::AppliedChange;
use tollgate::edit::Edit;
use tollgate::error::Fault;
use tollgate::fence::{LostClaim, WriteFence, first_lost};
use tollgate::gate::Gate;
use tollgate::guard::{Expected, Outcome};
use tollgate::name::Agent;
use tollgate::part::Part;
use tollgate::turn::{Session, Turn, TurnState};

use crate::failure::{Answered, CallFailure, done};
use crate::open_claim::OpenClaim;
use crate::own_process::OwnProcess;

/// A turn. Clones share it.
#[derive(Clone)]
pub struct TurnHandle(Arc<HandledTurn>);

struct HandledTurn {
    id: String,
    agent: Agent,
    gate: Gate,
    process: OwnProcess,
    /// The claims under which the turn works.
    claims: Arc<Mutex<Vec<OpenClaim>>>,
    running: Mutex<Running>,
}

struct Running {
    /// `None` once the turn has ended.
    turn: Option<Turn>,
    /// Whether it has changed a file, so that late-write checks may be due at its end.
    changed: bool,
}

/// What a read answers.
#[derive(Debug)]
pub struct FileRead {
    /// The file, absolute.
    pub path: String,
    /// The hash of the whole file.
    pub sha256: String,
    /// The size of the whole file.
    pub size: u64,
    /// The bytes, or those of the lines that were asked for.
    pub bytes: Vec<u8>,
}

impl TurnHandle {
    pub(crate) fn begin(gate: Gate, agent: Agent, session: Session) -> Answered<Self> {
        let claims = Arc::default();
        let gate = gate.fenced(fence(Arc::clone(&claims)));
        let turn = gate.begin_turn_in(agent.clone(), session)?;
        let id = turn.id().to_string();
        let running = Mutex::new(Running { turn: Some(turn), changed: false });
        Ok(Self(Arc::new(HandledTurn { id, agent, gate, process: OwnProcess::now(), claims, running })))
    }

    /// The id of the turn.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// The agent.
    pub fn agent(&self) -> &str {
        self.0.agent.as_str()
    }

    /// From now on the turn works under this claim, too.
    pub(crate) fn work_under(&self, claim: OpenClaim) {
        lock(&self.0.claims).push(claim);
    }

    fn with<T>(&self, call: impl FnOnce(&Gate, &Turn) -> Answered<T>) -> Answered<T> {
        self.0.process.check()?;
        match &lock(&self.0.running).turn {
            Some(turn) => call(&self.0.gate, turn),
            None => Err(CallFailure::invalid(format!("the turn `{}` has ended", self.0.id))),
        }
    }

    fn change(
        &self,
        call: impl FnOnce(&Gate, &Turn) -> Result<Outcome<AppliedChange>, Fault>,
    ) -> Answered<Value> {
        let applied = self.with(|gate, turn| done(call(gate, turn)))?;
        lock(&self.0.running).changed = true;
        Ok(applied.json())
    }

    /// Reads a file, or a range of its lines. The numbers start at one, and both ends are included.
    pub fn read(&self, path: &Path, lines: Option<(usize, Option<usize>)>) -> Answered<FileRead> {
        let part = match lines {
            None => Part::Whole,
            Some((from, to)) if from > 0 && to.is_none_or(|to| to >= from) => Part::Lines { from, to },
            Some(_) => return Err(CallFailure::invalid("line numbers start at 1 and go up")),
        };
        let read = self.with(|gate, turn| {
            done(gate.workspace().shows(path))?;
            done(gate.read(turn, path, part))
        })?;
        let (path, sha256) = (read.path.to_string(), read.sha256.to_string());
        Ok(FileRead { path, sha256, size: read.size, bytes: read.bytes })
    }

    /// Writes a file, and creates it if it does not exist.
    pub fn write(&self, path: &Path, bytes: Vec<u8>, expect: Option<&str>) -> Answered<Value> {
        let expected = expected(expect)?;
        self.change(|gate, turn| gate.write(turn, path, bytes, expected))
    }

    /// Creates a file, which must not exist.
    pub fn create(&self, path: &Path, bytes: Vec<u8>) -> Answered<Value> {
        self.change(|gate, turn| gate.create(turn, path, bytes))
    }

    /// Replaces old text, which occurs exactly once, or all its occurrences.
    pub fn edit(
        &self,
        path: &Path,
        old: String,
        new: String,
        all: bool,
        expect: Option<&str>,
    ) -> Answered<Value> {
        let expected = expected(expect)?;
        let edit = if all { Edit::all(old, new) } else { Edit::once(old, new) };
        self.change(|gate, turn| gate.edit(turn, path, vec![edit], expected))
    }

    /// Deletes a file.
    pub fn delete(&self, path: &Path, expect: Option<&str>) -> Answered<Value> {
        let expected = expected(expect)?;
        self.change(|gate, turn| gate.delete(turn, path, expected))
    }

    /// Moves a file to another path, which must be free.
    pub fn move_file(&self, path: &Path, to: &Path, expect: Option<&str>) -> Answered<Value> {
        let expected = expected(expect)?;
        self.change(|gate, turn| gate.move_file(turn, path, to, expected))
    }

    /// Makes all of these changes or none. The list has the JSON of `tollgate apply`.
    pub fn apply(&self, list: Value) -> Answered<Value> {
        let listed: Vec<ListedChange> = serde_json::from_value(list)
            .map_err(|error| CallFailure::invalid(format!("this is not a list of changes: {error}")))?;
        let changes =
            changes(listed).map_err(|unclear| Fault::invalid_with_hint(unclear.what, unclear.hint))?;
        let applied = self.with(|gate, turn| done(gate.apply(turn, changes)))?;
        lock(&self.0.running).changed = true;
        Ok(applied.iter().map(AppliedChange::json).collect())
    }

    /// The hash of the turn's first read of a file.
    pub fn initial_hash(&self, path: &Path) -> Answered<Option<String>> {
        let hash = self.with(|gate, turn| Ok(gate.get_initial_hash(turn, path)?))?;
        Ok(hash.map(|hash| hash.to_string()))
    }

    /// Merges this agent's newest refused write to a file with what is on disk. Writes nothing.
    pub fn merge(&self, path: &Path) -> Answered<Value> {
        self.with(|gate, turn| match gate.merge(turn, path, Some(&self.0.agent))? {
            Ok(merge) => Ok(json!({"clean": merge.clean, "content": merge.content, "diff": merge.diff})),
            Err(why) => Err(CallFailure::invalid(format!("`{}` cannot be merged: {why}", path.display()))),
        })
    }

    /// Ends the turn. A second end does nothing.
    pub fn end(&self) -> Answered<()> {
        self.0.process.check()?;
        let (turn, changed) = {
            let mut running = lock(&self.0.running);
            (running.turn.take(), running.changed)
        };
        if let Some(turn) = turn {
            self.0.gate.end_turn(turn)?;
            if changed {
                // If this fails, the turn has ended all the same, and the next process makes the checks.
                let _ = self.0.gate.workspace().sweep();
            }
        }
        Ok(())
    }
}

impl Drop for HandledTurn {
    fn drop(&mut self) {
        let turn = self.running.get_mut().unwrap_or_else(PoisonError::into_inner).turn.take();
        if let Some(turn) = turn.filter(|_| self.process.is_this()) {
            // Nobody is left who could hear of a fault.
            let _ = self.gate.end_turn(turn);
        }
    }
}

/// Refuses every change while one of these claims is lost.
fn fence(claims: Arc<Mutex<Vec<OpenClaim>>>) -> WriteFence {
    Arc::new(move || -> Result<Option<LostClaim>, Fault> {
        let mut claims = lock(&claims);
        claims.retain(OpenClaim::is_open);
        first_lost(claims.iter().map(OpenClaim::fenced))
    })
}

/// What must be on disk: a hash, `absent`, or what the turn knows.
fn expected(text: Option<&str>) -> Answered<Expected> {
    text.map_or(Ok(Expected::Baseline), |text| {
        text.parse().map_err(|what: String| CallFailure::invalid(what))
    })
}

/// A panic leaves nothing incomplete under these locks.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
