//! `tollgate task show` and `task why`: one task, and whether an agent may claim it.

use clap::Args;
use serde_json::json;
use tollgate::vault::TaskName;
use tollgate::vault::shown::MOST_SHOWN;
use tollgate::visible::plain;

use crate::answer::{Answer, Reply};
use crate::command::bytes::put_content;
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::words;

/// Show a task: its state, its owner and its text
#[derive(Debug, Args)]
#[command(after_help = "Example\n  tollgate task show water-the-plants")]
pub(crate) struct TaskShowArgs {
    /// Task name, with or without `.md`
    task: TaskName,
}

/// Explain whether an agent may claim a task now, and if not, why not
#[derive(Debug, Args)]
#[command(after_help = "Example\n  tollgate task why pay-the-rent --agent cloud")]
pub(crate) struct TaskWhyArgs {
    /// Task name, with or without `.md`
    task: TaskName,
}

pub(crate) fn run(invocation: &Invocation, args: &TaskShowArgs) -> Result<Answer, CliError> {
    let tasks = invocation.tasks()?;
    let notes = tasks.look(invocation);
    let (task, bytes) = tasks.vault.get_with_text(&args.task, MOST_SHOWN, invocation.now())?;
    let mut json = tasks.vault.details(&task, invocation.now())?;
    let words = words::task_shown(&invocation.viewpoint(), &task, &bytes);
    put_content(&mut json, bytes);
    Ok(Answer::Done(Reply { words, json, notes }))
}

pub(crate) fn why(invocation: &Invocation, args: &TaskWhyArgs) -> Result<Answer, CliError> {
    let (tasks, agent) = (invocation.tasks()?, invocation.agent()?);
    let notes = tasks.look(invocation);
    let (eligible, reason, until) = match tasks.vault.why(&args.task, &agent, invocation.now())? {
        Ok(mode) => (true, words::may_claim(&agent, &args.task, mode), None),
        Err(denied) => (false, denied.to_string(), denied.until()),
    };
    let mut json = json!({"task": args.task, "agent": agent, "eligible": eligible, "reason": reason});
    if let Some(until) = until {
        json["until"] = json!(until);
    }
    let said = Reply { words: plain(&reason), json, notes };
    Ok(if eligible { Answer::Done(said) } else { Answer::NotValid(said) })
}
