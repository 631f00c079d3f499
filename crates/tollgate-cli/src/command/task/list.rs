//! `tollgate task list`: all tasks, as a board or as JSON; `tollgate task figures`: the figures of `/health`.

use clap::Args;
use serde_json::{Value, json};
use tollgate::vault::shown::Row;
use tollgate::vault::state::State;

use crate::answer::{Answer, Reply};
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::progress::Progress;
use crate::words;

/// List all tasks by state, each state in the order in which its tasks are claimed
///
/// Of the finished tasks only the latest are shown; --state shows all tasks of one state.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate task list
  tollgate task list --state Pending_Approval
  tollgate task list --json | jq -r '.[] | select(.attempts > 1) | .task'")]
pub(crate) struct TaskListArgs {
    /// Only tasks in this state
    #[arg(long, value_name = "S")]
    state: Option<State>,
}

/// Print figures per agent: active claims, all claims, lost races, how many attempts succeeded
///
/// The figures are stored as sums, so the cost does not grow with the ledger.
#[derive(Debug, Args)]
#[command(after_help = "Example\n  tollgate task figures --json | jq .coordination")]
pub(crate) struct TaskFiguresArgs {}

pub(crate) fn run(invocation: &Invocation, args: &TaskListArgs) -> Result<Answer, CliError> {
    let progress = Progress::of("reading the tasks");
    let tasks = invocation.tasks()?;
    let old = tasks.look(invocation);
    let (mut board, mut unfit) = (Vec::new(), Vec::new());
    for state in State::ALL.into_iter().filter(|state| args.state.is_none_or(|wanted| wanted == *state)) {
        let (rows, strange) = tasks.vault.rows(state, invocation.now())?;
        unfit.extend(strange);
        board.push((state, rows));
    }
    drop(progress);
    let json: Vec<Value> = board.iter().flat_map(|(_, rows)| rows.iter().map(Row::json)).collect();
    Ok(Answer::Table(Reply {
        words: words::board(&board, tasks.vault.terms().max_attempts, args.state.is_some()),
        notes: words::together(&[old, words::unfit(&unfit)]),
        json: json.into(),
    }))
}

pub(crate) fn figures(invocation: &Invocation, _: &TaskFiguresArgs) -> Result<Answer, CliError> {
    let tasks = invocation.tasks()?;
    let (all, each) = tasks.vault.figures(invocation.now())?;
    Ok(Answer::Done(Reply::new(words::figures(&all, &each), json!({"coordination": all, "agents": each}))))
}
