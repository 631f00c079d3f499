//! From what is known of a task to the next step: the rules, written once for every store. Pure.
//!
//! Invariants: every step is on the map of [`super::state::may_go`]; a failed attempt is never `Done`; what may have
//! been executed and must be approved is never tried again without a person; a draft never passes the person by.

use std::time::Duration;

use jiff::Timestamp;

use super::block::{Completion, Verdict};
use super::claim::{Approval, Claim, ClaimId, Mode, Note, StepId, Tenure};
use super::event::{Event, Kind, Payload};
use super::name::TaskName;
use super::state::{Slot, State, Verb, may_go};
use super::store::{Edit, Placed, Step, Stored};
use crate::digest::Digest;
use crate::error::{Fault, Result};
use crate::name::Agent;

/// Who asks for a task, and how.
#[derive(Debug, Clone)]
pub(crate) struct Asking {
    pub(crate) id: ClaimId,
    pub(crate) agent: Agent,
    pub(crate) tenure: Tenure,
    pub(crate) lock: Option<u64>,
    pub(crate) mode: Mode,
    pub(crate) sensitive: bool,
}

/// How an owner lets a task go.
#[derive(Debug, Clone)]
pub struct Release {
    /// How it went.
    pub verdict: Verdict,
    /// Where to; `None`: where the verdict leads.
    pub to: Option<State>,
    /// For the file and the ledger.
    pub note: Option<String>,
}

impl Release {
    /// The work is done; where that leads is known from the claim.
    pub fn success() -> Self {
        Self { verdict: Verdict::Success, to: None, note: None }
    }

    /// It is not.
    pub fn failure(note: impl Into<String>) -> Self {
        Self { verdict: Verdict::Failure, to: None, note: Some(note.into()) }
    }
}

fn step(stored: &Placed, verb: Option<Verb>, to: Slot, at: Timestamp) -> Result<Step> {
    if let Some(verb) = verb
        && !may_go(stored.slot.state(), verb, to.state())
    {
        return Err(Fault::invalid(format!("`{}` cannot go from {} to {to}", stored.task, stored.slot)));
    }
    let id = StepId::new()?;
    Ok(Step {
        at,
        verb,
        task: stored.task.clone(),
        from: stored.slot.clone(),
        version: stored.version.clone(),
        check: None,
        note: Some(Note { slot: to.clone(), ..stored.note.clone() }),
        to,
        edit: Edit::Keep,
        offer: false,
        beside: id.to_string(),
        events: Vec::new(),
        hurry: false,
        id,
    })
}

/// Taking a task.
pub(crate) fn claim(stored: &Stored, asking: Asking, at: Timestamp) -> Result<Step> {
    let mut step = step(stored, Some(Verb::Claim), Slot::InProgress(asking.agent.clone()), at)?;
    let action = stored.brief.as_ref().ok().and_then(|brief| brief.action.clone());
    let from = stored.slot.state();
    let claim = Claim {
        epoch: stored.note.next_epoch(at),
        agent: asking.agent,
        at,
        tenure: asking.tenure,
        lock: asking.lock,
        mode: asking.mode,
        action,
        // Approved work has been called sensitive by somebody, whatever the configuration says now.
        sensitive: asking.sensitive || from == State::Approved,
        from,
        block_at: stored.len,
        id: asking.id,
    };
    if from == State::Approved {
        let by_hand = stored.note.approval.is_none();
        let approved = stored.note.approval.as_ref().map(|approval| approval.sha256).or(stored.note.offered);
        let approved =
            approved.ok_or_else(|| Fault::invalid(format!("nobody approved `{}`", stored.task)))?;
        step.check = Some(approved);
        if by_hand {
            let payload = Payload {
                decision: Some("approve".into()),
                by: Some("hand".to_owned()),
                sha256: Some(approved),
                ..Payload::new(&stored.task, &step.id)
            };
            step.tell(Kind::Approval, None, payload, "APPROVED");
        }
    }
    // Since it came there, or was last written.
    let waited_ms = at.duration_since(stored.changed).as_millis().max(0);
    let payload = Payload {
        claim_id: Some(claim.id.clone()),
        epoch: Some(claim.epoch),
        mode: Some(claim.mode),
        from: Some(from),
        attempt: Some(stored.note.attempts + 1),
        waited_ms: Some(i64::try_from(waited_ms).unwrap_or(i64::MAX)),
        ..Payload::new(&stored.task, &step.id)
    };
    step.tell(Kind::Claim, Some(&claim.agent), payload, "CLAIMED");
    step.beside = claim.id.to_string();
    step.edit = Edit::Open;
    step.note = Some(Note {
        slot: step.to.clone(),
        epoch: claim.epoch,
        attempts: stored.note.attempts + 1,
        claim: Some(claim),
        // Used once.
        approval: None,
        offered: None,
        reason: None,
    });
    Ok(step)
}

