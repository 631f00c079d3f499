//! The vault: tasks as files, worked by at most one live owner at a time.
//!
//! Data goes one way: a verb of [`Vault`] looks at a task, the pure `rules` make a [`store::Step`] of it, the store
//! takes the step as one act, or says that somebody else was quicker. The rules know no store; a store knows no rules.
//!
//! Invariants: no time, no environment, no printing in here: `now` comes in as an argument. A refusal is an answer,
//! a [`crate::error::Fault`] is a fault. Nothing in here imports the file guard.

pub mod block;
pub mod claim;
mod claiming;
pub mod conformance;
mod deciding;
mod edit;
pub mod event;
pub mod figures;
pub mod folder;
mod frontmatter;
pub mod git;
pub mod hold;
mod line;
mod memory;
#[cfg(test)]
mod model;
mod name;
pub mod retry;
pub mod roles;
mod rules;
pub mod shown;
pub mod state;
pub mod store;
pub mod task;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use self::claim::Mode;
use self::figures::Figures;
use self::roles::Roles;
use self::state::{Slot, State};
use self::store::{Healed, Landed, Ready, Scan, Store, Stored};
use crate::digest::Digest;
use crate::error::{Fault, Result};
use crate::name::Agent;

pub use self::claiming::{Asked, Claimed, Claiming, Owned, Wish};
pub use self::deciding::{Decided, Passed, Reclaimed};
pub use self::folder::FolderStore;
pub use self::git::GitStore;
pub use self::line::{Line, Next};
pub use self::memory::MemoryStore;
pub use self::name::TaskName;
pub use self::rules::Release;

/// What the rules need to know from the configuration.
#[derive(Debug, Clone)]
pub struct Terms {
    /// Who may do what.
    pub roles: Roles,
    /// How long a claim without a lock lasts.
    pub lease: Duration,
    /// After so many attempts a task is rejected.
    pub max_attempts: u32,
}

impl Default for Terms {
    fn default() -> Self {
        Self { roles: Roles::default(), lease: Duration::from_secs(30 * 60), max_attempts: 3 }
    }
}

/// One store under the rules. Cheap to clone.
#[derive(Clone)]
pub struct Vault {
    store: Arc<dyn Store>,
    terms: Arc<Terms>,
}

/// Why a task cannot be claimed, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Another was quicker, or it is in other hands.
    Lost,
    /// Not by this agent.
    NotEligible,
    /// Something else must be done before.
    Blocked,
    /// It is not complete, or cannot be read.
    Incomplete,
    /// There is none.
    None,
}

/// Why a task cannot be claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Not {
    /// For programs.
    pub reason: Reason,
    /// For people: one sentence.
    pub sentence: String,
    /// It can be claimed after this time, if nothing else changes.
    pub wait: Option<Duration>,
}

impl Not {
    fn new(reason: Reason, sentence: impl Into<String>) -> Self {
        Self { reason, sentence: sentence.into(), wait: None }
    }
}

impl Vault {
    /// These rules over that store.
    pub fn new(store: Arc<dyn Store>, terms: Terms) -> Self {
        Self { store, terms: Arc::new(terms) }
    }

    /// What the rules know from the configuration.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Settles what others left half made. Cheap when there is nothing; called before everything else.
    pub fn heal(&self) -> Result<Vec<Healed>> {
        self.store.heal()
    }

    /// Puts a new task into `Needs_Action`, complete at once.
    pub fn add(&self, task: &TaskName, bytes: &[u8]) -> Result<Landed> {
        if bytes.is_empty() {
            return Err(Fault::invalid("a task needs some text"));
        }
        let taken = || Fault::invalid(format!("there is a task `{task}` already"));
        self.store.add(task, bytes)?.ok_or_else(taken)
    }

    /// All tasks in one state.
    pub fn list(&self, state: State, now: Timestamp) -> Result<Scan> {
        self.store.scan(state, now)
    }

    /// One task, wherever it is.
    pub fn get(&self, task: &TaskName, now: Timestamp) -> Result<Stored> {
        let missing = || Fault::Missing { what: format!("the task `{task}`") };
        self.store.get(task, None, now)?.ok_or_else(missing)
    }

