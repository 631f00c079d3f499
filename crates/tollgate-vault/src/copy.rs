//! Copying a vault from one store to another, over the trait alone, so that it works for any pair.
//!
//! Invariants: nothing is copied while an agent works in either vault; the source is not changed; a copy that was interrupted
//! can be repeated and then finishes. The copy is compared with the source, task by task and event by event, before the
//! answer. Tasks that wait keep their order in the queue.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;

use crate::claim::ClaimRecord;
use crate::event::Entry;
use crate::state::{Slot, State, Verb};
use crate::step::{Step, StepOutcome, TextEdit};
use crate::store::{NotATask, Store, Task};
use crate::vault::{TRIES, restless, until_answered};
use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};
use tollgate_base::name::StepId;
use tollgate_base::task::TaskName;

/// How many events are read and recorded at once.
const PAGE: usize = 1000;

/// How many bytes of events are recorded at once: etcd takes requests of 1.5 MiB.
const PAGE_BYTES: usize = 1 << 20;

/// What a copy brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyReport {
    /// How many tasks both vaults have in each state.
    pub tasks: BTreeMap<State, usize>,
    /// The digest of all names, states, texts and claim records: the same in both vaults.
    pub digest: Digest,
    /// What became of the history.
    pub history: CopiedHistory,
    /// What cannot be a task, and was not copied.
    pub unfit: Vec<NotATask>,
}

/// What became of the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopiedHistory {
    /// The target has all events of the source; this many of them are new there.
    Added(usize),
    /// The target has the events that the source still has, without the oldest; this many of them are new there.
    AddedLatest(usize),
    /// The target has a history of its own, which stays as it is.
    OwnHistory,
}

/// Why nothing was copied, or not everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyDenial {
    /// Agents work on these tasks.
    Working(Vec<(TaskName, Slot)>),
    /// The target has another task in this place.
    Occupied(TaskName, Slot),
    /// Somebody changed one of the vaults during the copy.
    Changed,
}

impl fmt::Display for CopyDenial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Working(tasks) => {
                let tasks: Vec<String> =
                    tasks.iter().map(|(task, slot)| format!("`{slot}/{task}`")).collect();
                write!(f, "agents are working: {}", tasks.join(", "))
            }
            Self::Occupied(task, slot) => write!(f, "the target has another task `{slot}/{task}`"),
            Self::Changed => f.write_str("somebody changed the vault during the copy"),
        }
    }
}

/// Where a task is, and its name.
type TaskPlace = (Slot, TaskName);

/// What is known about each task of a vault.
type Inventory = BTreeMap<TaskPlace, Digest>;

