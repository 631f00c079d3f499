//! A fresh store, and what the checks must be able to do behind its back.

use std::sync::Arc;

use crate::owner::Claimed;
use crate::state::Slot;
use crate::step::Step;
use crate::store::Store;
use tollgate_base::task::TaskName;

/// Moves a task, or changes its text, as a person would who knows nothing of tollgate: task, from, to, new text.
pub type ByHand = Box<dyn Fn(&TaskName, &Slot, &Slot, Option<&[u8]>)>;

/// Takes a step and dies before its Nth act.
pub type Interrupt = Box<dyn Fn(&Step, usize) -> Interrupted>;

/// What came of a step that was to be interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupted {
    /// The step has fewer acts, so it was not interrupted.
    No,
    /// The process died, and nobody else can know of the step yet.
    Died,
    /// The process died after others could see the step, on a remote for example. It must be finished.
    DiedAfterCommit,
}

/// A fresh store, and what the checks must be able to do behind its back.
pub struct Harness {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Kills everything that holds this claim.
    pub kill: Box<dyn Fn(Claimed)>,
    /// Does what a person does.
    pub by_hand: ByHand,
    /// For stores whose steps consist of several acts: dies in the middle of one.
    pub interrupt: Option<Interrupt>,
    /// The number of tasks in the race at the end.
    pub race: usize,
}

impl Harness {
    /// For a store whose steps are single acts, with a race of a size that suits a store in memory.
    pub fn new(store: Arc<dyn Store>, kill: Box<dyn Fn(Claimed)>, by_hand: ByHand) -> Self {
        Self { store, kill, by_hand, interrupt: None, race: 200 }
    }
}

/// Makes fresh harnesses.
pub type Fresh<'a> = &'a dyn Fn() -> Harness;
