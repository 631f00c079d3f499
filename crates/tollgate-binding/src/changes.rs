//! A list of changes in the JSON of `tollgate apply`.

use std::path::PathBuf;

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tollgate::digest::Digest;
use tollgate::edit::Edit;
use tollgate::guard::{Action, Change, Expected};

use crate::failure::{Answered, CallFailure};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListedChange {
    path: PathBuf,
    content: Option<String>,
    edits: Option<Vec<ListedEdit>>,
    #[serde(default)]
    delete: bool,
    move_to: Option<PathBuf>,
    #[serde(default, deserialize_with = "expected_or_absent")]
    expected_hash: Expected,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ListedEdit {
    old_text: String,
    new_text: String,
    #[serde(default)]
    all: bool,
}

/// Called only if the key is present. Refusals and reads use null for a file that does not exist, and so do changes.
fn expected_or_absent<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Expected, D::Error> {
    match Option::<String>::deserialize(deserializer)? {
        None => Ok(Expected::Absent),
        Some(text) => read_expected(&text).map_err(serde::de::Error::custom),
    }
}

fn read_expected(text: &str) -> Result<Expected, String> {
    match text {
        "absent" => Ok(Expected::Absent),
        text => text.parse::<Digest>().map(Expected::Hash).map_err(|error| error.to_string()),
    }
}

/// What must be on disk: a hash, `absent`, or what the turn knows.
pub(crate) fn expected(text: Option<&str>) -> Answered<Expected> {
    text.map_or(Ok(Expected::Baseline), |text| read_expected(text).map_err(CallFailure::invalid))
}

/// An edit of text that occurs once, or of all its occurrences.
pub(crate) fn edit(old: String, new: String, all: bool) -> Edit {
    if all { Edit::all(old, new) } else { Edit::once(old, new) }
}

pub(crate) fn changes(list: Value) -> Answered<Vec<Change>> {
    let listed: Vec<ListedChange> = serde_json::from_value(list)
        .map_err(|error| CallFailure::invalid(format!("this is not a list of changes: {error}")))?;
    listed.into_iter().map(change).collect()
}

fn change(listed: ListedChange) -> Answered<Change> {
    let ListedChange { path, content, edits, delete, move_to, expected_hash } = listed;
    let edits = edits.map(|edits| {
        edits.into_iter().map(|listed| edit(listed.old_text, listed.new_text, listed.all)).collect()
    });
    let actions = [
        content.map(|text| Action::Write(text.into_bytes())),
        edits.map(Action::Edit),
        delete.then_some(Action::Delete),
        move_to.map(Action::MoveTo),
    ];
    let mut actions = actions.into_iter().flatten();
    match (actions.next(), actions.next()) {
        (Some(action), None) => Ok(Change::new(path, action).expecting(expected_hash)),
        _ => Err(CallFailure::invalid(format!(
            "the change of `{}` needs exactly one of `content`, `edits`, `delete` and `move_to`",
            path.display()
        ))),
    }
}
