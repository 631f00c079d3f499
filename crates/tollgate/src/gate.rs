//! The gate: the calls that agents make, directly or through the tools of their own program.
//!
//! [`Gate::read`], [`Gate::write`] and their siblings do the work themselves. [`Gate::pre_tool_use`] and
//! [`Gate::post_tool_use`] stand before and after a tool that does it: the first compares and reserves, the second
//! settles what has become of the file.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::commit::{Applied, Base, mutation_payload, stale};
use crate::digest::Digest;
use crate::disk::{Folder, Found, Spot, Steady};
use crate::edit::Edit;
use crate::error::{At, Fault, Result};
use crate::guard::{Action, Admission, Change, Expected, Outcome, READ_WAIT, Refused, Request, admit};
use crate::ledger::{ActionType, Entry, Flush};
use crate::lock::{Pauses, StripeLocks};
use crate::name::{Agent, TurnId};
use crate::part::{Part, Selection};
use crate::path::FilePath;
use crate::place::Located;
use crate::refusal::{Reason, Refusal};
use crate::reservation::{For, Reservation};
use crate::settings::Mode;
use crate::stage::ChangeId;
use crate::turn::{Extent, FileState, Session, Sightings, TEXT_PER_FILE, Turn};
use crate::workspace::Workspace;

/// Up to this size a file is read whole before anyone sees a byte, so that nobody who wants to save it waits for a slow
/// reader. Larger files are streamed.
const READ_AT_ONCE: u64 = 16 << 20;

/// The calls that agents make. Clones share the workspace.
#[derive(Clone)]
pub struct Gate {
    workspace: Workspace,
}

/// What a read gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// The file.
    pub path: FilePath,
    /// The hash of the whole file, also if only a part was asked for.
    pub sha256: Digest,
    /// How many bytes the whole file has.
    pub size: u64,
    /// What was asked for.
    pub bytes: Vec<u8>,
}

impl Gate {
    /// Over this workspace.
    pub fn new(workspace: Workspace) -> Self {
        Self { workspace }
    }

    /// The workspace behind it.
    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// Begins a turn in this process.
    pub fn begin_turn(&self, agent: Agent) -> Result<Turn> {
        self.begin_turn_in(agent, Session::default())
    }

    /// Begins a turn of a session in this process.
    pub fn begin_turn_in(&self, agent: Agent, session: Session) -> Result<Turn> {
        let turn = Turn::begin_in(TurnId::new()?, agent, session);
        self.record_turn(&turn, ActionType::TurnStarted)?;
        Ok(turn)
    }

    /// Ends a turn: what it knew is gone.
    pub fn end_turn(&self, turn: Turn) -> Result<()> {
        self.record_turn(&turn, ActionType::TurnEnded)?;
        turn.end();
        Ok(())
    }

    /// Writes the line of a turn's beginning or end.
    pub fn record_turn(&self, turn: &dyn Sightings, action_type: ActionType) -> Result<()> {
        let entry = Entry {
            time: self.workspace.now(),
            agent: Some(turn.agent().clone()),
            turn: Some(turn.id().clone()),
            action_type,
            payload: serde_json::json!({}),
            result: serde_json::json!({"status": "OK"}),
        };
        self.workspace.ledger().append(&[entry], Flush::No).map(drop)
    }

    /// The hash of a file when the turn first saw it, however its path is spelled. The file itself is not read.
    pub fn get_initial_hash(&self, turn: &dyn Sightings, path: impl AsRef<Path>) -> Result<Option<Digest>> {
        let path = self.workspace.canonical(path)?;
        Ok(turn.get(&path)?.and_then(|sighting| sighting.initial().digest()))
    }

    /// Reads a file, or a part of it, and remembers what the agent saw.
    pub fn read(&self, turn: &dyn Sightings, path: impl AsRef<Path>, part: Part) -> Result<Outcome<Read>> {
        let mut held_back = Vec::new();
        let read = self.read_part(turn, path.as_ref(), part, &mut held_back)?;
        // A whole file that was read at once is in `bytes` already, and not copied.
        Ok(read.map(|read| if read.bytes.is_empty() { Read { bytes: held_back, ..read } } else { read }))
    }

