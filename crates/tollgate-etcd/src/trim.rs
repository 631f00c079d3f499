//! The engine keeps a window of the ledger: the latest lines. Older ones are removed, because etcd is made for some gigabytes.
//!
//! Any machine removes them. The key `P/tally` says what the removed lines add up to, and after which place the kept ones come.
//!
//! Invariants: the transaction that removes lines also adds them to the tally, and compares that nobody else has changed it. So
//! every event is in the tally or in a kept line, and never in both, even if a process dies at any moment. A line that a reader has not
//! read to its end stays, unless too many lines wait for readers: see `readers`.

use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tollgate_base::error::Result;

use crate::layout::write;
use crate::line_place::LineSums;
use crate::lines::{KEEP, LedgerLine};
use crate::message::{Condition, Txn, TxnOperation};
use crate::shared_store::SharedStore;

/// Lines are removed when there are more than this part of the kept ones too many. With less, every process of every machine would
/// look for a few lines, and each look makes the engine sort all of them.
const SLACK: usize = 10;

/// When a process removes old lines for the first time, and how often. Commands that end at once have other things to do.
pub(crate) const FIRST_TRIM: Duration = Duration::from_secs(if cfg!(test) { 3600 } else { 60 });
const NEXT_TRIM: Duration = Duration::from_secs(600);

/// How long a look at the oldest lines may take: nobody waits for it, and without it there would be more lines each time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Readers hold back at most this many times the lines that the engine keeps anyway. With many more, it could no longer answer
/// in time, and would be full before a reader that nobody needs is forgotten.
pub(crate) const HELD_BACK: usize = 5;

/// How many lines are read at once, and how many batches at most before other work goes on.
const BATCH: usize = 5000;
const BATCHES: usize = 10;

/// etcd takes 128 acts in one transaction.
const ACTS: usize = 100;

impl SharedStore {
    /// Starts a thread that removes the oldest lines, if it is time to. If it fails, the next one tries again, and `tollgate
    /// doctor` reports that there are too many.
    pub(crate) fn trim_when_due(self: &Arc<Self>) {
        let mut at = self.trim_at.lock().unwrap_or_else(PoisonError::into_inner);
        if *at <= Instant::now() {
            *at = Instant::now() + NEXT_TRIM;
            let shared = Arc::clone(self);
            let trim = move || drop(shared.trim(KEEP));
            // Without a thread now, there may be one next time.
            let _ = thread::Builder::new().name("tollgate-trim".to_owned()).spawn(trim);
        }
    }

    /// Removes the oldest lines, if there are too many beside the `keep` latest. Returns how many.
    pub(crate) fn trim(&self, keep: usize) -> Result<usize> {
        let mut removed = 0;
        for _ in 0..BATCHES {
            let batch = self.trim_batch(keep)?;
            removed += batch;
            if batch < BATCH {
                break;
            }
        }
        Ok(removed)
    }

    fn trim_batch(&self, keep: usize) -> Result<usize> {
        // First: if another process removes lines after this look, ours fails. So none of those counted below are gone then.
        let (mut statement, mut tally) = self.tally()?;
        let count = self.count(&self.layout.lines())?;
        if count <= keep + keep / SLACK {
            return Ok(0);
        }
        let readers = if count <= HELD_BACK * keep { self.readers(&tally)? } else { Vec::new() };
        let floor = readers.iter().map(|reader| reader.place).min();
        let was_read = |line: &LedgerLine| floor.is_none_or(|floor| line.end() <= floor);
        let (oldest, _) = self.lines_within(0, (count - keep).min(BATCH), PATIENCE)?;
        let oldest: Vec<LedgerLine> = oldest.into_iter().take_while(was_read).collect();
        let mut removed = 0;
        for some in oldest.chunks(ACTS) {
            some.iter().for_each(|line| tally.add(line.end(), &line.value.events));
            let Some(stated) = self.remove_lines(statement, &tally, some)? else { break };
            statement = stated;
            removed += some.len();
        }
        Ok(removed)
    }

    /// Removes lines and states what all removed ones add up to, if the last statement is this one. The new statement; `None` if
    /// another process was faster, or an earlier try whose answer was lost.
    fn remove_lines(&self, statement: i64, tally: &LineSums, lines: &[LedgerLine]) -> Result<Option<i64>> {
        let key = self.layout.tally();
        let mut success = vec![TxnOperation::put(&key, write(tally)?)];
        success.extend(lines.iter().map(|line| TxnOperation::delete(&line.key)));
        let compare = vec![Condition::at(&key, statement)];
        let answer = self.called(self.client.txn(&Txn { compare, success, failure: Vec::new() }))?;
        Ok(answer.succeeded.then_some(answer.header.revision))
    }
}
