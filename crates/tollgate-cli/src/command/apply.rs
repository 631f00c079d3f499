//! `tollgate apply`: many changes, all or none.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use tollgate::edit::Edit;
use tollgate::guard::{Action, Change, Expected};

use crate::answer::{Answer, Stop};
use crate::door::Door;
use crate::{base64, words};

/// Make many changes at once, all or none, from JSON on stdin
///
/// Stdin is a list of changes. Each has a path and exactly one of:
///   "content": "..."             the new text of the file
///   "content_base64": "..."      the same, for bytes that are no text
///   "edits": [{"oldText": "...", "newText": "...", "all": false}]
///   "delete": true
///   "move_to": "..."             its new path
///
/// "expected_hash" may be a SHA-256 that the file must have; or null or "absent", if there must be no file. Without it the
/// turn decides, as for `write`.
///
/// If one change is refused, none is made. Also a crash or a power cut leaves all of them or none.
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
pub(crate) struct Wish {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    path: PathBuf,
    content: Option<String>,
    content_base64: Option<String>,
    edits: Option<Vec<GivenEdit>>,
    #[serde(default)]
    delete: bool,
    move_to: Option<PathBuf>,
    #[serde(default, deserialize_with = "expected_hash")]
    expected_hash: Expected,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct GivenEdit {
    old_text: String,
    new_text: String,
    #[serde(default)]
    all: bool,
}

/// Called only if the key is there. Null is what refusals and reads say of a file that is not there, so it means the
/// same when it comes back: the other reading would overwrite a file that has appeared.
fn expected_hash<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Expected, D::Error> {
    match Option::<String>::deserialize(deserializer)? {
        None => Ok(Expected::Absent),
        Some(text) => super::expected(&text).map_err(serde::de::Error::custom),
    }
}

pub(crate) fn run(door: &Door, _: &Wish) -> Result<Answer, Stop> {
    let changes = read_changes(door, &super::stdin()?)?;
    super::change(
        door,
        super::Deed::Write,
        |gate, turn| gate.apply(turn, changes),
        |applied| json!({"changes": applied.iter().map(super::applied_json).collect::<Vec<Value>>()}),
    )
}

fn read_changes(door: &Door, json: &[u8]) -> Result<Vec<Change>, Stop> {
    let given: Vec<Given> = serde_json::from_slice(json).map_err(|error| words::bad_changes(&error))?;
    given
        .into_iter()
        .enumerate()
        .map(|(index, given)| {
            let path = door.path(&given.path)?;
            let expected = given.expected_hash;
            let action = action(door, given).map_err(|wrong| match wrong {
                Wrong::Stop(stop) => stop,
                Wrong::Count(count) => words::not_one_action(index, count),
                Wrong::Base64 => words::not_base64(index),
            })?;
            Ok(Change::new(path, action).expecting(expected))
        })
        .collect()
}

enum Wrong {
    Stop(Stop),
    Count(usize),
    Base64,
}

fn action(door: &Door, given: Given) -> Result<Action, Wrong> {
    let mut actions = Vec::new();
    actions.extend(given.content.map(|text| Action::Write(text.into_bytes())));
    if let Some(text) = given.content_base64 {
        actions.push(Action::Write(base64::decode(&text).ok_or(Wrong::Base64)?));
    }
    actions.extend(given.edits.map(|edits| {
        let edit = |edit: GivenEdit| {
            let of = if edit.all { Edit::all } else { Edit::once };
            of(edit.old_text, edit.new_text)
        };
        Action::Edit(edits.into_iter().map(edit).collect())
    }));
    if given.delete {
        actions.push(Action::Delete);
    }
    if let Some(to) = given.move_to {
        actions.push(Action::MoveTo(door.path(&to).map_err(|fault| Wrong::Stop(fault.into()))?));
    }
    match (actions.pop(), actions.len()) {
        (Some(action), 0) => Ok(action),
        (Some(_), more) => Err(Wrong::Count(more + 1)),
        (None, _) => Err(Wrong::Count(0)),
    }
}
