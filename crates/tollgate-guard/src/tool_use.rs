//! Tools of an agent's own program: the checks before and after a tool call.
//!
//! Before the call, the files that the tool will change are compared with what the turn knows, and reserved. After the call,
//! the turn learns what the tool read and wrote, and the reservations end.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::commit::{Base, file_changed};
use crate::disk::{Found, Quiet};
use crate::explain::{is_own_change, newest_lines, observe, record, refuse};
use crate::guard::{READ_WAIT, base, lock};
use crate::path::{EscapedPath, FilePath};
use crate::place::Way;
use crate::recovery;
use crate::refusal::{Outcome, Reason, Refusal};
use crate::request::{Expected, Request};
use crate::reservation::Reservation;
use crate::root::Root;
use crate::stage::ChangeId;
use crate::stripe_lock::StripeLocks;
use crate::turn::{Extent, FileState, TEXT_PER_FILE, TurnState};
use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};
use tollgate_base::event::{Event, FileChanged, Guarantee, Mutation, MutationStatus, RefusalStatus};
use tollgate_base::ledger::{Entry, Line};
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

impl ToolChange {
    /// A change of some part of a file that the turn must know, with an unknown result.
    pub fn part(path: PathBuf) -> Self {
        Self { path, extent: Extent::Part, expected: Expected::Baseline, predicted: None }
    }
}

/// What `Gate::pre_tool_use` passes to `Gate::post_tool_use`, perhaps in another process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[must_use = "a tool call that was allowed must be settled"]
pub struct Ticket {
    call: String,
    tool: String,
    reads: Vec<(PathBuf, bool, FileState)>,
    changes: Vec<(PathBuf, FileState)>,
    /// The names under which the tool reaches these files through links.
    #[serde(default)]
    names: Vec<(PathBuf, PathBuf)>,
    /// What the agent knows of a file that the tool has changed, if that is not the file as it is now.
    #[serde(skip)]
    known: Vec<(PathBuf, FileState)>,
}

impl Ticket {
    /// The canonical paths of the files that the tool may change, with their states before the call.
    pub fn changes(&self) -> impl Iterator<Item = (&Path, FileState)> {
        self.changes.iter().map(|(path, state)| (path.as_path(), *state))
    }

