//! The rules: from a task as it is to the next step, written once for every store. Pure.
//!
//! Invariants: every step is on the map of [`crate::state::may_go`]; failed work never goes to `Done`; a sensitive action
//! that may have been executed is never retried without a person; a draft always goes to a person.

use std::time::Duration;

use jiff::Timestamp;

use crate::block::{self, Completion, Verdict};
use crate::claim::{Approval, Claim, ClaimId, ClaimRecord, Mode, StepId, Tenure};
use crate::event::{Entry, Event};
use crate::state::{Slot, State, Verb, may_go};
use crate::step::{Edit, Step};
use crate::store::Task;
use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};
use tollgate_base::event::{
    ClaimFailed, ClaimLost, ClaimRenewed, Decision, EndedAttempt, TaskClaimed, TaskDecided, TaskReclaimed,
    TaskReleased,
};
use tollgate_base::name::Agent;
use tollgate_base::task::TaskName;

/// A claim that is about to be made.
#[derive(Debug, Clone)]
pub(crate) struct NewClaim {
    pub(crate) id: ClaimId,
    pub(crate) agent: Agent,
    pub(crate) tenure: Tenure,
    pub(crate) hold: Option<u64>,
    pub(crate) mode: Mode,
    pub(crate) sensitive: bool,
}

/// How an owner releases a task.
#[derive(Debug, Clone)]
pub struct Release {
    /// Whether the work succeeded.
    pub verdict: Verdict,
    /// Where the task goes; `None`: where the verdict leads.
    pub to: Option<State>,
    /// A note for the task's text and the ledger.
    pub note: Option<String>,
}

impl Release {
    /// The work is done. Where the task goes follows from the claim.
    pub fn success() -> Self {
        Self { verdict: Verdict::Success, to: None, note: None }
    }

    /// The work failed.
    pub fn failure(note: impl Into<String>) -> Self {
        Self { verdict: Verdict::Failure, to: None, note: Some(note.into()) }
    }
}

fn step(task: &Task, verb: Option<Verb>, to: Slot, at: Timestamp) -> Result<Step> {
    if let Some(verb) = verb
        && !may_go(task.slot.state(), verb, to.state())
    {
        return Err(Fault::invalid(format!("`{}` cannot go from {} to {to}", task.name, task.slot)));
    }
    let id = StepId::new()?;
    Ok(Step {
        at,
        verb,
        task: task.name.clone(),
        from: task.slot.clone(),
        version: task.version.clone(),
        check: None,
        record: Some(ClaimRecord { slot: to.clone(), ..task.record.clone() }),
        to,
        edit: Edit::Keep,
        records_digest: false,
        fallback_suffix: id.to_string(),
        events: Vec::new(),
        id,
    })
}

/// Adds an event.
fn tell(step: &mut Step, agent: Option<&Agent>, event: Event) {
    step.events.push(Entry { time: step.at, agent: agent.cloned(), turn: None, event });
}

fn decided(step: &mut Step, decision: Decision) {
    let decided = TaskDecided { task: step.task.clone(), decision, step: step.id.clone() };
    tell(step, None, Event::Approval(decided));
}

/// Claiming a task.
pub(crate) fn claim(task: &Task, new: NewClaim, at: Timestamp) -> Result<Step> {
    let mut step = step(task, Some(Verb::Claim), Slot::InProgress(new.agent.clone()), at)?;
    let action = task.brief.as_ref().ok().and_then(|brief| brief.action.clone());
    let from = task.slot.state();
    let claim = Claim {
        epoch: task.record.next_epoch(at),
        agent: new.agent,
        at,
        tenure: new.tenure,
        hold: new.hold,
        mode: new.mode,
        action,
        // Somebody called approved work sensitive, whatever the configuration says now.
        sensitive: new.sensitive || from == State::Approved,
        from,
        id: new.id,
    };
    if from == State::Approved {
        let by_hand = task.record.approval.is_none();
        let approved = task.record.approval.as_ref().map(|approval| approval.sha256).or(task.record.offered);
        let approved = approved.ok_or_else(|| Fault::invalid(format!("nobody approved `{}`", task.name)))?;
        step.check = Some(approved);
        if by_hand {
            decided(
                &mut step,
                Decision::Approve { by: "hand".to_owned(), sha256: approved, edited_from: None },
            );
        }
    }
    // Since it arrived there, or was last written.
    let waited_ms = at.duration_since(task.changed).as_millis().max(0);
    let claimed = TaskClaimed {
        task: task.name.clone(),
        claim_id: claim.id.clone(),
        epoch: claim.epoch,
        mode: claim.mode,
        from,
        attempt: task.record.attempts + 1,
        waited_ms: i64::try_from(waited_ms).unwrap_or(i64::MAX),
        step: step.id.clone(),
    };
    tell(&mut step, Some(&claim.agent), Event::Claim(claimed));
    step.fallback_suffix = claim.id.to_string();
    step.edit = Edit::Open;
    step.record = Some(ClaimRecord {
        slot: step.to.clone(),
        epoch: claim.epoch,
        attempts: task.record.attempts + 1,
        claim: Some(claim),
        // Used once.
        approval: None,
        offered: None,
        reason: None,
    });
    Ok(step)
}