/// A race that another won.
pub(crate) fn lost(task: &TaskName, from: State, agent: &Agent, at: Timestamp) -> Result<Event> {
    let id = StepId::new()?;
    let payload = Payload { from: Some(from), ..Payload::new(task, &id) };
    Ok(Event { time: at, agent: Some(agent.clone()), kind: Kind::ClaimLost, payload, result: "LOST".into() })
}

/// Where a failed or broken-off attempt leads, and why.
fn after_failure(note: &Note, claim: &Claim, limit: u32, why: &str) -> (State, Option<String>) {
    if claim.sensitive && claim.mode == Mode::Execute {
        // It may have happened. Whether it is to happen again, a person says.
        (State::PendingApproval, Some(why.to_owned()))
    } else if note.attempts >= limit {
        (State::Rejected, Some(format!("gave up after {} attempts: {why}", note.attempts)))
    } else {
        (State::NeedsAction, Some(why.to_owned()))
    }
}

fn owned(stored: &Placed) -> Result<&Claim> {
    stored.note.claim.as_ref().ok_or_else(|| Fault::invalid(format!("nobody has claimed `{}`", stored.task)))
}

/// Letting a task go.
pub(crate) fn release(stored: &Placed, how: &Release, limit: u32, at: Timestamp) -> Result<Step> {
    let claim = owned(stored)?.clone();
    let failed = how.verdict == Verdict::Failure;
    let (next, reason) = match how.to {
        Some(State::Done) if failed => return Err(Fault::invalid("failed work cannot go to `Done`")),
        Some(State::Done) if claim.mode == Mode::Draft => {
            return Err(Fault::invalid("a draft goes to `Pending_Approval`, where a person decides"));
        }
        Some(State::PendingApproval | State::Rejected | State::Done) => {
            (how.to.unwrap_or(State::Done), how.note.clone())
        }
        Some(other) => return Err(Fault::invalid(format!("a task is not released to `{other}`"))),
        None if failed => after_failure(&stored.note, &claim, limit, how.note.as_deref().unwrap_or("failed")),
        None if claim.mode == Mode::Draft => (State::PendingApproval, None),
        None => (State::Done, None),
    };
    let note = if how.to.is_none() && failed { reason.clone() } else { how.note.clone() };
    leave(stored, &claim, Verb::Release, how.verdict, (next, reason, note), at)
}

/// Giving a task back unworked, as when the worker is asked to stop. It does not count as an attempt.
pub(crate) fn give_back(stored: &Placed, why: &str, at: Timestamp) -> Result<Step> {
    let claim = owned(stored)?.clone();
    let (next, reason) = after_failure(&stored.note, &claim, u32::MAX, why);
    let mut step =
        leave(stored, &claim, Verb::Release, Verdict::Failure, (next, reason.clone(), reason), at)?;
    if let Some(note) = &mut step.note {
        note.attempts = note.attempts.saturating_sub(1);
    }
    Ok(step)
}

/// Taking a task from an owner who is gone.
pub(crate) fn reclaim(stored: &Placed, limit: u32, at: Timestamp) -> Result<Step> {
    match &stored.note.claim {
        Some(claim) => {
            let (next, reason) = after_failure(&stored.note, claim, limit, "interrupted");
            leave(stored, claim, Verb::Reclaim, Verdict::Failure, (next, reason.clone(), reason), at)
        }
        // Put there by hand or by another program, which left no claim.
        None => {
            let mut step = step(stored, Some(Verb::Reclaim), Slot::NEEDS_ACTION, at)?;
            let reason = Some("no claim".to_owned());
            let payload = Payload { reason, ..Payload::new(&stored.task, &step.id) };
            step.tell(Kind::Reclaim, stored.slot.agent(), payload, State::NeedsAction);
            Ok(step)
        }
    }
}

fn leave(
    stored: &Placed,
    claim: &Claim,
    verb: Verb,
    verdict: Verdict,
    (next, reason, note): (State, Option<String>, Option<String>),
    at: Timestamp,
) -> Result<Step> {
    let mut step = step(stored, Some(verb), Slot::Free(next), at)?;
    let duration_s = u64::try_from(at.as_second() - claim.at.as_second()).unwrap_or(0);
    let payload = Payload {
        claim_id: Some(claim.id.clone()),
        epoch: Some(claim.epoch),
        result: Some(verdict),
        duration_s: Some(duration_s),
        reason: reason.as_ref().or(note.as_ref()).cloned(),
        ..Payload::new(&stored.task, &step.id)
    };
    let kind = if verb == Verb::Reclaim { Kind::Reclaim } else { Kind::Release };
    step.tell(kind, Some(&claim.agent), payload, next);
    step.beside = claim.id.to_string();
    step.edit = Edit::Close(claim.clone(), Completion { at, duration_s, verdict, next, note });
    step.offer = next == State::PendingApproval;
    step.note = (!next.is_final()).then(|| Note {
        slot: step.to.clone(),
        claim: None,
        offered: None,
        approval: None,
        reason,
        ..stored.note.clone()
    });
    Ok(step)
}

