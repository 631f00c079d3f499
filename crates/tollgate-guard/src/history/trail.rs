//! One file, followed back through the ledger under all its names, and forward again through what it held.
//!
//! This file does no I/O.

use super::step::{Step, What};
use tollgate_base::digest::Digest;

/// Follows a file back. Asked of each step, the newest first.
#[derive(Debug, Clone)]
pub struct Trail {
    name: String,
}

impl Trail {
    /// Begins with the name that the file has now, as the ledger writes it.
    pub fn of(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }

    /// The name that the file had before the last step that was asked for.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether this next older step did something to the file.
    pub fn takes(&mut self, step: &Step) -> bool {
        self.turn_of(step).is_some()
    }

    /// What the step did to the file.
    fn turn_of(&mut self, step: &Step) -> Option<Held> {
        let below = |of: &str| self.name.strip_prefix(of).is_some_and(|rest| rest.starts_with('/'));
        match (&step.what, &step.moved_to) {
            (What::Folder, Some(to)) if below(to) => {
                self.name = format!("{}{}", step.path, &self.name[to.len()..]);
                Some(Held::Same)
            }
            (What::Folder, _) if below(&step.path) => Some(Held::Bytes { before: None, after: Some(None) }),
            (What::Folder, _) => None,
            (What::File { before, after }, Some(to)) if *to == self.name => {
                self.name.clone_from(&step.path);
                Some(Held::Bytes { before: Some(*before), after: Some(*after) })
            }
            (What::File { before, .. }, Some(_)) if step.path == self.name => {
                Some(Held::Bytes { before: Some(*before), after: Some(None) })
            }
            (What::File { before, after }, None) if step.path == self.name => {
                Some(Held::Bytes { before: Some(*before), after: Some(*after) })
            }
            (What::File { .. }, _) => None,
        }
    }
}

/// What a file held before and after a step. `None`: not known.
enum Held {
    /// Its folder was moved.
    Same,
    Bytes {
        before: Option<Option<Digest>>,
        after: Option<Option<Digest>>,
    },
}

/// Who brought a file from one state to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The step with this index.
    Step(usize),
    /// Somebody who does not use tollgate: a person, or another program. Before the step with this index, or after the last step if
    /// the index is that of none.
    SomebodyBefore(usize),
}

/// A state of a file, and who made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// Who. `None`: the state in which the first step found it.
    pub by: Option<By>,
    /// What the file held; `None`: there was no file.
    pub digest: Option<Digest>,
}

/// The states of a file, the oldest first: what the first step found, and what each step and each outside change left. `now` is what
/// is on disk. The steps are those that the [`Trail`] of this name took, the oldest first.
pub fn states(name: &str, steps: &[Step], now: Option<Digest>) -> Vec<State> {
    let mut trail = Trail::of(name);
    let held: Vec<Option<Held>> = steps.iter().rev().map(|step| trail.turn_of(step)).collect();
    let mut states: Vec<State> = Vec::new();
    let found = |states: &mut Vec<State>, index: usize, digest: Option<Digest>| match states.last() {
        None => states.push(State { by: None, digest }),
        Some(last) if last.digest == digest => {}
        Some(_) => states.push(State { by: Some(By::SomebodyBefore(index)), digest }),
    };
    for (index, held) in held.into_iter().rev().enumerate() {
        let Some(Held::Bytes { before, after }) = held else { continue };
        if let Some(before) = before {
            found(&mut states, index, before);
        }
        if let Some(after) = after
            && states.last().is_none_or(|last| last.digest != after)
        {
            states.push(State { by: Some(By::Step(index)), digest: after });
        }
    }
    found(&mut states, steps.len(), now);
    states
}