    /// Someone else changed this file before the tool did, and the tool kept that change. So the agent does not know the current
    /// content. What it knows is this state.
    pub fn knows_only(&mut self, path: &Path, state: FileState) {
        self.known.push((path.to_owned(), state));
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

/// How a tool call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolResult {
    /// It succeeded.
    Succeeded,
    /// It failed, as far as its program knows.
    Failed,
}

pub(crate) fn before(request: &Request<'_>, tool_use: &ToolUse) -> Result<Outcome<Ticket>> {
    let Request { root, turn, .. } = *request;
    let observing = root.settings().guard.mode == GuardMode::Observe;
    let (call, tool) = (tool_use.call.clone(), tool_use.tool.clone());
    let (mut reads, mut names) = (Vec::new(), Vec::new());
    let mut follow = |given: &Path| -> Result<Way> {
        let way = root.follow(given)?;
        names.extend(way.names.iter().map(|name| (name.clone(), way.path.as_path().to_owned())));
        Ok(way)
    };
    for (path, extent) in &tool_use.reads {
        let Way { path, .. } = follow(path)?;
        reads.push((path.as_path().to_owned(), *extent == Extent::Whole, Now::of(root, &path)?.state));
    }
    let mut refusals = Vec::new();
    let mut paths = Vec::new();
    for change in &tool_use.changes {
        let way = follow(&change.path)?;
        let key = request.key(&way.path);
        if root.protects(&change.path, way.path.as_path()) {
            refusals.push(Refusal::new(way.path.clone(), Reason::Protected));
        }
        paths.push((way, key));
    }
    let keys: Vec<&Path> = paths.iter().map(|(_, key)| key.as_path()).collect();
    let locks = match lock(request, &keys, Some(&call))? {
        Ok(locks) => locks,
        Err(refusal) => {
            refusals.push(refusal);
            if !observing {
                return refuse(request, refusals);
            }
            // An agent that is only observed gets no reservation either: others must not wait for it.
            record(request, &refusals, RefusalStatus::Observed)?;
            return Ok(Outcome::Done(Ticket {
                call,
                tool,
                reads,
                changes: Vec::new(),
                names,
                known: Vec::new(),
            }));
        }
    };
    if observing && !refusals.is_empty() {
        record(request, &std::mem::take(&mut refusals), RefusalStatus::Observed)?;
    }
    let mut changes = Vec::new();
    for (change, (way, _)) in tool_use.changes.iter().zip(&paths) {
        let path = &way.path;
        let Now { state, quiet, .. } = Now::of(root, path)?;
        changes.push((path.as_path().to_owned(), state));
        let find = || root.spot_anywhere(path)?.map_or(Ok(Found::Nothing), |spot| spot.open());
        let reason = match base(request, way, change.extent, change.expected, &find)? {
            Ok(Base::Exactly(expected)) => match contradiction(expected, state, quiet) {
                Some(reason) => reason,
                None => continue,
            },
            Ok(Base::Observed(expected)) if expected != state => {
                observe(request, path, Reason::stale(expected, state))?;
                continue;
            }
            Ok(_) => continue,
            Err(reason) => reason,
        };
        refusals.push(Refusal::new(path.clone(), reason));
    }
    if !refusals.is_empty() {
        return refuse(request, refusals);
    }
    for (change, (_, key)) in tool_use.changes.iter().zip(&paths) {
        let reservation = Reservation {
            path: EscapedPath(key.clone()),
            call: call.clone(),
            tool: tool.clone(),
            agent: turn.agent().clone(),
            turn: turn.id().clone(),
            predicted: change.predicted,
            since: root.now(),
        };
        if let Err(fault) = reservation.put(&locks) {
            // The tool will not run, and nobody else would end the reservations made so far.
            paths.iter().for_each(|(_, key)| drop(Reservation::end(&locks, key, &call)));
            return Err(fault);
        }
    }
    Ok(Outcome::Done(Ticket { call, tool, reads, changes, names, known: Vec::new() }))
}

/// Once it has the locks, this ends every reservation and records every change, whatever fails on the way: the tool has run, and
/// nobody else would do it. Then it returns the first fault.
pub(crate) fn after(root: &Root, turn: &dyn TurnState, ticket: Ticket, result: ToolResult) -> Result<()> {
    let request = Request { root, turn, tool: &ticket.tool, level: None, fences: &[] };
    let used = |path: &FilePath| {
        let names = ticket.names.iter().filter(|(_, to)| to == path.as_path());
        turn.used(&names.map(|(name, _)| name.clone()).collect::<Vec<_>>(), path)
    };
    let mut ended = Ok(());
    // If the file changed during the read, nobody knows which of the two states the agent saw. With the older one, a later write
    // may be refused. With the newer one, an update might be lost.
    for (path, whole, seen) in ticket.reads {
        if result == ToolResult::Failed && seen != FileState::Absent {
            // The agent saw nothing, unless the failure told it that the file does not exist.
            continue;
        }
        let path = FilePath::trusted(path);
        let extent = if whole { Extent::Whole } else { Extent::Part };
        ended = ended.and(turn.observe(&path, seen, extent).and_then(|()| used(&path)));
        if let Ok(now) = Now::of(root, &path)
            && now.state == seen
        {
            now.keep_text(turn);
        }
    }
    let paths = ticket.changes.into_iter().map(|(path, before)| (FilePath::trusted(path), before));
    let changes: Vec<_> = paths.map(|(path, before)| (request.key(&path), path, before)).collect();
    let keys: Vec<&Path> = changes.iter().map(|(key, ..)| key.as_path()).collect();
    let locks = locks_of(root, &keys)?;
    let mut lines = Vec::new();
    let mut settle = |key: &Path, path: &FilePath, before: FileState| -> Result<()> {
        let predicted = Reservation::of(root, &locks, key)?
            .filter(|reservation| reservation.call == ticket.call)
            .and_then(|reservation| reservation.predicted);
        let now = Now::of(root, path)?;
        let (changed, after) = (now.state != before, now.state.digest());
        let own = match result {
            // The tool did not write a file that is unchanged, so the baseline must not move.
            ToolResult::Succeeded => changed || predicted.is_some() && after == predicted,
            ToolResult::Failed => changed && after.is_some() && after == predicted,
        };
        if !own {
            return Ok(());
        }
        // The line before the turn: the change is a fact, even if the turn cannot learn it.
        if let Some((link, target)) = link_at(root, path)? {
            lines.push(applied_line(&request, key, before, link)?);
            return turn.made_link(path, link, &target);
        }
        lines.push(applied_line(&request, key, before, now.state)?);
        let known = ticket.known.iter().find(|(there, _)| there == path.as_path());
        turn.wrote(path, known.map_or(now.state, |(_, known)| *known))?;
        if known.is_none() {
            now.keep_text(turn);
        }
        used(path)
    };
    for (key, path, before) in &changes {
        ended = ended.and(settle(key, path, *before)).and(Reservation::end(&locks, key, &ticket.call));
    }
    ended.and(append(root, &lines))
}

pub(crate) fn keep_overwritten(
    request: &Request<'_>,
    path: &FilePath,
    before: FileState,
    bytes: &[u8],
) -> Result<String> {
    let key = request.key(path);
    let _locks = locks_of(request.root, &[&key])?;
    let after = Now::of(request.root, path)?.state;
    recovery::keep_overwritten(request.root, &key, [before, after], request.turn.agent(), bytes)
}

pub(crate) fn look_again(request: &Request<'_>, files: &[FilePath], since: Timestamp) -> Result<()> {
    let turn = request.turn;
    let mut lines = None;
    for path in files {
        let Some(sighting) = turn.get(path)? else { continue };
        let (before, now) = (sighting.baseline(Extent::Whole), Now::of(request.root, path)?);
        if now.state == before || now.state == FileState::Unreadable {
            continue;
        }
        let lines: &Vec<Line> = match &mut lines {
            Some(lines) => lines,
            // An older line proves nothing: the agent may have seen after it that someone had changed the file back.
            none => none.insert(newest_lines(request)?.filter(|line| line.time >= since).collect()),
        };
        let key = request.key(path).display().to_string();
        if is_own_change(turn.agent(), lines, &key, before, now.state) {
            turn.wrote(path, now.state)?;
            now.keep_text(turn);
        }
    }
    Ok(())
}

/// The symbolic link that is at a path now: its state, and the file to which it leads.
fn link_at(root: &Root, path: &FilePath) -> Result<Option<(FileState, FilePath)>> {
    if !fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
        return Ok(None);
    }
    let state = root.spot_anywhere(path)?.map_or(Ok(None), |spot| spot.hash())?;
    // A link may lead in a circle.
    Ok(root.canonical(path).ok().map(|target| (state.into(), target)))
}

