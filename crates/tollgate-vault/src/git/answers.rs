//! What became of the latest steps of this process, so that a step that is applied again gets the same answer.
//!
//! A retry follows at once and in the same process, so a small ring in memory is enough. What must survive a crash is in
//! `pending.json`.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::claim::StepId;
use crate::store::Landed;

/// How many steps are remembered: more than all threads of a process can have under way.
const REMEMBERED: usize = 256;

/// What is known about a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    /// It was pushed, and the answer of the remote is missing.
    Pushed,
    /// It renews a claim. The remote knows, the tree may not.
    Renewed,
    /// It was taken.
    Taken(Landed),
}

/// The fates of the latest steps.
#[derive(Debug, Default)]
pub(super) struct Answers(Mutex<VecDeque<(StepId, Fate)>>);

impl Answers {
    fn ring(&self) -> MutexGuard<'_, VecDeque<(StepId, Fate)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, step: &StepId) -> Option<Fate> {
        self.ring().iter().find(|(id, _)| id == step).map(|(_, fate)| fate.clone())
    }

    pub(super) fn set(&self, step: &StepId, fate: Fate) {
        let mut ring = self.ring();
        ring.retain(|(id, _)| id != step);
        ring.truncate(REMEMBERED - 1);
        ring.push_front((step.clone(), fate));
    }

    /// The remote does not have this step.
    pub(super) fn not_taken(&self, step: &StepId) {
        self.ring().retain(|(id, fate)| id != step || *fate != Fate::Pushed);
    }
}
