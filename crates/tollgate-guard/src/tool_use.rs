//! Tools of an agent's own program: the checks before and after a tool call.
//!
//! Before the call, the files that the tool will change are compared with what the turn knows, and reserved. After the call,
//! the turn learns what the tool read and wrote, and the reservations end.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::change::Expected;
use crate::commit::{Base, file_changed, stale};
use crate::disk::{Found, Steady};
use crate::explain::{author_of, record, refuse};
use crate::guard::{Locking, READ_WAIT, base, lock};
use crate::outcome::Outcome;
use crate::path::FilePath;
use crate::recovery;
use crate::refusal::{Reason, Refusal};
use crate::request::Request;
use crate::reservation::{Reservation, ReservedBy};
use crate::root::Root;
use crate::stage::ChangeId;
use crate::stripe_lock::StripeLocks;
use crate::turn::{Extent, FileState, TEXT_PER_FILE, TurnState};
use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};
use tollgate_base::event::{Event, FileChanged, Guarantee, Mutation, MutationStatus, RefusalStatus};
use tollgate_base::ledger::Entry;
use tollgate_base::settings::{Durability, GuardMode};

/// A tool call of an agent program: the files that it reads and changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolUse {
    /// The id of the call. If the program has none, any text that is the same before and after the call.
    pub call: String,
    /// The name of the tool, for the ledger.
    pub tool: String,
    /// The files that the tool will read, whole or in part.
    pub reads: Vec<(PathBuf, Extent)>,
    /// The files that the tool will change.
    pub changes: Vec<ToolChange>,
}

/// A file that a tool will change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolChange {
    /// The file.
    pub path: PathBuf,
    /// Whether the tool replaces the whole file or edits a part.
    pub extent: Extent,
    /// What must be on disk.
    pub expected: Expected,
    /// The hash that the file will have, if the tool's input determines it.
    pub predicted: Option<Digest>,
}

/// What [`Gate::pre_tool_use`](crate::gate::Gate::pre_tool_use) passes to
/// [`Gate::post_tool_use`](crate::gate::Gate::post_tool_use), perhaps in another process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[must_use = "a tool call that was allowed must be settled"]
pub struct Ticket {
    call: String,
    tool: String,
    reads: Vec<(PathBuf, bool, FileState)>,
    changes: Vec<(PathBuf, FileState)>,
}

impl Ticket {
    /// The id of the tool call.
    pub fn call(&self) -> &str {
        &self.call
    }

    /// The canonical paths of the files that the tool may change, with their states before the call.
    pub fn changes(&self) -> impl Iterator<Item = (&Path, FileState)> {
        self.changes.iter().map(|(path, state)| (path.as_path(), *state))
    }

    /// Sets how much of each file the tool really showed, once its output is known. `None`: nothing.
    pub fn judge_reads(&mut self, mut shown: impl FnMut(&Path, Extent) -> Option<Extent>) {
        self.reads.retain_mut(|(path, whole, _)| {
            let planned = if *whole { Extent::Whole } else { Extent::Part };
            let shown = shown(path, planned);
            *whole = shown == Some(Extent::Whole);
            shown.is_some()
        });
    }
}

/// Whether a tool call mentioned a file that it may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mention {
    /// It did, in some form.
    Yes,
    /// It did not.
    No,
}

/// How a tool call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolResult {
    /// It succeeded.
    Succeeded,
    /// It failed, as far as its program knows.
    Failed,
}

