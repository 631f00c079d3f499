//! `tollgate task list`: all tasks, as a board or as JSON; `tollgate task figures`: the sums of `/health`.

use clap::Args;
use serde_json::{Map, Value, json};
use tollgate::vault::claim::Note;
use tollgate::vault::state::{Slot, State};
use tollgate::vault::store::{Listed, Unfit};
use tollgate::vault::task::{Brief, Broken};
use tollgate::vault::{TaskName, Vault};

use crate::answer::{Answer, Said, Stop};
use crate::door::Door;
use crate::words;

/// List the tasks: a board of all states, each in the order in which its tasks are taken
///
/// Of the finished ones the board shows the latest; --state shows all of one state.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate task list
  tollgate task list --state Pending_Approval
  tollgate task list --json | jq -r '.[] | select(.attempts > 1) | .task'")]
pub(crate) struct Wish {
    /// Only this state
    #[arg(long, value_name = "S")]
    state: Option<State>,
}

/// Print the figures of the agents: claims now and ever, races lost to others, the share that succeeded
///
/// They are kept as sums, so asking costs the same after a year.
#[derive(Debug, Args)]
#[command(after_help = "Example\n  tollgate task figures --json | jq .coordination")]
pub(crate) struct Figures {}

/// One task of the list.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) task: TaskName,
    pub(crate) slot: Slot,
    pub(crate) brief: Result<Brief, Broken>,
    pub(crate) note: Note,
    pub(crate) age_s: i64,
}

impl Row {
    pub(crate) fn json(&self) -> Map<String, Value> {
        let mut json = Map::new();
        json.insert("task".into(), json!(self.task));
        json.insert("state".into(), json!(self.slot.state()));
        if let Some(agent) = self.slot.agent() {
            json.insert("agent".into(), json!(agent));
        }
        match &self.brief {
            Ok(brief) => {
                if let Some(action) = &brief.action {
                    json.insert("action".into(), json!(action));
                }
                json.insert("priority".into(), json!(brief.priority.as_str()));
                if let Some(due) = brief.due {
                    json.insert("due".into(), json!(due));
                }
            }
            Err(broken) => {
                json.insert("broken".into(), json!(broken.to_string()));
            }
        }
        json.insert("attempts".into(), json!(self.note.attempts));
        json.insert("age_s".into(), json!(self.age_s));
        if let Some(claim) = &self.note.claim {
            json.insert("claim_id".into(), json!(claim.id));
        }
        if let Some(reason) = &self.note.reason {
            json.insert("reason".into(), json!(reason));
        }
        json
    }
}

pub(crate) fn run(door: &Door, wish: &Wish) -> Result<Answer, Stop> {
    let tasks = door.tasks()?;
    let old = tasks.look(door);
    tasks.vault.heal()?;
    let (mut board, mut unfit) = (Vec::new(), Vec::new());
    for state in State::ALL.into_iter().filter(|state| wish.state.is_none_or(|wanted| wanted == *state)) {
        let (rows, strange) = rows(door, &tasks.vault, state)?;
        unfit.extend(strange);
        board.push((state, rows));
    }
    let json: Vec<Value> =
        board.iter().flat_map(|(_, rows)| rows.iter().map(|row| Value::Object(row.json()))).collect();
    Ok(Answer::Done(Said {
        words: words::board(&board, tasks.vault.terms().max_attempts, wish.state.is_some()),
        notes: words::together(&[old, words::unfit(&unfit)]),
        json: json.into(),
    }))
}

fn rows(door: &Door, vault: &Vault, state: State) -> Result<(Vec<Row>, Vec<Unfit>), Stop> {
    let now = door.now();
    let scan = vault.list(state, now)?;
    let mut rows = Vec::with_capacity(scan.tasks.len());
    for listed in scan.tasks {
        rows.extend(row(door, vault, listed)?);
    }
    if state.is_final() {
        rows.sort_by_key(|row| (row.age_s, row.task.clone()));
    } else {
        let rank = |row: &Row| row.brief.as_ref().ok().map(|brief| brief.rank(jiff::Timestamp::UNIX_EPOCH));
        rows.sort_by_cached_key(|row| (rank(row), -row.age_s, row.task.clone()));
    }
    Ok((rows, scan.unfit))
}

fn row(door: &Door, vault: &Vault, listed: Listed) -> Result<Option<Row>, Stop> {
    let now = door.now();
    let age = |since: jiff::Timestamp| now.duration_since(since).as_secs().max(0);
    if listed.slot.state().is_final() {
        let note = Note::new(listed.slot.clone());
        let age_s = age(listed.modified);
        return Ok(Some(Row { task: listed.task, slot: listed.slot, brief: listed.brief, note, age_s }));
    }
    let Ok(stored) = vault.get(&listed.task, now) else { return Ok(None) };
    if stored.slot != listed.slot {
        // Moved since the folder was read, or one of two of the same name.
        let age_s = age(listed.modified);
        let note = Note::new(listed.slot.clone());
        return Ok(Some(Row { task: listed.task, slot: listed.slot, brief: listed.brief, note, age_s }));
    }
    let since = match &stored.note.claim {
        Some(claim) => claim.at,
        None => listed.modified,
    };
    Ok(Some(Row {
        task: stored.task,
        slot: stored.slot,
        brief: stored.brief,
        note: stored.note,
        age_s: age(since),
    }))
}

pub(crate) fn figures(door: &Door, _: &Figures) -> Result<Answer, Stop> {
    let tasks = door.tasks()?;
    let (all, each) = tasks.vault.figures()?;
    Ok(Answer::Done(Said {
        words: words::figures(&all, &each),
        json: json!({"coordination": all, "agents": each}),
        ..Said::default()
    }))
}
