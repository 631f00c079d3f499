//! What the rules need from a place that keeps tasks. A store keeps; it does not decide.
//!
//! To write a store, implement [`Store`]: five methods look at tasks and change them, two record and replay what
//! happened. Everything else has a default that is right for a store without files, locks or a remote. There is one way
//! to change a task, [`Store::apply`]: one [`Step`], compared with the version that the rules have seen, together with
//! its events, as one atomic act. That is what a rename, a push of a ref and a transaction of an engine can all do.
//! The `conformance` module (a feature of this crate) checks all of it.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::block::{author_digest, is_open};
use crate::brief::{Brief, UnreadableTask};
use crate::checkup::{Finding, SyncRound};
use crate::claim::{Claim, ClaimRecord};
use crate::claim_lock::{ClaimLock, Liveness};
use crate::event::{self, Entry, EventPage};
use crate::figures::Tally;
use crate::state::{Slot, State};
use crate::step::{Step, StepOutcome};
pub use crate::step::{TaskAfterStep, Version};
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_base::name::{Agent, ClaimId, StepId};
use tollgate_base::task::TaskName;

/// Whether a task is complete, so that it may be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// The task is complete.
    Now,
    /// Somebody wrote it a moment ago. If nobody writes to it, it is complete after this time.
    After(Duration),
    /// It has no text yet.
    Empty,
    /// A program has it open for writing.
    Open,
}

/// A task as the store has it.
#[derive(Debug, Clone)]
pub struct Task {
    /// Its name.
    pub name: TaskName,
    /// Where it is.
    pub slot: Slot,
    /// What [`Step::version`] is compared with.
    pub version: Version,
    /// What tollgate knows about it beside its text, as far as it still holds in this slot.
    pub record: ClaimRecord,
    /// What its author asks for.
    pub brief: Result<Brief, UnreadableTask>,
    /// The digest of its author's text.
    pub author: Digest,
    /// Whether its text has the block of an attempt that has not ended.
    pub has_open_block: bool,
    /// Whether it may be claimed yet.
    pub ready: Ready,
    /// Another task of the same name that tollgate is dealing with, in this slot.
    pub twin: Option<Slot>,
    /// When its text last changed.
    pub modified: Timestamp,
    /// When anything about it last changed, including its slot.
    pub changed: Timestamp,
    /// The length of its text in bytes.
    pub len: u64,
    /// Its file, if it has one.
    pub path: Option<PathBuf>,
}

impl Task {
    /// A task with this text, for stores that keep no files: always complete, without a twin or a path.
    pub fn new(
        name: TaskName,
        slot: Slot,
        version: Version,
        record: ClaimRecord,
        text: &[u8],
        changed: Timestamp,
    ) -> Self {
        Self {
            record: record.seen_in(&slot),
            name,
            slot,
            version,
            brief: Brief::read(text),
            author: author_digest(text),
            has_open_block: is_open(text),
            ready: if text.is_empty() { Ready::Empty } else { Ready::Now },
            twin: None,
            modified: changed,
            changed,
            len: text.len() as u64,
            path: None,
        }
    }

    /// The action that it names, as far as that can be read.
    pub fn action(&self) -> Option<&Arc<str>> {
        self.brief.as_ref().ok()?.action.as_ref()
    }

    /// What a listing shows of this task.
    pub fn summary(self) -> TaskSummary {
        let Self { name, slot, brief, ready, modified, .. } = self;
        TaskSummary { name, slot, brief, ready, modified }
    }
}

/// A task in a listing.
#[derive(Debug, Clone)]
pub struct TaskSummary {
    /// Its name.
    pub name: TaskName,
    /// Where it is.
    pub slot: Slot,
    /// What its author asks for.
    pub brief: Result<Brief, UnreadableTask>,
    /// Whether it may be claimed yet. Whether a program has it open is checked only at the claim.
    pub ready: Ready,
    /// When its text last changed.
    pub modified: Timestamp,
}

/// Something in a vault that cannot be a task: a directory, a link, a name with control characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotATask {
    /// Its name, safe to print.
    pub name: String,
    /// Where it is.
    pub state: State,
    /// Why it cannot be a task.
    pub why: String,
}

