//! Tasks, and what came of a verb, as programs see them: the same JSON through every door.

use std::path::Path;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::brief::{Brief, Broken};
use crate::claim::{Claim, ClaimId, ClaimRecord, Tenure};
use crate::denial::{ClaimDenied, NotOwner};
use crate::owner::Claimed;
use crate::state::{Slot, State};
use crate::store::{Landed, Task, TaskSummary, Unfit};
use crate::vault::Vault;
use tollgate_base::error::Result;
use tollgate_base::name::Agent;
use tollgate_base::task::TaskName;

/// More of a task's text is not shown: a terminal, and a model, have seen enough.
pub const MOST_SHOWN: u64 = 1 << 20;

/// One task of a list.
#[derive(Debug)]
pub struct Row {
    /// Its name.
    pub task: TaskName,
    /// Where it is.
    pub slot: Slot,
    /// What its author asks for.
    pub brief: Result<Brief, Broken>,
    /// What is known of it beside its file.
    pub record: ClaimRecord,
    /// For how many seconds it has been as it is: claimed, or else written.
    pub age_s: i64,
}

impl Row {
    /// A task that was found, on its own.
    pub fn of(task: &Task, now: Timestamp) -> Self {
        Self {
            task: task.name.clone(),
            slot: task.slot.clone(),
            brief: task.brief.clone(),
            record: task.record.clone(),
            age_s: age(task.modified, now),
        }
    }

    /// What programs see of it.
    pub fn json(&self) -> Map<String, Value> {
        let mut json = Map::new();
        json.insert("task".into(), json!(self.task));
        json.insert("state".into(), json!(self.slot.state()));
        if let Some(agent) = self.slot.agent() {
            json.insert("agent".into(), json!(agent));
        }
        match &self.brief {
            Ok(brief) => {
                if let Some(action) = &brief.action {
                    json.insert("action".into(), json!(action));
                }
                json.insert("priority".into(), json!(brief.priority.as_str()));
                if let Some(due) = brief.due {
                    json.insert("due".into(), json!(due));
                }
            }
            Err(broken) => {
                json.insert("broken".into(), json!(broken.to_string()));
            }
        }
        json.insert("attempts".into(), json!(self.record.attempts));
        json.insert("age_s".into(), json!(self.age_s));
        if let Some(claim) = &self.record.claim {
            json.insert("claim_id".into(), json!(claim.id));
        }
        if let Some(reason) = &self.record.reason {
            json.insert("reason".into(), json!(reason));
        }
        json
    }
}

impl Vault {
    /// All tasks in one state, in the order in which they are taken; finished ones with the latest first. With them what
    /// lies there and cannot be a task.
    pub fn rows(&self, state: State, now: Timestamp) -> Result<(Vec<Row>, Vec<Unfit>)> {
        let scan = self.list(state, now)?;
        let mut rows: Vec<Row> = scan.tasks.into_iter().filter_map(|listed| self.row(listed, now)).collect();
        if state.is_final() {
            rows.sort_by_key(|row| (row.age_s, row.task.clone()));
        } else {
            let rank = |row: &Row| row.brief.as_ref().ok().map(|brief| brief.rank(Timestamp::UNIX_EPOCH));
            rows.sort_by_cached_key(|row| (rank(row), -row.age_s, row.task.clone()));
        }
        Ok((rows, scan.unfit))
    }

    /// None if it has gone meanwhile.
    fn row(&self, listed: TaskSummary, now: Timestamp) -> Option<Row> {
        let as_listed = |listed: TaskSummary| Row {
            age_s: age(listed.modified, now),
            record: ClaimRecord::new(listed.slot.clone()),
            task: listed.name,
            slot: listed.slot,
            brief: listed.brief,
        };
        if listed.slot.state().is_final() {
            return Some(as_listed(listed));
        }
        let task = self.get(&listed.name, now).ok()?;
        if task.slot != listed.slot {
            // Moved since the folder was read, or one of two of the same name.
            return Some(as_listed(listed));
        }
        let since = task.record.claim.as_ref().map_or(listed.modified, |claim| claim.at);
        Some(Row { age_s: age(since, now), ..Row::of(&task, now) })
    }

    /// What programs see of one task, without its text.
    pub fn details(&self, task: &Task, now: Timestamp) -> Result<Value> {
        let mut json = Value::Object(Row::of(task, now).json());
        if let Ok(brief) = &task.brief {
            json["after"] = json!(brief.after);
        }
        if let Some(claim) = &task.record.claim {
            json["claimed_at"] = json!(claim.at);
            json["mode"] = json!(claim.mode);
            json["epoch"] = json!(claim.epoch);
            put_lease(&mut json, claim);
        }
        if let Some(approval) = &task.record.approval {
            json["approved_by"] = json!(approval.by);
        }
        json["path"] = path(task.path.as_deref());
        json["size"] = json!(task.len);
        json["sha256"] = json!(self.digest(task)?);
        Ok(json)
    }
}

impl Claimed {
    /// What programs see of it.
    pub fn json(&self) -> Value {
        let claim = &self.claim;
        let mut json = json!({
            "claimed": true,
            "task": self.task,
            "agent": claim.agent,
            "claim_id": claim.id,
            "path": path(self.path.as_deref()),
            "mode": claim.mode,
            "epoch": claim.epoch,
        });
        put_lease(&mut json, claim);
        if let Some(action) = &claim.action {
            json["action"] = json!(action);
        }
        json
    }
}

impl ClaimDenied {
    /// What programs see of it.
    pub fn json(&self, agent: &Agent) -> Value {
        json!({
            "claimed": false, "task": self.task, "agent": agent, "reason": self.reason(),
            "message": self.to_string(),
        })
    }
}

impl Landed {
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

    /// Until when it lasts unless it is renewed; none as long as it is held.
    pub fn lease_until(&self) -> Option<Timestamp> {
        match self.tenure {
            Tenure::Leased(until) => Some(until),
            Tenure::Held => None,
        }
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

fn put_lease(json: &mut Value, claim: &Claim) {
    if let Some(until) = claim.lease_until() {
        json["lease_until"] = json!(until);
    }
}

fn path(path: Option<&Path>) -> Value {
    path.map(|path| path.to_string_lossy().into_owned()).into()
}

fn age(since: Timestamp, now: Timestamp) -> i64 {
    now.duration_since(since).as_secs().max(0)
}
