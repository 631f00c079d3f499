//! A person's verbs: approve, amend, reject.
//!
//! Invariants: an approval is bound to the text that was approved; a decision is made once.

use jiff::Timestamp;

use crate::denial::{NotDecided, WhyNotDecided};
use crate::rules;
use crate::state::{Slot, State};
use crate::step::{Outcome, Step};
use crate::store::{Landed, Task};
use crate::vault::Vault;
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_base::task::TaskName;

/// The answer to a person's decision.
pub type Decided = std::result::Result<Landed, NotDecided>;

impl Vault {
    /// A person approves the task as it is. `seen` is the digest of what the person has seen, if that is known.
    pub fn approve(
        &self,
        task: &TaskName,
        by: &str,
        seen: Option<Digest>,
        now: Timestamp,
    ) -> Result<Decided> {
        self.decide_pending(task, now, |found, sha256| {
            if seen.is_some_and(|seen| seen != sha256) {
                return Ok(None);
            }
            rules::approve(found, by, sha256, now).map(Some)
        })
    }

    /// A person changes the task's text to `text` and approves that. `seen` is the digest of the text they started from; if
    /// the task has another text by now, nothing is done.
    pub fn amend(
        &self,
        task: &TaskName,
        by: &str,
        seen: Digest,
        text: &str,
        now: Timestamp,
    ) -> Result<Decided> {
        self.decide_pending(task, now, |found, sha256| {
            if seen != sha256 {
                return Ok(None);
            }
            rules::amend(found, by, seen, text, now).map(Some)
        })
    }

    /// A person rejects the task, which needs a reason. Not possible while somebody works on it.
    pub fn reject(&self, task: &TaskName, by: &str, reason: &str, now: Timestamp) -> Result<Decided> {
        self.heal()?;
        let Some(found) = self.store().get(task, None, now)? else {
            return Ok(not_decided(task, WhyNotDecided::Missing));
        };
        if matches!(found.slot, Slot::InProgress(_)) || found.slot.state().is_final() {
            return Ok(not_decided(task, WhyNotDecided::Elsewhere(found.slot)));
        }
        self.decide(task, &rules::reject(&found, by, reason, now)?)
    }

    /// A decision about a task in `Pending_Approval`. `next` gets the task and the digest of its text; `None`: this is not
    /// what the person has seen.
    fn decide_pending(
        &self,
        task: &TaskName,
        now: Timestamp,
        next: impl FnOnce(&Task, Digest) -> Result<Option<Step>>,
    ) -> Result<Decided> {
        self.heal()?;
        let Some(found) = self.store().get(task, Some(State::PendingApproval), now)? else {
            return Ok(not_decided(
                task,
                match self.store().get(task, None, now)? {
                    Some(found) => WhyNotDecided::Elsewhere(found.slot),
                    None => WhyNotDecided::Missing,
                },
            ));
        };
        let step = match self.digest(&found)? {
            Some(sha256) => next(&found, sha256)?,
            None => None,
        };
        match step {
            Some(step) => self.decide(task, &step),
            None => Ok(not_decided(task, WhyNotDecided::Changed)),
        }
    }

    fn decide(&self, task: &TaskName, step: &Step) -> Result<Decided> {
        match self.apply(step)? {
            Outcome::Done(landed) => Ok(Ok(landed)),
            Outcome::Unknown(fault) => Err(fault),
            Outcome::Conflict | Outcome::Changed => Ok(not_decided(task, WhyNotDecided::Changed)),
        }
    }
}

fn not_decided(task: &TaskName, why: WhyNotDecided) -> Decided {
    Err(NotDecided { task: task.clone(), why })
}
