//! Which keys there are, and what their values look like. Pure.
//!
//! ```text
//! P/format                               3
//! P/ledger/STEP_ID                       the answer to a step and its events; immutable, ordered by the revision of its creation
//! P/tally                                what the lines add up to that were removed, and where the kept ones begin
//! P/reader/MACHINE/NAME                  how far a reader of a machine has read the ledger; bound to a lease
//! P/task/open/NAME/ID                    a task that is not final: its slot, its claim record and its text. ID is that of the step
//!                                        that added it
//! P/task/final/NAME/ID                   a task that is final
//! P/task/owner/process/LEASE             exists as long as the process with this lease is alive: it is bound to the lease
//! P/task/owner/grace/LEASE               exists during the grace period of a process whose lease has ended
//! P/ended/LEASE                          exists for a week after that grace period has begun
//! P/task/owner/left/CLAIM_ID             a held claim that has ended although its process is alive; bound to the same lease
//! P/task/owner/CLAIM_ID                  exists as long as the owner of this leased claim is alive: it is bound to a lease
//! ```
//!
//! A claim changes as few keys as possible, because each costs: the task, and the line of the ledger. So the slot is in the value
//! of a task, and the key stays the same until the task is final or gets another name.
//!
//! Everything about one name is in two ranges, so one question answers all about it. Final tasks are apart, because there will
//! be many of them and nobody claims them.
//!
//! Two tasks may have the same name, but not in the same slot. No transaction changes two tasks of one name. So if all keys of
//! a name have one revision, there is only one.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tollgate_base::error::{Fault, Result};
use tollgate_base::name::{ClaimId, StepId};
use tollgate_base::task::TaskName;
use tollgate_vault::event::Entry;
use tollgate_vault::state::Slot;
use tollgate_vault::store::TaskAfterStep;
use tollgate_vault::{ClaimRecord, State};

/// The number of this layout.
pub(crate) const FORMAT: u32 = 3;

/// The keys below one prefix.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    prefix: String,
}

/// What a key is about.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    /// A task, which is final or not.
    Task(TaskName, StepId, bool),
    /// The owner of a leased claim is alive.
    Owner(ClaimId),
    /// The process with this lease is alive.
    Process(u64),
    /// The lease of this process has ended, and its grace period runs.
    Grace(u64),
    /// A held claim has ended before its process.
    Left(ClaimId),
}

impl Layout {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    pub(crate) fn format(&self) -> String {
        format!("{}/format", self.prefix)
    }

    /// What the removed lines of the ledger add up to.
    pub(crate) fn tally(&self) -> String {
        format!("{}/tally", self.prefix)
    }

    /// The places of all readers.
    pub(crate) fn readers(&self) -> String {
        format!("{}/reader/", self.prefix)
    }

    /// How far a reader of a machine has read.
    pub(crate) fn reader(&self, machine: &str, name: &str) -> String {
        format!("{}/reader/{machine}/{name}", self.prefix)
    }

    /// A key that nobody reads, to see whether we may write.
    pub(crate) fn probe(&self, id: &str) -> String {
        format!("{}/probe/{id}", self.prefix)
    }

    /// All lines of the ledger.
    pub(crate) fn lines(&self) -> String {
        format!("{}/ledger/", self.prefix)
    }

    pub(crate) fn line(&self, id: &StepId) -> String {
        format!("{}/ledger/{id}", self.prefix)
    }

    /// Everything about tasks.
    pub(crate) fn tasks(&self) -> String {
        format!("{}/task/", self.prefix)
    }

    /// All tasks that are not final.
    pub(crate) fn open_tasks(&self) -> String {
        format!("{}/task/open/", self.prefix)
    }

    pub(crate) fn final_tasks(&self) -> String {
        format!("{}/task/final/", self.prefix)
    }

    pub(crate) fn owners(&self) -> String {
        format!("{}/task/owner/", self.prefix)
    }