/// Copies all tasks, with what is known about them, and the history. `progress` hears how many of how many tasks are there.
pub fn copy(
    from: &dyn Store,
    to: &dyn Store,
    now: Timestamp,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Result<CopyReport, CopyDenial>> {
    from.heal()?;
    to.heal()?;
    let working = [from, to].map(|store| working(store, now));
    let working: Vec<_> = working.into_iter().collect::<Result<Vec<_>>>()?.concat();
    if !working.is_empty() {
        return Ok(Err(CopyDenial::Working(working)));
    }
    // A history that cannot be read is noticed before the first task is copied.
    for store in [from, to] {
        store.events(&store.oldest_cursor()?, 1)?;
    }
    let (tasks, since, unfit) = inventory(from, now)?;
    let (there, ..) = inventory(to, now)?;
    let names: BTreeSet<&TaskName> = tasks.keys().map(|(_, name)| name).collect();
    for (slot, name) in there.keys() {
        // An interrupted copy may have left a task in the first state.
        let is_left = *slot == Slot::NEEDS_ACTION && names.contains(name);
        if !is_left && !tasks.contains_key(&(slot.clone(), name.clone())) {
            return Ok(Err(CopyDenial::Occupied(name.clone(), slot.clone())));
        }
    }
    for (done, place) in in_order(&since).into_iter().enumerate() {
        progress(done, tasks.len());
        if there.get(place) != tasks.get(place)
            && let Err(denial) = copy_task(from, to, place, now)?
        {
            return Ok(Err(denial));
        }
    }
    let history = copy_history(from, to)?;
    let is_added =
        matches!(history, CopiedHistory::Added(count) | CopiedHistory::AddedLatest(count) if count > 0);
    if inventory(from, now)?.0 != tasks
        || inventory(to, now)?.0 != tasks
        || is_added && !is_same_history(from, to)?
    {
        return Ok(Err(CopyDenial::Changed));
    }
    progress(tasks.len(), tasks.len());
    let mut counts = BTreeMap::new();
    for (slot, _) in tasks.keys() {
        *counts.entry(slot.state()).or_default() += 1;
    }
    Ok(Ok(CopyReport { tasks: counts, digest: digest(&tasks), history, unfit }))
}

/// The tasks that agents work on.
fn working(store: &dyn Store, now: Timestamp) -> Result<Vec<(TaskName, Slot)>> {
    let tasks = store.scan(State::InProgress, now)?.tasks;
    Ok(tasks.into_iter().map(|task| (task.name, task.slot)).collect())
}

/// All tasks, since when they wait, and what cannot be a task.
fn inventory(
    store: &dyn Store,
    now: Timestamp,
) -> Result<(Inventory, BTreeMap<TaskPlace, Timestamp>, Vec<NotATask>)> {
    let (mut tasks, mut since, mut unfit) = (Inventory::new(), BTreeMap::new(), Vec::new());
    for state in State::ALL {
        let scan = store.scan(state, now)?;
        unfit.extend(scan.unfit);
        for listed in scan.tasks {
            if let Some((task, text)) = look(store, &listed.name, state, now)? {
                let record = if state.is_final() { None } else { Some(&task.record) };
                let record =
                    serde_json::to_vec(&record).map_err(|error| Fault::invalid(error.to_string()))?;
                let known = [Digest::of(&text).to_string().as_bytes(), &record].concat();
                since.insert((task.slot.clone(), task.name.clone()), task.modified);
                tasks.insert((task.slot, task.name), Digest::of(&known));
            }
        }
    }
    Ok((tasks, since, unfit))
}

/// The tasks in the order in which they are copied. Some stores date a new task themselves, so those that wait to be claimed
/// come in the order in which the queue has them, the oldest first, and then by name.
///
/// Each task is added to the first state and moved on from there. So a task that stays there comes after others of its name.
fn in_order(since: &BTreeMap<TaskPlace, Timestamp>) -> Vec<&TaskPlace> {
    let approved: BTreeSet<&TaskName> =
        since.keys().filter(|(slot, _)| *slot == Slot::APPROVED).map(|(_, name)| name).collect();
    let mut places: Vec<_> = since.iter().collect();
    places.sort_by_key(|((slot, name), since)| {
        let is_after_twin = *slot == Slot::NEEDS_ACTION && approved.contains(name);
        (slot.state().is_claimable(), is_after_twin, **since, name)
    });
    places.into_iter().map(|(place, _)| place).collect()
}

/// One task and its text; `None` if it is not there any more.
fn look(store: &dyn Store, name: &TaskName, state: State, now: Timestamp) -> Result<Option<(Task, Vec<u8>)>> {
    for _ in 0..TRIES {
        let Some(task) = store.get(name, Some(state), now)? else { return Ok(None) };
        if let Some(text) = store.read(&task, u64::MAX)? {
            return Ok(Some((task, text)));
        }
    }
    Err(restless(name))
}

fn digest(tasks: &Inventory) -> Digest {
    let line = |((slot, name), digest): (&(Slot, TaskName), &Digest)| format!("{slot}/{name} {digest}\n");
    Digest::of(tasks.iter().map(line).collect::<String>().as_bytes())
}

fn copy_task(
    from: &dyn Store,
    to: &dyn Store,
    (slot, name): &(Slot, TaskName),
    now: Timestamp,
) -> Result<Result<(), CopyDenial>> {
    let occupied = |slot: &Slot| Ok(Err(CopyDenial::Occupied(name.clone(), slot.clone())));
    let Some((task, text)) = look(from, name, slot.state(), now)? else {
        return Ok(Err(CopyDenial::Changed));
    };
    // What waits is as old as it was: that is its place in the queue.
    let since = if slot.state().is_claimable() { task.modified.min(now) } else { now };
    let is_elsewhere = *slot != Slot::NEEDS_ACTION;
    if is_elsewhere && to.get(name, Some(slot.state()), now)?.is_some() {
        return occupied(slot);
    }
    let found = match look(to, name, State::NeedsAction, now)? {
        Some((found, there)) if there == text => found,
        Some(_) => return occupied(&Slot::NEEDS_ACTION),
        None => {
            let id = StepId::new()?;
            match until_answered(|| to.add(&id, name, &text, since))? {
                StepOutcome::Done(_) => {}
                StepOutcome::Unknown(fault) => return Err(fault),
                StepOutcome::Conflict | StepOutcome::Changed => return occupied(&Slot::NEEDS_ACTION),
            }
            let Some(added) = to.get(name, Some(State::NeedsAction), now)? else {
                return Ok(Err(CopyDenial::Changed));
            };
            added
        }
    };
    let record = (!slot.state().is_final()).then_some(task.record);
    if !is_elsewhere && record.as_ref().is_none_or(|record| *record == ClaimRecord::new(slot.clone())) {
        return Ok(Ok(()));
    }
    let id = StepId::new()?;
    let step = Step {
        at: since,
        verb: Some(match slot.state() {
            State::Done | State::InProgress => Verb::Release,
            State::Rejected => Verb::Reject,
            State::PendingApproval => Verb::Ask,
            State::Approved => Verb::Approve,
            State::NeedsAction => Verb::Retry,
        }),
        task: name.clone(),
        from: found.slot,
        version: found.version,
        check: None,
        to: slot.clone(),
        edit: TextEdit::Keep,
        record,
        records_digest: false,
        fallback_suffix: id.as_str().to_owned(),
        events: Vec::new(),
        id,
    };
    match until_answered(|| to.apply(&step))? {
        StepOutcome::Done(landed) if landed.task == *name => Ok(Ok(())),
        StepOutcome::Done(_) => occupied(slot),
        StepOutcome::Unknown(fault) => Err(fault),
        StepOutcome::Conflict | StepOutcome::Changed => Ok(Err(CopyDenial::Changed)),
    }
}

/// The events about tasks that a store has, page by page.
struct History<'s> {
    store: &'s dyn Store,
    cursor: String,
    page: std::vec::IntoIter<Entry>,
    is_over: bool,
}

