//! Changes that somebody asks for as one: that of a ledger line, those of a turn, of a task, or of an agent since some time.
//!
//! A choice comes with all steps since the first chosen one, because an undo must know what others have done since.

use std::ops::ControlFlow;
use std::str::FromStr;

use jiff::Timestamp;

use super::content::Contents;
use super::listing::FileDiff;
use super::step::{Back, Step, Steps};
use super::undo::{Plan, spans};
use tollgate_base::error::{Fault, Result};
use tollgate_base::ledger::Ledger;
use tollgate_base::name::{Agent, TurnId};
use tollgate_base::task::TaskName;

/// Which changes are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
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
    fn from_str(text: &str) -> std::result::Result<Self, String> {
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
    /// How people call them.
    pub fn described(&self) -> String {
        match self {
            Self::Line(line) => format!("line {line}"),
            Self::Turn(turn) => format!("turn `{turn}`"),
            Self::Task(task) => format!("task `{task}`"),
            Self::Agent(agent, since) => format!("`{agent}` since {since}"),
        }
    }

    fn back(&self) -> Back {
        match self {
            Self::Line(line) => Back::ToLine(*line),
            Self::Agent(_, since) => Back::To(*since),
            Self::Turn(_) | Self::Task(_) => Back::ToTheStart,
        }
    }

    /// Finds them in the ledger; `None` if it has none.
    pub fn find(&self, ledger: &Ledger) -> Result<Option<Chosen>> {
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
#[derive(Debug, Clone)]
pub struct Chosen {
    /// The oldest first. The first is meant.
    pub steps: Vec<Step>,
    meant: Vec<bool>,
}

impl Chosen {
    /// All of these are meant. There must be at least one.
    pub fn all(steps: Vec<Step>) -> Self {
        Self { meant: vec![true; steps.len()], steps }
    }

    /// Whether this step is meant.
    pub fn is_meant(&self, step: &Step) -> bool {
        // The numbers of the lines rise.
        let at = self.steps.binary_search_by_key(&step.seq, |step| step.seq);
        at.is_ok_and(|at| self.meant[at])
    }

    /// The steps that are meant.
    pub fn meant(&self) -> impl DoubleEndedIterator<Item = &Step> {
        self.steps.iter().zip(&self.meant).filter(|(_, meant)| **meant).map(|(step, _)| step)
    }

    /// What they did to each file, at most this many. Changes of a file that follow each other are one diff.
    pub fn diffs(&self, contents: &Contents<'_>, most: usize) -> Result<Vec<FileDiff>> {
        let spans = spans(&self.steps, |step| self.is_meant(step));
        let changed = spans.iter().filter(|span| !span.is_nothing()).take(most);
        changed.map(|span| FileDiff::of(contents, &span.path, [span.before, span.after])).collect()
    }

    /// Plans to undo them.
    pub fn plan_to_undo(&self, contents: &Contents<'_>) -> Result<Plan> {
        Plan::undo(contents, &self.steps, |step| self.is_meant(step))
    }
}
