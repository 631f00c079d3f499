//! `tollgate merge`: merges a refused write with what is on disk.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use tollgate::guard::Outcome;
use tollgate::merge::Merge;
use tollgate::name::Agent;

use crate::answer::{Answer, Reply};
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::report::change::ChangeVerb;
use crate::words;

/// Merge a refused write with the file on disk
///
/// tollgate keeps what a refused write wanted, and what its author had read. This command merges the newest refused write to the
/// file with what is on disk now, and prints the result: whole if the changes do not overlap, otherwise with conflict
/// markers and exit code 1. With --agent or a turn, only writes of that agent count. In a turn, the merge counts as a read.
///
/// With --write, a clean merge is written, unless the file was changed again in the meantime.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate merge src/a.rs
  tollgate merge src/a.rs --write")]
pub(crate) struct MergeArgs {
    /// The file
    #[arg(value_hint = clap::ValueHint::FilePath)]
    path: PathBuf,
    /// Write the merge if it is clean
    #[arg(long)]
    write: bool,
}

pub(crate) fn run(invocation: &Invocation, args: &MergeArgs) -> Result<Answer, CliError> {
    let path = invocation.path(&args.path)?;
    let gate = invocation.gate()?;
    let turn = invocation.turn(&gate)?;
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
    if !merge.clean || !args.write {
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

/// The agent whose refused write is merged: the one that is named, or that of the turn. A person merges that of any agent.
fn whose(invocation: &Invocation) -> Result<Option<Agent>, CliError> {
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
