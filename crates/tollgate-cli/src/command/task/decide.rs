//! What people decide, approve and reject; and `reclaim`, which nobody needs to decide: the owner is gone.

use std::thread::sleep;

use clap::Args;
use serde_json::{Value, json};
use tollgate::digest::Digest;
use tollgate::vault::retry::patiently;
use tollgate::vault::{Decided, Reclaimed, TaskName};

use crate::answer::{Answer, Said, Stop};
use crate::door::Door;
use crate::words;

/// Approve what waits in `Pending_Approval`: an agent that is allowed may then execute it, once
///
/// The yes is bound to the bytes of the file. If they change before it is executed, the task waits for a person again.
/// Only people approve: inside an agent (TOLLGATE_AGENT is set) it is refused.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate task show pay-the-rent
  tollgate task approve pay-the-rent --by ada")]
pub(crate) struct Approve {
    /// Its name, with or without `.md`
    task: TaskName,
    /// Who decides [default: your user name]
    #[arg(long, value_name = "WHO")]
    by: Option<String>,
    /// Only if the file is still what you have looked at, as `task show --json` gave its `sha256`
    #[arg(long, value_name = "HASH")]
    expect: Option<Digest>,
}

/// Reject a task that nobody works on, with a reason
#[derive(Debug, Args)]
#[command(after_help = "Example\n  tollgate task reject pay-the-rent --reason 'it was paid in March'")]
pub(crate) struct Reject {
    /// Its name, with or without `.md`
    task: TaskName,
    /// Who decides [default: your user name]
    #[arg(long, value_name = "WHO")]
    by: Option<String>,
    /// Why, for whoever asked for it
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// Take back the tasks of owners who are gone: their lock is free, or their lease has run out
///
/// An attempt that was broken off counts. What is sensitive may have been executed, so a person decides.
#[derive(Debug, Args)]
#[command(after_help = "Example\n  tollgate task reclaim --dry-run")]
pub(crate) struct Reclaim {
    /// Only say what would be taken back
    #[arg(long)]
    dry_run: bool,
}

/// Who decides. Nobody, inside an agent.
fn person(door: &Door, named: Option<&String>) -> Result<Result<String, Answer>, Stop> {
    if let Some(agent) = door.inside_an_agent() {
        let message = words::agents_do_not_decide(&agent);
        return Ok(Err(refused(None, "agent", &message)));
    }
    match named {
        Some(by) if by.trim().is_empty() => Err(words::nobody_decides()),
        Some(by) => Ok(Ok(by.clone())),
        None => Ok(Ok(door.agent()?.as_str().to_owned())),
    }
}

fn refused(task: Option<&TaskName>, reason: &str, message: &str) -> Answer {
    Answer::NotValid(Said {
        notes: words::decision_refused(reason, message),
        json: json!({"task": task, "refused": true, "reason": reason, "message": message}),
        ..Said::default()
    })
}

pub(crate) fn approve(door: &Door, wish: &Approve) -> Result<Answer, Stop> {
    let by = match person(door, wish.by.as_ref())? {
        Ok(by) => by,
        Err(answer) => return Ok(answer),
    };
    let tasks = door.fresh_tasks()?;
    let decided = patiently(|| tasks.vault.approve(&wish.task, &by, wish.expect, door.now()), &sleep)?;
    Ok(said(&wish.task, decided, "approved", &by))
}

pub(crate) fn reject(door: &Door, wish: &Reject) -> Result<Answer, Stop> {
    let by = match person(door, wish.by.as_ref())? {
        Ok(by) => by,
        Err(answer) => return Ok(answer),
    };
    let tasks = door.fresh_tasks()?;
    let decided = patiently(|| tasks.vault.reject(&wish.task, &by, &wish.reason, door.now()), &sleep)?;
    Ok(said(&wish.task, decided, "rejected", &by))
}

fn said(task: &TaskName, decided: Decided, verb: &str, by: &str) -> Answer {
    match decided {
        Decided::No(why) => refused(Some(task), "not_possible", &why),
        Decided::Yes(landed) => {
            let mut json = landed.json();
            json["by"] = json!(by);
            Answer::Done(Said { words: words::decided(&landed, verb, by), json, ..Said::default() })
        }
    }
}

pub(crate) fn reclaim(door: &Door, wish: &Reclaim) -> Result<Answer, Stop> {
    let tasks = door.fresh_tasks()?;
    let (done, passed) = if wish.dry_run {
        (tasks.vault.reclaimable(door.now())?, Vec::new())
    } else {
        patiently(|| tasks.vault.reclaim(door.now()), &sleep)?
    };
    let row = |reclaimed: &Reclaimed| {
        let Reclaimed { task, agent, to, reason } = reclaimed;
        json!({"task": task, "agent": agent, "state": to, "reason": reason})
    };
    let json: Vec<Value> = done.iter().map(row).collect();
    Ok(Answer::Done(Said {
        words: words::reclaimed(&done, wish.dry_run),
        notes: words::passed(door, &passed),
        json: json.into(),
    }))
}
