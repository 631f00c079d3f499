//! A store under the rules.
//!
//! Data flows one way: a verb looks at a task, the pure [`crate::rules`] make a [`Step`] of it, the store takes the step as
//! one act or says that somebody else was faster. The rules know no store; a store knows no rules.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::checkup::{Finding, Healed, Synced};
use crate::claim::Mode;
use crate::denial::{ClaimDenied, Denial};
use crate::event::{Cursor, EventPage};
use crate::figures::{Figures, Tally};
use crate::roles::Roles;
use crate::state::{Slot, State};
use crate::step::{Outcome, Step};
use crate::store::{Heartbeat, Landed, Ready, Scan, Store, Task};
use crate::watch::{Wake, Watch};
use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};
use tollgate_base::name::{Agent, ClaimId};
use tollgate_base::task::TaskName;

/// How often a step is applied again after its answer was lost. A store that loses four answers in a row is out of reach.
const RETRIES: u32 = 3;

/// How often a text is read again because the task changed between the look and the read.
const READ_TRIES: u32 = 16;

/// What the rules need to know from the configuration.
#[derive(Debug, Clone)]
pub struct Terms {
    /// Who may do what.
    pub roles: Roles,
    /// How long a claim without a lock lasts.
    pub lease: Duration,
    /// The number of attempts after which a task is rejected.
    pub max_attempts: u32,
}

impl Default for Terms {
    fn default() -> Self {
        Self { roles: Roles::default(), lease: Duration::from_secs(30 * 60), max_attempts: 3 }
    }
}

/// A store under the rules. Cheap to clone.
#[derive(Clone)]
pub struct Vault {
    store: Arc<dyn Store>,
    terms: Arc<Terms>,
}

impl Vault {
    /// These rules over that store.
    pub fn new(store: Arc<dyn Store>, terms: Terms) -> Self {
        Self { store, terms: Arc::new(terms) }
    }

    /// The store.
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// The terms.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Finishes or rolls back the steps of processes that died. Cheap when there are none; every verb that begins
    /// something calls it first.
    pub fn heal(&self) -> Result<Vec<Healed>> {
        self.store.heal()
    }

    /// Puts a new task into `Needs_Action`.
    pub fn add(&self, task: &TaskName, text: &[u8], now: Timestamp) -> Result<Landed> {
        if text.is_empty() {
            return Err(Fault::invalid("a task needs some text"));
        }
        let taken = || Fault::invalid(format!("a task named `{task}` already exists"));
        self.store.add(task, text, now)?.ok_or_else(taken)
    }

    /// All tasks in one state.
    pub fn list(&self, state: State, now: Timestamp) -> Result<Scan> {
        self.store.scan(state, now)
    }

    /// One task, wherever it is.
    pub fn get(&self, task: &TaskName, now: Timestamp) -> Result<Task> {
        self.store.get(task, None, now)?.ok_or_else(|| missing(task))
    }

    /// One task, if it is in this state.
    pub fn get_in(&self, task: &TaskName, state: State, now: Timestamp) -> Result<Option<Task>> {
        self.store.get(task, Some(state), now)
    }

    /// The text of exactly this version, up to a limit; `None` if the task has changed since.
    pub fn read(&self, task: &Task, limit: u64) -> Result<Option<Vec<u8>>> {
        self.store.read(task, limit)
    }

    /// One task and its text, up to a limit.
    pub fn get_with_text(&self, task: &TaskName, limit: u64, now: Timestamp) -> Result<(Task, Vec<u8>)> {
        for _ in 0..READ_TRIES {
            let found = self.get(task, now)?;
            if let Some(text) = self.store.read(&found, limit)? {
                return Ok((found, text));
            }
        }
        Err(Fault::invalid(format!("`{task}` changes all the time: stop the program that writes to it")))
    }

    /// The SHA-256 of the text of exactly this version; `None` if the task has changed since.
    pub fn digest(&self, task: &Task) -> Result<Option<Digest>> {
        Ok(self.store.read(task, u64::MAX)?.map(|text| Digest::of(&text)))
    }

