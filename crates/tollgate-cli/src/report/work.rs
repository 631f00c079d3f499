//! How the tasks of one `tollgate work` ended.

/// The number of tasks per outcome.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WorkSummary {
    pub(crate) done: u64,
    pub(crate) drafted: u64,
    pub(crate) failed: u64,
    pub(crate) given_back: u64,
    /// Tasks whose claim ended while their command ran.
    pub(crate) lost: u64,
    /// How many of these are gone, or can be claimed again.
    pub(crate) undone: u64,
    /// Tasks that could not be claimed because of a fault.
    pub(crate) faulted: u64,
}

impl WorkSummary {
    pub(crate) fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}
