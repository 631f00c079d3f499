//! The log that a process has used last.

use std::fs::File;
use std::sync::Arc;

use super::log_line::LogState;

/// The end of a log that was read last, and what it says. A worker reads the log of a task several times in a row.
#[derive(Default)]
pub(super) struct LastLog {
    pub(super) end: Vec<u8>,
    /// Whether what stands before these bytes need not be read.
    pub(super) stands_alone: bool,
    pub(super) says: Arc<LogState>,
    /// How many of the bytes are complete lines.
    pub(super) lines: usize,
    /// The log that was locked last, still open but not locked.
    pub(super) file: Option<(u8, Arc<File>)>,
}