    /// Whether the agent may claim the task now: in which mode, or why not.
    pub fn why(
        &self,
        task: &TaskName,
        agent: &Agent,
        now: Timestamp,
    ) -> Result<std::result::Result<Mode, ClaimDenied>> {
        let found = self.get(task, now)?;
        Ok(self.judge(&found, agent, false, now)?.map_err(|why| ClaimDenied { task: task.clone(), why }))
    }

    /// The figures of `/health`: of all agents together, and of each.
    pub fn figures(&self, now: Timestamp) -> Result<(Figures, Vec<Figures>)> {
        let tallies = self.store.tallies()?.into_iter();
        let mut parts: BTreeMap<Agent, (u64, Tally)> =
            tallies.map(|(agent, tally)| (agent, (0, tally))).collect();
        for task in self.store.scan(State::InProgress, now)?.tasks {
            if let Slot::InProgress(agent) = task.slot {
                parts.entry(agent).or_default().0 += 1;
            }
        }
        let each = parts.iter().map(|(agent, (active, tally))| Figures::new(agent.as_str(), *active, tally));
        Ok((Figures::sum(parts.values()), each.collect()))
    }

    /// The events after a cursor, the oldest first, without gaps.
    pub fn events(&self, after: &Cursor, limit: usize) -> Result<EventPage> {
        self.store.events(after, limit)
    }

    /// Calls `wake` whenever something may have changed in these states. `None`: look at intervals instead.
    pub fn watch(&self, states: &[State], wake: Wake) -> Result<Option<Watch>> {
        self.store.watch(states, wake)
    }

    /// Brings this machine up to date with a remote; `None` if there is none.
    pub fn sync(&self) -> Result<Option<Synced>> {
        self.store.sync()
    }

    /// Looks for problems in the store and fixes those that can be fixed.
    pub fn checkup(&self) -> Result<Vec<Finding>> {
        self.store.checkup()
    }

    /// Tells the store that the owner of a claim is alive.
    pub fn heartbeat(&self, task: &TaskName, claim: &ClaimId) -> Result<Heartbeat> {
        self.store.heartbeat(task, claim)
    }

    /// Applies a step. If its answer is lost, applies the same step again: the store sees by its id whether it was taken.
    pub(crate) fn apply(&self, step: &Step) -> Result<Outcome> {
        for _ in 0..RETRIES {
            match self.store.apply(step)? {
                Outcome::Unknown(_) => {}
                outcome => return Ok(outcome),
            }
        }
        self.store.apply(step)
    }

    /// The filter before every claim.
    pub(crate) fn judge(
        &self,
        task: &Task,
        agent: &Agent,
        renamed_in: bool,
        now: Timestamp,
    ) -> Result<std::result::Result<Mode, Denial>> {
        let state = match &task.slot {
            Slot::InProgress(owner) => return Ok(Err(Denial::Owned(owner.clone()))),
            Slot::Free(State::PendingApproval) => return Ok(Err(Denial::AwaitsApproval)),
            Slot::Free(state) if state.is_final() => return Ok(Err(Denial::Final(*state))),
            Slot::Free(state) => *state,
        };
        let brief = match &task.brief {
            Ok(brief) => brief,
            Err(broken) => return Ok(Err(Denial::Broken(broken.clone()))),
        };
        match task.ready {
            Ready::Now => {}
            Ready::After(_) if renamed_in => {}
            Ready::After(wait) => return Ok(Err(Denial::Young(wait))),
            Ready::Empty => return Ok(Err(Denial::Empty)),
            Ready::Open => return Ok(Err(Denial::OpenForWriting)),
        }
        if let Some(twin) = &task.twin {
            return Ok(Err(Denial::Twin(twin.clone())));
        }
        let mode = match self.terms.roles.mode(agent, brief.action.as_deref(), state) {
            Ok(mode) => mode,
            Err(not_allowed) => return Ok(Err(Denial::NotAllowed(not_allowed))),
        };
        for before in &brief.after {
            if *before == task.name {
                return Ok(Err(Denial::WaitsForItself));
            }
            if self.store.get(before, Some(State::Done), now)?.is_none() {
                let slot = self.store.get(before, None, now)?.map(|found| found.slot);
                return Ok(Err(Denial::WaitsFor(before.clone(), slot)));
            }
        }
        Ok(Ok(mode))
    }
}

pub(crate) fn missing(task: &TaskName) -> Fault {
    Fault::Missing { what: format!("the task `{task}`") }
}
