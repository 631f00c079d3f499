//! Texts of tasks that this process has read, so that a step needs no second look: it changes exactly the text that the
//! rules have seen.
//!
//! Invariant: a text belongs to a version for ever, so what is in here is never out of date.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// More tasks than all threads of a process change at the same time.
const MOST: usize = 64;

/// The largest text that is kept: most are much shorter.
const LARGEST: usize = 256 << 10;

/// The latest texts, by version.
#[derive(Debug, Default)]
pub(crate) struct Texts(Mutex<VecDeque<(i64, Arc<[u8]>)>>);

impl Texts {
    pub(crate) fn get(&self, version: i64) -> Option<Arc<[u8]>> {
        let texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        texts.iter().find(|(known, _)| *known == version).map(|(_, text)| Arc::clone(text))
    }

    pub(crate) fn keep(&self, version: i64, text: Vec<u8>) {
        if text.len() <= LARGEST {
            let mut texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            texts.truncate(MOST - 1);
            texts.push_front((version, text.into()));
        }
    }
}
