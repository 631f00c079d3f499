//! What the rules need from a place where tasks are kept. A backend stores; it does not judge.
//!
//! There is one write, [`Store::apply`]: one step of one task, compared with the version the rules have seen, together
//! with its ledger lines. That is what a rename, a push of a ref and a transaction of an engine can all do. The step's
//! id is made by who takes it. [`super::conformance`] holds every store to this.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::block::Completion;
use super::claim::{Claim, ClaimId, Note, StepId};
use super::event::{Event, Kind, Payload, Status};
use super::figures::{Count, Tally};
use super::hold::{Hold, Owner};
use super::name::TaskName;
use super::state::{Slot, State, Verb};
use super::task::{Brief, Broken};
use crate::digest::Digest;
use crate::error::{Fault, Result};
use crate::name::Agent;

/// Changes with everything that happens to a task, whoever does it. Which parts it has is the store's affair.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Of its bytes: what the file is known by, or a number that goes up.
    pub bytes: [u64; 4],
    /// Of what is known about it: the step that wrote it down.
    pub step: Option<StepId>,
    /// Of what a remote says about it: the object.
    pub remote: Option<String>,
}

/// Whether what was dropped in is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// It is.
    Now,
    /// It was written a moment ago; if nobody writes to it, it is complete after this time.
    After(Duration),
    /// It has no bytes yet.
    Empty,
    /// Somebody has it open for writing.
    Open,
}

/// Where a task is and what is known about it: all that its owner needs.
#[derive(Debug, Clone)]
pub struct Placed {
    /// Its name.
    pub task: TaskName,
    /// Where it is.
    pub slot: Slot,
    /// What [`Step::version`] is compared with.
    pub version: Version,
    /// What is known about it, as far as it holds in this slot.
    pub note: Note,
    /// When anything about it last changed, also its place.
    pub changed: Timestamp,
    /// How many bytes it has.
    pub len: u64,
    /// Its file, where it has one.
    pub path: Option<PathBuf>,
}

/// A task as the store has it.
#[derive(Debug, Clone)]
pub struct Stored {
    /// Where it is and what is known about it.
    pub placed: Placed,
    /// What its author asks for.
    pub brief: Result<Brief, Broken>,
    /// Whether it may be taken yet.
    pub ready: Ready,
    /// A task of the same name that tollgate is dealing with in another slot.
    pub twin: Option<Slot>,
    /// When its bytes last changed.
    pub modified: Timestamp,
}

impl Deref for Stored {
    type Target = Placed;

    fn deref(&self) -> &Placed {
        &self.placed
    }
}

impl DerefMut for Stored {
    fn deref_mut(&mut self) -> &mut Placed {
        &mut self.placed
    }
}

/// A task in a listing: what can be told without a look into the notes.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Its name.
    pub task: TaskName,
    /// Where it is.
    pub slot: Slot,
    /// What its author asks for.
    pub brief: Result<Brief, Broken>,
    /// Whether it may be taken yet. Whether it is open for writing is only looked at when it is taken.
    pub ready: Ready,
    /// When its bytes last changed.
    pub modified: Timestamp,
}

/// Something in the vault's folders that cannot be a task: a directory, a link, a name with control characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfit {
    /// Its name, safe to print.
    pub name: String,
    /// Where it lies.
    pub state: State,
    /// Why it cannot be one.
    pub why: String,
}

/// All that lies in one state.
#[derive(Debug, Default)]
pub struct Scan {
    /// The tasks, in no order.
    pub tasks: Vec<Listed>,
    /// The rest.
    pub unfit: Vec<Unfit>,
}

/// What a step does to the task's text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Edit {
    /// Nothing.
    Keep,
    /// Puts the block of the note's claim after the text.
    Open,
    /// Closes this claim's block.
    Close(Claim, Completion),
    /// Puts this line into this claim's open block.
    Progress(ClaimId, String),
    /// Puts a person's no after the text: by whom, and why.
    Reject(String, String),
    /// A person's own words: everything from this byte on becomes this text, if the bytes are still those of
    /// [`Step::check`].
    Amend(u64, String),
}

/// One step of one task, with its ledger lines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Made by who takes it.
    pub id: StepId,
    /// When.
    #[serde(with = "jiff::fmt::serde::timestamp::nanosecond::required")]
    pub at: Timestamp,
    /// As a word. `None` for a step that moves nothing: a renewal, a progress note.
    pub verb: Option<Verb>,
    /// Which task.
    pub task: TaskName,
    /// From here,
    pub from: Slot,
    /// if it is still as it was,
    #[serde(skip)]
    pub version: Version,
    /// and if its bytes are these,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<Digest>,
    /// to here,
    pub to: Slot,
    /// with this done to its text. Coming out of a slot where only the owner looks the edit is made first, going
    /// into one the move is.
    pub edit: Edit,
    /// What is known about it afterwards. `None`: nothing more, it is final.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Note>,
    /// Afterwards its bytes are on offer: their digest goes into the note.
    pub offer: bool,
    /// If its name is taken there, this word makes another.
    pub beside: String,
    /// What the ledger says.
    pub events: Vec<Event>,
    /// Whoever takes it has something else to do if somebody is busy there.
    #[serde(skip)]
    pub hurry: bool,
}

impl Step {
    /// Adds a line for the ledger.
    pub(crate) fn tell(
        &mut self,
        kind: Kind,
        agent: Option<&Agent>,
        payload: Payload,
        result: impl Into<Status>,
    ) {
        // One is the rule.
        self.events.reserve_exact(1);
        self.events.push(Event {
            time: self.at,
            agent: agent.cloned(),
            kind,
            payload,
            result: result.into(),
        });
    }
}

