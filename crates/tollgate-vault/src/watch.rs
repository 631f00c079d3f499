//! Wake-ups: a store tells those who wait that something may have changed.
//!
//! Invariant: a wake-up is only a hint. What a task may do is judged on what the store has at that moment; a hint that
//! gets lost costs time, never correctness.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::state::State;
use tollgate_base::task::TaskName;

/// What may have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A task arrived in this state, or changed there, or left it.
    Task {
        /// Which task.
        task: TaskName,
        /// Where.
        state: State,
        /// How it came to be noticed.
        how: Noticed,
    },
    /// Something in this state that cannot be told more precisely.
    State(State),
    /// An owner let go of a claim, or died.
    OwnerGone,
    /// Anything: hints were lost.
    Everything,
}

/// How a change was noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noticed {
    /// The task was moved in, so it is complete.
    MovedIn,
    /// A program finished writing it; it is complete when it has settled.
    Written,
    /// Something else: it was moved away, created, or its attributes changed.
    Touched,
}

/// Called by the store on a thread of its own, so it must return quickly.
pub type Wake = Arc<dyn Fn(Change) + Send + Sync>;

/// Wake-ups end when this is dropped.
pub struct Watch(#[expect(dead_code, reason = "kept for its drop")] Box<dyn Any + Send>);

impl Watch {
    /// The store's own watcher, which stops when it is dropped.
    pub fn new(watcher: impl Any + Send) -> Self {
        Self(Box::new(watcher))
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}
