//! `[guard]`: how files are guarded.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::durability::Durability;
use crate::units::Wait;

/// `[guard]`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GuardSettings {
    /// Whether stale writes are refused.
    pub mode: GuardMode,
    /// Whether an agent may write files that it has not read in the turn.
    pub unread: Unread,
    /// Whether an agent may destroy unfinished work that it has not seen.
    pub unfinished: Unfinished,
    /// What an agent learns of files that were changed since it read them.
    pub premises: Premises,
    /// Whether an acknowledged write survives a power failure.
    pub durability: Durability,
    /// How long a write waits until other programs have closed the file.
    pub quiet_wait: Wait,
    /// How long a write waits for another guarded write of the same file.
    pub lock_wait: Wait,
    /// How long after a write the replaced file gets its late-write check.
    pub grace: Wait,
    /// After this time, a reservation between two hooks expires.
    pub reservation: Wait,
    /// Whether files with several names (hard links) may be written.
    pub hard_links: HardLinks,
    /// Whether read-only files may be written.
    pub read_only: ReadOnly,
    /// More paths that agents must not change, relative to the workspace.
    pub protected: Vec<PathBuf>,
}

impl Default for GuardSettings {
    fn default() -> Self {
        Self {
            mode: GuardMode::default(),
            unread: Unread::default(),
            unfinished: Unfinished::default(),
            premises: Premises::default(),
            durability: Durability::default(),
            // An editor holds a file open for a few milliseconds while it saves; a second covers a slow one.
            quiet_wait: Wait(Duration::from_secs(1)),
            // Long enough for a guarded write of a large file to a slow disk.
            lock_wait: Wait(Duration::from_secs(10)),
            // A late writer has resolved the path but not opened the file yet. That takes microseconds, unless the
            // process is suspended.
            grace: Wait(Duration::from_secs(2)),
            reservation: Wait(Duration::from_secs(600)),
            hard_links: HardLinks::default(),
            read_only: ReadOnly::default(),
            protected: Vec::new(),
        }
    }
}

/// Whether stale writes are refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GuardMode {
    /// Stale writes are refused.
    #[default]
    Enforce,
    /// Every write goes through. The ledger records those that would have been refused.
    Observe,
    /// Writes are not compared with what the agent read.
    Off,
}

/// Whether an agent may write files that it has not read in the turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unread {
    /// It may.
    #[default]
    Allow,
    /// The file is compared with what the agent knew in earlier turns of the session. If it knew nothing, it may write.
    Known,
    /// It may not, unless the write creates the file.
    Refuse,
}

/// Whether an agent may destroy unfinished work that it has not seen: bytes that are in no commit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unfinished {
    /// It may.
    #[default]
    Allow,
    /// It may, and the ledger records it.
    Note,
    /// It may not.
    Refuse,
}

/// What an agent learns of files that it has read in its turn, and that somebody else has changed since.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Premises {
    /// It is told, once, at its next call.
    #[default]
    Note,
    /// It is told, and may change no file until it has read them again.
    Refuse,
    /// Nothing.
    Off,
}

/// Whether files with several names (hard links) may be written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HardLinks {
    /// The write is refused.
    #[default]
    Refuse,
    /// The written name gets a file of its own. The other names keep the old file.
    Detach,
}

/// Whether read-only files may be written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadOnly {
    /// The write is refused.
    #[default]
    Refuse,
    /// A read-only file with the new bytes replaces the old one.
    Replace,
}
