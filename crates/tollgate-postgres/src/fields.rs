//! Between rows of the database and the vault's own types.
//!
//! Invariant: a version is the number of a change, unique in the vault. The database sends its
//! current time with its timestamps, so its clock is never compared with the caller's.

use jiff::{SignedDuration, Timestamp};
use tokio_postgres::Row;
use tollgate_base::error::{Fault, Result};
use tollgate_base::name::Agent;
use tollgate_base::task::{State, TaskName, Tenure};
use tollgate_vault::state::Slot;
use tollgate_vault::store::Version;
use tollgate_vault::{ClaimRecord, Task};

/// The state and the agent of a slot, as the database has them.
pub(crate) fn columns(slot: &Slot) -> (&'static str, &str) {
    (slot.state().as_str(), slot.agent().map_or("", Agent::as_str))
}

/// The slot with this state and this agent.
pub(crate) fn slot(state: &str, agent: &str) -> Result<Slot> {
    Ok(match (state.parse()?, agent) {
        (State::InProgress, agent) => Slot::InProgress(agent.parse()?),
        (state, _) => Slot::Free(state),
    })
}

pub(crate) fn version(number: i64) -> Version {
    Version::from(number.to_be_bytes())
}

/// The number of a version; `None` if it is not one of this store.
pub(crate) fn number(version: &Version) -> Option<i64> {
    Some(i64::from_be_bytes(version.as_ref().try_into().ok()?))
}

pub(crate) fn micros(duration: SignedDuration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// This much later.
fn later(time: Timestamp, by: SignedDuration) -> Timestamp {
    let end = if by.is_negative() { Timestamp::MIN } else { Timestamp::MAX };
    time.checked_add(by).unwrap_or(end)
}

/// A time of the database's clock. A person may have written one that no clock shows.
pub(crate) fn time(row: &Row, column: usize) -> Timestamp {
    row.try_get(column).unwrap_or_default()
}

pub(crate) fn wrong(what: impl std::fmt::Display) -> Fault {
    Fault::invalid(format!("the vault in PostgreSQL is damaged: {what}"))
}

/// The columns of [`task`].
pub(crate) const TASKS_OF_NAME: &str = "select name, state, agent, version, text, record::text,
    lease_until, changed_at, modified_at, lease_clock()
    from tasks where name = $1";

/// A task of [`TASKS_OF_NAME`].
pub(crate) struct FoundTask {
    pub(crate) task: Task,
    pub(crate) text: Vec<u8>,
    /// Whether tollgate put it where it is.
    pub(crate) is_known: bool,
}

/// A row of [`TASKS_OF_NAME`]. If the task has a lease, that ends by the caller's clock.
pub(crate) fn task(row: &Row, now: Timestamp) -> Result<FoundTask> {
    let name = TaskName::of_file(row.get(0))?;
    let slot = slot(row.get(1), row.get(2))?;
    let text: Vec<u8> = row.get(4);
    let record: Option<&str> = row.get(5);
    let record: Option<ClaimRecord> = record.map(serde_json::from_str).transpose().map_err(wrong)?;
    let is_known = record.as_ref().is_some_and(|record| record.slot == slot);
    let mut record = record.unwrap_or_else(|| ClaimRecord::new(slot.clone()));
    let in_our_time = |time: Timestamp| later(now, time.duration_since(self::time(row, 9)));
    if let (Some(claim), Ok(Some(lease_until))) = (record.claim.as_mut(), row.try_get(6))
        && let Tenure::Leased(until) = &mut claim.tenure
    {
        *until = in_our_time(lease_until);
    }
    let changed = in_our_time(time(row, 7));
    let task = Task::new(name, slot, version(row.get(3)), record, &text, changed);
    Ok(FoundTask { task: Task { modified: time(row, 8), ..task }, text, is_known })
}