/// Before a tool runs: compares every file that it will change with what the turn knows, and reserves all of them.
pub(crate) fn before(root: &Root, turn: &dyn TurnState, tool_use: &ToolUse) -> Result<Outcome<Ticket>> {
    let request = Request { root, turn, tool: &tool_use.tool };
    let observing = root.settings().guard.mode == GuardMode::Observe;
    let mut reads = Vec::new();
    for (path, extent) in &tool_use.reads {
        let path = root.canonical(path)?;
        reads.push((path.as_path().to_owned(), *extent == Extent::Whole, state_of(root, &path)?.0));
    }
    let mut refusals = Vec::new();
    let mut paths = Vec::new();
    for change in &tool_use.changes {
        let path = root.canonical(&change.path)?;
        if root.is_protected(Path::new(&request.ledger_path(&path))) {
            refusals.push(Refusal::new(path.clone(), Reason::Protected));
        }
        paths.push((path.clone(), PathBuf::from(request.ledger_path(&path))));
    }
    let keys: Vec<&Path> = paths.iter().map(|(_, key)| key.as_path()).collect();
    let locks = match lock(&request, &keys, Some(&tool_use.call))? {
        Locking::Locked(locks) => locks,
        Locking::Busy { index, holder } => {
            refusals.push(Refusal::new(paths[index].0.clone(), Reason::Busy { holder }));
            if observing {
                // An agent that is only observed gets no reservation either: others must not wait for it.
                record(&request, &refusals, RefusalStatus::Observed)?;
                let (call, tool) = (tool_use.call.clone(), tool_use.tool.clone());
                return Ok(Outcome::Done(Ticket { call, tool, reads, changes: Vec::new() }));
            }
            return refuse(&request, refusals).map(Outcome::Refused);
        }
    };
    if observing && !refusals.is_empty() {
        record(&request, &std::mem::take(&mut refusals), RefusalStatus::Observed)?;
    }
    let mut changes = Vec::new();
    for (change, (path, _)) in tool_use.changes.iter().zip(&paths) {
        let (state, busy) = state_of(root, path)?;
        changes.push((path.as_path().to_owned(), state));
        match base(&request, path, change.extent, change.expected, &|| Ok(state != FileState::Absent))? {
            Ok(Base::Exactly(expected)) if expected != state => refusals.push(Refusal::new(
                path.clone(),
                if busy { Reason::Busy { holder: None } } else { stale(expected, state) },
            )),
            Ok(Base::Observed(expected)) if expected != state => {
                record(
                    &request,
                    &[Refusal::new(path.clone(), stale(expected, state))],
                    RefusalStatus::Observed,
                )?;
            }
            Ok(_) => {}
            Err(Reason::Unread { .. }) => {
                // A read would not help if it is not a file.
                let unread = Reason::Unread { actual: state };
                let reason = if is_file(root, path)? { unread } else { Reason::NotAFile };
                refusals.push(Refusal::new(path.clone(), reason));
            }
            Err(reason) => refusals.push(Refusal::new(path.clone(), reason)),
        }
    }
    if !refusals.is_empty() {
        return refuse(&request, refusals).map(Outcome::Refused);
    }
    for (change, (_, key)) in tool_use.changes.iter().zip(&paths) {
        let (call, tool) = (tool_use.call.as_str(), tool_use.tool.as_str());
        let by = ReservedBy { call, tool, agent: turn.agent(), turn: turn.id(), predicted: change.predicted };
        if let Err(fault) = Reservation::put(root, &locks, key, by) {
            // The tool will not run, and nobody else would end the reservations made so far.
            let undo = |key: &PathBuf| Reservation::end(&locks, key, call);
            paths.iter().for_each(|(_, key)| drop(undo(key)));
            return Err(fault);
        }
    }
    let ticket = Ticket { call: tool_use.call.clone(), tool: tool_use.tool.clone(), reads, changes };
    Ok(Outcome::Done(ticket))
}

/// After the tool: remembers what it read and wrote, and ends its reservations.
pub(crate) fn after(root: &Root, turn: &dyn TurnState, ticket: Ticket, result: ToolResult) -> Result<()> {
    let request = Request { root, turn, tool: &ticket.tool };
    for (path, whole, before) in &ticket.reads {
        let path = FilePath::trusted(path.clone());
        let (after, _) = state_of(root, &path)?;
        let shown = if *whole { Extent::Whole } else { Extent::Part };
        // If the file changed during the read, nobody knows which of the two states the agent saw. With the older one, a
        // later write may be refused. With the newer one, an update might be lost.
        let seen = *before;
        if result == ToolResult::Failed && seen != FileState::Absent {
            // The agent saw nothing, unless the failure told it that the file does not exist.
            continue;
        }
        turn.observe(&path, seen, shown)?;
        if after == seen
            && let Some(digest) = seen.digest()
        {
            keep_text_of(root, turn, &path, digest)?;
        }
    }
    let mut lines = Vec::new();
    let keys: Vec<PathBuf> = (ticket.changes.iter())
        .map(|(path, _)| request.ledger_path(&FilePath::trusted(path.clone())).into())
        .collect();
    let locks = locks_of(root, &keys)?;
    for ((path, before), key) in ticket.changes.iter().zip(&keys) {
        let path = FilePath::trusted(path.clone());
        let predicted = Reservation::of(root, &locks, key)?
            .filter(|reservation| reservation.call == ticket.call)
            .and_then(|reservation| reservation.predicted);
        let (after, _) = state_of(root, &path)?;
        let own = match result {
            // The tool did not write a file that is unchanged, so the baseline must not move.
            ToolResult::Succeeded => after != *before || predicted.is_some() && after.digest() == predicted,
            ToolResult::Failed => after != *before && after.digest().is_some() && after.digest() == predicted,
        };
        if own {
            turn.wrote(&path, after)?;
            if let Some(digest) = after.digest() {
                keep_text_of(root, turn, &path, digest)?;
            }
            if after != *before || predicted.is_some() {
                lines.push(applied_line(&request, key, *before, after)?);
            }
        }
        Reservation::end(&locks, key, &ticket.call)?;
    }
    if !lines.is_empty() {
        root.ledger().append(&lines, Durability::Fast)?;
    }
    Ok(())
}