impl<'s> History<'s> {
    fn of(store: &'s dyn Store) -> Result<Self> {
        Ok(Self { store, cursor: store.oldest_cursor()?, page: Vec::new().into_iter(), is_over: false })
    }

    /// The next event about a task: a ledger may have other lines.
    fn next(&mut self) -> Result<Option<Entry>> {
        loop {
            match self.page.next() {
                Some(entry) if entry.event.keys().task.is_some() => return Ok(Some(entry)),
                Some(_) => {}
                None if self.is_over => return Ok(None),
                None => {
                    let (page, next) = self.store.events(&self.cursor, PAGE)?;
                    self.is_over = page.len() < PAGE;
                    (self.page, self.cursor) = (page.into_iter(), next);
                }
            }
        }
    }
}

/// Adds what the target does not have yet, if its history is the beginning of the source's.
fn copy_history(from: &dyn Store, to: &dyn Store) -> Result<CopiedHistory> {
    let (mut source, mut target) = (History::of(from)?, History::of(to)?);
    while let Some(there) = target.next()? {
        if source.next()? != Some(there) {
            return Ok(CopiedHistory::OwnHistory);
        }
    }
    let added: fn(usize) -> CopiedHistory =
        if from.oldest_cursor()?.is_empty() { CopiedHistory::Added } else { CopiedHistory::AddedLatest };
    let (mut count, mut next) = (0, None);
    loop {
        let (mut page, mut bytes) = (Vec::new(), 0);
        while page.len() < PAGE
            && let Some((entry, size)) =
                next.take().map_or_else(|| sized(&mut source), |next| Ok(Some(next)))?
        {
            if bytes + size > PAGE_BYTES && !page.is_empty() {
                next = Some((entry, size));
                break;
            }
            bytes += size;
            page.push(entry);
        }
        if page.is_empty() {
            return Ok(added(count));
        }
        to.record(&page)?;
        count += page.len();
    }
}

/// The next event, and about how many bytes a store needs for it.
fn sized(history: &mut History<'_>) -> Result<Option<(Entry, usize)>> {
    let Some(entry) = history.next()? else { return Ok(None) };
    let size = serde_json::to_vec(&entry).map_err(|error| Fault::invalid(error.to_string()))?.len();
    Ok(Some((entry, size)))
}

/// Whether both stores have the same events about tasks, in the same order.
fn is_same_history(from: &dyn Store, to: &dyn Store) -> Result<bool> {
    let (mut source, mut target) = (History::of(from)?, History::of(to)?);
    loop {
        match (source.next()?, target.next()?) {
            (None, None) => return Ok(true),
            (one, other) if one != other => return Ok(false),
            _ => {}
        }
    }
}
