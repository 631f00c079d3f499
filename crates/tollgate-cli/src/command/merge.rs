//! `tollgate merge`: merges a refused write with what is on disk.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use tollgate::gate::Gate;
use tollgate::guard::Outcome;
use tollgate::history::refused::RunMerge;
use tollgate::merge::Merge;
use tollgate::name::Agent;

use super::past::{no, paths_of, plan_json};
use crate::answer::{Answer, Reply};
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::report::change::ChangeVerb;
use crate::words;

/// The tool of a written merge of a run, in the ledger: that of any merge.
const TOOL: &str = "merge_file";

/// Merge a refused write with the file on disk
///
/// tollgate keeps what a refused write wanted, and what its author had read. This command merges the newest refused write to the
/// file with what is on disk now, and prints the result: whole if the changes do not overlap, otherwise with conflict
/// markers and exit code 1. With --agent or a turn, only writes of that agent count. In a turn, the merge counts as a read.
///
/// With --run, all that a refused `tollgate run` wanted to change is merged: files that nobody has changed since are taken as the
/// command made them. LINE is the number of the ledger line of its refusal; without it, the newest refused run is meant.
///
/// With --write, a clean merge is written, unless the file was changed again in the meantime. Of a run, all files are written or none.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate merge src/a.rs
  tollgate merge src/a.rs --write
  tollgate merge --run --write")]
pub(crate) struct MergeArgs {
    /// The file
    #[arg(value_hint = clap::ValueHint::FilePath, required_unless_present = "run")]
    path: Option<PathBuf>,
    /// Merge all files of a refused run
    #[arg(long, value_name = "LINE", num_args = 0..=1, conflicts_with = "path")]
    run: Option<Option<u64>>,
    /// Write the merge if it is clean
    #[arg(long)]
    write: bool,
}

pub(crate) fn run(invocation: &Invocation, args: &MergeArgs) -> Result<Answer, CliError> {
    let gate = invocation.gate()?;
    match (&args.path, args.run) {
        (Some(path), _) => merge_file(invocation, &gate, path, args.write),
        (None, line) => merge_run(invocation, &gate, line.flatten(), args.write),
    }
}

fn merge_file(invocation: &Invocation, gate: &Gate, path: &Path, write: bool) -> Result<Answer, CliError> {
    let path = invocation.path(path)?;
    let turn = invocation.turn(gate)?;
    let view = invocation.viewpoint();
    let agent = whose(invocation)?;
    let merge = match gate.merge(turn.as_ref(), &path, agent.as_ref())? {
        Ok(merge) => merge,
        Err(why) => {
            let path = gate.workspace().canonical(&path)?;
            let json = json!({
                "file_path": path.to_string(),
                "clean": false,
                "reason": why.word(),
                "message": why.to_string(),
            });
            let notes = words::no_merge(&view, &path, why);
            return Ok(Answer::NotValid(Reply::noted(notes, json)));
        }
    };
    let mut json = merge_json(&merge);
    if !merge.clean || !write {
        let said = Reply {
            notes: words::merge_notes(&view, &merge),
            words: merge.content.strip_suffix('\n').unwrap_or(&merge.content).to_owned(),
            json,
        };
        return Ok(if merge.clean { Answer::Done(said) } else { Answer::NotValid(said) });
    }
    let diff = words::merge_diff(&merge);
    match gate.write_merge(turn.as_ref(), merge)? {
        Outcome::Done(applied) => {
            // The change is made. If this sweep fails, the next one does its work.
            let _ = gate.workspace().sweep();
            json["written"] = true.into();
            if let (Value::Object(json), Value::Object(more)) = (&mut json, applied.json()) {
                json.extend(more);
            }
            let applied = [applied];
            Ok(Answer::Done(Reply {
                words: words::applied(&view, ChangeVerb::Merge, &applied) + &diff,
                notes: words::weaker_guarantees(&view, &applied),
                json,
            }))
        }
        Outcome::Refused(refused) => Ok(Answer::Refused(refused)),
    }
}

fn merge_run(
    invocation: &Invocation,
    gate: &Gate,
    line: Option<u64>,
    write: bool,
) -> Result<Answer, CliError> {
    let Some(merge) = RunMerge::find(gate.workspace(), line, whose(invocation)?.as_ref())? else {
        return Ok(no("nothing_refused", words::NO_REFUSED_RUN));
    };
    let view = invocation.viewpoint();
    let shown = words::merged_run(&view, gate.workspace().path(), &merge);
    let mut json = plan_json(&merge.plan, "merged");
    json["line"] = merge.line.into();
    json["agent"] = merge.agent.as_str().into();
    json["refused_at"] = merge.refused.to_string().into();
    json["left_out"] = merge.left_out.into();
    json["written"] = false.into();
    if merge.plan.conflicts().next().is_some() {
        let reply = Reply { words: shown, notes: words::RUN_CONFLICTS.to_owned(), json };
        return Ok(Answer::NotValid(reply));
    }
    if merge.plan.changes.is_empty() {
        return Ok(no("already_written", words::RUN_IS_WRITTEN));
    }
    if !write {
        return Ok(Answer::Long(Reply { words: shown, notes: words::run_merge_notes(&merge), json }));
    }
    let turn = invocation.turn(gate)?;
    let line = merge.line;
    match gate.apply_as(turn.as_ref(), TOOL, merge.plan.changes)? {
        Outcome::Refused(refused) => Ok(Answer::AllRefused(refused)),
        Outcome::Done(applied) => {
            RunMerge::forget(gate.workspace(), line);
            // The change is made. If this sweep fails, the next one does its work.
            let _ = gate.workspace().sweep();
            json["written"] = true.into();
            json["merged"] = paths_of(&json);
            Ok(Answer::Done(Reply {
                words: words::applied(&view, ChangeVerb::Merge, &applied),
                notes: words::weaker_guarantees(&view, &applied),
                json,
            }))
        }
    }
}

/// The agent whose refused write or run is meant: the one that is named, or that of the turn. A person means that of any agent.
pub(super) fn whose(invocation: &Invocation) -> Result<Option<Agent>, CliError> {
    if invocation.turn_id()?.is_some() {
        return Ok(invocation.writer());
    }
    invocation.named_by_environment()
}

fn merge_json(merge: &Merge) -> Value {
    json!({
        "file_path": merge.path.to_string(),
        "clean": merge.clean,
        "content": merge.content,
        "diff": merge.diff,
        "agent": merge.agent,
        "refused_at": merge.refused,
        "disk_hash": merge.disk,
        "written": false,
    })
}