/// Everything in one state.
#[derive(Debug, Default)]
pub struct Scan {
    /// The tasks, in any order.
    pub tasks: Vec<TaskSummary>,
    /// What cannot be a task.
    pub unfit: Vec<NotATask>,
}

/// Some of the tasks that wait to be claimed, in the order of the queue.
#[derive(Debug, Default)]
pub struct QueuePage {
    /// The tasks: first those whose brief cannot be read, then by [`Rank`](crate::brief::Rank) and name.
    pub tasks: Vec<TaskSummary>,
    /// What cannot be a task.
    pub unfit: Vec<NotATask>,
    /// The cursor of the next page; `None`: this is the last one.
    pub next: Option<String>,
}

/// What may have changed. Only a hint: what a task may do is judged on what the store has at that moment, so a lost hint
/// costs time, never correctness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// A task arrived in this state, or changed there, or left it.
    Task(TaskName, State, NoticedChange),
    /// Something in this state that cannot be told more precisely.
    State(State),
    /// An owner let go of a claim, or died.
    OwnerGone,
    /// Anything: hints were lost.
    Everything,
}

/// How a change was noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticedChange {
    /// The task was moved in, so it is complete.
    MovedIn,
    /// A program finished writing it; it is complete when it has settled.
    Written,
    /// Something else: it was moved away, created, or its attributes changed.
    Touched,
}

/// Called by the store on a thread of its own, so it must return quickly.
pub type Wake = Arc<dyn Fn(Hint) + Send + Sync>;

/// The store's own watcher. Wake-ups end when it is dropped.
pub type Watch = Box<dyn Any + Send>;

/// A place that keeps tasks.
///
/// An `Err` from any method means that nothing was changed. A change whose fate is unknown is [`StepOutcome::Unknown`].
pub trait Store: Send + Sync {
    // Looking.

    /// All tasks in one state. Must be cheap, unless the store has a [`Self::queue_page`]: then every claim of "the next task"
    /// asks for that instead.
    fn scan(&self, state: State, now: Timestamp) -> Result<Scan>;

    /// At most `limit` of the tasks in `Needs_Action` and `Approved`, after a cursor; the empty cursor is the beginning. For
    /// stores with an index, so that a claim among many tasks reads few of them. `None`: there is no such page, or there may be
    /// tasks that no page has shown, so the caller has to scan.
    fn queue_page(&self, _after: &str, _limit: usize, _now: Timestamp) -> Result<Option<QueuePage>> {
        Ok(None)
    }

    /// One task: in this state, or wherever it is (then states that are not final come first).
    fn get(&self, task: &TaskName, state: Option<State>, now: Timestamp) -> Result<Option<Task>>;

    /// The text of exactly this version, up to `limit` bytes; `None` if the task has changed since.
    fn read(&self, task: &Task, limit: u64) -> Result<Option<Vec<u8>>>;

    /// The claim of the task that is in progress, if it has one. Owners ask for it before every act, so a store answers
    /// without reading the text if it can.
    fn claim_of(&self, task: &TaskName, now: Timestamp) -> Result<Option<Claim>> {
        Ok(self.get(task, Some(State::InProgress), now)?.and_then(|task| task.record.claim))
    }

    // Changing.

    /// Takes one step, all of it or nothing. A step that was taken before, as its id shows, is not taken again: the
    /// answer is the same as the first time.
    fn apply(&self, step: &Step) -> Result<StepOutcome>;

    /// Puts a new task into `Needs_Action`. [`StepOutcome::Conflict`]: there is one of this name. Adding it again with the
    /// same id, because the answer was lost, adds nothing: the answer is the same as the first time.
    fn add(&self, id: &StepId, task: &TaskName, text: &[u8], now: Timestamp) -> Result<StepOutcome>;

    // Events: what happened.

    /// Records events that belong to no step, such as a lost race.
    fn record(&self, events: &[Entry]) -> Result<()>;

    /// The events after a cursor, at most `limit` of them, without gaps. If there are fewer, these are all for now. A fault if
    /// events after the cursor were removed.
    fn events(&self, after: &str, limit: usize) -> Result<EventPage>;

