//! The verbs of a task's owner: verify, renew, progress, draft, release. Each takes the claim's ID; an old ID is refused.

use std::thread::sleep;

use clap::Args;
use serde_json::json;
use tollgate::error::Fault;
use tollgate::vault::block::Verdict;
use tollgate::vault::claim::ClaimId;
use tollgate::vault::retry::with_retry;
use tollgate::vault::shown::noted_json;
use tollgate::vault::state::State;
use tollgate::vault::{NotOwner, Owned, Release, TaskName};

use super::prose::prose;
use crate::answer::{Answer, Reply};
use crate::command::bytes::stdin;
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::tasks::LoggedVault;
use crate::words;

/// The task and the claim.
#[derive(Debug, Args)]
struct ClaimRef {
    /// Task name, with or without `.md`
    task: TaskName,
    /// Claim ID, as printed by `task claim` [default: TOLLGATE_CLAIM_ID]
    #[arg(long, value_name = "ID")]
    claim_id: Option<ClaimId>,
}

/// Check whether a claim still owns its task
///
/// Run this before the work, and before every action that cannot be undone. It also extends a lease that is half over.
#[derive(Debug, Args)]
#[command(after_help = "Example\n  tollgate task verify pay-the-rent --claim-id c-0123456789abcdef || exit")]
pub(crate) struct TaskVerifyArgs {
    #[command(flatten)]
    claim: ClaimRef,
}

/// Extend the lease of a claim
#[derive(Debug, Args)]
#[command(after_help = "Example\n  tollgate task renew pay-the-rent --claim-id c-0123456789abcdef")]
pub(crate) struct TaskRenewArgs {
    #[command(flatten)]
    claim: ClaimRef,
}

/// Add a progress note to the task; also extends the lease
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate task progress pay-the-rent --claim-id c-0123456789abcdef 'found the invoice'")]
pub(crate) struct TaskProgressArgs {
    #[command(flatten)]
    claim: ClaimRef,
    /// The note
    #[arg(allow_hyphen_values = true, value_parser = prose)]
    text: String,
}

/// Add a draft to the task, for a person to approve; also extends the lease
///
/// The draft appears under `## Draft` in the task's text. Then release the task: it goes to `Pending_Approval`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate task draft pay-the-rent --claim-id c-0123456789abcdef 'Transfer 900 EUR to the landlord'
  tollgate task draft pay-the-rent --claim-id c-0123456789abcdef - < draft.md")]
pub(crate) struct TaskDraftArgs {
    #[command(flatten)]
    claim: ClaimRef,
    /// The draft, in Markdown; `-` reads it from stdin
    #[arg(allow_hyphen_values = true, value_parser = prose)]
    text: String,
}

/// Release a task: done, drafted, rejected, or failed
///
/// Without --to, a success goes to `Done`, or to `Pending_Approval` if it is a draft. A failure goes back to `Needs_Action` for
/// another attempt, and after the last attempt to `Rejected`. If the name is taken in that folder, the claim ID is added to the
/// file name, and the answer says so.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate task release pay-the-rent --claim-id c-0123456789abcdef --note 'paid by transfer'
  tollgate task release pay-the-rent --result failure --note 'the bank is closed'")]
pub(crate) struct TaskReleaseArgs {
    #[command(flatten)]
    claim: ClaimRef,
    /// The next state: Done, Pending_Approval or Rejected
    #[arg(long, value_name = "STATE")]
    to: Option<State>,
    /// The result: success or failure
    #[arg(long, value_name = "R", value_parser = verdict, default_value = "success")]
    result: Verdict,
    /// A note for the file and the ledger
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, value_parser = prose)]
    note: Option<String>,
}

fn verdict(text: &str) -> Result<Verdict, String> {
    match text {
        "success" => Ok(Verdict::Success),
        "failure" => Ok(Verdict::Failure),
        _ => Err(words::bad_verdict()),
    }
}

/// The claim that this call names; or who owns it, if the agent of this call is another one. Without a named agent the id is
/// the only proof, as in a script of the owner.
fn own_claim(
    invocation: &Invocation,
    tasks: &LoggedVault,
    claim: &ClaimRef,
) -> Result<Result<ClaimId, NotOwner>, CliError> {
    let id = invocation.claim_id(claim.claim_id.as_ref())?;
    let Some(agent) = invocation.named_by_environment()? else { return Ok(Ok(id)) };
    let found = tasks.vault.store().get(&claim.task, Some(State::InProgress), invocation.now())?;
    let made = found.and_then(|found| found.record.claim).filter(|made| made.id == id);
    Ok(match made {
        Some(made) if made.agent != agent => {
            Err(NotOwner { task: claim.task.clone(), claim: id, owner: Some(made.agent) })
        }
        _ => Ok(id),
    })
}

pub(crate) fn verify(invocation: &Invocation, args: &TaskVerifyArgs) -> Result<Answer, CliError> {
    let (tasks, task) = (invocation.fresh_tasks()?, &args.claim.task);
    let (id, valid) = match own_claim(invocation, &tasks, &args.claim)? {
        Ok(id) => {
            let valid = with_retry(|| tasks.vault.verify(task, &id, invocation.now()), &sleep)?;
            (id, valid)
        }
        Err(not_owner) => (not_owner.claim, false),
    };
    let json = if valid { json!({"valid": true}) } else { json!({"valid": false, "hint": words::NOT_VALID}) };
    let said = Reply::new(words::verified(task, &id, valid), json);
    Ok(if valid { Answer::Done(said) } else { Answer::NotValid(said) })
}

