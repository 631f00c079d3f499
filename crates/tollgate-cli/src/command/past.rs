//! The past of a workspace, for the commands that show it and undo it: which changes are meant, their bytes, their sizes.

use std::ops::ControlFlow;
use std::path::Path;
use std::str::FromStr;

use jiff::Timestamp;
use serde_json::{Value, json};
use tollgate::TaskName;
use tollgate::error::Fault;
use tollgate::history;
use tollgate::history::step::{Back, Step, Steps};
use tollgate::history::trail::{By, State, Trail, states};
use tollgate::history::undo::{Plan, UndoResult};
use tollgate::name::{Agent, TurnId};
use tollgate::workspace::Workspace;
use tollgate::{Digest, ledger::Ledger};

use crate::answer::{Answer, Reply};
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::person::Person;
use crate::words;

/// Which changes are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Which {
    /// That with this ledger line.
    Line(u64),
    /// Those of a turn.
    Turn(TurnId),
    /// Those that were made for a task.
    Task(TaskName),
    /// Those of an agent since this time.
    Agent(Agent, Timestamp),
}

impl FromStr for Which {
    type Err = String;

    /// The number of a ledger line, the id of a turn, or the name of a task.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(line) = text.parse() {
            return Ok(Self::Line(line));
        }
        let is_turn = text.strip_prefix("t-").is_some_and(|id| id.len() == 16);
        if is_turn && let Ok(turn) = text.parse() {
            return Ok(Self::Turn(turn));
        }
        text.parse().map(Self::Task).map_err(|fault: Fault| fault.to_string())
    }
}

impl Which {
    fn back(&self) -> Back {
        match self {
            Self::Line(line) => Back::ToLine(*line),
            Self::Agent(_, since) => Back::To(*since),
            Self::Turn(_) | Self::Task(_) => Back::ToTheStart,
        }
    }

    /// The steps since the first that is meant, and whether a step is meant. `Err`: nothing is meant.
    pub(super) fn find(&self, ledger: &Ledger) -> Result<Option<Chosen>, Fault> {
        let steps = Steps::read(ledger, self.back(), |_| ControlFlow::Continue(true))?.steps;
        let change = match self {
            Self::Line(line) => steps.iter().find(|step| step.seq == *line).map(|step| step.change),
            _ => None,
        };
        let is_meant = |step: &Step| match self {
            Self::Line(_) => Some(step.change) == change,
            Self::Turn(turn) => step.turn.as_ref() == Some(turn),
            Self::Task(task) => step.task.as_ref() == Some(task),
            Self::Agent(agent, _) => step.agent.as_ref() == Some(agent),
        };
        let meant: Vec<bool> = steps.iter().map(is_meant).collect();
        let first = meant.iter().position(|meant| *meant);
        Ok(first.map(|first| Chosen { steps: steps[first..].to_vec(), meant: meant[first..].to_vec() }))
    }
}

/// Steps of the ledger, and which of them are meant.
pub(super) struct Chosen {
    /// The oldest first. The first is meant.
    pub(super) steps: Vec<Step>,
    meant: Vec<bool>,
}

impl Chosen {
    /// All of these are meant.
    pub(super) fn all(steps: Vec<Step>) -> Self {
        Self { meant: vec![true; steps.len()], steps }
    }

    pub(super) fn is_meant(&self, step: &Step) -> bool {
        // The numbers of the lines rise.
        let at = self.steps.binary_search_by_key(&step.seq, |step| step.seq);
        at.is_ok_and(|at| self.meant[at])
    }

    /// The steps that are meant.
    pub(super) fn meant(&self) -> impl DoubleEndedIterator<Item = &Step> {
        self.steps.iter().zip(&self.meant).filter(|(_, meant)| **meant).map(|(step, _)| step)
    }
}

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

impl Which {
    pub(super) fn described(&self) -> String {
        match self {
            Self::Line(line) => format!("line {line}"),
            Self::Turn(turn) => format!("turn `{turn}`"),
            Self::Task(task) => format!("task `{task}`"),
            Self::Agent(agent, since) => format!("`{agent}` since {since}"),
        }
    }
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
