//! The gate: all calls that agents make, directly or through the tools of their own program.
//!
//! [`Gate::read`], [`Gate::write`] and their siblings do the work themselves. [`Gate::pre_tool_use`] and
//! [`Gate::post_tool_use`] surround a tool that does it: the first checks and reserves, the second settles the result.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::change::{Action, Change, Expected};
use crate::commit::AppliedChange;
use crate::conflict;
use crate::disk::{Found, Quiet};
use crate::edit::{self, Edit, EditBuffer};
use crate::fence::WriteFence;
use crate::folder;
pub use crate::git_rules::{CommitContent, GitEffect, GitStep};
use crate::guard::{admit, must_name_a_file};
use crate::look::{READ_WAIT, steady};
use crate::merge::{Merge, NoMerge};
use crate::open_turn;
use crate::own_commit::{self, CommitAnswer, CommitRequest};
use crate::part::{Part, Selection};
use crate::path::FilePath;
use crate::place::{LastLink, Located, Way};
use crate::recovery::RecoveryEntry;
use crate::refusal::{Outcome, Reason, Refused};
use crate::request::Request;
use crate::tool_use;
pub use crate::tool_use::{Ticket, ToolResult, ToolUse};
use crate::turn::{Asked, Extent, FileState, Session, Sighting, TEXT_PER_FILE, Turn, TurnState};
use crate::turn_life;
pub use crate::unfinished::Files;
use crate::unfinished::UnfinishedFiles;
use crate::view::{self, ViewChanges};
use crate::workspace::Workspace;
use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::name::{Agent, TurnId};
use tollgate_base::settings::Unfinished;

/// Up to this size, a file is read completely before the caller gets a byte, so that a slow caller does not keep other
/// programs from saving it. Larger files are streamed.
const READ_AT_ONCE: u64 = 16 << 20;

/// The result of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// The file.
    pub path: FilePath,
    /// The hash of the whole file, even if only a part was read.
    pub sha256: Digest,
    /// The size of the whole file in bytes.
    pub size: u64,
    /// The bytes of the part.
    pub bytes: Vec<u8>,
}

/// What an edit would make of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    /// The file.
    pub path: FilePath,
    /// The hash of the file.
    pub sha256: Digest,
    /// The current bytes.
    pub before: Vec<u8>,
    /// The bytes after the edit.
    pub after: Vec<u8>,
}

/// The calls that agents make. Clones share the workspace.
#[derive(Clone)]
pub struct Gate {
    workspace: Workspace,
    fences: Vec<WriteFence>,
}

impl Gate {
    /// A gate to this workspace.
    pub fn new(workspace: Workspace) -> Self {
        Self { workspace, fences: Vec::new() }
    }

    /// This gate for an agent that works on a task: it refuses every change once the fence finds a lost claim.
    #[must_use]
    pub fn fenced(mut self, fence: WriteFence) -> Self {
        self.fences.push(fence);
        self
    }

