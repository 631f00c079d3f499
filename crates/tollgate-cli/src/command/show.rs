//! `tollgate show`: the diff of a change, of a turn, or of a task, and what the agent had read.

use clap::Args;
use serde_json::{Value, json};
use tollgate::history::chosen::Which;
use tollgate::history::content::Contents;
use tollgate::history::listing::FileDiff;
use tollgate::history::step::Step;
use tollgate::history::turn::{KnownReads, ReadsOfTurns, TurnAbout, TurnRecord};

use super::past::{nothing_found, open_turns, recorded};
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
/// Also shown is what the agent had read: of a change, what it had read before it in the same turn.
///
/// The ledger has the hashes for ever; the bytes and the records of turns are kept for a limited time (`[history]` in the settings). A
/// diff whose bytes are no longer kept is named, and so is a turn without a record.
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
    let open = open_turns(invocation);
    let mut turns = ReadsOfTurns::new(&workspace, &open);
    let record = match &args.which {
        Which::Turn(turn) => TurnRecord::load(&workspace, turn)?.about(),
        _ => None,
    };
    let Some(chosen) = args.which.find(workspace.ledger())? else {
        return Ok(match record {
            Some(record) => without_changes(invocation, &record, &turns.of([(Some(&record.turn), None)])?),
            None => nothing_found(&args.which),
        });
    };
    let reads = match &args.which {
        Which::Line(_) => turns.of([(chosen.steps[0].turn.as_ref(), Some(chosen.steps[0].time))]),
        _ => turns.of(chosen.meant().map(|step| (step.turn.as_ref(), None))),
    }?;
    let contents = Contents::of(&workspace).left_by(&chosen.steps);
    let what = match &args.which {
        Which::Line(_) => format!("change {}", chosen.steps[0].change),
        which => which.described(),
    };
    let files = chosen.diffs(&contents, usize::MAX)?;
    let shown =
        ShownChanges { what: &what, steps: chosen.meant().collect(), files, reads, about: record.as_ref() };
    let json = shown_json(&args.which, &shown);
    Ok(Answer::Long(Reply::new(words::shown_changes(&invocation.viewpoint(), &shown), json)))
}

/// A turn that has only read.
fn without_changes(invocation: &Invocation, record: &TurnAbout, reads: &KnownReads) -> Answer {
    let mut json = json!({
        "seq": null, "agent": record.agent, "turn": record.turn, "time": record.start.began, "changes": [],
        "seqs": [], "record": record,
    });
    reads.put(&mut json, &mut { usize::MAX });
    Answer::Long(Reply::new(words::turn_without_changes(&invocation.viewpoint(), record, reads), json))
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
    shown.reads.put(&mut json, &mut { usize::MAX });
    if let Some(about) = shown.about {
        json["record"] = json!(about);
    }
    if !matches!(which, Which::Line(_)) {
        let mut lines: Vec<u64> = shown.steps.iter().map(|step| step.change).collect();
        lines.dedup();
        json["seqs"] = lines.into();
    }
    json
}
