//! What people decide about tasks, as steps. Pure.

use jiff::Timestamp;

use crate::block::RETURNED;
use crate::claim::{Approval, ClaimRecord};
use crate::rules::{
    HAND, Release, Terms, ask, decided, no_approval_by_move, reclaim, release, step, unclaimed, void,
};
use crate::state::{Slot, State, Verb};
use crate::step::{Step, TextEdit};
use crate::store::Task;
use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};
use tollgate_base::event::Decision;

/// A person approves exactly the text with this digest; `edited_from`: after they changed the text that had that one.
pub(crate) fn approve(
    task: &Task,
    by: &str,
    sha256: Digest,
    edited_from: Option<Digest>,
    at: Timestamp,
) -> Result<Step> {
    let mut step = step(task, Some(Verb::Approve), Slot::APPROVED, at)?;
    decided(&mut step, Decision::Approve { by: by.to_owned(), sha256, edited_from });
    let approval = Some(Approval { sha256, by: by.to_owned(), at });
    let known = ClaimRecord { moved_from: None, offered: Some(sha256), ..task.record.clone() };
    step.record = Some(ClaimRecord { slot: step.to.clone(), approval, reason: None, ..known });
    Ok(step)
}

/// A person takes an approval or a rejection back.
pub(crate) fn take_back(task: &Task, by: &str, at: Timestamp) -> Result<Step> {
    if task.slot == Slot::Free(State::Rejected) {
        // What was offered is not known any more, so a move does not approve it.
        let ask = ask(task, &format!("{by} took the rejection back"), at)?;
        return Ok(Step { records_digest: false, ..ask });
    }
    void(task, &format!("taken back by {by}"), "the approval was taken back", at)
}

/// A person edits the text with the digest `seen` and approves the result.
pub(crate) fn amend(task: &Task, by: &str, seen: Digest, text: &str, at: Timestamp) -> Result<Step> {
    if text.trim().is_empty() {
        return Err(Fault::invalid("a task needs some text"));
    }
    let mut step = approve(task, by, Digest::of(text.as_bytes()), Some(seen), at)?;
    step.check = Some(seen);
    step.edit = TextEdit::Replace(text.to_owned());
    Ok(step)
}

/// A person rejects a task.
pub(crate) fn reject(task: &Task, by: &str, reason: &str, at: Timestamp) -> Result<Step> {
    if reason.trim().is_empty() {
        return Err(Fault::invalid("a rejection needs a reason"));
    }
    let mut step = step(task, Some(Verb::Reject), Slot::Free(State::Rejected), at)?;
    decided(&mut step, Decision::Reject { by: by.to_owned(), reason: reason.to_owned() });
    step.edit = TextEdit::Reject(by.to_owned(), reason.to_owned());
    step.record = None;
    Ok(step)
}

/// A person wants a task to be tried again that was rejected, that pauses, or whose draft they want to be different.
pub(crate) fn retry(task: &Task, by: &str, reason: Option<&str>, at: Timestamp) -> Result<Step> {
    let reason = reason.filter(|reason| !reason.trim().is_empty()).map(str::to_owned);
    if reason.is_none() && task.slot == Slot::PENDING {
        return Err(Fault::invalid(
            "an agent needs to know what should be different in its draft: give a reason",
        ));
    }
    let mut step = step(task, Some(Verb::Retry), Slot::NEEDS_ACTION, at)?;
    decided(&mut step, Decision::Retry { by: by.to_owned(), reason: reason.clone() });
    step.edit = TextEdit::Retry(by.to_owned(), reason);
    step.record = Some(ClaimRecord { attempts: 0, ..unclaimed(task, &step.to, None) });
    Ok(step)
}

/// A person changes the text with the digest `seen` of a task that nobody has claimed, or that waits for a decision.
pub(crate) fn edit(task: &Task, by: &str, seen: Digest, text: &str, at: Timestamp) -> Result<Step> {
    if text.trim().is_empty() {
        return Err(Fault::invalid("a task needs some text"));
    }
    let mut step = step(task, Some(Verb::Edit), task.slot.clone(), at)?;
    let (by, state, sha256) = (by.to_owned(), task.slot.state(), Digest::of(text.as_bytes()));
    decided(&mut step, Decision::Edit { by, state, sha256, edited_from: seen });
    step.check = Some(seen);
    step.edit = TextEdit::Replace(text.to_owned());
    // What the person asks for now is what the author asked for.
    step.record = Some(ClaimRecord { asked: None, ..unclaimed(task, &step.to, None) });
    Ok(step)
}

/// A person returns a task that an agent has claimed. The attempt does not count.
pub(crate) fn give_back(task: &Task, by: &str, terms: &Terms, at: Timestamp) -> Result<Step> {
    match &task.record.claim {
        Some(claim) => release(task, claim, &Release::give_back(format!("{RETURNED}{by}")), terms, at),
        // A person or another program put it there without a claim.
        None => Ok(reclaim(task, terms, at)?.0),
    }
}

/// A person changes the text that has the digest `seen`. What is known about the task stays as it is: an approval of the old
/// text is void, as it is for a file that somebody edited by hand.
pub(crate) fn rewrite(task: &Task, seen: Digest, text: &str, at: Timestamp) -> Result<Step> {
    let mut step = step(task, None, task.slot.clone(), at)?;
    step.check = Some(seen);
    step.edit = TextEdit::Replace(text.to_owned());
    step.record.take_if(|_| task.slot.state().is_final());
    Ok(step)
}

/// What it means that a person moved the file of a task, which has the text with this digest; `None`: no step leads there.
pub(crate) fn moved_by_hand(
    task: &Task,
    to: &Slot,
    sha256: Digest,
    terms: &Terms,
    at: Timestamp,
) -> Option<Result<Step>> {
    use State::{Approved, NeedsAction, PendingApproval, Rejected};
    let why = || format!("moved to `{to}` by hand");
    match (&task.slot, to) {
        (Slot::Free(PendingApproval), Slot::Free(Approved)) => {
            Some(match no_approval_by_move(task, sha256, terms) {
                Some(why) => Err(Fault::invalid(why)),
                None => approve(task, HAND, sha256, None, at),
            })
        }
        (Slot::Free(NeedsAction | PendingApproval | Approved), Slot::Free(Rejected)) => {
            Some(reject(task, HAND, &why(), at))
        }
        (Slot::Free(Rejected), Slot::Free(NeedsAction)) => Some(retry(task, HAND, None, at)),
        // No owner has offered it, so the next move does not approve it.
        (Slot::Free(NeedsAction), Slot::Free(PendingApproval)) => {
            Some(ask(task, &why(), at).map(|ask| Step { records_digest: false, ..ask }))
        }
        (Slot::Free(Approved), Slot::Free(PendingApproval)) => Some(void(task, "taken back", &why(), at)),
        _ => None,
    }
}