    /// The workspace.
    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    pub(crate) fn request<'a>(&'a self, turn: &'a dyn TurnState, tool: &'a str) -> Request<'a> {
        Request { root: &self.workspace, turn, tool, level: None, fences: &self.fences, removed: &[] }
    }

    /// Begins a turn in this process.
    pub fn begin_turn(&self, agent: Agent) -> Result<Turn> {
        self.begin_turn_in(agent, Session::default())
    }

    /// Begins a turn of a session in this process.
    pub fn begin_turn_in(&self, agent: Agent, session: Session) -> Result<Turn> {
        let turn = Turn::begin_in(TurnId::new()?, agent, session);
        self.record_turn_start(&turn).map(|()| turn)
    }

    /// Ends a turn. Only its session remembers what it knew.
    pub fn end_turn(&self, turn: Turn) -> Result<()> {
        self.record_turn_end(&turn)
    }

    /// A turn that began elsewhere: writes its ledger line.
    pub fn record_turn_start(&self, turn: &dyn TurnState) -> Result<()> {
        self.record_asked_turn(turn, Asked::default())
    }

    /// The same, with what the agent's program says of who asked for it.
    pub fn record_asked_turn(&self, turn: &dyn TurnState, asked: Asked) -> Result<()> {
        turn_life::begins(&self.workspace, turn, asked)
    }

    /// A turn ends that began elsewhere: keeps its record, and writes its ledger line.
    pub fn record_turn_end(&self, turn: &dyn TurnState) -> Result<()> {
        turn_life::ends(&self.workspace, turn)
    }

    /// The hash of the turn's first successful read of a file, for any spelling of its path. Does not read the file.
    pub fn get_initial_hash(&self, turn: &dyn TurnState, path: impl AsRef<Path>) -> Result<Option<Digest>> {
        let known = self.sighting(turn, path)?;
        Ok(known.and_then(|(_, sighting)| sighting.initial()))
    }

    /// The file to which a path leads, and what the turn knows of it. If the path led to another file when the agent last
    /// used it, what the turn knows of that one.
    pub fn sighting(
        &self,
        turn: &dyn TurnState,
        path: impl AsRef<Path>,
    ) -> Result<Option<(FilePath, Sighting)>> {
        let Way { path, names, .. } = self.workspace.follow(path.as_ref())?;
        turn.about_to_change(&names, &path)?;
        Ok(turn.get(&path)?.map(|sighting| (path, sighting)))
    }

    /// Reads a file, or a part of it, and records what the agent saw.
    pub fn read(&self, turn: &dyn TurnState, path: impl AsRef<Path>, part: Part) -> Result<Outcome<Read>> {
        let mut bytes = Vec::new();
        let read = self.read_to(turn, path, part, &mut bytes)?;
        Ok(read.map(|read| Read { bytes, ..read }))
    }

    /// Like [`Gate::read`], but streams the bytes to a writer.
    pub fn read_to(
        &self,
        turn: &dyn TurnState,
        path: impl AsRef<Path>,
        part: Part,
        sink: &mut dyn Write,
    ) -> Result<Outcome<Read>> {
        let (root, given, since) = (self.workspace(), path.as_ref(), self.workspace.now());
        let Way { path, names, .. } = match root.locate(given, LastLink::Follow)? {
            Located::Inside(place) => place.way,
            Located::Outside(path) => return Ok(Outcome::refused(path, Reason::Outside)),
            Located::Root(path) => return Ok(Outcome::refused(path, Reason::NotAFile)),
        };
        must_name_a_file(root, given)?;
        let (found, quiet) = match root.spot_anywhere(&path)? {
            Some(spot) => steady(&spot, turn.get(&path)?.is_some())?,
            None => (Found::Nothing, Quiet::Held),
        };
        let mut file = match found {
            Found::File(file) => file,
            Found::NotAFile => return Ok(Outcome::refused(path, Reason::NotAFile)),
            Found::Nothing => {
                turn.observe(&path, FileState::Absent, Extent::Whole)?;
                turn.used(&names, &path)?;
                return match fs::symlink_metadata(&path) {
                    Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                        Err(error).at("find", &path)
                    }
                    _ => Err(path.missing()),
                };
            }
            Found::Unreadable => {
                turn.observe(&path, FileState::Unreadable, Extent::Whole)?;
                turn.used(&names, &path)?;
                return Err(io::Error::from(io::ErrorKind::PermissionDenied)).at("read", &path);
            }
        };
        let size = file.len();
        let mut selection = Selection::new(part);
        let mut feed = |chunk: &[u8]| selection.feed(chunk, sink).at("hand out", &path);
        // Small files are hashed faster than a stamp is kept.
        let stamp = (size > TEXT_PER_FILE as u64 && quiet == Quiet::Held).then(|| file.stamp()).flatten();
        let stamp = stamp.filter(|stamp| stamp.is_settled(root.now()));
        let unchanged = match &stamp {
            Some(stamp) => turn.stamped(&path, stamp)?,
            None => None,
        };
        let sha256 = if let Some(digest) = unchanged {
            file.let_go();
            file.copy(feed)?;
            // If another program has written the file in the meantime, a later write is refused, and no update is lost.
            digest
        } else if size <= READ_AT_ONCE {
            let (bytes, digest) = file.read()?;
            file.let_go();
            if size <= TEXT_PER_FILE as u64 {
                turn.keep_text(digest, &bytes)?;
            }
            feed(&bytes)?;
            digest
        } else {
            file.let_go();
            file.stream(feed)?
        };
        if let (Some(stamp), None) = (&stamp, unchanged) {
            file.refresh()?;
            // Otherwise another program has written it since.
            if file.stamp().as_ref() == Some(stamp) {
                turn.keep_stamp(&path, stamp, sha256)?;
            }
        }
        let shown = selection.finish(sink).at("hand out", &path)?;
        let (state, now) = (FileState::Present(sha256), root.now());
        turn.was_shown(&path, state, shown, now)?;
        open_turn::read(root, turn.id(), &path, (state, shown), since);
        turn.used(&names, &path)?;
        Ok(Outcome::Done(Read { path, sha256, size, bytes: Vec::new() }))
    }

    /// Reads a file without recording the read in any turn. A file that is too large to be edited is a fault.
    pub fn peek(&self, path: impl AsRef<Path>) -> Result<Outcome<Read>> {
        let (path, nobody) = (path.as_ref(), Turn::begin(TurnId::new()?, "nobody".parse()?));
        let mut bytes = EditBuffer::default();
        match self.read_to(&nobody, path, Part::Whole, &mut bytes) {
            Err(Fault::Io { source, .. }) if source.kind() == io::ErrorKind::FileTooLarge => {
                Err(edit::too_large(path))
            }
            read => Ok(read?.map(|read| Read { bytes: bytes.0, ..read })),
        }
    }

    /// What these edits would make of a file. Changes and records nothing.
    ///
    /// An agent that sees a diff has not seen the whole file, so a preview does not count as a read. If it did, the agent
    /// could overwrite changes that it has not seen.
    pub fn preview(&self, path: impl AsRef<Path>, edits: &[Edit]) -> Result<Outcome<Preview>> {
        let Read { path, sha256, bytes: before, .. } = match self.peek(path)? {
            Outcome::Done(read) => read,
            Outcome::Refused(refused) => return Ok(Outcome::Refused(refused)),
        };
        Ok(match edit::apply(before.clone(), edits)? {
            Ok(after) => Outcome::Done(Preview { path, sha256, before, after }),
            Err(reason) => Outcome::refused(path, reason),
        })
    }

    /// Writes a file. Creates it if it does not exist.
    pub fn write(
        &self,
        turn: &dyn TurnState,
        path: impl Into<PathBuf>,
        bytes: impl Into<Vec<u8>>,
        expected: Expected,
    ) -> Result<Outcome<AppliedChange>> {
        self.one(turn, "write_file", Change::new(path, Action::Write(bytes.into())).expecting(expected))
    }

    /// Creates a file that must not exist yet.
    pub fn create(
        &self,
        turn: &dyn TurnState,
        path: impl Into<PathBuf>,
        bytes: impl Into<Vec<u8>>,
    ) -> Result<Outcome<AppliedChange>> {
        self.one(turn, "create_file", Change::new(path, Action::Create(bytes.into())))
    }

    /// Replaces old text with new text, several edits as one.
    pub fn edit(
        &self,
        turn: &dyn TurnState,
        path: impl Into<PathBuf>,
        edits: Vec<Edit>,
        expected: Expected,
    ) -> Result<Outcome<AppliedChange>> {
        self.one(turn, "edit_file", Change::new(path, Action::Edit(edits)).expecting(expected))
    }

    /// Deletes a file.
    pub fn delete(
        &self,
        turn: &dyn TurnState,
        path: impl Into<PathBuf>,
        expected: Expected,
    ) -> Result<Outcome<AppliedChange>> {
        self.one(turn, "delete_file", Change::new(path, Action::Delete).expecting(expected))
    }

    /// Moves a file to another path, which must be free.
    pub fn move_file(
        &self,
        turn: &dyn TurnState,
        path: impl Into<PathBuf>,
        to: impl Into<PathBuf>,
        expected: Expected,
    ) -> Result<Outcome<AppliedChange>> {
        self.one(turn, "move_file", Change::new(path, Action::MoveTo(to.into())).expecting(expected))
    }

    /// Makes all of these changes or none.
    pub fn apply(&self, turn: &dyn TurnState, changes: Vec<Change>) -> Result<Outcome<Vec<AppliedChange>>> {
        self.apply_as(turn, "write_files", changes)
    }

    /// Like [`Gate::apply`], under the name of another tool in the ledger.
    pub fn apply_as(
        &self,
        turn: &dyn TurnState,
        tool: &str,
        changes: Vec<Change>,
    ) -> Result<Outcome<Vec<AppliedChange>>> {
        match admit(self.request(turn, tool), changes)? {
            Outcome::Done(permit) => permit.commit(),
            Outcome::Refused(refused) => Ok(Outcome::Refused(refused)),
        }
    }

    fn one(&self, turn: &dyn TurnState, tool: &str, change: Change) -> Result<Outcome<AppliedChange>> {
        match self.apply_as(turn, tool, vec![change])?.map(|mut applied| applied.pop()) {
            Outcome::Done(Some(applied)) => Ok(Outcome::Done(applied)),
            Outcome::Done(None) => Err(Fault::invalid("nothing was changed")),
            Outcome::Refused(refused) => Ok(Outcome::Refused(refused)),
        }
    }

    /// Writes bytes from recovery back to their path. The bytes that they replace go to recovery.
    pub fn restore(&self, turn: &dyn TurnState, id: &str) -> Result<Outcome<AppliedChange>> {
        let (entry, bytes) = self.workspace.recovered(id)?;
        let spot = self.workspace.spot_anywhere(&entry.path)?;
        let expected = match spot.map(|spot| spot.steady(READ_WAIT)).transpose()? {
            Some((Found::File(file), _)) => Expected::Hash(file.hash()?),
            _ => Expected::Absent,
        };
        self.restore_over(turn, &entry, bytes, expected)
    }

    /// Restores an entry of recovery over exactly this state.
    pub fn restore_over(
        &self,
        turn: &dyn TurnState,
        entry: &RecoveryEntry,
        bytes: Vec<u8>,
        expected: Expected,
    ) -> Result<Outcome<AppliedChange>> {
        self.one(turn, "restore", Change::new(entry.path.as_path(), Action::Write(bytes)).expecting(expected))
    }

    /// Commits this agent's own changes in git.
    pub fn commit_own(&self, request: &CommitRequest<'_>) -> Result<Outcome<CommitAnswer>> {
        own_commit::commit(&self.workspace, request)
    }

    /// Merges the newest refused write to this file with what is on disk: a write of this agent, or of any agent.
    ///
    /// The merge shows all that is on disk, so for the turn it is a read of the file.
    pub fn merge(
        &self,
        turn: &dyn TurnState,
        path: impl AsRef<Path>,
        agent: Option<&Agent>,
    ) -> Result<std::result::Result<Merge, NoMerge>> {
        let Located::Inside(place) = self.workspace.locate(path.as_ref(), LastLink::Follow)? else {
            return Ok(Err(NoMerge::NothingRefused));
        };
        let Way { path, names, .. } = place.way;
        let merge = conflict::merge_newest(&self.workspace, &path, &self.workspace.key(&path), agent)?;
        if let Ok(merge) = &merge {
            turn.keep_text(merge.disk, &merge.read)?;
            let now = self.workspace.now();
            let shown = (FileState::Present(merge.disk), Extent::Whole);
            turn.was_shown(&path, shown.0, shown.1, now)?;
            open_turn::read(&self.workspace, turn.id(), &path, shown, now);
            turn.used(&names, &path)?;
        }
        Ok(merge)
    }

    /// Writes a merge, if the file on disk is still the one that was merged.
    pub fn write_merge(&self, turn: &dyn TurnState, merge: Merge) -> Result<Outcome<AppliedChange>> {
        let change = Change::new(merge.path.as_path(), Action::Write(merge.content.into_bytes()));
        let outcome = self.one(turn, conflict::MERGE_TOOL, change.expecting(Expected::Hash(merge.disk)))?;
        if let Outcome::Done(_) = &outcome {
            conflict::forget_texts(&self.workspace, merge.line);
        }
        Ok(outcome)
    }

    /// Keeps what a refused call of an agent's own tool wanted to write. `wanted` makes it from the text that the agent knew.
    pub fn keep_refused(
        &self,
        turn: &dyn TurnState,
        tool: &str,
        refused: &mut Refused,
        mut wanted: impl FnMut(&FilePath, Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<()> {
        let request = self.request(turn, tool);
        for refusal in &mut refused.refusals {
            let base = refusal.hashes().0.map(|digest| turn.text(digest)).transpose()?.flatten();
            if let Some(wanted) = wanted(&refusal.path, base.as_deref()) {
                conflict::keep(&request, refusal, &wanted);
            }
        }
        Ok(())
    }

    /// Makes the changes of a command that ran in its own view of the workspace: all of them, or none.
    pub fn commit_view(
        &self,
        turn: &dyn TurnState,
        changes: ViewChanges,
    ) -> Result<Outcome<Vec<AppliedChange>>> {
        view::commit(Request { level: Some(changes.level), ..self.request(turn, "run") }, changes)
    }

    /// Creates a folder and its missing parents. Does nothing if it exists.
    pub fn create_folder(&self, turn: &dyn TurnState, path: impl AsRef<Path>) -> Result<Outcome<FilePath>> {
        folder::create(&self.request(turn, "create_directory"), path.as_ref())
    }

    /// Moves a folder to another path, which must be free. The turn still knows the files in it.
    pub fn move_folder(
        &self,
        turn: &dyn TurnState,
        path: impl AsRef<Path>,
        to: impl AsRef<Path>,
    ) -> Result<Outcome<FilePath>> {
        folder::move_to(&self.request(turn, "move_file"), path.as_ref(), to.as_ref())
    }

    /// Before a tool runs: compares every file that it will change with what the turn knows, and reserves all of them.
    pub fn pre_tool_use(&self, turn: &dyn TurnState, tool_use: &ToolUse) -> Result<Outcome<Ticket>> {
        tool_use::before(&self.request(turn, &tool_use.tool), tool_use)
    }

    /// Refuses a tool call that would make changes which the gate refuses. Reserves nothing: the tool will not make them now.
    pub fn refuse_tool_use(&self, turn: &dyn TurnState, tool_use: &ToolUse) -> Result<Outcome<()>> {
        tool_use::refuse_only(&self.request(turn, &tool_use.tool), tool_use)
    }

    /// The files in a folder that a change of the whole folder would change, and that are in no commit.
    pub fn unfinished_below(
        &self,
        turn: &dyn TurnState,
        folder: &Path,
        files: Files,
    ) -> Result<Vec<PathBuf>> {
        if self.workspace.settings().guard.unfinished == Unfinished::Allow {
            return Ok(Vec::new());
        }
        UnfinishedFiles::default().below(&self.request(turn, ""), folder, files)
    }

    /// After the tool: remembers what it read and wrote, and ends its reservations.
    pub fn post_tool_use(&self, turn: &dyn TurnState, ticket: Ticket, result: ToolResult) -> Result<()> {
        tool_use::after(&self.workspace, turn, ticket, result)
    }

    /// Keeps bytes that another program saved and the agent's own tool overwrote, if its program reports what it replaced.
    /// Returns their id in recovery.
    pub fn keep_overwritten(
        &self,
        turn: &dyn TurnState,
        path: &FilePath,
        before: FileState,
        bytes: &[u8],
    ) -> Result<String> {
        tool_use::keep_overwritten(&self.request(turn, ""), path, before, bytes)
    }

    /// After a tool that may have changed files without announcing them, and that began at this time: looks at these files again. What
    /// nobody else made in the meantime counts as work of the agent, which it may destroy.
    ///
    /// A change is the agent's own if the ledger says so: the tool has made it with guarded writes. Then the turn knows the new
    /// state. Any other change is foreign: the turn's next write is refused.
    pub fn look_again(&self, turn: &dyn TurnState, files: &[FilePath], since: Timestamp) -> Result<()> {
        tool_use::look_again(&self.request(turn, ""), files, since)
    }
}

#[cfg(test)]
mod tests;
