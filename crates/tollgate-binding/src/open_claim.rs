//! A claim as the turns that work under it see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tollgate::fence::ClaimFence;
use tollgate::name::ClaimId;
use tollgate::vault::TaskName;

/// A claim that its owner has not released. Clones are the same claim.
#[derive(Clone)]
pub(crate) struct OpenClaim {
    is_open: Arc<AtomicBool>,
    fence: ClaimFence,
    task: TaskName,
    id: ClaimId,
}

impl OpenClaim {
    pub(crate) fn new(fence: ClaimFence, task: TaskName, id: ClaimId) -> Self {
        Self { is_open: Arc::new(AtomicBool::new(true)), fence, task, id }
    }

    /// Whether the owner still relies on the claim: it has neither released it nor heard that it is lost.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    pub(crate) fn close(&self) {
        self.is_open.store(false, Ordering::Release);
    }

    /// The claim, and what knows whether it still owns its task.
    pub(crate) fn fenced(&self) -> (&ClaimFence, &TaskName, &ClaimId) {
        (&self.fence, &self.task, &self.id)
    }
}