    /// The prefix of the tasks of a name that are not final.
    pub(crate) fn opens(&self, name: &TaskName) -> String {
        format!("{}{name}/", self.open_tasks())
    }

    /// The prefix of the final tasks of a name.
    pub(crate) fn finals(&self, name: &TaskName) -> String {
        format!("{}{name}/", self.final_tasks())
    }

    /// The prefix of the tasks of a name that are final, or not, like those in this slot.
    pub(crate) fn beside(&self, name: &TaskName, slot: &Slot) -> String {
        if slot.state().is_final() { self.finals(name) } else { self.opens(name) }
    }

    /// The key of a task in this slot.
    pub(crate) fn task(&self, name: &TaskName, slot: &Slot, id: &StepId) -> String {
        format!("{}{id}", self.beside(name, slot))
    }

    /// The owner of a leased claim is alive.
    pub(crate) fn owner(&self, claim: &ClaimId) -> String {
        format!("{}/task/owner/{claim}", self.prefix)
    }

    /// The process with this lease is alive.
    pub(crate) fn process(&self, lease: u64) -> String {
        format!("{}/task/owner/process/{lease:016x}", self.prefix)
    }

    /// The lease of this process has ended, and its grace period runs.
    pub(crate) fn grace(&self, lease: u64) -> String {
        format!("{}/task/owner/grace/{lease:016x}", self.prefix)
    }

    /// The grace period of this process has begun, and may be over. Nobody watches this key.
    pub(crate) fn ended(&self, lease: u64) -> String {
        format!("{}/ended/{lease:016x}", self.prefix)
    }

    /// A held claim has ended before its process.
    pub(crate) fn left(&self, claim: &ClaimId) -> String {
        format!("{}/task/owner/left/{claim}", self.prefix)
    }

    /// What a key below [`Self::tasks`] is about; `None` if tollgate did not make it.
    pub(crate) fn read(&self, key: &[u8]) -> Option<KeyKind> {
        let key = str::from_utf8(key).ok()?.strip_prefix(&self.tasks())?;
        let (part, rest) = key.split_once('/')?;
        if part == "owner" {
            return Some(match rest.split_once('/') {
                None => KeyKind::Owner(rest.parse().ok()?),
                Some(("process", lease)) => KeyKind::Process(u64::from_str_radix(lease, 16).ok()?),
                Some(("grace", lease)) => KeyKind::Grace(u64::from_str_radix(lease, 16).ok()?),
                Some(("left", claim)) => KeyKind::Left(claim.parse().ok()?),
                Some(_) => return None,
            });
        }
        let (name, id) = rest.split_once('/')?;
        let name = TaskName::of_file(name).ok()?;
        matches!(part, "open" | "final").then_some(KeyKind::Task(name, id.parse().ok()?, part == "final"))
    }
}

fn read_slot(text: &str) -> Option<Slot> {
    match text.strip_prefix("In_Progress/") {
        Some(agent) => Some(Slot::InProgress(agent.parse().ok()?)),
        None => State::ALL
            .into_iter()
            .find(|state| state.as_str() == text && *state != State::InProgress)
            .map(Slot::Free),
    }
}

/// What is kept with a task's text. The value of a task is a line with its slot, this as a line of JSON, then the text byte for
/// byte.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TaskHead {
    /// Since when it is where it is.
    pub(crate) since: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) record: Option<ClaimRecord>,
}

impl TaskHead {
    /// Of a task that nobody has claimed yet.
    pub(crate) fn new(since: Timestamp) -> Self {
        Self { since, record: None }
    }
}

pub(crate) fn write_task(slot: &Slot, head: &TaskHead, text: &[u8]) -> Result<Vec<u8>> {
    Ok([format!("{slot}\n").as_bytes(), &write(head)?, b"\n", text].concat())
}