    /// Like [`Gate::read`], but gives the bytes to a writer as they come.
    pub fn read_to(
        &self,
        turn: &dyn Sightings,
        path: impl AsRef<Path>,
        part: Part,
        sink: &mut dyn Write,
    ) -> Result<Outcome<Read>> {
        match self.read_part(turn, path.as_ref(), part, sink)? {
            Outcome::Done(read) => {
                sink.write_all(&read.bytes).at("hand out", &read.path)?;
                Ok(Outcome::Done(Read { bytes: Vec::new(), ..read }))
            }
            refused => Ok(refused),
        }
    }

    /// Puts the bytes into the answer if the file is wanted whole and small enough to be read at once, else into the sink.
    fn read_part(
        &self,
        turn: &dyn Sightings,
        path: &Path,
        part: Part,
        sink: &mut dyn Write,
    ) -> Result<Outcome<Read>> {
        let request = Request { workspace: &self.workspace, turn, tool: "read_file" };
        let refused =
            |path: FilePath, reason| Ok(Outcome::Refused(Refused::unrecorded(Refusal::new(path, reason))));
        let place = match self.workspace.locate(path)? {
            Located::Inside(place) => place,
            Located::Outside(path) => return refused(path, Reason::Outside),
            Located::Root(path) => return refused(path, Reason::NotAFile),
        };
        let found = match self.workspace.spot_anywhere(&place.path)? {
            Some(spot) => steady_unless_in_a_gap(&spot, request.turn.get(&place.path)?.is_some())?,
            None => Steady::Nothing,
        };
        let path = place.path;
        let mut file = match found {
            Steady::File(file) | Steady::Busy(file) => file,
            Steady::NotAFile => return refused(path, Reason::NotAFile),
            Steady::Nothing => {
                turn.observe(&path, FileState::Absent, Extent::Whole)?;
                return Err(Fault::Missing { what: format!("`{path}`") });
            }
            Steady::Unreadable => {
                turn.observe(&path, FileState::Unreadable, Extent::Whole)?;
                return Err(std::io::Error::from(std::io::ErrorKind::PermissionDenied)).at("read", &path);
            }
        };
        let size = file.len();
        let mut selection = Selection::new(part);
        let sha256 = if size <= READ_AT_ONCE {
            let (bytes, digest) = file.read()?;
            file.let_go();
            if size <= TEXT_PER_FILE as u64 {
                turn.keep_text(digest, &bytes)?;
            }
            if part == Part::Whole {
                turn.observe(&path, FileState::Present(digest), Extent::Whole)?;
                return Ok(Outcome::Done(Read { path, sha256: digest, size, bytes }));
            }
            selection.feed(&bytes, sink).at("hand out", &path)?;
            digest
        } else {
            file.let_go();
            file.stream(|chunk| selection.feed(chunk, sink).at("hand out", &path))?
        };
        let shown = selection.finish(sink).at("hand out", &path)?;
        turn.observe(&path, FileState::Present(sha256), shown)?;
        Ok(Outcome::Done(Read { path, sha256, size, bytes: Vec::new() }))
    }

    /// Gives a file these bytes; makes it if it is not there.
    pub fn write(
        &self,
        turn: &dyn Sightings,
        path: impl Into<PathBuf>,
        bytes: impl Into<Vec<u8>>,
        expected: Expected,
    ) -> Result<Outcome<Applied>> {
        self.one(turn, "write_file", Change::new(path, Action::Write(bytes.into())).expecting(expected))
    }

    /// Makes a file that must not be there yet.
    pub fn create(
        &self,
        turn: &dyn Sightings,
        path: impl Into<PathBuf>,
        bytes: impl Into<Vec<u8>>,
    ) -> Result<Outcome<Applied>> {
        self.one(turn, "create_file", Change::new(path, Action::Create(bytes.into())))
    }

    /// Replaces old text by new text, several times as one.
    pub fn edit(
        &self,
        turn: &dyn Sightings,
        path: impl Into<PathBuf>,
        edits: Vec<Edit>,
        expected: Expected,
    ) -> Result<Outcome<Applied>> {
        self.one(turn, "edit_file", Change::new(path, Action::Edit(edits)).expecting(expected))
    }

