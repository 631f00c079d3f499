//! The part of an open store that its threads share: the one that feeds the view, and those that drop locks of claims.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tollgate_base::error::Result;
use tollgate_base::task::TaskName;
use tollgate_vault::State;
use tollgate_vault::journal_copy::JournalCopy;
use tollgate_vault::state::Slot;
use tollgate_vault::store::{Hint, Wake};

use crate::call_error::CallResult;
use crate::client::Client;
use crate::layout::Layout;
use crate::line_place::LineSums;
use crate::message::{KeyValue, Range, RangeAnswer, Txn, TxnAnswer, TxnOperation};
use crate::process_lease::ProcessLease;
use crate::tasks_of_name::{CachedTask, SeenTask, TasksOfName};
use crate::view::View;

/// How many keys are read at once. An answer must arrive by the deadline of a call, also if the texts are long.
const PAGE: usize = 250;

/// An open store, for [`EtcdStore`](crate::store::EtcdStore), for the thread that feeds its view, and for the locks of its claims.
pub(crate) struct SharedStore {
    pub(crate) client: Client,
    pub(crate) layout: Layout,
    pub(crate) machine: String,
    pub(crate) process_lease: ProcessLease,
    pub(crate) sums: Mutex<LineSums>,
    pub(crate) lease: Duration,
    /// When old lines of the ledger are to be removed.
    pub(crate) trim_at: Mutex<Instant>,
    pub(crate) journal: JournalCopy,
    pub(crate) view: Mutex<Option<View>>,
    /// Whether the layout in the engine is one that we know.
    pub(crate) is_known: AtomicBool,
    pub(crate) wakes: Mutex<BTreeMap<u64, (Vec<State>, Wake)>>,
    pub(crate) watches: AtomicU64,
    /// Whether steps are compared with the engine. Without it tests must fail.
    #[cfg(test)]
    pub(crate) compares: AtomicBool,
}

impl SharedStore {
    /// The answer of a call that changes nothing, or that may be repeated.
    pub(crate) fn called<T>(&self, called: CallResult<T>) -> Result<T> {
        called.map_err(|error| error.fault(&self.client.shown))
    }

    /// What comes of these acts, which have no condition.
    pub(crate) fn act(&self, success: Vec<TxnOperation>) -> Result<TxnAnswer> {
        self.called(self.client.txn(&Txn { success, ..Txn::default() }))
    }

    /// How many keys there are below a prefix.
    pub(crate) fn count(&self, prefix: &str) -> Result<usize> {
        let range = Range { count_only: true, ..Range::all(prefix) };
        Ok(usize::try_from(self.called(self.client.range(&range))?.count).unwrap_or(0))
    }

    /// Looks at all keys of a range, page by page. `look` also gets the range of the next page.
    pub(crate) fn each_page(
        &self,
        range: Range,
        mut look: impl FnMut(&RangeAnswer, &mut Range) -> Result<()>,
    ) -> Result<()> {
        let mut range = Range { limit: PAGE, ..range };
        loop {
            let answer = self.called(self.client.range(&range))?;
            look(&answer, &mut range)?;
            match answer.kvs.last().filter(|_| answer.more) {
                Some(last) => range.from = [&last.key[..], &[0]].concat(),
                None => return Ok(()),
            }
        }
    }

    /// What the view says, if there is one.
    pub(crate) fn with_view<T>(&self, look: impl FnOnce(&mut View) -> T) -> Option<T> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(look)
    }

    pub(crate) fn replace_view(&self, view: View) {
        *self.view.lock().unwrap_or_else(PoisonError::into_inner) = Some(view);
        self.wake(&[Hint::Everything]);
    }

    /// Tells those who watch.
    pub(crate) fn wake(&self, hints: &[Hint]) {
        let wakes: Vec<_> =
            self.wakes.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        for (states, wake) in &wakes {
            for hint in hints {
                if !matches!(hint, Hint::Task(_, state, _) | Hint::State(state) if !states.contains(state)) {
                    wake(hint.clone());
                }
            }
        }
    }

    /// Everything about one name, from the engine.
    pub(crate) fn ask(&self, name: &TaskName) -> Result<TasksOfName> {
        let (open, done) = (self.layout.opens(name), self.layout.finals(name));
        let found = self.act(vec![TxnOperation::get_all(&open), TxnOperation::get_all(&done)])?;
        Ok(TasksOfName::read(&self.layout, found.found().flatten()))
    }

    /// The text of a task in this slot, exactly as it was seen.
    pub(crate) fn text_at(&self, name: &TaskName, slot: &Slot, seen: &SeenTask) -> Result<Option<Arc<[u8]>>> {
        if let Some(text) = self.with_view(|view| view.text(name, slot, seen)).flatten() {
            return Ok(Some(text));
        }
        let found = self.act(vec![TxnOperation::get(self.layout.task(name, slot, &seen.id))])?;
        let task =
            found.found().flatten().next().and_then(|kv| CachedTask::new(&self.layout, &kv, usize::MAX));
        Ok(task.filter(|task| task.seen == *seen && task.slot == *slot).and_then(|task| task.text()))
    }

    /// Keys as the engine has them, for the view.
    pub(crate) fn learn(&self, put: &[KeyValue], gone: &[String], revision: i64) {
        let mut hints = Vec::new();
        self.with_view(|view| {
            gone.iter().for_each(|key| view.delete(&self.layout, key.as_bytes(), revision, &mut hints));
            put.iter().for_each(|kv| view.put_if_new(&self.layout, kv, &mut hints));
        });
        self.wake(&hints);
    }
}
