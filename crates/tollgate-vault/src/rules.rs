//! The rules: from a task as it is to the next step, written once for every store. Pure.
//!
//! Invariants: every step is on the map of [`crate::state::may_go`]; failed work never goes to `Done`; a sensitive action
//! that may have been executed is never retried without a person; a draft always goes to a person; a sensitive task that
//! its owner has changed or moved goes to a person, so it never comes back as a harmless one; a text that a person has not
//! seen through one of their doors is approved by a move at most if it was offered, and [`Terms::approve_by_move`] says so.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::block::{Completion, INTERRUPTED, RETURNED, Verdict};
use crate::claim::{Claim, ClaimId, ClaimRecord, ClaimedBrief, Mode, Pause, StepId, Tenure};
use crate::claim_lock::ClaimLock;
use crate::event::{Entry, Event};
use crate::roles::Roles;
use crate::state::{Slot, State, Verb, may_go};
use crate::step::{Step, TextEdit};
use crate::store::Task;
use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};
use tollgate_base::event::{
    ClaimFailed, ClaimLost, ClaimRenewed, Decision, EndedAttempt, TaskClaimed, TaskDecided, TaskReclaimed,
    TaskReleased,
};
use tollgate_base::name::Agent;
use tollgate_base::settings::VaultSettings;
use tollgate_base::task::TaskName;

/// What the rules need to know from the configuration.
#[derive(Debug, Clone)]
pub struct Terms {
    /// Who may do what.
    pub roles: Roles,
    /// How long a claim without a lock lasts.
    pub lease: Duration,
    /// The number of attempts after which a task is rejected.
    pub max_attempts: u32,
    /// The pauses between the attempts at a task; the last one also after all further attempts.
    pub retry: Vec<Duration>,
    /// Whether somebody who moves a file from `Pending_Approval` to `Approved` approves the text that was offered there.
    pub approve_by_move: bool,
}

impl Default for Terms {
    fn default() -> Self {
        let VaultSettings { lease, max_attempts, retry, approve_by_move, .. } = VaultSettings::default();
        let retry = retry.into_iter().map(|pause| pause.0).collect();
        Self { roles: Roles::default(), lease: lease.0, max_attempts, retry, approve_by_move }
    }
}

impl Terms {
    /// The pause after this many failures in a row.
    pub fn pause(&self, failures: u32) -> Option<Duration> {
        let nth = usize::try_from(failures).unwrap_or(usize::MAX).saturating_sub(1);
        self.retry.get(nth).or(self.retry.last()).copied()
    }

    /// The digest of the text in `Approved` that may be executed, if somebody has approved one.
    pub fn approved(&self, record: &ClaimRecord) -> Option<Digest> {
        let by_move = record.offered.filter(|_| self.approve_by_move);
        record.approval.as_ref().map(|approval| approval.sha256).or(by_move)
    }
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
    /// The end of what the work printed, for the task's text.
    pub output: Option<String>,
    /// Whether it counts as an attempt.
    pub counts: bool,
}

impl Release {
    /// The work is done. Where the task goes follows from the claim.
    pub fn success() -> Self {
        Self { verdict: Verdict::Success, to: None, note: None, output: None, counts: true }
    }

    /// The work failed.
    pub fn failure(note: impl Into<String>) -> Self {
        Self { verdict: Verdict::Failure, note: Some(note.into()), ..Self::success() }
    }

    /// Nobody has worked on the task, as when the worker is asked to stop.
    pub fn give_back(why: impl Into<String>) -> Self {
        Self { counts: false, ..Self::failure(why) }
    }
}

pub(crate) fn step(task: &Task, verb: Option<Verb>, to: Slot, at: Timestamp) -> Result<Step> {
    if let Some(verb) = verb
        && !may_go(task.slot.state(), verb, to.state())
    {
        return Err(Fault::invalid(format!("`{}` cannot go from {} to {to}", task.name, task.slot)));
    }
    let id = StepId::new()?;
    let mut step = Step {
        at,
        verb,
        task: task.name.clone(),
        from: task.slot.clone(),
        version: task.version.clone(),
        check: None,
        record: Some(ClaimRecord { slot: to.clone(), moved_from: None, ..task.record.clone() }),
        to,
        edit: TextEdit::Keep,
        records_digest: false,
        fallback_suffix: id.to_string(),
        events: Vec::new(),
        id,
    };
    if let Some(owner) = &task.record.moved_from {
        // A move by hand ended a claim, and nobody has recorded that yet.
        let reason = Some(format!("moved to `{}` by hand", task.slot));
        let (name, id) = (task.name.clone(), step.id.clone());
        let ended = TaskReclaimed { task: name, attempt: None, reason, step: id };
        tell(&mut step, Some(owner), Event::Reclaim(ended, task.slot.state()));
    }
    Ok(step)
}

