//! The copy that the ledger of this machine gets of what an engine has recorded.
//!
//! Invariant: a fault of the copy undoes nothing, because the engine has the events already. It is remembered until a later copy
//! succeeds, so that a store can name it among its problems.

use std::sync::{Arc, Mutex, PoisonError};

use tollgate_base::error::Fault;

use crate::event::{Entry, Journal};

/// The journal that gets a copy of what this process does, if there is one.
#[derive(Default)]
pub struct JournalCopy {
    journal: Option<Arc<dyn Journal>>,
    fault: Mutex<Option<Fault>>,
}

impl JournalCopy {
    /// Copies to this journal.
    pub fn to(journal: Option<Arc<dyn Journal>>) -> Self {
        Self { journal, fault: Mutex::default() }
    }

    /// Copies events that are recorded elsewhere.
    pub fn append(&self, events: &[Entry]) {
        if let Some(journal) = self.journal.as_ref().filter(|_| !events.is_empty()) {
            *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = journal.append(events).err();
        }
    }

    /// Why the last events were not copied, as one sentence.
    pub fn problem(&self) -> Option<String> {
        let fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        fault.as_ref().map(|fault| {
            format!("the ledger of this machine lacks events that the engine has recorded: {fault}")
        })
    }
}