    /// A cursor before the oldest event that this store has. The default is the beginning, for stores that remove none.
    fn oldest_cursor(&self) -> Result<String> {
        Ok(String::new())
    }

    /// A cursor before all events of this time or later. The default is the beginning; a store that can tell a later one saves
    /// the reader what is older.
    fn cursor_before(&self, _time: Timestamp) -> Result<String> {
        Ok(String::new())
    }

    /// A reader of this machine that will continue from a cursor, perhaps in another process, tells how far it is: the events
    /// after the cursor stay readable until the next call, or for some days. For stores that remove old events; the others have
    /// nothing to do.
    fn keep_after(&self, _reader: &str, _cursor: &str) -> Result<()> {
        Ok(())
    }

    /// What each agent's claims add up to since the beginning. The default reads all events.
    fn tallies(&self) -> Result<BTreeMap<Agent, Tally>> {
        event::tallies(|after| self.events(after, event::PAGE))
    }

    /// Calls `wake` whenever something may have changed in these states, or an owner may be gone, until the [`Watch`] is
    /// dropped. `None`: this store cannot tell, so the caller has to look at intervals.
    fn watch(&self, _states: &[State], _wake: Wake) -> Result<Option<Watch>> {
        Ok(None)
    }

    // Tenure: is the owner alive?

    /// Takes the lock of a claim that is about to be made. `None`: this store knows no locks, so the claim gets a lease.
    fn hold(&self, _claim: &ClaimId) -> Result<Option<ClaimLock>> {
        Ok(None)
    }

    /// The tasks in progress whose owners may be gone. A store that knows most owners to be alive leaves their tasks out, so
    /// that a look for dead owners does not cost a question for each task.
    fn suspects(&self, now: Timestamp) -> Result<Vec<TaskSummary>> {
        Ok(self.scan(State::InProgress, now)?.tasks)
    }

    /// Whether the owner of a claim is alive. A store whose own clock does not end leases answers [`Liveness::Unknown`] for
    /// leased claims.
    fn liveness(&self, _claim: &Claim) -> Result<Liveness> {
        Ok(Liveness::Unknown)
    }

    /// How often the store must hear that a claim is alive; `None`: never, it sees that by itself.
    fn heartbeat_interval(&self) -> Option<Duration> {
        None
    }

    /// Tells the store that the owner of a claim is alive. Whether the claim still owns the task; if not, its work must stop.
    fn heartbeat(&self, _task: &TaskName, _claim: &ClaimId) -> Result<bool> {
        Ok(true)
    }

    /// Tells the store that the owners of all held claims of this machine are alive, as far as this process can tell which claims these are.
    /// Returns the claims that still own their tasks.
    fn heartbeat_all(&self) -> Result<Vec<ClaimId>> {
        Ok(Vec::new())
    }

    /// When it was last certain that a claim had a whole lease left, by [`millis_since_boot`]: leases go on while a machine
    /// sleeps, and so must this clock. `None`: at its last step, or at the last heartbeat.
    ///
    /// [`millis_since_boot`]: tollgate_base::boot_clock::millis_since_boot
    fn proven_at(&self, _claim: &ClaimId) -> Option<u64> {
        None
    }

    // Checkup: what keeps the store healthy.

    /// Finishes or rolls back the steps of processes that died, and counts them. Cheap when there are none.
    fn heal(&self) -> Result<usize> {
        Ok(0)
    }

    /// Brings this machine up to date with a remote; `None` if there is none.
    fn sync(&self) -> Result<Option<SyncRound>> {
        Ok(None)
    }

    /// Looks for problems, fixes those that can be fixed, and reports them.
    fn checkup(&self) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }

    /// What keeps the store from being used right now, one sentence each. Cheap: `/health` asks for it.
    fn problems(&self) -> Vec<String> {
        Vec::new()
    }

    /// Deletes leftovers that nothing refers to. Nothing depends on it.
    fn sweep(&self, _now: Timestamp) -> Result<()> {
        Ok(())
    }
}