/// Keeps bytes that another program saved and the agent's own tool overwrote, if its program reports what it replaced.
/// Returns their id in recovery.
pub(crate) fn keep_overwritten(
    root: &Root,
    turn: &dyn TurnState,
    path: &FilePath,
    before: FileState,
    bytes: &[u8],
) -> Result<String> {
    let request = Request { root, turn, tool: "" };
    let key = PathBuf::from(request.ledger_path(path));
    let _locks = locks_of(root, std::slice::from_ref(&key))?;
    let after = state_of(root, path)?.0;
    recovery::keep_overwritten(root, &key, [before, after], turn.agent(), bytes)
}

/// After a tool that may have changed files without announcing them: looks at these files again. Returns those with
/// foreign changes.
///
/// A change is the agent's own if the tool mentioned the file and no other guarded agent wrote these bytes or has reserved
/// the file. Then the turn knows the new state. Any other change is foreign: the turn's next write is refused.
pub(crate) fn look_again(
    root: &Root,
    turn: &dyn TurnState,
    tool: &str,
    files: &[(FilePath, Mention)],
) -> Result<Vec<FilePath>> {
    let request = Request { root, turn, tool };
    let (mut lines, mut foreign) = (Vec::new(), Vec::new());
    for (path, mention) in files {
        let Some(sighting) = turn.get(path)? else { continue };
        let (before, after) = (sighting.baseline(Extent::Whole), state_of(root, path)?.0);
        if after == before || after == FileState::Unreadable {
            continue;
        }
        let key = PathBuf::from(request.ledger_path(path));
        if *mention == Mention::No || is_by_another(&request, &key, after)? {
            foreign.push(path.clone());
            continue;
        }
        turn.wrote(path, after)?;
        if let Some(digest) = after.digest() {
            keep_text_of(root, turn, path, digest)?;
        }
        lines.push(applied_line(&request, &key, before, after)?);
    }
    if !lines.is_empty() {
        root.ledger().append(&lines, Durability::Fast)?;
    }
    Ok(foreign)
}

/// The locks of these paths, even if another agent has reserved them.
fn locks_of(root: &Root, keys: &[PathBuf]) -> Result<StripeLocks> {
    let wait = root.settings().guard.lock_wait.0;
    let locks = root.stripes().acquire(keys.iter().map(PathBuf::as_path), wait)?;
    let path = || keys.first().cloned().unwrap_or_default();
    locks.ok_or_else(|| Fault::Locked { path: path(), waited_s: wait.as_secs() })
}

/// Whether another agent wrote this state, or another turn has reserved the file.
fn is_by_another(request: &Request<'_>, key: &Path, state: FileState) -> Result<bool> {
    let locks = locks_of(request.root, &[key.to_owned()])?;
    if let Some(reservation) = Reservation::of(request.root, &locks, key)?
        && (reservation.turn != *request.turn.id() || reservation.agent != *request.turn.agent())
    {
        return Ok(true);
    }
    let author = author_of(request, &key.display().to_string(), state)?;
    Ok(author.is_some_and(|by| by.agent != *request.turn.agent()))
}

/// The ledger line of a change that the agent's own tool made.
fn applied_line(request: &Request<'_>, key: &Path, before: FileState, after: FileState) -> Result<Entry> {
    let id = ChangeId::new(request.root.now())?;
    let change = FileChanged {
        guarantee: Some(Guarantee::Reserved),
        ..file_changed(&id, request.tool, key, before, after)
    };
    let event = Event::Mutation(Mutation::File(change), MutationStatus::Applied);
    Ok(request.author().entry(request.root, event))
}

/// The state of a file, and whether another process was writing it the whole time.
fn state_of(root: &Root, path: &FilePath) -> Result<(FileState, bool)> {
    let Some(spot) = root.spot_anywhere(path)? else { return Ok((FileState::Absent, false)) };
    Ok(match spot.steady(READ_WAIT)? {
        Steady::File(file) => (FileState::Present(file.hash()?), false),
        Steady::Busy(file) => (FileState::Present(file.hash()?), true),
        Steady::Nothing => (FileState::Absent, false),
        Steady::Unreadable | Steady::NotAFile => (FileState::Unreadable, false),
    })
}

fn is_file(root: &Root, path: &FilePath) -> Result<bool> {
    let Some(spot) = root.spot_anywhere(path)? else { return Ok(true) };
    Ok(!matches!(spot.open()?, Found::NotAFile))
}

fn keep_text_of(root: &Root, turn: &dyn TurnState, path: &FilePath, digest: Digest) -> Result<()> {
    let Some(spot) = root.spot_anywhere(path)? else { return Ok(()) };
    if let Steady::File(file) = spot.steady(READ_WAIT)?
        && file.len() <= TEXT_PER_FILE as u64
    {
        let (bytes, now) = file.read()?;
        if now == digest {
            turn.keep_text(digest, &bytes)?;
        }
    }
    Ok(())
}
