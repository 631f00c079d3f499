//! `tollgate task list`: all tasks, as a board or as JSON; `tollgate task figures`: the sums of `/health`.

use clap::Args;
use serde_json::{Value, json};
use tollgate::vault::state::State;

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

pub(crate) fn run(door: &Door, wish: &Wish) -> Result<Answer, Stop> {
    let tasks = door.tasks()?;
    let old = tasks.look(door);
    let (mut board, mut unfit) = (Vec::new(), Vec::new());
    for state in State::ALL.into_iter().filter(|state| wish.state.is_none_or(|wanted| wanted == *state)) {
        let (rows, strange) = tasks.vault.rows(state, door.now())?;
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

pub(crate) fn figures(door: &Door, _: &Figures) -> Result<Answer, Stop> {
    let tasks = door.tasks()?;
    let (all, each) = tasks.vault.figures()?;
    Ok(Answer::Done(Said {
        words: words::figures(&all, &each),
        json: json!({"coordination": all, "agents": each}),
        ..Said::default()
    }))
}