    /// Takes a file away.
    pub fn delete(
        &self,
        turn: &dyn Sightings,
        path: impl Into<PathBuf>,
        expected: Expected,
    ) -> Result<Outcome<Applied>> {
        self.one(turn, "delete_file", Change::new(path, Action::Delete).expecting(expected))
    }

    /// Gives a file another path, which must be free.
    pub fn move_file(
        &self,
        turn: &dyn Sightings,
        path: impl Into<PathBuf>,
        to: impl Into<PathBuf>,
        expected: Expected,
    ) -> Result<Outcome<Applied>> {
        self.one(turn, "move_file", Change::new(path, Action::MoveTo(to.into())).expecting(expected))
    }

    /// Makes all of these changes or none.
    pub fn apply(&self, turn: &dyn Sightings, changes: Vec<Change>) -> Result<Outcome<Vec<Applied>>> {
        self.apply_as(turn, "write_files", changes)
    }

    /// Makes all of these changes or none, in the name of this tool.
    pub fn apply_as(
        &self,
        turn: &dyn Sightings,
        tool: &str,
        changes: Vec<Change>,
    ) -> Result<Outcome<Vec<Applied>>> {
        match admit(Request { workspace: &self.workspace, turn, tool }, changes)? {
            Admission::Granted(permit) => permit.commit(),
            Admission::Refused(refused) => Ok(Outcome::Refused(refused)),
        }
    }

    fn one(&self, turn: &dyn Sightings, tool: &str, change: Change) -> Result<Outcome<Applied>> {
        match self.apply_as(turn, tool, vec![change])? {
            Outcome::Done(mut applied) => match applied.pop() {
                Some(applied) => Ok(Outcome::Done(applied)),
                None => Err(Fault::invalid("nothing was changed")),
            },
            Outcome::Refused(refused) => Ok(Outcome::Refused(refused)),
        }
    }

    /// Puts kept bytes back where they were. What is there now is kept in its turn.
    pub fn restore(&self, turn: &dyn Sightings, id: &str) -> Result<Outcome<Applied>> {
        let (kept, bytes) = self.workspace.recovered(id)?;
        let expected =
            match self.workspace.spot_anywhere(&kept.path)?.map(|spot| spot.steady(READ_WAIT)).transpose()? {
                Some(Steady::File(file) | Steady::Busy(file)) => Expected::Hash(file.hash()?),
                _ => Expected::Absent,
            };
        self.one(turn, "restore", Change::new(kept.path.as_path(), Action::Write(bytes)).expecting(expected))
    }
}

/// Some editors move the old file away before they write the new one: what the turn has seen gets a moment to come back.
fn steady_unless_in_a_gap(spot: &Spot, seen: bool) -> Result<Steady> {
    let mut pauses = Pauses::lasting(READ_WAIT);
    loop {
        match spot.steady(READ_WAIT)? {
            Steady::Nothing if seen && pauses.pause() => {}
            found => return Ok(found),
        }
    }
}

impl Workspace {
    /// The spot of a file inside or outside the workspace; none if its folder does not exist.
    pub(crate) fn spot_anywhere(&self, path: &FilePath) -> Result<Option<Spot>> {
        let path = path.as_path();
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
        let opened = match folder.strip_prefix(self.path()) {
            Ok(below) => self.root().open_below(below),
            Err(_) => Folder::open(folder),
        };
        match opened {
            Ok(folder) => Ok(Some(folder.spot(name))),
            Err(Fault::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(fault) => Err(fault),
        }
    }
}

/// A tool call of an agent program, as far as files are concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolUse {
    /// The call's id. Where the program has none, anything that is the same before and after.
    pub call: String,
    /// The tool's name, for the ledger.
    pub tool: String,
    /// The files it will read, and whether whole.
    pub reads: Vec<(PathBuf, Extent)>,
    /// The files it will change.
    pub changes: Vec<ToolChange>,
}

/// A file that a tool will change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolChange {
    /// The file.
    pub path: PathBuf,
    /// Whether it is replaced whole or edited in part.
    pub extent: Extent,
    /// What must be on disk for it.
    pub expected: Expected,
    /// What the file will hold, if the input tells.
    pub predicted: Option<Digest>,
}

