//! Tasks, and what came of a verb, as programs see them: the same JSON through every door.

use std::path::Path;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::brief::UnreadableTask;
use crate::claim::{Claim, ClaimId, ClaimRecord};
use crate::denial::{Denial, NotOwner};
use crate::owner::Claimed;
use crate::state::State;
use crate::store::{NotATask, Task, TaskAfterStep, TaskSummary};
use crate::vault::Vault;
use tollgate_base::error::{Fault, Result};
use tollgate_base::name::Agent;
use tollgate_base::task::TaskName;

/// More of a task's text is not shown: a terminal, and a model, have seen enough.
pub const MOST_SHOWN: u64 = 1 << 20;

/// One task of a list.
#[derive(Debug)]
pub struct Row {
    /// The task.
    pub task: TaskSummary,
    /// What is known of it beside its text.
    pub record: ClaimRecord,
    /// For how many seconds it has been as it is: claimed, or else written.
    pub age_s: i64,
}

impl Row {
    fn new(task: TaskSummary, mut record: ClaimRecord, since: Timestamp, now: Timestamp) -> Self {
        record.pause.take_if(|pause| pause.until <= now);
        Self { task, record, age_s: now.duration_since(since).as_secs().max(0) }
    }

    /// What a listing tells of it.
    fn listed(task: TaskSummary, now: Timestamp) -> Self {
        let (record, since) = (ClaimRecord::new(task.slot.clone()), task.modified);
        Self::new(task, record, since, now)
    }

    /// What programs see of it.
    pub fn json(&self) -> Value {
        let Self { task, record, age_s } = self;
        let brief = task.brief.as_ref().ok();
        let more = json!({
            "agent": task.slot.agent(),
            "action": brief.and_then(|brief| brief.action.as_ref()),
            "priority": brief.map(|brief| brief.priority.as_str()),
            "due": brief.and_then(|brief| brief.due),
            "broken": task.brief.as_ref().err().map(ToString::to_string),
            "attempts": record.attempts,
            "age_s": age_s,
            "claim_id": record.claim.as_ref().map(|claim| &claim.id),
            "reason": record.reason,
            "paused_until": record.pause.as_ref().map(|pause| pause.until),
        });
        with(json!({"task": task.name, "state": task.slot.state()}), more)
    }
}

/// In the order in which they are taken; finished ones with the latest first.
fn sort(state: State, rows: &mut [Row]) {
    if state.is_final() {
        rows.sort_by_cached_key(|row| (row.age_s, row.task.name.clone()));
    } else if state == State::InProgress {
        let rank = |row: &Row| row.task.brief.as_ref().ok().map(|brief| brief.rank(Timestamp::UNIX_EPOCH));
        rows.sort_by_cached_key(|row| (rank(row), -row.age_s, row.task.name.clone()));
    } else {
        let rank = |row: &Row| row.task.brief.as_ref().ok().map(|brief| brief.rank(row.task.modified));
        rows.sort_by_cached_key(|row| (rank(row), row.task.name.clone()));
    }
}

/// The first tasks of a list.
#[derive(Debug)]
pub struct FirstRows {
    /// The tasks.
    pub rows: Vec<Row>,
    /// How many there are with those that are not shown.
    pub total: usize,
    /// What lies there and cannot be a task.
    pub unfit: Vec<NotATask>,
}

impl Vault {
    /// All tasks in one state, in the order in which they are taken; finished ones with the latest first. With them what
    /// lies there and cannot be a task. A task that cannot be read is shown as broken.
    pub fn rows(&self, state: State, now: Timestamp) -> Result<(Vec<Row>, Vec<NotATask>)> {
        let FirstRows { rows, unfit, .. } = self.first_rows(state, usize::MAX, now)?;
        Ok((rows, unfit))
    }

    /// The first of them, at most `most`. The store is asked about no more tasks than that, unless they are in progress:
    /// those are ordered by the times of their claims.
    pub fn first_rows(&self, state: State, most: usize, now: Timestamp) -> Result<FirstRows> {
        let scan = self.store().scan(state, now)?;
        let (mut total, unfit) = (scan.tasks.len(), scan.unfit);
        let mut listed: Vec<Row> = scan.tasks.into_iter().map(|task| Row::listed(task, now)).collect();
        if state != State::InProgress {
            sort(state, &mut listed);
        }
        let mut rows = Vec::new();
        for row in listed {
            if rows.len() >= most && state != State::InProgress {
                break;
            }
            match self.looked_up(row, now)? {
                Some(row) => rows.push(row),
                // Deleted in the meantime.
                None => total -= 1,
            }
        }
        if state == State::InProgress {
            sort(state, &mut rows);
            rows.truncate(most);
        }
        Ok(FirstRows { rows, total, unfit })
    }

