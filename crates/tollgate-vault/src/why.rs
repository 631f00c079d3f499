//! Why an agent may not claim a task; and tasks that wait for ever unless a person does something.
//!
//! Invariant: nothing is changed. What a claim would do first, such as reclaiming the task from an owner that is gone, is
//! taken into account.

use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;

use crate::claim::{ClaimRecord, Mode};
use crate::denial::{Allowed, Circle, Denial};
use crate::state::{Slot, State};
use crate::store::{NotATask, Ready, Task};
use crate::vault::Vault;
use tollgate_base::error::Result;
use tollgate_base::name::Agent;
use tollgate_base::task::TaskName;

/// The most circles that one walk names. Tasks that all wait for each other have more circles than there are names, and a
/// person who breaks one looks again.
const MOST_CIRCLES: usize = 100;

impl Vault {
    /// Whether the agent may claim the task now: in which mode, or why not.
    pub fn why(&self, task: &TaskName, agent: &Agent, now: Timestamp) -> Result<Allowed<Mode>> {
        let mut found = self.get(task, now)?;
        if let Slot::InProgress(owner) = found.slot.clone()
            && let Some((_, step, _)) = self.abandoned(&found.clone().summary(), now)?
        {
            if step.to != Slot::NEEDS_ACTION {
                return Ok(Err(Denial::OwnerGone(found.name, owner, step.to)));
            }
            let record = step.record.unwrap_or_else(|| ClaimRecord::new(Slot::NEEDS_ACTION));
            found = Task { slot: step.to, record, ready: Ready::Now, ..found };
        }
        let allowed = self.judge(&found, agent, false, now)?;
        match &allowed {
            Ok(_)
                if found.slot == Slot::APPROVED
                    && self.digest(&found)? != self.terms().approved(&found.record) =>
            {
                Ok(Err(Denial::NotAsApproved(found.name)))
            }
            Err(Denial::WaitsFor(..) | Denial::WaitsForMissing(..)) => {
                let after = self.waits_for(&found.name, now)?;
                let circle = self.circles(&found.name, after, &mut BTreeSet::new(), now)?.into_iter().next();
                Ok(circle.map_or(allowed, |circle| Err(Denial::Circle(found.name, circle))))
            }
            _ => Ok(allowed),
        }
    }

    /// The circle that a new task would close, if it waited for these tasks.
    pub fn circle(&self, task: &TaskName, after: &[TaskName], now: Timestamp) -> Result<Option<Circle>> {
        let circles = self.circles(task, after.to_vec(), &mut BTreeSet::new(), now)?;
        Ok(circles.into_iter().find(|circle| circle.first() == Some(task)))
    }

    /// The tasks that no agent can claim unless a person does something, or a lease passes, and why; and the files where tasks
    /// wait that cannot be tasks.
    pub fn stuck(&self, now: Timestamp) -> Result<(Vec<Denial>, Vec<NotATask>)> {
        let (mut stuck, mut unfit, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
        for state in [State::NeedsAction, State::Approved] {
            let scan = self.store().scan(state, now)?;
            unfit.extend(scan.unfit);
            for task in scan.tasks {
                let Ok(brief) = task.brief else { continue };
                if !self.terms().roles.somebody_may(brief.action.as_deref(), state) {
                    stuck.push(Denial::NobodyMay(task.name.clone(), brief.action.clone()));
                }
                for before in &brief.after {
                    if let Some(found) = self.open_or_rejected(before, now)?
                        && found.slot.state() == State::Rejected
                    {
                        stuck.push(Denial::WaitsFor(task.name.clone(), before.clone(), found.slot));
                    }
                }
                // Each task is walked through once, however many wait for it.
                if !brief.after.is_empty() && seen.insert(task.name.clone()) {
                    let circles = self.circles(&task.name, brief.after, &mut seen, now)?;
                    let circle = |circle: Circle| Denial::Circle(circle[0].clone(), circle);
                    stuck.extend(circles.into_iter().map(circle));
                }
            }
        }
        for task in self.store().scan(State::InProgress, now)?.tasks {
            if let Some(found) = self.store().get(&task.name, Some(State::InProgress), now)?
                && let (None, Slot::InProgress(owner)) = (&found.record.claim, found.slot)
            {
                stuck.push(Denial::NoClaim(found.name, owner));
            }
        }
        Ok((stuck, unfit))
    }

    /// The circles that can be reached from a task which waits for `after`, except through tasks that were seen before: the
    /// first [`MOST_CIRCLES`], and one through the task itself.
    fn circles(
        &self,
        task: &TaskName,
        after: Vec<TaskName>,
        seen: &mut BTreeSet<TaskName>,
        now: Timestamp,
    ) -> Result<Vec<Circle>> {
        let (mut circles, mut trail) = (Vec::<Circle>::new(), vec![(task.clone(), after)]);
        // Where each task of the trail is in it.
        let mut places = HashMap::from([(task.clone(), 0)]);
        let mut is_closed = false;
        while let Some((last, rest)) = trail.last_mut() {
            let Some(next) = rest.pop() else {
                places.remove(last);
                trail.pop();
                continue;
            };
            if let Some(&at) = places.get(&next) {
                if circles.len() < MOST_CIRCLES || (at == 0 && !is_closed) {
                    let names = trail[at..].iter().map(|(task, _)| task.clone());
                    circles.push(names.chain([next]).collect());
                }
                is_closed |= at == 0;
            } else if seen.insert(next.clone()) {
                let after = self.waits_for(&next, now)?;
                places.insert(next.clone(), trail.len());
                trail.push((next, after));
            }
        }
        Ok(circles)
    }

    /// What a task still waits for; nothing, if it is finished.
    fn waits_for(&self, task: &TaskName, now: Timestamp) -> Result<Vec<TaskName>> {
        let found = self.open_or_rejected(task, now)?.filter(|found| !found.slot.state().is_final());
        Ok(found.and_then(|found| found.brief.ok()).map(|brief| brief.after).unwrap_or_default())
    }

    /// A task that others wait for, unless one of this name is done.
    fn open_or_rejected(&self, task: &TaskName, now: Timestamp) -> Result<Option<Task>> {
        match self.store().get(task, Some(State::Done), now)? {
            Some(_) => Ok(None),
            None => self.store().get(task, None, now),
        }
    }
}
