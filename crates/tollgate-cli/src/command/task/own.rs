//! The verbs of a task's owner: verify, renew, progress, release. Each shows the claim's id; an old one is refused.

use std::thread::sleep;

use clap::Args;
use serde_json::json;
use tollgate::vault::block::Verdict;
use tollgate::vault::claim::ClaimId;
use tollgate::vault::retry::patiently;
use tollgate::vault::shown::{not_owner_json, noted_json};
use tollgate::vault::state::State;
use tollgate::vault::{Owned, Release as How, TaskName};

use crate::answer::{Answer, Said, Stop};
use crate::door::Door;
use crate::words;

/// The task and the claim.
#[derive(Debug, Args)]
struct Claim {
    /// Its name, with or without `.md`
    task: TaskName,
    /// The claim, as `task claim` named it [default: TOLLGATE_CLAIM_ID]
    #[arg(long, value_name = "ID")]
    claim_id: Option<ClaimId>,
}

/// Ask whether a claim still owns its task
///
/// Do this before the work, and before anything that cannot be taken back. It also extends a lease that is half over.
#[derive(Debug, Args)]
#[command(after_help = "Example\n  tollgate task verify pay-the-rent --claim-id c-0123456789abcdef || exit")]
pub(crate) struct Verify {
    #[command(flatten)]
    claim: Claim,
}

/// Extend the lease of a claim
#[derive(Debug, Args)]
#[command(after_help = "Example\n  tollgate task renew pay-the-rent --claim-id c-0123456789abcdef")]
pub(crate) struct Renew {
    #[command(flatten)]
    claim: Claim,
}

/// Write a progress note into the task, which also extends the lease
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate task progress pay-the-rent --claim-id c-0123456789abcdef 'found the invoice'")]
pub(crate) struct Progress {
    #[command(flatten)]
    claim: Claim,
    /// What there is to say
    text: String,
}

/// Let a task go: done, to be approved, rejected, or failed and to be tried again
///
/// Without --to, success leads to `Done` (from a draft to `Pending_Approval`), failure to another attempt, and after the last
/// one to `Rejected`. If the name is taken in that folder, the file gets the claim id into its name; the answer says so.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate task release pay-the-rent --claim-id c-0123456789abcdef --note 'paid by transfer'
  tollgate task release pay-the-rent --result failure --note 'the bank is closed'")]
pub(crate) struct Release {
    #[command(flatten)]
    claim: Claim,
    /// Where to: Done, Pending_Approval or Rejected
    #[arg(long, value_name = "STATE")]
    to: Option<State>,
    /// How it went
    #[arg(long, value_name = "R", value_parser = verdict, default_value = "success")]
    result: Verdict,
    /// A sentence for the file and the ledger
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

fn verdict(text: &str) -> Result<Verdict, String> {
    match text {
        "success" => Ok(Verdict::Success),
        "failure" => Ok(Verdict::Failure),
        _ => Err(words::bad_verdict()),
    }
}

fn refused(task: &TaskName, why: &str) -> Answer {
    Answer::NotValid(Said {
        notes: words::not_the_owner(why),
        json: not_owner_json(task, why),
        ..Said::default()
    })
}

pub(crate) fn verify(door: &Door, wish: &Verify) -> Result<Answer, Stop> {
    let (tasks, task) = (door.fresh_tasks()?, &wish.claim.task);
    let id = door.claim_id(wish.claim.claim_id.as_ref())?;
    let valid = patiently(|| tasks.vault.verify(task, &id, door.now()), &sleep)?;
    let said =
        Said { words: words::verified(task, &id, valid), json: json!({"valid": valid}), ..Said::default() };
    Ok(if valid { Answer::Done(said) } else { Answer::NotValid(said) })
}

pub(crate) fn renew(door: &Door, wish: &Renew) -> Result<Answer, Stop> {
    let (tasks, task) = (door.tasks()?, &wish.claim.task);
    let id = door.claim_id(wish.claim.claim_id.as_ref())?;
    match patiently(|| tasks.vault.renew(task, &id, door.now()), &sleep)? {
        Owned::No(why) => Ok(refused(task, &why)),
        Owned::Yes(claim) => Ok(Answer::Done(Said {
            words: words::renewed(task, claim.lease_until()),
            json: claim.renewed_json(task),
            ..Said::default()
        })),
    }
}

pub(crate) fn progress(door: &Door, wish: &Progress) -> Result<Answer, Stop> {
    let (tasks, task) = (door.tasks()?, &wish.claim.task);
    let id = door.claim_id(wish.claim.claim_id.as_ref())?;
    match patiently(|| tasks.vault.progress(task, &id, &wish.text, door.now()), &sleep)? {
        Owned::No(why) => Ok(refused(task, &why)),
        Owned::Yes(()) => Ok(Answer::Done(Said {
            words: words::progress_noted(task),
            json: noted_json(task, &id),
            ..Said::default()
        })),
    }
}

pub(crate) fn release(door: &Door, wish: &Release) -> Result<Answer, Stop> {
    let (tasks, task) = (door.tasks()?, &wish.claim.task);
    let id = door.claim_id(wish.claim.claim_id.as_ref())?;
    if wish.result == Verdict::Failure && wish.to == Some(State::Done) {
        return Err(words::failed_is_not_done());
    }
    let how = How { verdict: wish.result, to: wish.to, note: wish.note.clone() };
    match patiently(|| tasks.vault.release(task, &id, &how, door.now()), &sleep)? {
        Owned::No(why) => Ok(refused(task, &why)),
        Owned::Yes(landed) => Ok(Answer::Done(Said {
            words: words::released(task, &landed),
            json: landed.json(),
            ..Said::default()
        })),
    }
}
