//! Batches: the steps that the threads of one process want to take at the same moment share one push.
//!
//! Only one thread at a time can talk to the remote. The thread whose turn it is takes the steps of the waiting threads
//! along, at most one for each task.
//!
//! Invariant: a step without an answer, because of a fault of this machine, stays in the queue, and its own thread takes it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::step::{Step, StepOutcome};
use tollgate_base::error::{Fault, Result};

/// The steps that wait in one process.
#[derive(Default)]
pub(super) struct Batches {
    turn: Mutex<()>,
    waiting: Mutex<Vec<Arc<Ticket>>>,
    arrived: Condvar,
    /// How long a step waits for others, in milliseconds.
    wait_ms: AtomicU64,
}

/// A step that waits for its answer.
pub(super) struct Ticket {
    pub(super) step: Step,
    answer: Mutex<Option<Result<StepOutcome>>>,
}

impl Ticket {
    pub(super) fn answer(&self, outcome: Result<StepOutcome>) {
        *locked(&self.answer) = Some(outcome);
    }

    fn is_answered(&self) -> bool {
        locked(&self.answer).is_some()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Batches {
    /// From now on a step that moves a task waits this long for another one.
    pub(super) fn set_wait(&self, wait: Duration) {
        self.wait_ms.store(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Takes a step: in the batch of another thread, or as the first of a batch that `take` answers.
    pub(super) fn take(
        &self,
        step: &Step,
        take: impl FnOnce(&[Arc<Ticket>]) -> Result<()>,
    ) -> Result<StepOutcome> {
        let ticket = Arc::new(Ticket { step: step.clone(), answer: Mutex::new(None) });
        locked(&self.waiting).push(Arc::clone(&ticket));
        self.arrived.notify_all();
        let _turn = locked(&self.turn);
        if let Some(outcome) = locked(&ticket.answer).take() {
            return outcome;
        }
        let wait = Duration::from_millis(self.wait_ms.load(Ordering::Relaxed));
        if step.verb.is_some() && !wait.is_zero() {
            let is_alone = |waiting: &mut Vec<Arc<Ticket>>| waiting.len() < 2;
            let waiting = locked(&self.waiting);
            drop(self.arrived.wait_timeout_while(waiting, wait, is_alone));
        }
        let batch = self.batch(&ticket);
        let taken = take(&batch);
        let unanswered = batch.iter().skip(1).filter(|other| !other.is_answered());
        locked(&self.waiting).extend(unanswered.cloned());
        let own = locked(&ticket.answer).take();
        let missing = || Err(Fault::invalid("internal error: the step got no answer"));
        own.unwrap_or_else(|| taken.map_or_else(Err, |()| missing()))
    }

    /// This step, and of the others at most one for each task.
    fn batch(&self, ticket: &Arc<Ticket>) -> Vec<Arc<Ticket>> {
        let mut batch = vec![Arc::clone(ticket)];
        locked(&self.waiting).retain(|other| {
            if Arc::ptr_eq(other, ticket) {
                return false;
            }
            let is_first = batch.iter().all(|taken| taken.step.task != other.step.task);
            if is_first {
                batch.push(Arc::clone(other));
            }
            !is_first
        });
        batch
    }
}
