//! The past of a workspace, for the commands that show it and undo it: what a file has held, and who may undo what.

use std::ops::ControlFlow;
use std::path::Path;

use serde_json::{Value, json};
use tollgate::error::Fault;
use tollgate::history;
use tollgate::history::chosen::Which;
use tollgate::history::step::{Back, Step, Steps};
use tollgate::history::trail::{By, State, Trail, states};
use tollgate::history::undo::{Plan, UndoResult};
use tollgate::name::{Agent, TurnId};
use tollgate::turn::{TurnRead, TurnState};
use tollgate::workspace::Workspace;
use tollgate::{Digest, ledger::Ledger};

use crate::answer::{Answer, Reply};
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::person::Person;
use crate::words;

/// What a file has held, the oldest first.
pub(super) struct Past {
    pub(super) steps: Vec<Step>,
    pub(super) states: Vec<State>,
}

impl Past {
    /// The past of the file that has this name now, and holds this.
    pub(super) fn of(ledger: &Ledger, name: &str, now: Option<Digest>) -> Result<Self, Fault> {
        let mut trail = Trail::of(name);
        let steps =
            Steps::read(ledger, Back::ToTheStart, |step| ControlFlow::Continue(trail.takes(step)))?.steps;
        let states = states(name, &steps, now);
        Ok(Self { steps, states })
    }

    /// The agent that made a state. `None`: a person or another program did, or nobody knows.
    pub(super) fn author(&self, state: &State) -> Option<&Agent> {
        match state.by {
            Some(By::Step(index)) => self.steps.get(index)?.agent.as_ref(),
            Some(By::SomebodyBefore(_)) | None => None,
        }
    }
}

/// What the agents of turns that have not ended were shown, as far as processes of this user keep it in folders.
pub(super) fn open_turns(invocation: &Invocation) -> impl Fn(&TurnId) -> Option<Vec<TurnRead>> {
    // If a folder cannot be used, the turns in it are not found.
    let places = invocation.existing_turns().unwrap_or_default();
    move |turn| places.iter().find_map(|turns| turns.open(turn).ok()?.reads().ok())
}

/// The workspace, if anything was recorded in it.
pub(super) fn recorded(invocation: &Invocation) -> Result<Option<Workspace>, CliError> {
    Ok(if invocation.has_state()? { Some(invocation.workspace()?) } else { None })
}

/// A file as the ledger names it: relative to the workspace if it is in it.
pub(super) fn ledger_name(
    invocation: &Invocation,
    workspace: &Workspace,
    path: &Path,
) -> Result<String, CliError> {
    Ok(history::ledger_name(workspace, &workspace.canonical_link(invocation.path(path)?)?))
}

/// The answer if the ledger has nothing of what is meant.
pub(super) fn nothing_found(which: &Which) -> Answer {
    no("not_found", &words::nothing_recorded(&which.described()))
}

/// An answer that is no, with its hint behind its first line.
pub(super) fn no(reason: &str, message: &str) -> Answer {
    let (first, hint) =
        message.split_once("\nhint: ").map_or((message, None), |(first, hint)| (first, Some(hint)));
    let first = first.trim_start_matches("refused: ");
    Answer::NotValid(Reply::noted(
        message.to_owned(),
        json!({"refused": true, "reason": reason, "message": first, "hint": hint}),
    ))
}

/// The refusal, if the caller may not undo what these have written. A person may undo anything, an agent only its own work: otherwise
/// it would destroy what it has not seen. `None` is somebody without tollgate.
pub(super) fn not_allowed<'a>(
    invocation: &Invocation,
    authors: impl IntoIterator<Item = Option<&'a Agent>>,
) -> Result<Option<Answer>, CliError> {
    let Some(own) = invocation.acting_agent()? else {
        let program = invocation.inside_an_agent();
        return Ok(program.map(|program| no("agent", &words::undo_without_name(&program))));
    };
    let other = authors.into_iter().find(|author| *author != Some(&own));
    Ok(other.map(|other| no("not_yours", &words::undo_of_another(other.map_or("somebody", Agent::as_str)))))
}

/// Shows what would be done, and asks the person. The answer, if nothing is to be done.
pub(super) fn asked(invocation: &Invocation, shown: &str) -> Result<Option<Answer>, CliError> {
    Ok(match Person::here(invocation) {
        Err(why) => Some(no(why.word(), &words::nobody_undoes(&why))),
        Ok(person) if !person.agrees(shown, words::UNDO_QUESTION)? => {
            Some(no("not_confirmed", words::NOT_UNDONE))
        }
        Ok(_) => None,
    })
}

/// A plan for programs. `name`: what the diffs call what comes of each file, and the list of what was written, which is empty yet.
pub(super) fn plan_json(plan: &Plan, name: &str) -> Value {
    let mut files = Vec::new();
    for file in &plan.files {
        let merge = match &file.result {
            UndoResult::Becomes { merged: true, .. } => "clean",
            UndoResult::Conflict(_) => continue,
            _ => "none",
        };
        let mut json = json!({"path": file.path, "merge": merge, "diff": file.diff(name)});
        if let UndoResult::MovesBack { to } = &file.result {
            json["moved_to"] = to.as_str().into();
        }
        files.push(json);
    }
    let conflicts: Vec<Value> = plan
        .conflicts()
        .map(|(file, why)| json!({"path": file.path, "merge": "conflict", "why": why.word(), "content": why.text()}))
        .collect();
    json!({name: [], "conflicts": conflicts, "files": files})
}

/// The paths of the files in this plan.
pub(super) fn paths_of(plan: &Value) -> Value {
    plan["files"].as_array().into_iter().flatten().map(|file| file["path"].clone()).collect()
}
