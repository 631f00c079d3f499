//! Tools of an agent's own program: the checks before and after a tool call.
//!
//! Before the call, the files that the tool will change are compared with what the turn knows, and reserved. After the call,
//! the turn learns what the tool read and wrote, and the reservations end.

use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::change::{Action, Change};
use crate::commit::file_changed;
use crate::explain::{is_own_change, newest_lines, object, record, refuse};
use crate::git_rules::{self, GitStep, judge_step};
use crate::guard::lock;
use crate::judge::{by_mode, judge_now};
use crate::look::Look;
use crate::open_turn;
use crate::path::{EscapedPath, FilePath};
use crate::place::Way;
use crate::recovery;
use crate::refusal::{Outcome, Refusal};
use crate::request::Request;
use crate::reservation::Reservation;
use crate::root::Root;
use crate::stage::ChangeId;
use crate::stripe_lock::StripeLocks;
use crate::turn::{Extent, FileState, TurnState};
use crate::unfinished::UnfinishedFiles;
use tollgate_base::error::{Fault, Result};
use tollgate_base::event::{Event, FileChanged, Guarantee, Mutation, MutationStatus, RefusalStatus};
use tollgate_base::ledger::{Entry, Line};
use tollgate_base::settings::{Durability, GuardMode};

/// A tool call of an agent program: the files that it reads and changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolUse {
    /// The id of the call. If the program has none, any text that is the same before and after the call.
    pub call: String,
    /// The name of the tool, for the ledger.
    pub tool: String,
    /// The files that the tool will read, whole or in part.
    pub reads: Vec<(PathBuf, Extent)>,
    /// The files that the tool will change.
    pub changes: Vec<Change>,
    /// What it will do with git, if it is a command whose text is all that is known.
    pub git: Vec<GitStep>,
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
    fn add_names(&mut self, way: &Way) {
        self.names.extend(way.names.iter().map(|name| (name.clone(), way.path.as_path().to_owned())));
    }

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

/// A file that a tool will change.
struct ToolTarget<'a> {
    change: &'a Change,
    way: Way,
    key: PathBuf,
    before: Option<Look>,
}

/// The files that a tool may change, with their locks.
type LockedTargets<'a> = (StripeLocks, Vec<ToolTarget<'a>>);

/// Locks the files that a tool will change, and has each change judged. `None`: another agent is about to write one of them, and
/// the settings only observe.
fn check<'a>(
    request: &Request<'_>,
    ToolUse { call, changes, git, .. }: &'a ToolUse,
) -> Result<Outcome<Option<LockedTargets<'a>>>> {
    let root = request.root;
    let observing = root.settings().guard.mode == GuardMode::Observe;
    let mut targets = Vec::with_capacity(changes.len());
    for change in changes {
        let way = root.follow(&change.path)?;
        let key = request.key(&way.path);
        targets.push(ToolTarget { change, way, key, before: None });
    }
    let keys: Vec<&Path> = targets.iter().map(|target| target.key.as_path()).collect();
    let locks = match lock(request, &keys, Some(call))? {
        Ok(locks) => locks,
        Err(refusal) if observing => {
            record(request, &[refusal], RefusalStatus::Observed)?;
            // An agent that is only observed gets no reservation either: others must not wait for it.
            return Ok(Outcome::Done(None));
        }
        Err(refusal) => return refuse(request, vec![refusal]),
    };
    let (mut refusals, mut unfinished): (Vec<Refusal>, _) = (Vec::new(), UnfinishedFiles::default());
    unfinished.ask_about(request, changes)?;
    for step in git {
        for (path, reason) in judge_step(request, step, &mut unfinished)? {
            let is_known = refusals.iter().any(|refusal| refusal.path == path);
            refusals.extend(if is_known { None } else { object(request, &path, reason)? });
        }
    }
    for ToolTarget { change, way, before, .. } in &mut targets {
        request.turn.about_to_change(&way.names, &way.path)?;
        let look = Look::at(root, &way.path)?;
        if let Some(reason) = judge_now(request, way, change, &look, &mut unfinished)? {
            refusals.extend(by_mode(request, &way.path, Err(reason))?.err());
        }
        *before = Some(look);
    }
    unfinished.record_noted(request)?;
    match refusals.is_empty() {
        true => Ok(Outcome::Done(Some((locks, targets)))),
        false => refuse(request, refusals),
    }
}

/// Refuses a call if the gate refuses one of these changes. Reserves nothing.
pub(crate) fn refuse_only(request: &Request<'_>, tool_use: &ToolUse) -> Result<Outcome<()>> {
    Ok(check(request, tool_use)?.map(drop))
}