/// Carries out a verb of the owner, and answers with what it did; or refuses it, if the call names a claim that does not own the task.
/// The agent's log has why it was not carried out.
fn as_owner<T>(
    invocation: &Invocation,
    tasks: &LoggedVault,
    claim: &ClaimRef,
    verb: impl Fn(&ClaimId) -> tollgate::error::Result<Owned<T>>,
    said: impl FnOnce(&ClaimId, T) -> Reply,
) -> Result<Answer, CliError> {
    let log = |text: &str| {
        if let Ok(agent) = invocation.agent() {
            tasks.logs.line(&agent, invocation.now(), text);
        }
    };
    let done = carried_out(invocation, tasks, claim, verb, said);
    match done {
        Ok(Ok(said)) => Ok(Answer::Done(said)),
        Ok(Err(not_owner)) => {
            log(&words::verification_failed(&claim.task, &not_owner));
            Ok(Answer::NotValid(Reply::noted(words::not_the_owner(&not_owner), not_owner.json())))
        }
        Err(error) => {
            log(&words::error(&invocation.viewpoint(), &error));
            Err(error)
        }
    }
}

fn carried_out<T>(
    invocation: &Invocation,
    tasks: &LoggedVault,
    claim: &ClaimRef,
    verb: impl Fn(&ClaimId) -> tollgate::error::Result<Owned<T>>,
    said: impl FnOnce(&ClaimId, T) -> Reply,
) -> Result<Result<Reply, NotOwner>, CliError> {
    let done = match own_claim(invocation, tasks, claim)? {
        Ok(id) => with_retry(|| verb(&id), &sleep)?.map(|done| said(&id, done)),
        Err(not_owner) => Err(not_owner),
    };
    let exists = || tasks.vault.store().get(&claim.task, None, invocation.now());
    match done {
        Err(NotOwner { owner: None, .. }) if exists()?.is_none() => Err(Fault::no_task(&claim.task).into()),
        done => Ok(done),
    }
}

pub(crate) fn renew(invocation: &Invocation, args: &TaskRenewArgs) -> Result<Answer, CliError> {
    let (tasks, task) = (invocation.tasks()?, &args.claim.task);
    let verb = |id: &ClaimId| tasks.vault.renew(task, id, invocation.now());
    as_owner(invocation, &tasks, &args.claim, verb, |_, claim| {
        Reply::new(words::renewed(task, claim.lease_until()), claim.renewed_json(task))
    })
}

pub(crate) fn progress(invocation: &Invocation, args: &TaskProgressArgs) -> Result<Answer, CliError> {
    let (tasks, task) = (invocation.tasks()?, &args.claim.task);
    if args.text.trim().is_empty() {
        return Err(CliError::usage("the note is empty", "give the text of the note"));
    }
    let verb = |id: &ClaimId| tasks.vault.progress(task, id, &args.text, invocation.now());
    as_owner(invocation, &tasks, &args.claim, verb, |id, ()| {
        Reply::new(words::progress_noted(task), noted_json(task, id))
    })
}

pub(crate) fn draft(invocation: &Invocation, args: &TaskDraftArgs) -> Result<Answer, CliError> {
    let (tasks, task) = (invocation.tasks()?, &args.claim.task);
    let text = match args.text.as_str() {
        "-" => String::from_utf8(stdin()?)
            .map_err(|_| CliError::usage("the draft is not UTF-8", "give the draft as text in UTF-8"))?,
        text => text.to_owned(),
    };
    if text.trim().is_empty() {
        return Err(CliError::usage("the draft is empty", "give the text of the draft"));
    }
    let verb = |id: &ClaimId| tasks.vault.draft(task, id, &text, invocation.now());
    as_owner(invocation, &tasks, &args.claim, verb, |id, ()| {
        Reply::new(words::draft_added(task), noted_json(task, id))
    })
}

pub(crate) fn release(invocation: &Invocation, args: &TaskReleaseArgs) -> Result<Answer, CliError> {
    let (tasks, task) = (invocation.tasks()?, &args.claim.task);
    if args.result == Verdict::Failure && args.to == Some(State::Done) {
        return Err(CliError::usage(
            "failed work cannot go to `Done`",
            "omit `--to` for another attempt, or give `--to Rejected` or `--to Pending_Approval`",
        ));
    }
    let how =
        Release { verdict: args.result, to: args.to, note: args.note.clone(), output: None, counts: true };
    let lacks_draft = args.result == Verdict::Success && tasks.lacks_draft(task, invocation.now());
    let verb = |id: &ClaimId| tasks.vault.release(task, id, &how, invocation.now());
    as_owner(invocation, &tasks, &args.claim, verb, |_, landed| {
        let mut said = Reply::new(words::released(task, &landed), landed.json());
        if lacks_draft && landed.slot.state() == State::PendingApproval {
            let note = words::no_draft(&landed.task);
            said.notes = format!("note: {note}");
            said.json["note"] = note.into();
        }
        said
    })
}
