//! `tollgate task show` and `task why`: one task, and whether an agent may take it.

use clap::Args;
use serde_json::json;
use tollgate::vault::TaskName;
use tollgate::vault::shown::MOST_SHOWN;

use crate::answer::{Answer, Said, Stop};
use crate::command::put_content;
use crate::door::Door;
use crate::words;

/// Show a task: where it is, whose it is, and its text
#[derive(Debug, Args)]
#[command(after_help = "Example\n  tollgate task show water-the-plants")]
pub(crate) struct Wish {
    /// Its name, with or without `.md`
    task: TaskName,
}

/// Say in one sentence whether an agent may claim a task now, and if not, why not
#[derive(Debug, Args)]
#[command(after_help = "Example\n  tollgate task why pay-the-rent --agent cloud")]
pub(crate) struct Why {
    /// Its name, with or without `.md`
    task: TaskName,
}

pub(crate) fn run(door: &Door, wish: &Wish) -> Result<Answer, Stop> {
    let tasks = door.tasks()?;
    let notes = tasks.look(door);
    let stored = tasks.vault.get(&wish.task, door.now())?;
    let bytes = tasks.vault.read(&stored, MOST_SHOWN)?;
    let mut json = tasks.vault.details(&stored, door.now())?;
    let words = words::task_shown(door, &stored, &bytes);
    put_content(&mut json, bytes);
    Ok(Answer::Done(Said { words, json, notes }))
}

pub(crate) fn why(door: &Door, wish: &Why) -> Result<Answer, Stop> {
    let (tasks, agent) = (door.tasks()?, door.agent()?);
    let notes = tasks.look(door);
    let (eligible, reason) = match tasks.vault.why(&wish.task, &agent, door.now())? {
        Ok(mode) => (true, words::may_claim(&agent, &wish.task, mode)),
        Err(not) => (false, not.sentence),
    };
    let said = Said {
        words: crate::terminal::plain(&reason),
        json: json!({"task": wish.task, "agent": agent, "eligible": eligible, "reason": reason}),
        notes,
    };
    Ok(if eligible { Answer::Done(said) } else { Answer::NotValid(said) })
}
