//! One commit of one or more changes, given as arguments.

use std::path::Path;
use std::str::FromStr;

use serde_json::json;
use tollgate::edit::Edit;
use tollgate::error::{Fault, Result};
use tollgate::gate::Gate;
use tollgate::guard::{Action, Change, Outcome};
use tollgate::history::chosen::Which;
use tollgate::history::content::Contents;
use tollgate::part::Part;
use tollgate::workspace::{Options, Workspace};

use crate::Answer;

#[derive(Debug, Clone)]
pub(crate) enum ChangeArg {
    File(Change),
    /// The move of a folder, which cannot be part of a larger commit.
    Folder(String, String),
    /// What takes back the change with this ledger line.
    Undo(u64),
}

impl FromStr for ChangeArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.splitn(3, ':');
        let (Some(verb), Some(path)) = (words.next(), words.next()) else {
            return Err("write a change as `VERB:PATH` or `VERB:PATH:TEXT`".to_owned());
        };
        let rest = words.next().unwrap_or_default();
        let action = match verb {
            "write" => Action::Write(rest.into()),
            "create" => Action::Create(rest.into()),
            "edit" => match rest.split_once('=') {
                Some((old, new)) => Action::Edit(vec![Edit::once(old, new)]),
                None => return Err("write an edit as `edit:PATH:OLD=NEW`".to_owned()),
            },
            "delete" => Action::Delete,
            "move" => Action::MoveTo(rest.into()),
            "undo" => return path.parse().map(Self::Undo).map_err(|_| format!("`{path}` is not a line")),
            "folder" => return Ok(Self::Folder(path.to_owned(), rest.to_owned())),
            _ => return Err(format!("`{verb}` is not a change")),
        };
        Ok(Self::File(Change::new(path, action)))
    }
}

/// Reads all files that it is going to change, as an agent does.
pub(crate) fn commit(root: &Path, args: Vec<ChangeArg>) -> Result<Answer> {
    let gate = Gate::new(Workspace::open(root, Options::default())?);
    let agent = "blue".parse().map_err(|_| Fault::invalid("not a name"))?;
    let turn = gate.begin_turn(agent)?;
    if let [ChangeArg::Folder(path, to)] = args.as_slice() {
        return Ok(match gate.move_folder(&turn, path, to)? {
            Outcome::Done(_) => Answer::Done(json!({ "applied": 1 })),
            Outcome::Refused(refused) => Answer::Refused(json!(refused.payload())),
        });
    }
    if let [ChangeArg::Undo(line)] = args.as_slice() {
        let missing = || Fault::invalid("the ledger has no such change");
        let chosen = Which::Line(*line).find(gate.workspace().ledger())?.ok_or_else(missing)?;
        let contents = Contents::of(gate.workspace()).left_by(&chosen.steps);
        let plan = chosen.plan_to_undo(&contents)?;
        return Ok(match gate.apply_as(&turn, "undo", plan.changes)? {
            Outcome::Done(applied) => Answer::Done(json!({ "applied": applied.len() })),
            Outcome::Refused(refused) => Answer::Refused(json!(refused.payload())),
        });
    }
    let file = |arg| match arg {
        ChangeArg::File(change) => Ok(change),
        ChangeArg::Undo(_) | ChangeArg::Folder(..) => {
            Err(Fault::invalid("the move of a folder, or an undo, must be the only change"))
        }
    };
    let changes: Vec<Change> = args.into_iter().map(file).collect::<Result<_>>()?;
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