/// A race that another agent won.
pub(crate) fn lost(task: &TaskName, from: State, agent: &Agent, at: Timestamp) -> Result<Entry> {
    let lost = ClaimLost { task: task.clone(), from, step: StepId::new()? };
    Ok(Entry { time: at, agent: Some(agent.clone()), turn: None, event: Event::ClaimLost(lost) })
}

/// A claim that ended in an error.
pub(crate) fn claim_failed(task: &TaskName, agent: &Agent, why: &Fault, at: Timestamp) -> Result<Entry> {
    let failed = ClaimFailed { task: task.clone(), error: why.to_string(), step: StepId::new()? };
    Ok(Entry { time: at, agent: Some(agent.clone()), turn: None, event: Event::ClaimFailed(failed) })
}

/// Where a failed or interrupted attempt leads, and why.
fn after_failure(record: &ClaimRecord, claim: &Claim, limit: u32, why: &str) -> (State, Option<String>) {
    if claim.sensitive && claim.mode == Mode::Execute {
        // The action may have happened. A person decides whether it should happen again.
        (State::PendingApproval, Some(why.to_owned()))
    } else if record.attempts >= limit {
        (State::Rejected, Some(format!("gave up after {} attempts: {why}", record.attempts)))
    } else {
        (State::NeedsAction, Some(why.to_owned()))
    }
}

fn owned(task: &Task) -> Result<&Claim> {
    task.record.claim.as_ref().ok_or_else(|| Fault::invalid(format!("nobody has claimed `{}`", task.name)))
}

/// Releasing a task.
pub(crate) fn release(task: &Task, how: &Release, limit: u32, at: Timestamp) -> Result<Step> {
    let claim = owned(task)?.clone();
    let failed = how.verdict == Verdict::Failure;
    let (next, reason) = match how.to {
        Some(State::Done) if failed => return Err(Fault::invalid("failed work cannot go to `Done`")),
        Some(State::Done) if claim.mode == Mode::Draft => {
            return Err(Fault::invalid(
                "a draft cannot go to `Done`: it goes to `Pending_Approval`, where a person decides",
            ));
        }
        Some(State::PendingApproval | State::Rejected | State::Done) => {
            (how.to.unwrap_or(State::Done), how.note.clone())
        }
        Some(other) => {
            return Err(Fault::invalid(format!(
                "a task cannot be released to `{other}`: use `Done`, `Pending_Approval` or `Rejected`"
            )));
        }
        None if failed => after_failure(&task.record, &claim, limit, how.note.as_deref().unwrap_or("failed")),
        None if claim.mode == Mode::Draft => (State::PendingApproval, None),
        None => (State::Done, None),
    };
    let note = if how.to.is_none() && failed { reason.clone() } else { how.note.clone() };
    leave(task, &claim, Verb::Release, how.verdict, (next, reason, note), at)
}

/// Returning a task without having worked on it, as when the worker is asked to stop. It does not count as an attempt.
pub(crate) fn give_back(task: &Task, why: &str, at: Timestamp) -> Result<Step> {
    let claim = owned(task)?.clone();
    let (next, reason) = after_failure(&task.record, &claim, u32::MAX, why);
    let mut step = leave(task, &claim, Verb::Release, Verdict::Failure, (next, reason.clone(), reason), at)?;
    if let Some(record) = &mut step.record {
        record.attempts = record.attempts.saturating_sub(1);
    }
    Ok(step)
}

/// Reclaiming a task from an owner that is gone.
pub(crate) fn reclaim(task: &Task, limit: u32, at: Timestamp) -> Result<Step> {
    match &task.record.claim {
        Some(claim) => {
            let (next, reason) = after_failure(&task.record, claim, limit, "interrupted");
            leave(task, claim, Verb::Reclaim, Verdict::Failure, (next, reason.clone(), reason), at)
        }
        // A person or another program put it there without a claim.
        None => {
            let mut step = step(task, Some(Verb::Reclaim), Slot::NEEDS_ACTION, at)?;
            let reclaimed = TaskReclaimed {
                task: task.name.clone(),
                attempt: None,
                reason: Some("no claim".to_owned()),
                step: step.id.clone(),
            };
            tell(&mut step, task.slot.agent(), Event::Reclaim(reclaimed, State::NeedsAction));
            Ok(step)
        }
    }
}