/// The slot, and the rest of the value of a task; `None` if it does not begin with a slot.
pub(crate) fn split_slot(value: &[u8]) -> Option<(Slot, &[u8])> {
    let (slot, rest) = split_line(value)?;
    Some((read_slot(str::from_utf8(slot).ok()?)?, rest))
}

/// The head and the text, from what follows the slot.
pub(crate) fn read_task(rest: &[u8]) -> Result<(TaskHead, &[u8])> {
    let read = split_line(rest).and_then(|(head, text)| Some((serde_json::from_slice(head).ok()?, text)));
    read.ok_or_else(|| Fault::invalid("a task in the engine was not written by tollgate"))
}

/// The first line, without its end, and the rest.
fn split_line(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = value.iter().position(|byte| *byte == b'\n')?;
    Some((&value[..at], &value[at + 1..]))
}

/// One line of the ledger: what came of a step, and its events.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LineValue {
    pub(crate) machine: String,
    /// Where the step has brought the task; `None` for events that belong to no step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) landed: Option<(TaskName, Slot)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) events: Vec<Entry>,
}

impl LineValue {
    pub(crate) fn landed(&self) -> Option<TaskAfterStep> {
        let (task, slot) = self.landed.clone()?;
        Some(TaskAfterStep { task, slot, path: None })
    }
}

/// A value as JSON.
pub(crate) fn write<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value)
        .map_err(|error| Fault::invalid(format!("it cannot be written as JSON: {error}")))
}

pub(crate) fn read<'a, T: Deserialize<'a>>(value: &'a [u8]) -> Result<T> {
    let unreadable =
        |error| Fault::invalid(format!("a value in the engine was not written by tollgate: {error}"));
    serde_json::from_slice(value).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots() -> impl Iterator<Item = Slot> {
        State::ALL.into_iter().map(|state| match state {
            State::InProgress => Slot::InProgress("blue".parse().unwrap()),
            state => Slot::Free(state),
        })
    }

    #[test]
    fn every_key_is_read_back() {
        let layout = Layout::new("team/one");
        let (name, id): (TaskName, _) = ("water the plants".parse().unwrap(), StepId::new().unwrap());
        for slot in slots() {
            let key = layout.task(&name, &slot, &id);
            assert_eq!(key.contains("/final/"), slot.state().is_final(), "{key}");
            assert_eq!(
                layout.read(key.as_bytes()),
                Some(KeyKind::Task(name.clone(), id.clone(), slot.state().is_final()))
            );
        }
        let claim = ClaimId::new().unwrap();
        assert_eq!(layout.read(layout.owner(&claim).as_bytes()), Some(KeyKind::Owner(claim.clone())));
        assert_eq!(layout.read(layout.left(&claim).as_bytes()), Some(KeyKind::Left(claim)));
        for lease in [1, u64::MAX] {
            assert_eq!(layout.read(layout.process(lease).as_bytes()), Some(KeyKind::Process(lease)));
            assert_eq!(layout.read(layout.grace(lease).as_bytes()), Some(KeyKind::Grace(lease)));
        }
        for foreign in ["team/one/task/x", "team/one/task/open/a.md/Approved", "team/two/task/open/a.md/", ""]
        {
            assert_eq!(layout.read(foreign.as_bytes()), None, "{foreign}");
        }
    }

    #[test]
    fn a_task_is_read_back_byte_for_byte() {
        let since = Timestamp::from_second(1_000).unwrap();
        for (slot, text) in slots().zip([&b""[..], b"\n\nx", b"\xff\x00\n", b"{}\n{}"].into_iter().cycle()) {
            let value = write_task(&slot, &TaskHead::new(since), text).unwrap();
            let (found, rest) = split_slot(&value).unwrap();
            let (head, read) = read_task(rest).unwrap();
            assert_eq!((found, head.since, head.record, read), (slot, since, None, text));
        }
        assert!(split_slot(b"Nowhere\n{}\n").is_none() && split_slot(b"Approved").is_none());
        assert!(read_task(b"no head").is_err());
    }
}
