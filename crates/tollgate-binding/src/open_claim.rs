//! A claim as the turns that work under it see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tollgate::error::Result;
use tollgate::fence::{LostClaim, WriteFence};

/// A claim that its owner has not released. Clones are the same claim.
#[derive(Clone)]
pub(crate) struct OpenClaim {
    is_open: Arc<AtomicBool>,
    fence: WriteFence,
}

impl OpenClaim {
    pub(crate) fn new(fence: WriteFence) -> Self {
        Self { is_open: Arc::new(AtomicBool::new(true)), fence }
    }

    /// Whether the owner still relies on the claim: it has neither released it nor heard that it is lost.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    pub(crate) fn close(&self) {
        self.is_open.store(false, Ordering::Release);
    }

    /// The claim, if it does not own its task any more.
    pub(crate) fn lost(&self) -> Result<Option<LostClaim>> {
        (self.fence)()
    }
}