/// What [`Gate::pre_tool_use`] hands to [`Gate::post_tool_use`]. It may travel between processes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[must_use = "a tool call that was let through has to be settled"]
pub struct Ticket {
    call: String,
    tool: String,
    reads: Vec<(PathBuf, bool, FileState)>,
    changes: Vec<(PathBuf, FileState)>,
}

impl Ticket {
    /// The tool call that it is for.
    pub fn call(&self) -> &str {
        &self.call
    }

    /// The files that the tool may change, canonical, with what they were before.
    pub fn changes(&self) -> impl Iterator<Item = (&Path, FileState)> {
        self.changes.iter().map(|(path, state)| (path.as_path(), *state))
    }

    /// Says how much of each file the tool really showed, once its output is known; none: nothing of it.
    pub fn judge_reads(&mut self, mut shown: impl FnMut(&Path, Extent) -> Option<Extent>) {
        self.reads.retain_mut(|(path, whole, _)| {
            let planned = if *whole { Extent::Whole } else { Extent::Part };
            let shown = shown(path, planned);
            *whole = shown == Some(Extent::Whole);
            shown.is_some()
        });
    }
}

/// Whether a tool call named a file that it may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// It did, in whatever way.
    Yes,
    /// It did not.
    No,
}

/// How a tool call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolResult {
    /// It did what it should.
    Succeeded,
    /// It did not, as far as its program knows.
    Failed,
}

impl Gate {
    /// Before a tool runs: compares every file it will change with what the turn knows, and reserves them all.
    pub fn pre_tool_use(&self, turn: &dyn Sightings, tool_use: &ToolUse) -> Result<Outcome<Ticket>> {
        let request = Request { workspace: &self.workspace, turn, tool: &tool_use.tool };
        let observing = self.workspace.settings().guard.mode == Mode::Observe;
        let mut reads = Vec::new();
        for (path, extent) in &tool_use.reads {
            let path = self.workspace.canonical(path)?;
            reads.push((path.as_path().to_owned(), *extent == Extent::Whole, self.state_of(&path)?.0));
        }
        let mut refusals = Vec::new();
        let mut paths = Vec::new();
        for change in &tool_use.changes {
            let path = self.workspace.canonical(&change.path)?;
            if self.workspace.is_protected(Path::new(&request.ledger_path(&path))) {
                refusals.push(Refusal::new(path.clone(), Reason::Protected));
            }
            paths.push((path.clone(), PathBuf::from(request.ledger_path(&path))));
        }
        let keys: Vec<&Path> = paths.iter().map(|(_, key)| key.as_path()).collect();
        let locks = match request.lock(&keys, Some(&tool_use.call))? {
            Ok(locks) => locks,
            Err((index, reason)) => {
                refusals.push(Refusal::new(paths[index].0.clone(), reason));
                if observing {
                    // Whoever is only observed is not reserved for either: others must not wait for it.
                    request.record(&refusals, "OBSERVED")?;
                    let (call, tool) = (tool_use.call.clone(), tool_use.tool.clone());
                    return Ok(Outcome::Done(Ticket { call, tool, reads, changes: Vec::new() }));
                }
                return request.refuse(refusals).map(Outcome::Refused);
            }
        };
        if observing && !refusals.is_empty() {
            request.record(&std::mem::take(&mut refusals), "OBSERVED")?;
        }
        let mut changes = Vec::new();
        for (change, (path, _)) in tool_use.changes.iter().zip(&paths) {
            let (state, busy) = self.state_of(path)?;
            changes.push((path.as_path().to_owned(), state));
            match request.base(path, change.extent, change.expected, &|| Ok(state != FileState::Absent))? {
                Ok(Base::Exactly(expected)) if expected != state => refusals.push(Refusal::new(
                    path.clone(),
                    if busy { Reason::Busy { holder: None } } else { stale(expected, state) },
                )),
                Ok(Base::Observed(expected)) if expected != state => {
                    request.record(&[Refusal::new(path.clone(), stale(expected, state))], "OBSERVED")?;
                }
                Ok(_) => {}
                Err(Reason::Unread { .. }) => {
                    // Reading what is not a file would not help.
                    let unread = Reason::Unread { actual: state };
                    let reason = if self.is_file(path)? { unread } else { Reason::NotAFile };
                    refusals.push(Refusal::new(path.clone(), reason));
                }
                Err(reason) => refusals.push(Refusal::new(path.clone(), reason)),
            }
        }
        if !refusals.is_empty() {
            return request.refuse(refusals).map(Outcome::Refused);
        }
        for (change, (_, key)) in tool_use.changes.iter().zip(&paths) {
            let (call, tool) = (tool_use.call.as_str(), tool_use.tool.as_str());
            let by = For { call, tool, agent: turn.agent(), turn: turn.id(), predicted: change.predicted };
            if let Err(fault) = Reservation::put(&self.workspace, &locks, key, by) {
                // The tool will not run, and nobody else would end what is reserved already.
                let undo = |key: &PathBuf| Reservation::end(&locks, key, call);
                paths.iter().for_each(|(_, key)| drop(undo(key)));
                return Err(fault);
            }
        }
        let ticket = Ticket { call: tool_use.call.clone(), tool: tool_use.tool.clone(), reads, changes };
        Ok(Outcome::Done(ticket))
    }

