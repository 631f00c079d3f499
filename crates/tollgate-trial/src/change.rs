//! One commit of one or many changes, given as words.

use std::path::Path;
use std::str::FromStr;

use serde_json::json;
use tollgate::error::{Fault, Result};
use tollgate::gate::Gate;
use tollgate::guard::{Action, Change, Outcome};
use tollgate::part::Part;
use tollgate::workspace::{Options, Workspace};

use crate::Answer;

#[derive(Debug, Clone)]
pub(crate) enum Wish {
    File(Change),
    /// A folder is moved on its own.
    Folder(String, String),
}

impl FromStr for Wish {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.splitn(3, ':');
        let (Some(verb), Some(path)) = (words.next(), words.next()) else {
            return Err("a change is `VERB:PATH`, some with `:TEXT`".to_owned());
        };
        let rest = words.next().unwrap_or_default();
        let action = match verb {
            "write" => Action::Write(rest.into()),
            "create" => Action::Create(rest.into()),
            "delete" => Action::Delete,
            "move" => Action::MoveTo(rest.into()),
            "folder" => return Ok(Self::Folder(path.to_owned(), rest.to_owned())),
            _ => return Err(format!("`{verb}` is no change")),
        };
        Ok(Self::File(Change::new(path, action)))
    }
}

/// Like an agent: first reads what it is going to change.
pub(crate) fn commit(root: &Path, wishes: Vec<Wish>) -> Result<Answer> {
    let gate = Gate::new(Workspace::open(root, Options::default())?);
    let agent = "blue".parse().map_err(|_| Fault::Invalid { what: "no name".to_owned() })?;
    let turn = gate.begin_turn(agent)?;
    if let [Wish::Folder(path, to)] = wishes.as_slice() {
        return Ok(match gate.move_folder(&turn, path, to)? {
            Outcome::Done(_) => Answer::Done(json!({ "applied": 1 })),
            Outcome::Refused(refused) => Answer::Refused(json!(refused.payload())),
        });
    }
    let file = |wish| match wish {
        Wish::File(change) => Ok(change),
        Wish::Folder(..) => Err(Fault::Invalid { what: "a folder is moved on its own".to_owned() }),
    };
    let changes: Vec<Change> = wishes.into_iter().map(file).collect::<Result<_>>()?;
    for change in &changes {
        if matches!(change.action, Action::Create(_)) {
            continue;
        }
        if let Outcome::Refused(refused) = gate.read(&turn, &change.path, Part::Whole)? {
            return Ok(Answer::Refused(json!(refused.payload())));
        }
    }
    Ok(match gate.apply(&turn, changes)? {
        Outcome::Done(applied) => Answer::Done(json!({ "applied": applied.len() })),
        Outcome::Refused(refused) => Answer::Refused(json!(refused.payload())),
    })
}
