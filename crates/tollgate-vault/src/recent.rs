//! The latest steps of this process, with what is remembered about each, so that a step that is applied again gets the same
//! answer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate_base::name::StepId;

/// More than all threads of a process can have under way. A retry follows at once.
const REMEMBERED: usize = 256;

/// What is remembered about the latest steps. Cheap to clone.
#[derive(Debug)]
pub(crate) struct Recent<T>(Arc<Mutex<VecDeque<(StepId, T)>>>);

impl<T> Clone for Recent<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Clone> Recent<T> {
    fn steps(&self) -> MutexGuard<'_, VecDeque<(StepId, T)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, step: &StepId) -> Option<T> {
        self.steps().iter().find(|(id, _)| id == step).map(|(_, what)| what.clone())
    }

    pub(crate) fn remember(&self, step: &StepId, what: T) {
        let mut steps = self.steps();
        steps.retain(|(id, _)| id != step);
        steps.truncate(REMEMBERED - 1);
        steps.push_front((step.clone(), what));
    }

    pub(crate) fn forget(&self, step: &StepId) {
        self.steps().retain(|(id, _)| id != step);
    }
}
