//! `tollgate history`: what was changed, by whom.

use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};
use tollgate::TaskName;
use tollgate::history::content::Contents;
use tollgate::history::step::{Back, Step, Steps};
use tollgate::history::trail::Trail;

use super::past::{file_diff, ledger_name, recorded};
use crate::answer::{Answer, Reply};
use crate::command::moment::moment;
use crate::command::number::number;
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::report::history::{ListedChange, Size};
use crate::words;

/// Show what agents have changed, newest first
///
/// One line for each change: its number, when, who, which files, how many lines were added and removed, and the turn. `tollgate show`
/// shows the diff of one of them. With FILE, only changes of that file, also those under its earlier names. With --agent, only
/// changes of that agent.
///
/// Lines are counted as long as the bytes are kept (`[history]` in the settings). A program that does not use tollgate leaves no line
/// here; `tollgate blame` sees its changes between two guarded ones.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate history --since yesterday
  tollgate history src/a.rs --agent blue
  tollgate history --task fix-the-tests --json")]
pub(crate) struct HistoryArgs {
    /// Only changes of this file
    #[arg(value_hint = clap::ValueHint::FilePath)]
    path: Option<PathBuf>,
    /// Only changes since this time, such as `yesterday`, `2h` or `2026-11-18`
    #[arg(long, value_name = "TIME", value_parser = |text: &str| moment(text, Timestamp::now()))]
    since: Option<Timestamp>,
    /// Only changes that an agent made while it had claimed this task, and no other
    #[arg(long)]
    task: Option<TaskName>,
    /// Number of changes [default: 50; with --since, all]
    #[arg(short = 'n', long = "lines", value_name = "N", value_parser = |text: &str| number(text, 0..=1_000_000_000_usize))]
    lines: Option<usize>,
}

pub(crate) fn run(invocation: &Invocation, args: &HistoryArgs) -> Result<Answer, CliError> {
    let mut listed = Vec::new();
    let mut damaged = 0;
    if let Some(workspace) = recorded(invocation)? {
        let most = args.lines.unwrap_or(if args.since.is_some() { usize::MAX } else { 50 });
        let mut trail = match &args.path {
            Some(path) => Some(Trail::of(ledger_name(invocation, &workspace, path)?)),
            None => None,
        };
        let back = args.since.map_or(Back::ToTheStart, Back::To);
        let (mut count, mut last) = (0, None);
        let steps = Steps::read(workspace.ledger(), back, |step| {
            let is_of_file = trail.as_mut().is_none_or(|trail| trail.takes(step));
            let is_of_agent = invocation.named_agent().is_none_or(|agent| step.agent.as_ref() == Some(agent));
            let wanted = is_of_file && is_of_agent;
            // The task is known only once its claim was read.
            if wanted && args.task.is_none() && last != Some(step.change) {
                (count, last) = (count + 1, Some(step.change));
            }
            if count > most { ControlFlow::Break(()) } else { ControlFlow::Continue(wanted) }
        })?;
        damaged = steps.damaged;
        let mut steps = steps.steps;
        if let Some(task) = &args.task {
            steps.retain(|step| step.task.as_ref() == Some(task));
        }
        let contents = Contents::of(&workspace).left_by(&steps);
        let changes = steps.chunk_by(|one, other| one.change == other.change).rev().take(most);
        for steps in changes {
            let size = size_of(&contents, steps)?;
            listed.push(ListedChange { steps: steps.to_vec(), size });
        }
    }
    let notes = match (damaged, listed.is_empty()) {
        (0, true) => words::NO_CHANGE_MATCHES.to_owned(),
        (damaged, _) => words::damaged_lines(damaged),
    };
    let json = listed.iter().map(change_json).collect();
    Ok(Answer::Long(Reply { words: words::history(&listed), notes, json }))
}

/// What the steps of one change added and removed. A move does neither.
fn size_of(contents: &Contents<'_>, steps: &[Step]) -> Result<Size, CliError> {
    let mut sum = Size::Lines { added: 0, removed: 0 };
    for step in steps.iter().filter(|step| step.moved_to.is_none()) {
        for (path, before, after) in step.effects() {
            if before != after {
                sum = sum.sum(file_diff(contents, path, [before, after])?.size);
            }
        }
    }
    Ok(sum)
}

fn change_json(change: &ListedChange) -> Value {
    let first = &change.steps[0];
    let mut json = json!({
        "seq": first.change,
        "time": first.time,
        "agent": first.agent,
        "turn": first.turn,
        "via": first.tool,
        "paths": change.steps.iter().map(Step::landed).collect::<Vec<_>>(),
    });
    if let Some(task) = &first.task {
        json["task"] = task.as_str().into();
    }
    let moved: Vec<Value> = change
        .steps
        .iter()
        .filter_map(|step| Some(json!({"from": step.path, "to": step.moved_to.as_ref()?})))
        .collect();
    if !moved.is_empty() {
        json["moved"] = moved.into();
    }
    change.size.put(&mut json);
    json
}
