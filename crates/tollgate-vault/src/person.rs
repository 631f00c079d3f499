//! A person's verbs: approve, amend, reject.
//!
//! Invariants: an approval is bound to the text that was approved; a decision is made once.

use jiff::Timestamp;

use crate::denial::{Allowed, Denial};
use crate::rules;
use crate::state::{Slot, State};
use crate::step::Step;
use crate::store::{Landed, Task};
use crate::vault::Vault;
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_base::task::TaskName;

impl Vault {
    /// A person approves the task as it is. `seen` is the digest of what the person has seen, if that is known.
    pub fn approve(
        &self,
        task: &TaskName,
        by: &str,
        seen: Option<Digest>,
        now: Timestamp,
    ) -> Result<Allowed<Landed>> {
        self.decide_pending(task, seen, now, |found, sha256| rules::approve(found, by, sha256, None, now))
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
    ) -> Result<Allowed<Landed>> {
        self.decide_pending(task, Some(seen), now, |found, _| rules::amend(found, by, seen, text, now))
    }

    /// A person rejects the task, which needs a reason. Not possible while somebody works on it.
    pub fn reject(&self, task: &TaskName, by: &str, reason: &str, now: Timestamp) -> Result<Allowed<Landed>> {
        self.store().heal()?;
        match self.store().get(task, None, now)? {
            None => Ok(Err(Denial::Missing(task.clone()))),
            Some(found) if matches!(found.slot, Slot::InProgress(_)) || found.slot.state().is_final() => {
                Ok(Err(Denial::Elsewhere(found.name, found.slot)))
            }
            Some(found) => self.decide(&found, rules::reject(&found, by, reason, now)?),
        }
    }

    /// A decision about a task in `Pending_Approval` that has the text with the digest `seen`, if that is known.
    fn decide_pending(
        &self,
        task: &TaskName,
        seen: Option<Digest>,
        now: Timestamp,
        next: impl FnOnce(&Task, Digest) -> Result<Step>,
    ) -> Result<Allowed<Landed>> {
        self.store().heal()?;
        let Some(found) = self.store().get(task, Some(State::PendingApproval), now)? else {
            let elsewhere = self.store().get(task, None, now)?.map(|found| found.slot);
            let missing = || Denial::Missing(task.clone());
            return Ok(Err(elsewhere.map_or_else(missing, |slot| Denial::Elsewhere(task.clone(), slot))));
        };
        match self.digest(&found)? {
            Some(sha256) if seen.is_none_or(|seen| seen == sha256) => {
                self.decide(&found, next(&found, sha256)?)
            }
            _ => Ok(Err(Denial::Changed(found.name))),
        }
    }

    fn decide(&self, found: &Task, step: Step) -> Result<Allowed<Landed>> {
        if let Some(twin) = &found.twin {
            // The record of this name belongs to the other task. The step would take its owner's claim away.
            return Ok(Err(Denial::Twin(step.task, twin.clone())));
        }
        Ok(self.apply(&step)?.landed()?.ok_or(Denial::Changed(step.task)))
    }
}
