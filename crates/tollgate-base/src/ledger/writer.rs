//! What a process keeps between two appends.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;

use super::cursor::Cursor;

/// What stays open from one append to the next, and what is known from the last.
#[derive(Debug, Default)]
pub(super) struct Writer {
    pub(super) lock: Option<File>,
    pub(super) growing: Option<Growing>,
}

/// The file that grows.
#[derive(Debug)]
pub(super) struct Growing {
    pub(super) file: File,
    pub(super) dev: u64,
    pub(super) ino: u64,
    pub(super) ended: Ended,
}

/// Where our last append ended, so that the next need not read what we wrote.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    pub(super) size: u64,
    pub(super) head: Cursor,
}

impl Growing {
    pub(super) fn is(&self, found: &Metadata) -> bool {
        (self.dev, self.ino) == (found.dev(), found.ino())
    }
}
