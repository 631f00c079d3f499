//! `tollgate show`: the diff of a change, of a turn, or of a task.

use clap::Args;
use serde_json::{Value, json};
use tollgate::history::chosen::Which;
use tollgate::history::content::Contents;
use tollgate::history::listing::FileDiff;
use tollgate::history::step::Step;

use super::past::{nothing_found, recorded};
use crate::answer::{Answer, Reply};
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::report::history::ShownChanges;
use crate::words;

/// Show the diff of a change, of a whole turn, or of all that was done for a task
///
/// WHAT is the number of a ledger line, as `tollgate history` prints it, the ID of a turn, or the name of a task. A change of several
/// files is shown as a whole. Of a turn or a task, changes of a file that follow each other are one diff.
///
/// The ledger has the hashes for ever; the bytes are kept for a limited time (`[history]` in the settings). A diff whose bytes are no
/// longer kept is named.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate show 12
  tollgate show t-0123456789abcdef
  tollgate show fix-the-tests --json | jq -r '.changes[].diff'")]
pub(crate) struct ShowArgs {
    /// A line number from `history`, a turn ID, or a task
    #[arg(value_name = "WHAT", value_parser = |text: &str| text.parse::<Which>())]
    which: Which,
}

pub(crate) fn run(invocation: &Invocation, args: &ShowArgs) -> Result<Answer, CliError> {
    let Some(workspace) = recorded(invocation)? else { return Ok(nothing_found(&args.which)) };
    let Some(chosen) = args.which.find(workspace.ledger())? else { return Ok(nothing_found(&args.which)) };
    let contents = Contents::of(&workspace).left_by(&chosen.steps);
    let what = match &args.which {
        Which::Line(_) => format!("change {}", chosen.steps[0].change),
        which => which.described(),
    };
    let files = chosen.diffs(&contents, usize::MAX)?;
    let shown = ShownChanges { what: &what, steps: chosen.meant().collect(), files };
    let json = shown_json(&args.which, &shown);
    Ok(Answer::Long(Reply::new(words::shown_changes(&invocation.viewpoint(), &shown), json)))
}

fn shown_json(which: &Which, shown: &ShownChanges<'_>) -> Value {
    let first = shown.steps[0];
    let is_one = |same: &dyn Fn(&Step) -> bool| shown.steps.iter().all(|step| same(step));
    let agent = first.agent.as_ref().filter(|_| is_one(&|step| step.agent == first.agent));
    let turn = first.turn.as_ref().filter(|_| is_one(&|step| step.turn == first.turn));
    let task = first.task.as_ref().filter(|_| is_one(&|step| step.task == first.task));
    let mut json = json!({
        "seq": first.change,
        "agent": agent,
        "turn": turn,
        "time": first.time,
        "via": first.tool,
        "changes": shown.files.iter().map(FileDiff::json).collect::<Vec<_>>(),
    });
    if let Some(task) = task {
        json["task"] = task.as_str().into();
    }
    if !matches!(which, Which::Line(_)) {
        let mut lines: Vec<u64> = shown.steps.iter().map(|step| step.change).collect();
        lines.dedup();
        json["seqs"] = lines.into();
    }
    json
}
