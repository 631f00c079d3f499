//! `tollgate task show` and `task why`: one task, and whether an agent may take it.

use clap::Args;
use serde_json::{Value, json};
use tollgate::vault::TaskName;
use tollgate::vault::claim::Tenure;

use super::Row;
use crate::answer::{Answer, Said, Stop};
use crate::command::put_content;
use crate::door::Door;
use crate::words;

/// More of a task is not shown: a terminal, and a model, have seen enough.
const SHOWN: u64 = 1 << 20;

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
    tasks.vault.heal()?;
    let stored = tasks.vault.get(&wish.task, door.now())?;
    let bytes = tasks.vault.read(&stored, SHOWN)?;
    let sha256 = tasks.vault.digest(&stored)?;
    let row = Row {
        task: stored.task.clone(),
        slot: stored.slot.clone(),
        brief: stored.brief.clone(),
        note: stored.note.clone(),
        age_s: door.now().duration_since(stored.modified).as_secs().max(0),
    };
    let mut json = Value::Object(row.json());
    if let Ok(brief) = &stored.brief {
        json["after"] = json!(brief.after);
    }
    if let Some(claim) = &stored.note.claim {
        json["claimed_at"] = json!(claim.at);
        json["mode"] = json!(claim.mode);
        json["epoch"] = json!(claim.epoch);
        if let Tenure::Leased(until) = claim.tenure {
            json["lease_until"] = json!(until);
        }
    }
    if let Some(approval) = &stored.note.approval {
        json["approved_by"] = json!(approval.by);
    }
    json["path"] = json!(stored.path.as_deref().map(|path| path.to_string_lossy().into_owned()));
    json["size"] = json!(stored.len);
    json["sha256"] = json!(sha256);
    let words = words::task_shown(door, &stored, &bytes);
    put_content(&mut json, bytes);
    Ok(Answer::Done(Said { words, json, notes }))
}

pub(crate) fn why(door: &Door, wish: &Why) -> Result<Answer, Stop> {
    let (tasks, agent) = (door.tasks()?, door.agent()?);
    let notes = tasks.look(door);
    tasks.vault.heal()?;
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