/// Why a file in this state may not be changed by an agent that expects another one.
pub(crate) fn contradiction(expected: FileState, actual: FileState, quiet: Quiet) -> Option<Reason> {
    (expected != actual).then(|| match quiet {
        Quiet::Busy => Reason::Busy { holder: None },
        Quiet::Held | Quiet::Unavailable => Reason::stale(expected, actual),
    })
}

pub(crate) fn append(root: &Root, lines: &[Entry]) -> Result<()> {
    if lines.is_empty() { Ok(()) } else { root.ledger().append(lines, Durability::Fast).map(drop) }
}

/// The locks of these paths, even if another agent has reserved them.
fn locks_of(root: &Root, keys: &[&Path]) -> Result<StripeLocks> {
    let wait = root.settings().guard.lock_wait.0;
    let locks = root.stripes.acquire(keys.iter().copied(), wait)?;
    let path = || keys.first().map(PathBuf::from).unwrap_or_default();
    locks.ok_or_else(|| Fault::Locked { path: path(), waited_s: wait.as_secs() })
}

/// The ledger line of a change that the agent's own tool made.
fn applied_line(request: &Request<'_>, key: &Path, before: FileState, after: FileState) -> Result<Entry> {
    let id = ChangeId::new(request.root.now())?;
    let change = FileChanged {
        guarantee: Some(Guarantee::Reserved),
        ..file_changed(&id, request.tool, key, before, after)
    };
    Ok(request.entry(Event::Mutation(Mutation::File(change), MutationStatus::Applied)))
}

/// A file at one moment.
pub(crate) struct Now {
    pub(crate) state: FileState,
    /// `Busy`: another process was writing it the whole time.
    pub(crate) quiet: Quiet,
    /// Its bytes, if they are few enough to be kept for diffs.
    pub(crate) text: Option<Vec<u8>>,
}

impl Now {
    pub(crate) fn of(root: &Root, path: &FilePath) -> Result<Self> {
        Self::within(root, path, READ_WAIT)
    }

    /// Waits at most this long for another process to stop writing it.
    pub(crate) fn within(root: &Root, path: &FilePath, wait: Duration) -> Result<Self> {
        let spot = root.spot_anywhere(path)?;
        let (found, quiet) = spot.map_or(Ok((Found::Nothing, Quiet::Held)), |spot| spot.steady(wait))?;
        let (state, text) = match found {
            Found::File(file) if file.len() <= TEXT_PER_FILE as u64 => {
                let (bytes, digest) = file.read()?;
                (FileState::Present(digest), Some(bytes))
            }
            Found::File(file) => (FileState::Present(file.hash()?), None),
            Found::Nothing => (FileState::Absent, None),
            Found::Unreadable | Found::NotAFile => (FileState::Unreadable, None),
        };
        Ok(Self { state, quiet, text })
    }

    /// Keeps the bytes in the turn, if that is possible. Without them, a later refusal has no diff.
    fn keep_text(&self, turn: &dyn TurnState) {
        if let (Some(digest), Some(text)) = (self.state.digest(), &self.text) {
            let _ = turn.keep_text(digest, text);
        }
    }
}
