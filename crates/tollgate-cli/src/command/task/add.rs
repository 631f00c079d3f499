//! `tollgate task add`: adds a task. Its file appears complete.

use clap::Args;
use tollgate::error::Result;
use tollgate::vault::TaskName;
use tollgate::vault::brief::Priority;
use tollgate::vault::new_task::{BadNewTask, NewTask};
use tollgate::visible::plain;

use super::prose::prose;
use crate::answer::{Answer, Reply};
use crate::command::bytes::stdin;
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::words;

/// Add a task to `Needs_Action`
///
/// The file appears complete, so nobody can claim half of it. Without --name, its name is made from the title, with a number
/// if that name is taken.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate task add 'Pay the rent' --action payment --priority high --due 2026-12-01
  tollgate task add 'Send the report' --after write-report --body 'To the board, by mail.'
  git log -1 | tollgate task add 'Review the last commit' --body -")]
pub(crate) struct TaskAddArgs {
    /// What to do, in one line
    title: String,
    /// Name of the file [default: made from the title]
    #[arg(long, value_name = "FILE.md")]
    name: Option<TaskName>,
    /// Action, as in the roles of agents; without one, every agent that may claim tasks may claim it
    #[arg(long, value_name = "A")]
    action: Option<String>,
    /// Priority: critical, high, normal, low or lowest; or p0 to p4
    #[arg(long, value_name = "P", value_parser = priority)]
    priority: Option<Priority>,
    /// Due date: a day or a time
    #[arg(long, value_name = "WHEN")]
    due: Option<String>,
    /// A task that must be done first; may be given several times
    #[arg(long, value_name = "TASK")]
    after: Vec<TaskName>,
    /// More text, in Markdown; `-` reads it from stdin
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, value_parser = prose)]
    body: Option<String>,
}

fn priority(text: &str) -> Result<Priority, String> {
    Priority::read(text).ok_or_else(|| words::bad_priority(text))
}

pub(crate) fn run(invocation: &Invocation, args: &TaskAddArgs) -> Result<Answer, CliError> {
    let tasks = invocation.fresh_tasks()?;
    let body = match args.body.as_deref() {
        Some("-") => stdin()?,
        Some(text) => text.as_bytes().to_vec(),
        None => Vec::new(),
    };
    let new = NewTask {
        title: &args.title,
        action: args.action.as_deref(),
        priority: args.priority,
        due: args.due.as_deref(),
        after: &args.after,
        body: &body,
    };
    let bytes = new.text().map_err(|bad| match bad {
        BadNewTask::Title => CliError::usage(
            "the title is empty, or has more than one line",
            "give one line; put more text into `--body`",
        ),
        BadNewTask::Unreadable(why) => CliError::usage(
            format!("an agent could not read this task: {why}"),
            "change the body or the options",
        ),
        BadNewTask::Value { option, value } => bad_option(option, &value),
    })?;
    let landed = match &args.name {
        Some(name) => {
            if let Ok(there) = tasks.vault.get(name, invocation.now()) {
                return Ok(words::task_is_there(name, &there.slot));
            }
            tasks.vault.add_outside_circles(name, &args.after, &bytes, invocation.now())?
        }
        None => tasks.vault.add_titled(&args.title, &args.after, &bytes, invocation.now())?,
    };
    Ok(match landed {
        Ok(landed) => Answer::Done(Reply::new(words::task_added(&landed), landed.json())),
        Err(circle) => words::closes_a_circle(&circle),
    })
}

/// The new task would have another value than the one given with this option.
pub(super) fn bad_option(option: &str, value: &str) -> CliError {
    let hint = match option {
        "due" => "give a day or a time, such as `2026-12-01` or `2026-12-01T09:00:00Z`",
        _ => "choose a simpler text, without spaces at its start or end",
    };
    CliError::usage(format!("invalid `--{option}`: `{}`", plain(value)), hint)
}
