//! What an edit makes of a task's bytes: where the change begins, and all bytes from there on. Pure.
//!
//! Invariant: nothing before the change is touched, and the author's bytes are before every change but a person's own.

use super::block;
use super::store::{Edit, Step};
use crate::digest::Digest;

/// The bytes from `at` to the end are to be these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tail {
    pub(crate) at: usize,
    pub(crate) bytes: Vec<u8>,
}

/// The change that `step` makes to `bytes`; `None` if it makes none. `bytes` may be only the end of the text, as long
/// as the blocks of the step's claim are in it.
pub(crate) fn tail(bytes: &[u8], step: &Step) -> Option<Tail> {
    let last = bytes.last().copied();
    let append = |text: String| Some(Tail { at: bytes.len(), bytes: text.into_bytes() });
    match &step.edit {
        Edit::Keep => None,
        Edit::Open => {
            let claim = step.note.as_ref()?.claim.as_ref()?;
            append(block::open(last, &claim.id, &step.task, &claim.agent, claim.at))
        }
        Edit::Close(claim, completion) => match block::find(bytes, &claim.id) {
            Some(at) => Some(Tail { at, bytes: block::close(&bytes[at..], completion) }),
            // The worker has rewritten the file without the block. It gets a new one, so that the end is told.
            None => {
                let opened = block::open(last, &claim.id, &step.task, &claim.agent, claim.at);
                Some(Tail { at: bytes.len(), bytes: block::close(opened.as_bytes(), completion) })
            }
        },
        Edit::Progress(_, line) => {
            let gap = if matches!(last, None | Some(b'\n')) { "" } else { "\n" };
            append(format!("{gap}{line}"))
        }
        Edit::Reject(by, reason) => append(block::rejection(last, by, reason, step.at)),
        // Somebody else has changed it: not over that.
        Edit::Amend(..) if step.check.is_none_or(|seen| Digest::of(bytes) != seen) => None,
        Edit::Amend(at, text) => {
            let at = usize::try_from(*at).unwrap_or(usize::MAX).min(bytes.len());
            Some(Tail { at, bytes: text.clone().into_bytes() })
        }
    }
}

/// All bytes after the edit.
pub(crate) fn edited(bytes: &[u8], step: &Step) -> Vec<u8> {
    match tail(bytes, step) {
        None => bytes.to_vec(),
        Some(tail) => [&bytes[..tail.at], &tail.bytes].concat(),
    }
}
