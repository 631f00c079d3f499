//! `[history]`: what is kept of the past, and how long.

use std::time::Duration;

use serde::Deserialize;

use crate::units::{Size, Wait};

/// `[history]`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HistorySettings {
    /// How long bytes are kept that were replaced, refused, or written late.
    pub max_age: Wait,
    /// The total number of bytes kept.
    pub max_size: Size,
    /// Whether the record of a turn has the text of its prompt, not only its hash.
    pub prompts: bool,
}

impl Default for HistorySettings {
    fn default() -> Self {
        Self { max_age: Wait(Duration::from_secs(7 * 24 * 3600)), max_size: Size(256 << 20), prompts: false }
    }
}
