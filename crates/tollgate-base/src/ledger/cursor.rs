//! A place in a ledger.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::{Fault, Result};

/// A place in a ledger, after one of its lines: the number and the SHA-256 of that line. The next line is chained to it,
/// so a cursor does not fit another ledger, or this one after the line was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// The line's number.
    pub seq: u64,
    /// The SHA-256 of the line without its newline.
    pub hash: Digest,
}

impl Cursor {
    /// Before the first line of any ledger.
    pub const START: Self = Self { seq: 0, hash: Digest::from_bytes([0; 32]) };
}

impl fmt::Display for Cursor {
    /// As one word, such as `17-3f2a...`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.seq, self.hash)
    }
}

impl FromStr for Cursor {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self> {
        let read = || {
            let (seq, hash) = text.split_once('-')?;
            Some(Self { seq: seq.parse().ok()?, hash: hash.parse().ok()? })
        };
        read().ok_or_else(|| {
            let shown: String = text.chars().take(120).collect();
            Fault::invalid(format!("`{}` is not a place in a ledger", shown.escape_debug()))
        })
    }
}