    /// One task, if it is in this state.
    pub fn look(&self, task: &TaskName, state: State, now: Timestamp) -> Result<Option<Stored>> {
        self.store.get(task, Some(state), now)
    }

    /// Its text, up to a limit.
    pub fn read(&self, stored: &Stored, limit: u64) -> Result<Vec<u8>> {
        self.store.read(stored, limit)
    }

    /// The SHA-256 of its text, to which an approval can be bound; `None` if it has changed since.
    pub fn digest(&self, stored: &Stored) -> Result<Option<Digest>> {
        self.store.digest(stored)
    }

    /// Whether the agent may claim the task now, in which mode, and if not, why not.
    pub fn why(&self, task: &TaskName, agent: &Agent, now: Timestamp) -> Result<Result<Mode, Not>> {
        let stored = self.get(task, now)?;
        self.judge(&stored, agent, false, now)
    }

    /// The figures of `/health`: of all agents together, and of each.
    pub fn figures(&self) -> Result<(Figures, Vec<Figures>)> {
        let parts = self.store.figures()?;
        let each = parts.iter().map(|(agent, (active, tally))| Figures::new(agent.as_str(), *active, tally));
        Ok((Figures::sum(parts.values()), each.collect()))
    }

    /// The filter before every claim.
    fn judge(
        &self,
        stored: &Stored,
        agent: &Agent,
        renamed_in: bool,
        now: Timestamp,
    ) -> Result<Result<Mode, Not>> {
        let task = &stored.task;
        let state = match &stored.slot {
            Slot::InProgress(owner) => {
                return Ok(Err(Not::new(Reason::Lost, format!("`{owner}` is working on `{task}`"))));
            }
            Slot::Free(State::PendingApproval) => {
                let sentence = format!("`{task}` waits for a person to approve it");
                return Ok(Err(Not::new(Reason::NotEligible, sentence)));
            }
            Slot::Free(state) if state.is_final() => {
                return Ok(Err(Not::new(Reason::NotEligible, format!("`{task}` is in `{state}`"))));
            }
            Slot::Free(state) => *state,
        };
        let brief = match &stored.brief {
            Ok(brief) => brief,
            Err(broken) => {
                return Ok(Err(Not::new(Reason::Incomplete, format!("`{task}` cannot be read: {broken}"))));
            }
        };
        match stored.ready {
            Ready::Now => {}
            Ready::After(_) if renamed_in => {}
            Ready::After(wait) => {
                let sentence = format!("`{task}` was written a moment ago and may not be complete");
                return Ok(Err(Not { wait: Some(wait), ..Not::new(Reason::Incomplete, sentence) }));
            }
            Ready::Empty => return Ok(Err(Not::new(Reason::Incomplete, format!("`{task}` is empty")))),
            Ready::Open => {
                let sentence = format!("a program has `{task}` open for writing");
                return Ok(Err(Not::new(Reason::Incomplete, sentence)));
            }
        }
        if let Some(twin) = &stored.twin {
            let sentence = format!("another task named `{task}` is in `{twin}`");
            return Ok(Err(Not::new(Reason::Blocked, sentence)));
        }
        let mode = match self.terms.roles.mode(agent, brief.action.as_deref(), state) {
            Ok(mode) => mode,
            Err(sentence) => return Ok(Err(Not::new(Reason::NotEligible, sentence))),
        };
        for before in &brief.after {
            if before != task && self.store.is_in(before, State::Done)? {
                continue;
            }
            let found = self.store.get(before, None, now)?.map(|found| found.placed.slot);
            let sentence = match found {
                _ if before == task => format!("`{task}` waits for itself"),
                None => format!("`{task}` waits for `{before}`, which does not exist"),
                Some(slot) => format!("`{task}` waits for `{before}`, which is in `{slot}`"),
            };
            return Ok(Err(Not::new(Reason::Blocked, sentence)));
        }
        Ok(Ok(mode))
    }
}
