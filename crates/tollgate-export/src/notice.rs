//! What people are told while an export runs.

use std::time::Duration;

/// What people are told while an export runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExportNotice {
    /// The receiver takes nothing now. The export waits and tries again.
    Waiting {
        /// What the receiver said, or why it cannot be reached.
        why: String,
        /// The pause before the next try.
        pause: Duration,
    },
    /// The receiver accepts events again.
    Resumed,
    /// The receiver took the request, and refused some of its content for good.
    Rejected {
        /// The number of log records, spans or data points.
        count: u64,
        /// The message of the receiver.
        message: String,
    },
    /// Lines of the ledger are damaged, or do not fit together. The others are exported.
    Doubtful,
}
