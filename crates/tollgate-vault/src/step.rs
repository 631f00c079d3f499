//! One step of one task: what a store applies as one atomic act. Pure.
//!
//! Invariant: the author's text stays as it is, except for a person's own edit.

use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::block::{self, Completion};
use crate::claim::{Claim, ClaimRecord};
use crate::event::Entry;
use crate::state::{Slot, Verb};
use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};
use tollgate_base::name::{ClaimId, StepId};
use tollgate_base::task::TaskName;

/// Changes with everything that happens to a task, by tollgate or by hand. Only the store that made it knows what it means.
pub type Version = Arc<[u8]>;

/// Where a step has brought a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskAfterStep {
    /// Its name now. It differs from before only if that name was taken.
    pub task: TaskName,
    /// Its slot now.
    pub slot: Slot,
    /// Its file, if it has one.
    pub path: Option<PathBuf>,
}

/// What a step does to the task's text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TextEdit {
    /// Nothing.
    Keep,
    /// Appends the block of the claim in [`Step::record`].
    Open,
    /// Closes this claim's block.
    Close(Claim, Completion),
    /// Appends this line to this claim's open block.
    Progress(ClaimId, String),
    /// Appends this section to this claim's open block.
    Draft(ClaimId, String),
    /// Appends a person's rejection: who, and why.
    Reject(String, String),
    /// Appends that this person wants the task to be tried again, and why.
    Retry(String, Option<String>),
    /// Appends the reason why a person must look at the task.
    Ask(String),
    /// A person's own text, in place of the whole text whose digest is [`Step::check`].
    Replace(String),
}

/// One step of one task, with its events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Made by the client, so that a step whose answer was lost can be retried.
    pub id: StepId,
    /// When.
    #[serde(with = "jiff::fmt::serde::timestamp::nanosecond::required")]
    pub at: Timestamp,
    /// What is done. `None` for a step that moves nothing: a renewal, a progress note, a draft.
    pub verb: Option<Verb>,
    /// To which task.
    pub task: TaskName,
    /// Where it must be.
    pub from: Slot,
    /// Which version it must have.
    #[serde(skip)]
    pub version: Version,
    /// The digest that its text must have, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<Digest>,
    /// Where it goes.
    pub to: Slot,
    /// What happens to its text.
    pub edit: TextEdit,
    /// What is known about it afterwards. `None`: nothing, because it is final.
    #[serde(rename = "note", default, skip_serializing_if = "Option::is_none")]
    pub record: Option<ClaimRecord>,
    /// Whether the digest of the new text goes into the record, so that a person can approve exactly this text.
    #[serde(rename = "offer")]
    pub records_digest: bool,
    /// If its name is taken where it goes, this word makes it unique.
    #[serde(rename = "beside")]
    pub fallback_suffix: String,
    /// The events to record.
    pub events: Vec<Entry>,
}

impl Step {
    /// The whole text after the step.
    pub fn edited(&self, text: &[u8]) -> Vec<u8> {
        match self.tail(text) {
            None => text.to_vec(),
            Some((at, tail)) => [&text[..at], &tail].concat(),
        }
    }

    /// What is known about the task after the step, if its text is then `text`.
    pub fn record_after(&self, text: &[u8]) -> Option<ClaimRecord> {
        let mut record = self.record.clone();
        if let Some(record) = record.as_mut().filter(|_| self.records_digest) {
            record.offered = Some(Digest::of(text));
        }
        record
    }

    /// The name the task gets if its own is taken where it goes.
    pub fn fallback_name(&self) -> TaskName {
        self.task.beside(&self.fallback_suffix)
    }

    /// The change to `text`: from which byte to the end, and what is there instead; `None` if there is none.
    pub(crate) fn tail(&self, text: &[u8]) -> Option<(usize, Vec<u8>)> {
        let last = text.last().copied();
        let append = |more: String| Some((text.len(), more.into_bytes()));
        match &self.edit {
            TextEdit::Keep => None,
            TextEdit::Open => {
                let claim = self.record.as_ref()?.claim.as_ref()?;
                append(block::open(last, &claim.id, &self.task, &claim.agent, claim.at))
            }
            TextEdit::Close(claim, completion) => match block::find(text, &claim.id) {
                // What was not flushed before a power cut can be zeros.
                Some(at) => {
                    let block: Vec<u8> = text[at..].iter().copied().filter(|byte| *byte != 0).collect();
                    Some((at, block::close(&block, completion)))
                }
                // The worker has rewritten the file without the block. A new one records how the attempt ended.
                None => {
                    let zeros = text.iter().rev().take_while(|byte| **byte == 0).count();
                    let text = &text[..text.len() - zeros];
                    let opened =
                        block::open(text.last().copied(), &claim.id, &self.task, &claim.agent, claim.at);
                    Some((text.len(), block::close(opened.as_bytes(), completion)))
                }
            },
            TextEdit::Progress(_, line) | TextEdit::Draft(_, line) => {
                let gap = if matches!(last, None | Some(b'\n')) { "" } else { "\n" };
                append(format!("{gap}{line}"))
            }
            TextEdit::Reject(by, reason) => append(block::rejection(last, by, reason, self.at)),
            TextEdit::Retry(by, reason) => append(block::retry(last, by, reason.as_deref(), self.at)),
            TextEdit::Ask(reason) => append(block::question(last, reason, self.at)),
            // Somebody else has changed the text: do not overwrite that.
            TextEdit::Replace(_) if self.check.is_none_or(|seen| Digest::of(text) != seen) => None,
            TextEdit::Replace(new) => Some((0, new.clone().into_bytes())),
        }
    }
}

/// What came of a step.
#[derive(Debug)]
pub enum StepOutcome {
    /// It was taken.
    Done(TaskAfterStep),
    /// The task is not at the step's version: somebody else was faster. Nothing was changed.
    Conflict,
    /// The text does not have the digest of [`Step::check`]. Nothing was changed.
    Changed,
    /// The step may or may not have been taken, because the answer was lost. The same step may be applied again.
    Unknown(Fault),
}

impl StepOutcome {
    /// Where the task is now; `None`: somebody else has changed it, and nothing was done.
    pub(crate) fn landed(self) -> Result<Option<TaskAfterStep>> {
        match self {
            Self::Done(landed) => Ok(Some(landed)),
            Self::Conflict | Self::Changed => Ok(None),
            Self::Unknown(fault) => Err(fault),
        }
    }
}
