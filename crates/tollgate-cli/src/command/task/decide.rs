//! The decisions of people, `approve` and `reject`; and `reclaim`, which needs no decision because the owner is dead.

use std::thread::sleep;

use clap::Args;
use serde_json::{Value, json};
use tollgate::digest::Digest;
use tollgate::vault::retry::with_retry;
use tollgate::vault::{Allowed, Landed, Reclaimed, TaskName};

use crate::answer::{Answer, Said};
use crate::error::{CliError, UsageError};
use crate::invocation::Invocation;
use crate::words;

/// Approve a task in `Pending_Approval`; an agent that is allowed may then execute it once
///
/// The approval holds for the bytes of the file. If they change before the task is executed, a person must approve it again.
/// Only people approve: inside an agent (TOLLGATE_AGENT is set) this command is refused.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate task show pay-the-rent
  tollgate task approve pay-the-rent --by ada")]
pub(crate) struct TaskApproveArgs {
    /// Task name, with or without `.md`
    task: TaskName,
    /// Name of the person who decides [default: your user name]
    #[arg(long, value_name = "WHO")]
    by: Option<String>,
    /// SHA-256 that the file must have, from `task show --json`
    #[arg(long, value_name = "HASH")]
    expect: Option<Digest>,
}

/// Reject a task that nobody is working on
#[derive(Debug, Args)]
#[command(after_help = "Example\n  tollgate task reject pay-the-rent --reason 'it was paid in March'")]
pub(crate) struct TaskRejectArgs {
    /// Task name, with or without `.md`
    task: TaskName,
    /// Name of the person who decides [default: your user name]
    #[arg(long, value_name = "WHO")]
    by: Option<String>,
    /// The reason, for the author of the task
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// Reclaim the tasks of dead owners: their lock is free, or their lease has expired
///
/// The interrupted attempt counts. A sensitive action may have been executed, so that task goes to a person.
#[derive(Debug, Args)]
#[command(after_help = "Example\n  tollgate task reclaim --dry-run")]
pub(crate) struct TaskReclaimArgs {
    /// Only print what would be reclaimed
    #[arg(long)]
    dry_run: bool,
}

/// The person who decides, or the refusal inside an agent.
fn person(invocation: &Invocation, named: Option<&String>) -> Result<Result<String, Answer>, CliError> {
    if let Some(agent) = invocation.inside_an_agent() {
        let message = words::agents_do_not_decide(&agent);
        return Ok(Err(refused(None, "agent", &message)));
    }
    match named {
        Some(by) if by.trim().is_empty() => Err(UsageError::NobodyDecides.into()),
        Some(by) => Ok(Ok(by.clone())),
        None => Ok(Ok(invocation.agent()?.as_str().to_owned())),
    }
}

fn refused(task: Option<&TaskName>, reason: &str, message: &str) -> Answer {
    Answer::NotValid(Said {
        notes: words::decision_refused(reason, message),
        json: json!({"task": task, "refused": true, "reason": reason, "message": message}),
        ..Said::default()
    })
}

pub(crate) fn approve(invocation: &Invocation, args: &TaskApproveArgs) -> Result<Answer, CliError> {
    let by = match person(invocation, args.by.as_ref())? {
        Ok(by) => by,
        Err(answer) => return Ok(answer),
    };
    let tasks = invocation.fresh_tasks()?;
    let decided = with_retry(|| tasks.vault.approve(&args.task, &by, args.expect, invocation.now()), &sleep)?;
    Ok(said(&args.task, decided, "approved", &by))
}

pub(crate) fn reject(invocation: &Invocation, args: &TaskRejectArgs) -> Result<Answer, CliError> {
    let by = match person(invocation, args.by.as_ref())? {
        Ok(by) => by,
        Err(answer) => return Ok(answer),
    };
    let tasks = invocation.fresh_tasks()?;
    let decided = with_retry(|| tasks.vault.reject(&args.task, &by, &args.reason, invocation.now()), &sleep)?;
    Ok(said(&args.task, decided, "rejected", &by))
}

fn said(task: &TaskName, decided: Allowed<Landed>, verb: &str, by: &str) -> Answer {
    match decided {
        Err(why) => refused(Some(task), "not_possible", &why.to_string()),
        Ok(landed) => {
            let mut json = landed.json();
            json["by"] = json!(by);
            Answer::Done(Said { words: words::decided(&landed, verb, by), json, ..Said::default() })
        }
    }
}

pub(crate) fn reclaim(invocation: &Invocation, args: &TaskReclaimArgs) -> Result<Answer, CliError> {
    let tasks = invocation.fresh_tasks()?;
    let (done, passed) = if args.dry_run {
        (tasks.vault.reclaimable(invocation.now())?, Vec::new())
    } else {
        with_retry(|| tasks.vault.reclaim(invocation.now()), &sleep)?
    };
    let row = |reclaimed: &Reclaimed| {
        let Reclaimed { task, agent, to, reason } = reclaimed;
        json!({"task": task, "agent": agent, "state": to, "reason": reason})
    };
    let json: Vec<Value> = done.iter().map(row).collect();
    Ok(Answer::Done(Said {
        words: words::reclaimed(&done, args.dry_run),
        notes: words::skipped_faults(&invocation.viewpoint(), &passed),
        json: json.into(),
    }))
}