    /// A row with what the store knows about its task; `None` if the task has been deleted in the meantime.
    fn looked_up(&self, row: Row, now: Timestamp) -> Result<Option<Row>> {
        if row.task.slot.state().is_final() {
            return Ok(Some(row));
        }
        match self.store().get(&row.task.name, None, now) {
            Ok(None) => Ok(None),
            Ok(Some(task)) if task.slot == row.task.slot => {
                let record = task.record.clone();
                let since = record.claim.as_ref().map_or(task.modified, |claim| claim.at);
                Ok(Some(Row::new(task.summary(), record, since, now)))
            }
            // Moved since the folder was read, or one of two of the same name.
            Ok(Some(_)) => Ok(Some(row)),
            // It would be the same for every task.
            Err(fault @ (Fault::Unreachable { .. } | Fault::RemoteRefused { .. })) => Err(fault),
            // One task that cannot be read does not hide the others.
            Err(fault) => {
                let brief = row.task.brief.and_then(|_| Err(UnreadableTask(fault.to_string())));
                Ok(Some(Row { task: TaskSummary { brief, ..row.task }, ..row }))
            }
        }
    }

    /// What programs see of one task, without its text.
    pub fn details(&self, task: &Task, now: Timestamp) -> Result<Value> {
        let claim = task.record.claim.as_ref();
        let more = json!({
            "after": task.brief.as_ref().ok().map(|brief| &brief.after),
            "claimed_at": claim.map(|claim| claim.at),
            "mode": claim.map(|claim| claim.mode),
            "epoch": claim.map(|claim| claim.epoch),
            "lease_until": claim.and_then(Claim::lease_until),
            "released_by": task.record.released_by,
            "approved_by": task.record.approval.as_ref().map(|approval| &approval.by),
        });
        let row = Row::new(task.clone().summary(), task.record.clone(), task.modified, now);
        let mut json = with(row.json(), more);
        json["path"] = path(task.path.as_deref());
        json["size"] = json!(task.len);
        json["sha256"] = json!(self.digest(task)?);
        Ok(json)
    }
}

impl Claimed {
    /// What programs see of it.
    pub fn json(&self) -> Value {
        let Self { task, claim, .. } = self;
        let known = json!({
            "claimed": true, "task": task, "agent": claim.agent, "claim_id": claim.id,
            "path": path(self.path.as_deref()), "mode": claim.mode, "epoch": claim.epoch,
        });
        with(known, json!({"lease_until": claim.lease_until(), "action": claim.action}))
    }
}

impl Denial {
    /// What programs see of a claim that was denied.
    pub fn json(&self, task: &TaskName, agent: &Agent) -> Value {
        let known = json!({
            "claimed": false, "task": task, "agent": agent, "reason": self.reason(),
            "message": self.to_string(),
        });
        with(known, json!({"until": self.until()}))
    }
}

impl TaskAfterStep {
    /// What programs see of it.
    pub fn json(&self) -> Value {
        json!({"task": self.task, "state": self.slot.state(), "path": path(self.path.as_deref())})
    }
}

impl Claim {
    /// What programs see of a claim that was renewed. A held one has no lease.
    pub fn renewed_json(&self, task: &TaskName) -> Value {
        json!({"task": task, "claim_id": self.id, "lease_until": self.lease_until()})
    }
}

/// What programs see of a note that was written.
pub fn noted_json(task: &TaskName, claim: &ClaimId) -> Value {
    json!({"task": task, "claim_id": claim, "noted": true})
}

impl NotOwner {
    /// What programs see of it.
    pub fn json(&self) -> Value {
        json!({"task": self.task, "refused": true, "reason": "not_owner", "message": self.to_string()})
    }
}

/// The fields of both objects, except for those of the second that are null.
fn with(mut json: Value, more: Value) -> Value {
    if let (Some(json), Value::Object(more)) = (json.as_object_mut(), more) {
        json.extend(more.into_iter().filter(|(_, value)| !value.is_null()));
    }
    json
}

fn path(path: Option<&Path>) -> Value {
    path.map(|path| path.to_string_lossy().into_owned()).into()
}