    /// After the tool: remembers what it read and wrote, and ends its reservations.
    pub fn post_tool_use(&self, turn: &dyn Sightings, ticket: Ticket, result: ToolResult) -> Result<()> {
        let request = Request { workspace: &self.workspace, turn, tool: &ticket.tool };
        for (path, whole, before) in &ticket.reads {
            let path = FilePath::trusted(path.clone());
            let (after, _) = self.state_of(&path)?;
            let shown = if *whole { Extent::Whole } else { Extent::Part };
            // Changed while it was read: nobody can tell which of the two the agent saw. With the older one a later
            // write is refused at worst; with the newer one it might be lost.
            let seen = *before;
            if result == ToolResult::Failed && seen != FileState::Absent {
                // The agent saw nothing. A file that is not there, though, is what such a failure tells it.
                continue;
            }
            turn.observe(&path, seen, shown)?;
            if after == seen
                && let Some(digest) = seen.digest()
            {
                self.keep_text_of(turn, &path, digest)?;
            }
        }
        let mut lines = Vec::new();
        let keys: Vec<PathBuf> = (ticket.changes.iter())
            .map(|(path, _)| request.ledger_path(&FilePath::trusted(path.clone())).into())
            .collect();
        let locks = self.locks_of(&keys)?;
        for ((path, before), key) in ticket.changes.iter().zip(&keys) {
            let path = FilePath::trusted(path.clone());
            let predicted = Reservation::of(&self.workspace, &locks, key)?
                .filter(|reservation| reservation.call == ticket.call)
                .and_then(|reservation| reservation.predicted);
            let (after, _) = self.state_of(&path)?;
            let own = match result {
                // What it left as it was, it did not write: a baseline must not move for nothing.
                ToolResult::Succeeded => {
                    after != *before || predicted.is_some() && after.digest() == predicted
                }
                ToolResult::Failed => {
                    after != *before && after.digest().is_some() && after.digest() == predicted
                }
            };
            if own {
                turn.wrote(&path, after)?;
                if let Some(digest) = after.digest() {
                    self.keep_text_of(turn, &path, digest)?;
                }
                if after != *before || predicted.is_some() {
                    lines.push(self.applied_line(&request, key, *before, after)?);
                }
            }
            Reservation::end(&locks, key, &ticket.call)?;
        }
        if !lines.is_empty() {
            self.workspace.ledger().append(&lines, Flush::No)?;
        }
        Ok(())
    }

    /// Keeps bytes that somebody else had saved and that the agent's own tool has overwritten, where its program tells what it
    /// replaced. Gives their id in recovery.
    pub fn keep_overwritten(
        &self,
        turn: &dyn Sightings,
        path: &FilePath,
        before: FileState,
        bytes: &[u8],
    ) -> Result<String> {
        let request = Request { workspace: &self.workspace, turn, tool: "" };
        let key = PathBuf::from(request.ledger_path(path));
        let _locks = self.locks_of(std::slice::from_ref(&key))?;
        let after = self.state_of(path)?.0;
        self.workspace.keep_overwritten(&key, [before, after], turn.agent(), bytes)
    }