fn leave(
    task: &Task,
    claim: &Claim,
    verb: Verb,
    verdict: Verdict,
    (next, reason, note): (State, Option<String>, Option<String>),
    at: Timestamp,
) -> Result<Step> {
    let mut step = step(task, Some(verb), Slot::Free(next), at)?;
    let duration_s = u64::try_from(at.as_second() - claim.at.as_second()).unwrap_or(0);
    let attempt =
        EndedAttempt { claim_id: claim.id.clone(), epoch: claim.epoch, result: verdict, duration_s };
    let (name, id) = (task.name.clone(), step.id.clone());
    let why = reason.as_ref().or(note.as_ref()).cloned();
    let event = match verb {
        Verb::Reclaim => {
            let attempt = Some(attempt);
            Event::Reclaim(TaskReclaimed { task: name, attempt, reason: why, step: id }, next)
        }
        _ => Event::Release(TaskReleased { task: name, attempt, reason: why, step: id }, next),
    };
    tell(&mut step, Some(&claim.agent), event);
    step.fallback_suffix = claim.id.to_string();
    step.edit = Edit::Close(claim.clone(), Completion { at, duration_s, verdict, next, note });
    step.records_digest = next == State::PendingApproval;
    step.record = (!next.is_final()).then(|| ClaimRecord {
        slot: step.to.clone(),
        claim: None,
        offered: None,
        approval: None,
        reason,
        ..task.record.clone()
    });
    Ok(step)
}

/// A person approves exactly this text.
pub(crate) fn approve(task: &Task, by: &str, sha256: Digest, at: Timestamp) -> Result<Step> {
    let mut step = step(task, Some(Verb::Approve), Slot::APPROVED, at)?;
    decided(&mut step, Decision::Approve { by: by.to_owned(), sha256, edited_from: None });
    step.check = Some(sha256);
    let approval = Some(Approval { sha256, by: by.to_owned(), at });
    step.record = Some(ClaimRecord { slot: step.to.clone(), approval, reason: None, ..task.record.clone() });
    Ok(step)
}

/// A person edits the text with the digest `seen` and approves the result.
pub(crate) fn amend(task: &Task, by: &str, seen: Digest, text: &str, at: Timestamp) -> Result<Step> {
    if text.trim().is_empty() {
        return Err(Fault::invalid("a task needs some text"));
    }
    let mut step = approve(task, by, Digest::of(text.as_bytes()), at)?;
    step.check = Some(seen);
    for entry in &mut step.events {
        if let Event::Approval(TaskDecided { decision: Decision::Approve { edited_from, .. }, .. }) =
            &mut entry.event
        {
            *edited_from = Some(seen);
        }
    }
    step.edit = Edit::Replace(text.to_owned());
    Ok(step)
}

/// A person rejects a task.
pub(crate) fn reject(task: &Task, by: &str, reason: &str, at: Timestamp) -> Result<Step> {
    if reason.trim().is_empty() {
        return Err(Fault::invalid("a rejection needs a reason"));
    }
    let mut step = step(task, Some(Verb::Reject), Slot::Free(State::Rejected), at)?;
    decided(&mut step, Decision::Reject { by: by.to_owned(), reason: reason.to_owned() });
    step.edit = Edit::Reject(by.to_owned(), reason.to_owned());
    step.record = None;
    Ok(step)
}

/// The approval is void: the text in `Approved` is not what was approved.
pub(crate) fn reopen(task: &Task, at: Timestamp) -> Result<Step> {
    let mut step = step(task, Some(Verb::Reopen), Slot::PENDING, at)?;
    decided(&mut step, Decision::Void { reason: "changed".to_owned() });
    step.records_digest = true;
    let reason = Some("changed after it was approved".to_owned());
    step.record = Some(ClaimRecord {
        slot: step.to.clone(),
        approval: None,
        offered: None,
        reason,
        ..task.record.clone()
    });
    Ok(step)
}

/// Whether a renewal gets its own event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// The owner asked for it.
    Yes,
    /// It happens along the way.
    No,
}

/// Extending a lease.
pub(crate) fn renew(task: &Task, lease: Duration, at: Timestamp, told: Told) -> Result<Step> {
    let mut claim = owned(task)?.clone();
    let mut step = step(task, None, task.slot.clone(), at)?;
    if let Tenure::Leased(until) = &mut claim.tenure {
        *until = (*until).max(lease_until(at, lease));
    }
    if told == Told::Yes {
        let renewed = ClaimRenewed {
            task: task.name.clone(),
            claim_id: claim.id.clone(),
            tenure: claim.tenure.clone(),
            step: step.id.clone(),
        };
        tell(&mut step, Some(&claim.agent), Event::Renew(renewed));
    }
    step.record = Some(ClaimRecord { claim: Some(claim), ..task.record.clone() });
    Ok(step)
}

/// A progress note by the owner, which also renews the lease.
pub(crate) fn progress(task: &Task, text: &str, lease: Duration, at: Timestamp) -> Result<Step> {
    let id = owned(task)?.id.clone();
    let mut step = renew(task, lease, at, Told::No)?;
    step.edit = Edit::Progress(id, block::progress(at, text));
    Ok(step)
}

/// The owner's draft, which also renews the lease.
pub(crate) fn draft(task: &Task, text: &str, lease: Duration, at: Timestamp) -> Result<Step> {
    if text.trim().is_empty() {
        return Err(Fault::invalid("a draft needs some text"));
    }
    let id = owned(task)?.id.clone();
    let mut step = renew(task, lease, at, Told::No)?;
    step.edit = Edit::Draft(id, block::draft(text));
    Ok(step)
}

/// When a lease that is given now ends.
pub(crate) fn lease_until(now: Timestamp, lease: Duration) -> Timestamp {
    now.checked_add(lease).unwrap_or(Timestamp::MAX)
}