/// Where a step has brought a task.
#[derive(Debug, Clone)]
pub struct Landed {
    /// Its name now: another than before only if that was taken.
    pub task: TaskName,
    /// Its slot now.
    pub slot: Slot,
    /// Its file, where it has one.
    pub path: Option<PathBuf>,
}

/// What came of a step.
#[derive(Debug)]
pub enum Outcome {
    /// It was taken.
    Done(Landed),
    /// The task is not as it was, or not there: somebody else was quicker. Nothing was done.
    Conflict,
    /// The bytes are not those of [`Step::check`]. Nothing was done.
    Changed,
    /// Somebody is busy with this task or one beside it, and the step is in a hurry. Nothing was done.
    Busy,
    /// It may or may not have been taken. The same step may be tried again; whoever next looks at the task settles it.
    Unknown(Fault),
}

/// A half-made step of somebody who is gone, settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Healed {
    /// The task.
    pub task: TaskName,
    /// What was being done.
    pub verb: Option<Verb>,
    /// How it was settled.
    pub how: Settled,
}

/// How a half-made step was settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It was finished.
    Finished,
    /// It was taken back: nobody had been told of it.
    TakenBack,
}

/// From how a task in progress is to its next step.
pub type NextStep<'a> = &'a mut dyn FnMut(Option<&Placed>) -> Result<Option<Step>>;

/// From how a task is that may be taken to the step that takes it.
pub type FirstStep<'a> = &'a mut dyn FnMut(&Stored) -> Result<Option<Step>>;

/// What came of asking for a task.
#[derive(Debug)]
pub enum Taken {
    /// It is not there.
    Gone,
    /// Somebody is busy with it or one beside it, and we are in a hurry.
    Busy,
    /// No step follows from how it is.
    Left,
    /// This one does, and that came of it.
    Step(Box<Step>, Outcome),
}

/// A place where tasks are kept.
pub trait Store: Send + Sync {
    /// All tasks in one state. Must be cheap: it is asked for every claim of the next task.
    fn scan(&self, state: State, now: Timestamp) -> Result<Scan>;

    /// One task; in this state, or wherever it is, live states first.
    fn get(&self, task: &TaskName, state: Option<State>, now: Timestamp) -> Result<Option<Stored>>;

    /// One task that somebody works on, without a look at its text.
    fn in_progress(&self, task: &TaskName, now: Timestamp) -> Result<Option<Placed>> {
        Ok(self.get(task, Some(State::InProgress), now)?.map(|stored| stored.placed))
    }

    /// Whether it is in this state.
    fn is_in(&self, task: &TaskName, state: State) -> Result<bool> {
        Ok(self.get(task, Some(state), Timestamp::UNIX_EPOCH)?.is_some())
    }

    /// The SHA-256 of its bytes, or `None` if it is no longer as it was.
    fn digest(&self, stored: &Stored) -> Result<Option<Digest>>;

    /// All of its bytes, up to a limit.
    fn read(&self, stored: &Stored, limit: u64) -> Result<Vec<u8>>;

    /// Takes one step: all of it, or none.
    fn apply(&self, step: &Step) -> Result<Outcome>;

    /// Takes the step that follows from how a task is, in this state or wherever it is.
    fn take(
        &self,
        task: &TaskName,
        state: Option<State>,
        now: Timestamp,
        hurry: bool,
        next: FirstStep<'_>,
    ) -> Result<Taken> {
        let Some(stored) = self.get(task, state, now)? else { return Ok(Taken::Gone) };
        let Some(step) = next(&stored)? else { return Ok(Taken::Left) };
        let step = Step { hurry, ..step };
        Ok(match self.apply(&step)? {
            Outcome::Busy => Taken::Busy,
            outcome => Taken::Step(Box::new(step), outcome),
        })
    }

    /// Takes the step that follows from how a task in progress is, if one does.
    fn advance(
        &self,
        task: &TaskName,
        now: Timestamp,
        next: NextStep<'_>,
    ) -> Result<Option<(Step, Outcome)>> {
        let placed = self.in_progress(task, now)?;
        let Some(step) = next(placed.as_ref())? else { return Ok(None) };
        let outcome = self.apply(&step)?;
        Ok(Some((step, outcome)))
    }

    /// Puts a new task into `Needs_Action`, complete at once. `None` if there is one of this name.
    fn add(&self, task: &TaskName, bytes: &[u8]) -> Result<Option<Landed>>;

    /// Makes and takes the lock of a claim that is about to be made.
    fn hold(&self, claim: &ClaimId) -> Result<Hold>;

    /// Tries the lock of a held claim.
    fn owner(&self, claim: &Claim, now: Timestamp) -> Result<Owner>;

    /// Writes down what happened without a step.
    fn tell(&self, events: &[Event]) -> Result<()>;

    /// Counts something of an agent's.
    fn count(&self, agent: &Agent, what: Count) -> Result<()>;

    /// Of each agent: how many tasks are in its hands, and its sums.
    fn figures(&self) -> Result<BTreeMap<Agent, (u64, Tally)>>;

    /// Settles the half-made steps of those who are gone. Cheap when there are none.
    fn heal(&self) -> Result<Vec<Healed>>;

    /// Removes what nothing refers to any more. Nothing depends on it.
    fn sweep(&self, _now: Timestamp) -> Result<()> {
        Ok(())
    }
}