    /// After a tool that may have changed files which it did not announce: looks at these files of the turn again.
    ///
    /// A change is the agent's own if the tool named the file and no other guarded agent made the file what it is, or is
    /// about to. Then the turn knows it from now on. Any other change is foreign: the turn's next write is refused.
    pub fn look_again(
        &self,
        turn: &dyn Sightings,
        tool: &str,
        files: &[(FilePath, Named)],
    ) -> Result<Vec<FilePath>> {
        let request = Request { workspace: &self.workspace, turn, tool };
        let (mut lines, mut foreign) = (Vec::new(), Vec::new());
        for (path, named) in files {
            let Some(sighting) = turn.get(path)? else { continue };
            let (before, after) = (sighting.baseline(Extent::Whole), self.state_of(path)?.0);
            if after == before || after == FileState::Unreadable {
                continue;
            }
            let key = PathBuf::from(request.ledger_path(path));
            if *named == Named::No || self.is_anothers(&request, &key, after)? {
                foreign.push(path.clone());
                continue;
            }
            turn.wrote(path, after)?;
            if let Some(digest) = after.digest() {
                self.keep_text_of(turn, path, digest)?;
            }
            lines.push(self.applied_line(&request, &key, before, after)?);
        }
        if !lines.is_empty() {
            self.workspace.ledger().append(&lines, Flush::No)?;
        }
        Ok(foreign)
    }

    /// The locks of these paths, whoever has reserved them.
    fn locks_of(&self, keys: &[PathBuf]) -> Result<StripeLocks> {
        let wait = self.workspace.settings().guard.lock_wait.0;
        let locks = self.workspace.stripes().acquire(keys.iter().map(PathBuf::as_path), wait)?;
        let path = || keys.first().cloned().unwrap_or_default();
        locks.ok_or_else(|| Fault::Locked { path: path(), waited_s: wait.as_secs() })
    }

    /// Whether another turn made the file what it is, or has reserved it.
    fn is_anothers(&self, request: &Request<'_>, key: &Path, state: FileState) -> Result<bool> {
        let locks = self.locks_of(&[key.to_owned()])?;
        if let Some(reservation) = Reservation::of(&self.workspace, &locks, key)?
            && (reservation.turn != *request.turn.id() || reservation.agent != *request.turn.agent())
        {
            return Ok(true);
        }
        let author = request.author_of(&key.display().to_string(), state)?;
        Ok(author.is_some_and(|by| by.agent != *request.turn.agent()))
    }

    /// The line of a change that the agent's own tool has made.
    fn applied_line(
        &self,
        request: &Request<'_>,
        key: &Path,
        before: FileState,
        after: FileState,
    ) -> Result<Entry> {
        let id = ChangeId::new(self.workspace.now())?;
        let mut payload = mutation_payload(&id, request.tool, key, before, after);
        payload["guarantee"] = serde_json::json!("reserved");
        Ok(Entry {
            time: self.workspace.now(),
            agent: Some(request.turn.agent().clone()),
            turn: Some(request.turn.id().clone()),
            action_type: ActionType::Mutation,
            payload,
            result: serde_json::json!({"status": "APPLIED"}),
        })
    }

    /// What a file is, and whether somebody was writing it all the time.
    fn state_of(&self, path: &FilePath) -> Result<(FileState, bool)> {
        let Some(spot) = self.workspace.spot_anywhere(path)? else { return Ok((FileState::Absent, false)) };
        Ok(match spot.steady(READ_WAIT)? {
            Steady::File(file) => (FileState::Present(file.hash()?), false),
            Steady::Busy(file) => (FileState::Present(file.hash()?), true),
            Steady::Nothing => (FileState::Absent, false),
            Steady::Unreadable | Steady::NotAFile => (FileState::Unreadable, false),
        })
    }

    fn is_file(&self, path: &FilePath) -> Result<bool> {
        let Some(spot) = self.workspace.spot_anywhere(path)? else { return Ok(true) };
        Ok(!matches!(spot.open()?, Found::NotAFile))
    }

    fn keep_text_of(&self, turn: &dyn Sightings, path: &FilePath, digest: Digest) -> Result<()> {
        let Some(spot) = self.workspace.spot_anywhere(path)? else { return Ok(()) };
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
}