pub(crate) fn before(request: &Request<'_>, tool_use: &ToolUse) -> Result<Outcome<Ticket>> {
    let Request { root, turn, .. } = *request;
    let mut ticket = Ticket {
        call: tool_use.call.clone(),
        tool: tool_use.tool.clone(),
        reads: Vec::new(),
        changes: Vec::new(),
        names: Vec::new(),
        known: Vec::new(),
    };
    for (path, extent) in &tool_use.reads {
        let way = root.follow(path)?;
        let state = Look::at(root, &way.path)?.state;
        ticket.reads.push((way.path.as_path().to_owned(), *extent == Extent::Whole, state));
        ticket.add_names(&way);
    }
    let (locks, targets) = match check(request, tool_use)? {
        Outcome::Done(Some(checked)) => checked,
        Outcome::Done(None) => return Ok(Outcome::Done(ticket)),
        Outcome::Refused(refused) => return Ok(Outcome::Refused(refused)),
    };
    for target in &targets {
        let before = target.before.as_ref().map_or(FileState::Unreadable, |look| look.state);
        ticket.changes.push((target.way.path.as_path().to_owned(), before));
        ticket.add_names(&target.way);
        let reservation = Reservation {
            path: EscapedPath(target.key.clone()),
            call: ticket.call.clone(),
            tool: ticket.tool.clone(),
            agent: turn.agent().clone(),
            turn: turn.id().clone(),
            predicted: match target.change.action {
                Action::ByProgram { result, .. } => result,
                _ => None,
            },
            since: root.now(),
        };
        if let Err(fault) = reservation.put(&locks) {
            // The tool will not run, and nobody else would end the reservations made so far.
            targets.iter().for_each(|target| drop(Reservation::end(&locks, &target.key, &ticket.call)));
            return Err(fault);
        }
        if let Some(look) = &target.before {
            look.keep(root, &target.way.path);
        }
    }
    Ok(Outcome::Done(ticket))
}

/// Once it has the locks, this ends every reservation and records every change, whatever fails on the way: the tool has run, and
/// nobody else would do it. Then it returns the first fault.
pub(crate) fn after(root: &Root, turn: &dyn TurnState, ticket: Ticket, result: ToolResult) -> Result<()> {
    let request = Request { root, turn, tool: &ticket.tool, level: None, fences: &[], removed: &[] };
    let used = |path: &FilePath| {
        let names = ticket.names.iter().filter(|(_, to)| to == path.as_path());
        turn.used(&names.map(|(name, _)| name.clone()).collect::<Vec<_>>(), path)
    };
    let mut ended = Ok(());
    let since = root.now();
    // If the file changed during the read, nobody knows which of the two states the agent saw. With the older one, a later write
    // may be refused. With the newer one, an update might be lost.
    for (path, whole, seen) in ticket.reads {
        if result == ToolResult::Failed && seen != FileState::Absent {
            // The agent saw nothing, unless the failure told it that the file does not exist.
            continue;
        }
        let path = FilePath::trusted(path);
        let extent = if whole { Extent::Whole } else { Extent::Part };
        ended = ended.and(turn.was_shown(&path, seen, extent, root.now()).and_then(|()| used(&path)));
        if let Ok(now) = Look::at(root, &path)
            && now.state == seen
        {
            now.keep_text(turn);
            open_turn::read(root, turn.id(), &path, (seen, extent), since);
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
        let now = Look::at(root, path)?;
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
        open_turn::changed(root, turn.id(), &[(path, before, now.state)]);
        now.keep(root, path);
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
    let after = Look::at(request.root, path)?.state;
    recovery::keep_overwritten(request.root, &key, [before, after], request.turn.agent(), bytes)
}

pub(crate) fn look_again(request: &Request<'_>, files: &[FilePath], since: Timestamp) -> Result<()> {
    let turn = request.turn;
    let mut lines = None;
    for path in files {
        let Some(sighting) = turn.get(path)? else { continue };
        let (before, now) = (sighting.baseline(Extent::Whole), Look::at(request.root, path)?);
        if now.state == before || now.state == FileState::Unreadable {
            continue;
        }
        let lines: &Vec<Line> = match &mut lines {
            Some(lines) => lines,
            // An older line proves nothing: the agent may have seen after it that someone had changed the file back.
            none => none.insert(newest_lines(request.root)?.filter(|line| line.time >= since).collect()),
        };
        let key = request.key(path).display().to_string();
        if is_own_change(turn.agent(), lines, &key, before, now.state) {
            turn.wrote(path, now.state)?;
            now.keep_text(turn);
        }
    }
    git_rules::look_again(request.root, turn, since)?;
    // By the clock of the system, because no file has a later time.
    turn.ran(since, Timestamp::now())
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