fn tell(step: &mut Step, agent: Option<&Agent>, event: Event) {
    step.events.push(Entry { time: step.at, agent: agent.cloned(), turn: None, event });
}

pub(crate) fn decided(step: &mut Step, decision: Decision) {
    let decided = TaskDecided { task: step.task.clone(), decision, step: step.id.clone() };
    tell(step, None, Event::Approval(decided));
}

/// Claiming a task. With a lock the claim lasts as long as that, otherwise it gets a lease.
pub(crate) fn claim(
    task: &Task,
    id: ClaimId,
    agent: &Agent,
    mode: Mode,
    lock: Option<&ClaimLock>,
    terms: &Terms,
    at: Timestamp,
) -> Result<(Step, Claim)> {
    let mut step = step(task, Some(Verb::Claim), Slot::InProgress(agent.clone()), at)?;
    let action = task.action().cloned();
    let (from, attempts) = (task.slot.state(), task.record.attempts + 1);
    let lease = || Tenure::Leased(lease_until(at, terms.lease));
    let claim = Claim {
        epoch: task.record.next_epoch(at),
        agent: agent.clone(),
        at,
        tenure: lock.map_or_else(lease, |_| Tenure::Held),
        hold: lock.and_then(ClaimLock::token),
        mode,
        // Somebody called approved work sensitive, whatever the configuration says now.
        sensitive: from == State::Approved || terms.roles.is_sensitive(action.as_deref()),
        action,
        author: task.author,
        from,
        id,
    };
    if from == State::Approved {
        let sha256 = terms
            .approved(&task.record)
            .ok_or_else(|| Fault::invalid(format!("nobody approved `{}`", task.name)))?;
        step.check = Some(sha256);
        if task.record.approval.is_none() {
            decided(&mut step, Decision::Approve { by: HAND.to_owned(), sha256, edited_from: None });
        }
    }
    // Since it arrived there, or was last written.
    let waited_ms = at.duration_since(task.changed).as_millis().max(0);
    let claimed = TaskClaimed {
        task: task.name.clone(),
        claim_id: claim.id.clone(),
        epoch: claim.epoch,
        mode,
        from,
        attempt: attempts,
        waited_ms: i64::try_from(waited_ms).unwrap_or(i64::MAX),
        step: step.id.clone(),
    };
    tell(&mut step, Some(agent), Event::Claim(claimed));
    step.fallback_suffix = claim.id.to_string();
    step.edit = TextEdit::Open;
    // An approval is used once, so it is not kept.
    let (epoch, owned) = (claim.epoch, Some(claim.clone()));
    step.record = Some(ClaimRecord { epoch, attempts, claim: owned, ..ClaimRecord::new(step.to.clone()) });
    Ok((step, claim))
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

/// How the action of a task differs from what its author asked for.
fn new_action(task: &Task, asked: &ClaimedBrief) -> Option<String> {
    let named = |action: Option<&Arc<str>>| action.map_or("none".to_owned(), |action| format!("`{action}`"));
    let (old, new) = (asked.action.as_ref(), task.action());
    (old != new).then(|| format!("its action was changed from {} to {}", named(old), named(new)))
}

/// What was changed in a task while this claim owned it, although that is not for an agent to change.
fn altered(task: &Task, claim: &Claim) -> Option<String> {
    // In a task that is not sensitive, an owner may tick off lines of the author's text.
    let is_new = claim.sensitive && claim.author != task.author;
    let text = || is_new.then(|| "its author's text was changed".to_owned());
    let what = new_action(task, &claim.asked()).or_else(text)?;
    Some(format!("{what} while `{}` owned it", claim.agent))
}

/// Why nobody may claim a task in `Needs_Action` before a person has looked at it: it may be a sensitive one that an agent
/// has made look harmless. What is not sensitive may be changed there.
pub(crate) fn doubt(task: &Task) -> Option<String> {
    let ClaimRecord { asked, moved_from, epoch, .. } = &task.record;
    match (task.slot.state(), asked, moved_from) {
        (State::NeedsAction, Some(asked), Some(owner)) if asked.sensitive => {
            Some(format!("it was moved out of `In_Progress/{owner}` by hand"))
        }
        (State::NeedsAction, Some(asked), owner) if asked.sensitive || owner.is_some() => {
            new_action(task, asked)
        }
        (State::NeedsAction, None, None) if *epoch == 0 && task.has_open_block => Some(UNKNOWN.to_owned()),
        _ => None,
    }
}

/// What is known about a task that has an open block and no record.
const UNKNOWN: &str = "it has the open block of an attempt that tollgate does not know";

/// A person must look at a task in `Needs_Action`.
pub(crate) fn ask(task: &Task, why: &str, at: Timestamp) -> Result<Step> {
    let mut step = step(task, Some(Verb::Ask), Slot::PENDING, at)?;
    decided(&mut step, Decision::Ask { reason: why.to_owned() });
    step.edit = TextEdit::Ask(why.to_owned());
    step.records_digest = true;
    step.record = Some(unclaimed(task, &step.to, Some(why.to_owned())));
    Ok(step)
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

/// If a claimed task was altered, a person decides what happens next. Otherwise what was planned.
fn to_a_person_if(altered: Option<String>, next: State, why: Option<String>) -> (State, Option<String>) {
    match (altered, why) {
        (None, why) => (next, why),
        (Some(altered), None) => (State::PendingApproval, Some(altered)),
        // A note that begins like this says that the owner did not release the task: see `is_released`.
        (Some(altered), Some(why)) if why.starts_with(RETURNED) => {
            (State::PendingApproval, Some(format!("{why}; {altered}")))
        }
        (Some(altered), Some(why)) => (State::PendingApproval, Some(format!("{altered}; {why}"))),
    }
}

/// The pause before the next attempt at a task. The work may have killed its owner, so it also follows a reclaim.
fn pause_after(task: &Task, terms: &Terms, at: Timestamp) -> Option<Pause> {
    let until = lease_until(at, terms.pause(task.record.attempts)?);
    Some(Pause { until, author: task.author })
}

/// Until when nobody may claim a task, because its last attempt failed.
pub(crate) fn pausing_until(task: &Task, terms: &Terms, now: Timestamp) -> Option<Timestamp> {
    let Pause { until, author } = task.record.pause.as_ref()?;
    // A longer pause than the settings have was recorded by a clock that was wrong, or under other settings.
    let longest = lease_until(now, *terms.retry.iter().max()?);
    let holds = *author == task.author && now < *until && *until <= longest;
    holds.then_some(*until)
}

/// Releasing a task.
pub(crate) fn release(
    task: &Task,
    claim: &Claim,
    how: &Release,
    terms: &Terms,
    at: Timestamp,
) -> Result<Step> {
    let failed = how.verdict == Verdict::Failure;
    let limit = if how.counts { terms.max_attempts } else { u32::MAX };
    let (note, draft) = (how.note.clone(), claim.mode == Mode::Draft);
    let (next, note) = match how.to {
        Some(State::Done) if failed => return Err(Fault::invalid("failed work cannot go to `Done`")),
        Some(State::Done) if draft => {
            return Err(Fault::invalid_with_hint(
                "a draft cannot go to `Done`: it goes to `Pending_Approval`, where a person decides",
                "name no next state (`to`): the draft then goes to `Pending_Approval`",
            ));
        }
        Some(to @ (State::PendingApproval | State::Rejected | State::Done)) => (to, note),
        Some(other) => {
            return Err(Fault::invalid(format!(
                "a task cannot be released to `{other}`: use `Done`, `Pending_Approval` or `Rejected`"
            )));
        }
        None if failed => after_failure(&task.record, claim, limit, note.as_deref().unwrap_or("failed")),
        None => (if draft { State::PendingApproval } else { State::Done }, note),
    };
    let altered = altered(task, claim);
    let is_altered = altered.is_some();
    let (next, note) = to_a_person_if(altered, next, note);
    let mut step = leave(task, claim, Verb::Release, how.verdict, next, note, at)?;
    if let TextEdit::Close(_, completion) = &mut step.edit {
        completion.output.clone_from(&how.output);
    }
    if let Some(record) = &mut step.record {
        record.pause = pause_after(task, terms, at).filter(|_| how.counts && next == State::NeedsAction);
        // A draft that succeeded is where it belongs, so its note is not a reason.
        record.reason.take_if(|_| how.to.is_none() && !failed && !is_altered);
        record.attempts = record.attempts.saturating_sub(u32::from(!how.counts));
    }
    Ok(step)
}

/// Reclaiming a task from an owner that is gone: the step, and why the task goes where it goes.
pub(crate) fn reclaim(task: &Task, terms: &Terms, at: Timestamp) -> Result<(Step, Option<String>)> {
    if let Some(claim) = &task.record.claim {
        let (next, why) = after_failure(&task.record, claim, terms.max_attempts, INTERRUPTED);
        let (next, why) = to_a_person_if(altered(task, claim), next, why);
        let mut step = leave(task, claim, Verb::Reclaim, Verdict::Failure, next, why.clone(), at)?;
        if let Some(record) = &mut step.record {
            record.pause = pause_after(task, terms, at).filter(|_| next == State::NeedsAction);
        }
        return Ok((step, why));
    }
    // A person or another program put it there without a claim.
    let (to, why) = match task.has_open_block {
        true => (Slot::PENDING, UNKNOWN),
        false => (Slot::NEEDS_ACTION, "no claim"),
    };
    let mut step = step(task, Some(Verb::Reclaim), to.clone(), at)?;
    if task.has_open_block {
        step.edit = TextEdit::Ask(why.to_owned());
        step.records_digest = true;
        step.record = Some(unclaimed(task, &to, Some(why.to_owned())));
    }
    let (name, why) = (task.name.clone(), Some(why.to_owned()));
    let reclaimed = TaskReclaimed { task: name, attempt: None, reason: why.clone(), step: step.id.clone() };
    tell(&mut step, task.slot.agent(), Event::Reclaim(reclaimed, to.state()));
    Ok((step, why))
}

fn leave(
    task: &Task,
    claim: &Claim,
    verb: Verb,
    verdict: Verdict,
    next: State,
    note: Option<String>,
    at: Timestamp,
) -> Result<Step> {
    let mut step = step(task, Some(verb), Slot::Free(next), at)?;
    let duration_s = u64::try_from(at.as_second() - claim.at.as_second()).unwrap_or(0);
    let attempt =
        EndedAttempt { claim_id: claim.id.clone(), epoch: claim.epoch, result: verdict, duration_s };
    let (name, id, reason) = (task.name.clone(), step.id.clone(), note.clone());
    let event = match verb {
        Verb::Reclaim => {
            Event::Reclaim(TaskReclaimed { task: name, attempt: Some(attempt), reason, step: id }, next)
        }
        _ => Event::Release(TaskReleased { task: name, attempt, reason, step: id }, next),
    };
    tell(&mut step, Some(&claim.agent), event);
    step.fallback_suffix = claim.id.to_string();
    step.record = (!next.is_final()).then(|| ClaimRecord {
        released_by: Some(claim.agent.clone()),
        asked: Some(claim.asked()),
        ..unclaimed(task, &step.to, note.clone())
    });
    step.edit =
        TextEdit::Close(claim.clone(), Completion { at, duration_s, verdict, next, note, output: None });
    step.records_digest = next == State::PendingApproval;
    Ok(step)
}

/// Who decided, if a person moved a file.
pub(crate) const HAND: &str = "hand";

/// What is still known about a task that nobody has claimed or approved any more.
pub(crate) fn unclaimed(task: &Task, slot: &Slot, reason: Option<String>) -> ClaimRecord {
    let ClaimRecord { epoch, attempts, .. } = task.record;
    let (released_by, asked) = (task.record.released_by.clone(), task.record.asked.clone());
    ClaimRecord { epoch, attempts, reason, released_by, asked, ..ClaimRecord::new(slot.clone()) }
}

/// The approval is void: the text in `Approved` is not what was approved, or nobody approved it.
pub(crate) fn reopen(task: &Task, terms: &Terms, at: Timestamp) -> Result<Step> {
    let (word, why) = match task.record.approval {
        Some(_) => return void(task, "changed", "changed after it was approved", at),
        None if terms.approved(&task.record).is_some() => ("changed", NOT_AS_OFFERED),
        None => ("never approved", unapproved(task, terms)),
    };
    void(task, word, &format!("{why}: {HOW_TO_APPROVE}"), at)
}

/// Why a move from `Pending_Approval` to `Approved` does not approve the text with this digest; `None`: it does.
pub(crate) fn no_approval_by_move(task: &Task, sha256: Digest, terms: &Terms) -> Option<String> {
    let why = match terms.approved(&task.record) {
        Some(offered) if offered == sha256 => return None,
        Some(_) => NOT_AS_OFFERED,
        None => unapproved(task, terms),
    };
    Some(format!("{why}: {HOW_TO_APPROVE}"))
}

/// What a person can do about a text that a move does not approve.
const HOW_TO_APPROVE: &str = "a person decides with `tollgate task approve` or on the dashboard";

/// Why a task that was put into `Approved` by hand is not approved, whatever its text is.
fn unapproved(task: &Task, terms: &Terms) -> &'static str {
    match task.record.offered {
        Some(_) if !terms.approve_by_move => "moved to `Approved` by hand, which approves nothing here",
        _ => "put into `Approved` by hand, but never offered for approval",
    }
}

/// Somebody has changed a text and then moved it to `Approved`.
const NOT_AS_OFFERED: &str = "moved to `Approved` by hand with another text than was offered";

pub(crate) fn void(task: &Task, word: &str, why: &str, at: Timestamp) -> Result<Step> {
    let mut step = step(task, Some(Verb::Reopen), Slot::PENDING, at)?;
    decided(&mut step, Decision::Void { reason: word.to_owned() });
    // The text may not be the one that was offered, so it is not what a move approves.
    let offered = task.record.offered;
    step.record = Some(ClaimRecord { offered, ..unclaimed(task, &step.to, Some(why.to_owned())) });
    Ok(step)
}

/// A step of the owner that moves nothing: an edit, if any. It extends the lease along the way.
pub(crate) fn extend(task: &Task, edit: TextEdit, lease: Duration, at: Timestamp) -> Result<Step> {
    let mut step = step(task, None, task.slot.clone(), at)?;
    let claim = step.record.as_mut().and_then(|record| record.claim.as_mut());
    if let Some(Tenure::Leased(until)) = claim.map(|claim| &mut claim.tenure) {
        *until = (*until).max(lease_until(at, lease));
    }
    step.edit = edit;
    Ok(step)
}

/// Extending a lease because the owner asks for it, so that it is recorded.
pub(crate) fn renew(task: &Task, lease: Duration, at: Timestamp) -> Result<Step> {
    let mut step = extend(task, TextEdit::Keep, lease, at)?;
    if let Some(Claim { id, tenure, agent, .. }) =
        step.record.as_ref().and_then(|record| record.claim.clone())
    {
        let renewed = ClaimRenewed { task: task.name.clone(), claim_id: id, tenure, step: step.id.clone() };
        tell(&mut step, Some(&agent), Event::Renew(renewed));
    }
    Ok(step)
}

/// When a lease that is given now ends.
pub(crate) fn lease_until(now: Timestamp, lease: Duration) -> Timestamp {
    now.checked_add(lease).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::says_taken_away;

    #[test]
    fn the_note_of_an_attempt_that_was_taken_from_its_owner_says_so_even_if_its_text_was_altered() {
        for why in [INTERRUPTED.to_owned(), format!("{RETURNED}ada")] {
            let altered = Some("its author's text was changed".to_owned());
            let (next, note) = to_a_person_if(altered, State::NeedsAction, Some(why));
            let note = note.unwrap();
            assert!(next == State::PendingApproval && says_taken_away(note.as_bytes()), "{note}");
            assert!(note.contains("was changed"), "{note}");
        }
    }
}
