//! One task with its text, as it was read.

use jiff::Timestamp;
use tollgate::digest::Digest;
use tollgate::error::Result;
use tollgate::vault::{Task, TaskName, Vault};

/// Pages show at most this much of a task. A task that is not shown in full cannot be decided on the page.
const LONGEST: u64 = 512 << 10;

/// A task and its text.
pub(super) struct Sheet {
    pub(super) stored: Task,
    pub(super) text: String,
    /// The SHA-256 of the file, if `text` is exactly its content.
    pub(super) exact: Option<Digest>,
}

impl Sheet {
    pub(super) fn read(vault: &Vault, task: &TaskName, now: Timestamp) -> Result<Self> {
        let (stored, bytes) = vault.get_with_text(task, LONGEST + 1, now)?;
        let is_whole = bytes.len() as u64 <= LONGEST;
        let digest = Digest::of(&bytes);
        Ok(match String::from_utf8(bytes) {
            Ok(text) => Self { stored, text, exact: is_whole.then_some(digest) },
            Err(bytes) => {
                let text = String::from_utf8_lossy(bytes.as_bytes()).into_owned();
                Self { stored, text, exact: None }
            }
        })
    }

    /// What people call the task: its title, else its name.
    pub(super) fn title(&self) -> &str {
        let brief = self.stored.brief.as_ref().ok();
        brief.and_then(|brief| brief.title.as_deref()).unwrap_or(self.stored.name.stem())
    }
}
