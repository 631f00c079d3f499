//! `tollgate apply`: several changes as one, atomically.

use clap::Args;
use serde_json::{Value, json};
use tollgate::change_list::{ListedChange, changes};
use tollgate::commit::AppliedChange;
use tollgate::guard::{Action, Change};

use super::bytes::stdin;
use super::change::change;
use crate::answer::Answer;
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::report::change::ChangeVerb;

/// Make several changes atomically, from JSON on stdin
///
/// Stdin is a list of changes. Each has a "path" (or a "path_base64", if the path is not UTF-8) and exactly one of:
///   "content": "..."             the new text of the file
///   "content_base64": "..."      the new bytes of the file, if they are not text
///   "edits": [{"oldText": "...", "newText": "...", "all": false}]
///   "delete": true
///   "move_to": "..."             the new path of the file
///
/// "expected_hash" is optional: the SHA-256 that the file must have, or null or "absent" if the file must not exist.
/// Without "expected_hash" the turn decides, as for `write`.
///
/// If one change is refused, none is made; with --json, "all" lists every refusal. After a crash or a power failure, all changes are there or none.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Example
  tollgate apply << 'END'
  [{\"path\": \"a.md\", \"content\": \"new\\n\"},
   {\"path\": \"b.md\", \"edits\": [{\"oldText\": \"one\", \"newText\": \"two\"}]},
   {\"path\": \"c.md\", \"delete\": true}]
  END"
)]
pub(crate) struct ApplyArgs {}

pub(crate) fn run(invocation: &Invocation, _: &ApplyArgs) -> Result<Answer, CliError> {
    let changes = read_changes(invocation, &stdin()?)?;
    let answer = change(
        invocation,
        ChangeVerb::Write,
        |gate, turn| gate.apply(turn, changes),
        |applied| json!({"changes": applied.iter().map(AppliedChange::json).collect::<Vec<Value>>()}),
    )?;
    Ok(match answer {
        Answer::Refused(refused) => Answer::AllRefused(refused),
        answer => answer,
    })
}

fn read_changes(invocation: &Invocation, json: &[u8]) -> Result<Vec<Change>, CliError> {
    let listed: Vec<ListedChange> = serde_json::from_slice(json).map_err(|error| {
        CliError::usage(
            format!("standard input is not a list of changes: {error}"),
            "give a JSON list such as `[{\"path\":\"a.md\",\"content\":\"new\"}]`; see `tollgate apply --help`",
        )
    })?;
    let mut changes = changes(listed).map_err(|unclear| CliError::usage(unclear.what, unclear.hint))?;
    for Change { path, action, .. } in &mut changes {
        *path = invocation.path(&*path)?;
        if let Action::MoveTo(to) = action {
            *to = invocation.path(&*to)?;
        }
    }
    Ok(changes)
}
