//! `tollgate apply`: several changes as one, atomically.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use tollgate::commit::AppliedChange;
use tollgate::edit::Edit;
use tollgate::guard::{Action, Change, Expected};

use super::bytes::{decode_base64, stdin};
use super::change::{change, expected};
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeInput {
    path: Option<PathBuf>,
    path_base64: Option<String>,
    content: Option<String>,
    content_base64: Option<String>,
    edits: Option<Vec<EditInput>>,
    #[serde(default)]
    delete: bool,
    move_to: Option<PathBuf>,
    #[serde(default, deserialize_with = "expected_hash")]
    expected_hash: Expected,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct EditInput {
    old_text: String,
    new_text: String,
    #[serde(default)]
    all: bool,
}

/// Called only if the key is present. Refusals and reads use null for a file that does not exist, so null means the same
/// here. If null meant "not given", a write could overwrite a file that was created in the meantime.
fn expected_hash<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Expected, D::Error> {
    match Option::<String>::deserialize(deserializer)? {
        None => Ok(Expected::Absent),
        Some(text) => expected(&text).map_err(serde::de::Error::custom),
    }
}

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
    let given: Vec<ChangeInput> = serde_json::from_slice(json).map_err(|error| {
        CliError::usage(
            format!("standard input is not a list of changes: {error}"),
            "give a JSON list such as `[{\"path\":\"a.md\",\"content\":\"new\"}]`; see `tollgate apply --help`",
        )
    })?;
    given
        .into_iter()
        .zip(1..)
        .map(|(given, number)| {
            let path = match (&given.path, &given.path_base64) {
                (Some(path), None) => path.clone(),
                (None, Some(text)) => match decode_base64(text) {
                    Some(bytes) => OsString::from_vec(bytes).into(),
                    None => return Err(not_base64(number)),
                },
                _ => {
                    return Err(CliError::usage(
                        format!("change {number} of the list has no path, or two"),
                        "give exactly one of `path` and `path_base64`",
                    ));
                }
            };
            let path = invocation.path(&path)?;
            let expected = given.expected_hash;
            let action = action(invocation, given, number)?;
            Ok(Change::new(path, action).expecting(expected))
        })
        .collect()
}

fn not_base64(number: usize) -> CliError {
    CliError::usage(
        format!("`content_base64` or `path_base64` of change {number} of the list is not base64"),
        "use the standard alphabet with padding and no line breaks, or give text as `content`",
    )
}

/// The action of the change with this number. The first change has the number 1.
fn action(invocation: &Invocation, given: ChangeInput, number: usize) -> Result<Action, CliError> {
    let mut actions = Vec::new();
    actions.extend(given.content.map(|text| Action::Write(text.into_bytes())));
    if let Some(text) = given.content_base64 {
        actions.push(Action::Write(decode_base64(&text).ok_or_else(|| not_base64(number))?));
    }
    actions.extend(given.edits.map(|edits| {
        let edit = |edit: EditInput| {
            let of = if edit.all { Edit::all } else { Edit::once };
            of(edit.old_text, edit.new_text)
        };
        Action::Edit(edits.into_iter().map(edit).collect())
    }));
    if given.delete {
        actions.push(Action::Delete);
    }
    if let Some(to) = given.move_to {
        actions.push(Action::MoveTo(invocation.path(&to)?));
    }
    let wrong = match (actions.pop(), actions.len()) {
        (Some(action), 0) => return Ok(action),
        (Some(_), more) => format!("change {number} of the list has {} actions", more + 1),
        (None, _) => format!("change {number} of the list has no action"),
    };
    let hint = "give exactly one of `content`, `content_base64`, `edits`, `delete` and `move_to`";
    Err(CliError::usage(wrong, hint))
}
