//! All tasks in one state, kept in memory and brought up to date by reading only what has changed.
//!
//! Invariant: whatever was not visible to the last listing was changed by a transaction that was running then, or that began
//! later. So every change since has a transaction number of at least the lowest one that was running. Deleted rows have no
//! number; the database counts deletions, and each makes the listing start again.

use std::collections::HashMap;

use tokio_postgres::Row;
use tollgate_base::error::Result;
use tollgate_base::task::{State, TaskName};
use tollgate_vault::brief::HEAD;
use tollgate_vault::store::{NotATask, Scan};
use tollgate_vault::{ClaimRecord, Task, TaskSummary};

use crate::fields::{slot, time, version};
use crate::link::Failure;
use crate::pool::{AnswerTime, DbLinks};

const ALL: &str = "select f.deletions, pg_snapshot_xmin(pg_current_snapshot())::text::bigint, t.*
    from tollgate f left join lateral (
        select id, name, state, agent, version, substring(text for $2) as head,
            modified_at
        from tasks where state = $1
    ) t on true";

const CHANGED: &str = "select f.deletions, pg_snapshot_xmin(pg_current_snapshot())::text::bigint, t.*
    from tollgate f left join lateral (
        select id, name, state, agent, version, case when state = $1 then substring(text for $2) end as head,
            modified_at
        from tasks where xact >= $3
    ) t on true";

/// All tasks in one state, as they were at some time.
#[derive(Default)]
pub(crate) struct StateListing {
    /// `None` before the first listing.
    seen: Option<ListedUpTo>,
    tasks: HashMap<i64, Result<TaskSummary, NotATask>>,
}

#[derive(Clone, Copy)]
struct ListedUpTo {
    /// The lowest transaction that was running.
    running: i64,
    deletions: i64,
}

impl StateListing {
    /// The tasks as they are now.
    pub(crate) fn refresh(&mut self, links: &DbLinks, state: State) -> Result<Scan> {
        let head = i32::try_from(HEAD).unwrap_or(i32::MAX);
        loop {
            let read = match self.seen {
                None => links.call(ALL, &[&state.as_str(), &head], AnswerTime::Whole),
                Some(seen) => {
                    links.call(CHANGED, &[&state.as_str(), &head, &seen.running], AnswerTime::Whole)
                }
            };
            let rows = read.map_err(Failure::fault)?;
            let Some((deletions, running)) = rows.first().map(|row| (row.get(0), row.get(1))) else { break };
            if self.seen.is_some_and(|seen| seen.deletions != deletions) {
                *self = Self::default();
                continue;
            }
            self.seen = Some(ListedUpTo { running, deletions });
            rows.iter().for_each(|row| self.learn(row, state));
            break;
        }
        let mut scan = Scan::default();
        for found in self.tasks.values() {
            match found {
                Ok(task) => scan.tasks.push(task.clone()),
                Err(unfit) => scan.unfit.push(unfit.clone()),
            }
        }
        Ok(scan)
    }

    fn learn(&mut self, row: &Row, state: State) {
        let Some(id) = row.get::<_, Option<i64>>(2) else { return };
        if row.get::<_, &str>(4) == state.as_str() {
            self.tasks.insert(id, summary(row, state));
        } else {
            self.tasks.remove(&id);
        }
    }
}

/// The summary of a task, from a row with the columns of a listing.
pub(crate) fn summary(row: &Row, state: State) -> Result<TaskSummary, NotATask> {
    let name: &str = row.get(3);
    let slot = slot(row.get(4), row.get(5));
    let unfit = |why: String| NotATask { name: name.escape_debug().to_string(), state, why };
    let task = TaskName::of_file(name).map_err(|fault| unfit(fault.to_string()))?;
    let slot = slot.map_err(|fault| unfit(fault.to_string()))?;
    let modified = time(row, 8);
    let record = ClaimRecord::new(slot.clone());
    Ok(Task::new(task, slot, version(row.get(6)), record, row.get(7), modified).summary())
}
