//! A list of changes in JSON: what `tollgate apply` and the packages are given.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::str::FromStr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use serde::{Deserialize, Deserializer};

use crate::change::{Action, Change, Expected};
use crate::edit::Edit;
use tollgate_base::digest::Digest;

/// One change of a list, as it is given.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListedChange {
    path: Option<PathBuf>,
    path_base64: Option<String>,
    content: Option<String>,
    content_base64: Option<String>,
    edits: Option<Vec<ListedEdit>>,
    #[serde(default)]
    delete: bool,
    move_to: Option<PathBuf>,
    #[serde(default, deserialize_with = "hash_or_absent")]
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

/// A change that does not say what to do, or not clearly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnclearChange {
    /// What is wrong with it.
    pub what: String,
    /// What to give.
    pub hint: &'static str,
}

/// The changes of a list, in its order.
pub fn changes(listed: Vec<ListedChange>) -> Result<Vec<Change>, UnclearChange> {
    listed.into_iter().zip(1..).map(|(listed, number)| listed.change(number)).collect()
}

impl ListedChange {
    /// The change with this number. The first one has the number 1.
    fn change(self, number: usize) -> Result<Change, UnclearChange> {
        let bytes = |text: &str| BASE64.decode(text).map_err(|_| not_base64(number));
        let path = match (self.path, &self.path_base64) {
            (Some(path), None) => path,
            (None, Some(text)) => OsString::from_vec(bytes(text)?).into(),
            _ => {
                return Err(UnclearChange {
                    what: format!("change {number} of the list has no path, or two"),
                    hint: "give exactly one of `path` and `path_base64`",
                });
            }
        };
        let edit = |listed: ListedEdit| {
            let of = if listed.all { Edit::all } else { Edit::once };
            of(listed.old_text, listed.new_text)
        };
        let mut actions = Vec::new();
        actions.extend(self.content.map(|text| Action::Write(text.into_bytes())));
        actions.extend(self.content_base64.map(|text| bytes(&text).map(Action::Write)).transpose()?);
        actions.extend(self.edits.map(|edits| Action::Edit(edits.into_iter().map(edit).collect())));
        actions.extend(self.delete.then_some(Action::Delete));
        actions.extend(self.move_to.map(Action::MoveTo));
        let what = match (actions.pop(), actions.len()) {
            (Some(action), 0) => return Ok(Change::new(path, action).expecting(self.expected_hash)),
            (Some(_), more) => format!("change {number} of the list has {} actions", more + 1),
            (None, _) => format!("change {number} of the list has no action"),
        };
        let hint = "give exactly one of `content`, `content_base64`, `edits`, `delete` and `move_to`";
        Err(UnclearChange { what, hint })
    }
}

fn not_base64(number: usize) -> UnclearChange {
    UnclearChange {
        what: format!("`content_base64` or `path_base64` of change {number} of the list is not base64"),
        hint: "use the standard alphabet with padding and no line breaks, or give text as `content`",
    }
}

impl FromStr for Expected {
    type Err = String;

    /// A hash, or `absent`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "absent" => Ok(Self::Absent),
            text => match text.parse::<Digest>() {
                Ok(digest) => Ok(Self::Hash(digest)),
                Err(error) => Err(format!("{error}; or give `absent` if the file must not exist")),
            },
        }
    }
}

/// Called only if the key is present. Refusals and reads use null for a file that does not exist, so null means the same
/// here. If null meant "not given", a write could overwrite a file that was created in the meantime.
fn hash_or_absent<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Expected, D::Error> {
    match Option::<String>::deserialize(deserializer)? {
        None => Ok(Expected::Absent),
        Some(text) => text.parse().map_err(serde::de::Error::custom),
    }
}