/// A person's yes, to exactly these bytes.
pub(crate) fn approve(stored: &Placed, by: &str, sha256: Digest, at: Timestamp) -> Result<Step> {
    let mut step = step(stored, Some(Verb::Approve), Slot::APPROVED, at)?;
    let payload = Payload {
        decision: Some("approve".into()),
        by: Some(by.to_owned()),
        sha256: Some(sha256),
        ..Payload::new(&stored.task, &step.id)
    };
    step.tell(Kind::Approval, None, payload, "APPROVED");
    step.check = Some(sha256);
    let approval = Some(Approval { sha256, by: by.to_owned(), at });
    step.note = Some(Note { slot: step.to.clone(), approval, reason: None, ..stored.note.clone() });
    Ok(step)
}

/// A person's yes to what they made of these bytes.
pub(crate) fn amend(stored: &Placed, by: &str, seen: &[u8], text: &str, at: Timestamp) -> Result<Step> {
    if text.trim().is_empty() {
        return Err(Fault::invalid("a task needs some text"));
    }
    let before = Digest::of(seen);
    let mut step = approve(stored, by, Digest::of(text.as_bytes()), at)?;
    step.check = Some(before);
    for event in &mut step.events {
        event.payload.edited_from = Some(before);
    }
    // From the first line that differs, so that the log of the step is short.
    let same = seen.iter().zip(text.as_bytes()).take_while(|(old, new)| old == new).count();
    let from = text.as_bytes()[..same].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    step.edit = Edit::Amend(from as u64, text[from..].to_owned());
    Ok(step)
}

/// A person's no.
pub(crate) fn reject(stored: &Placed, by: &str, reason: &str, at: Timestamp) -> Result<Step> {
    if reason.trim().is_empty() {
        return Err(Fault::invalid("a rejection needs a reason"));
    }
    let mut step = step(stored, Some(Verb::Reject), Slot::Free(State::Rejected), at)?;
    let payload = Payload {
        decision: Some("reject".into()),
        by: Some(by.to_owned()),
        reason: Some(reason.to_owned()),
        ..Payload::new(&stored.task, &step.id)
    };
    step.tell(Kind::Approval, None, payload, "REJECTED");
    step.edit = Edit::Reject(by.to_owned(), reason.to_owned());
    step.note = None;
    Ok(step)
}

/// The yes is void: what lies in `Approved` is not what was approved.
pub(crate) fn reopen(stored: &Placed, at: Timestamp) -> Result<Step> {
    let mut step = step(stored, Some(Verb::Reopen), Slot::PENDING, at)?;
    let payload = Payload {
        decision: Some("void".into()),
        reason: Some("changed".to_owned()),
        ..Payload::new(&stored.task, &step.id)
    };
    step.tell(Kind::Approval, None, payload, State::PendingApproval);
    step.offer = true;
    let reason = Some("changed after it was approved".to_owned());
    step.note =
        Some(Note { slot: step.to.clone(), approval: None, offered: None, reason, ..stored.note.clone() });
    Ok(step)
}

/// Extending a lease.
pub(crate) fn renew(stored: &Placed, lease: Duration, at: Timestamp, told: bool) -> Result<Step> {
    let mut claim = owned(stored)?.clone();
    let mut step = step(stored, None, stored.slot.clone(), at)?;
    if let Tenure::Leased(until) = &mut claim.tenure {
        *until = (*until).max(lease_until(at, lease));
    }
    if told {
        let payload = Payload {
            claim_id: Some(claim.id.clone()),
            tenure: Some(claim.tenure.clone()),
            ..Payload::new(&stored.task, &step.id)
        };
        step.tell(Kind::Renew, Some(&claim.agent), payload, "RENEWED");
    }
    step.note = Some(Note { claim: Some(claim), ..stored.note.clone() });
    Ok(step)
}

/// A note of the worker's, which also shows that it is alive.
pub(crate) fn progress(stored: &Placed, text: &str, lease: Duration, at: Timestamp) -> Result<Step> {
    let id = owned(stored)?.id.clone();
    let mut step = renew(stored, lease, at, false)?;
    step.edit = Edit::Progress(id, super::block::progress(at, text));
    Ok(step)
}

/// When a lease that is given now ends.
pub(crate) fn lease_until(now: Timestamp, lease: Duration) -> Timestamp {
    now.checked_add(lease).unwrap_or(Timestamp::MAX)
}
