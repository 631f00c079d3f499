//! The gate: all calls that agents make, directly or through the tools of their own program.
//!
//! [`Gate::read`], [`Gate::write`] and their siblings do the work themselves. [`Gate::pre_tool_use`] and
//! [`Gate::post_tool_use`] surround a tool that does it: the first checks and reserves, the second settles the result.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::change::{Action, Change, Expected};
use crate::commit::Applied;
use crate::disk::Steady;
use crate::edit::Edit;
use crate::folder_change;
use crate::guard::{Admission, READ_WAIT, admit};
use crate::outcome::Outcome;
use crate::part::Part;
use crate::path::FilePath;
use crate::preview::{self, Preview};
pub use crate::read::Read;
use crate::read::{read, read_to};
use crate::recovery;
use crate::request::Request;
use crate::tool_use;
pub use crate::tool_use::{Mention, Ticket, ToolChange, ToolResult, ToolUse};
use crate::turn::{FileState, Session, Turn, TurnState};
use crate::workspace::Workspace;
use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};
use tollgate_base::event::{Event, TurnMark};
use tollgate_base::name::{Agent, TurnId};
use tollgate_base::settings::Durability;

/// The old name.
pub use crate::tool_use::Mention as Named;

/// The calls that agents make. Clones share the workspace.
#[derive(Clone)]
pub struct Gate {
    workspace: Workspace,
}

impl Gate {
    /// A gate to this workspace.
    pub fn new(workspace: Workspace) -> Self {
        Self { workspace }
    }

    /// The workspace.
    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    fn request<'a>(&'a self, turn: &'a dyn TurnState, tool: &'a str) -> Request<'a> {
        Request { root: self.workspace.root(), turn, tool }
    }

    /// Begins a turn in this process.
    pub fn begin_turn(&self, agent: Agent) -> Result<Turn> {
        self.begin_turn_in(agent, Session::default())
    }

    /// Begins a turn of a session in this process.
    pub fn begin_turn_in(&self, agent: Agent, session: Session) -> Result<Turn> {
        let turn = Turn::begin_in(TurnId::new()?, agent, session);
        self.record_turn_start(&turn)?;
        Ok(turn)
    }

    /// Ends a turn. Only its session remembers what it knew.
    pub fn end_turn(&self, turn: Turn) -> Result<()> {
        self.record_turn_end(&turn)?;
        turn.end();
        Ok(())
    }

    /// Writes the ledger line of a turn that began elsewhere.
    pub fn record_turn_start(&self, turn: &dyn TurnState) -> Result<()> {
        self.record(turn, Event::TurnStarted(TurnMark {}))
    }

    /// Writes the ledger line of a turn that ended elsewhere.
    pub fn record_turn_end(&self, turn: &dyn TurnState) -> Result<()> {
        self.record(turn, Event::TurnEnded(TurnMark {}))
    }

    fn record(&self, turn: &dyn TurnState, event: Event) -> Result<()> {
        let entry = self.request(turn, "").author().entry(self.workspace.root(), event);
        self.workspace.ledger().append(&[entry], Durability::Fast).map(drop)
    }

    /// The hash of a file when the turn first saw it, for any spelling of its path. Does not read the file.
    pub fn get_initial_hash(&self, turn: &dyn TurnState, path: impl AsRef<Path>) -> Result<Option<Digest>> {
        let path = self.workspace.canonical(path)?;
        Ok(turn.get(&path)?.and_then(|sighting| sighting.initial().digest()))
    }

    /// Reads a file, or a part of it, and records what the agent saw.
    pub fn read(&self, turn: &dyn TurnState, path: impl AsRef<Path>, part: Part) -> Result<Outcome<Read>> {
        read(self.workspace.root(), turn, path.as_ref(), part)
    }

    /// Like [`Gate::read`], but streams the bytes to a writer.
    pub fn read_to(
        &self,
        turn: &dyn TurnState,
        path: impl AsRef<Path>,
        part: Part,
        sink: &mut dyn Write,
    ) -> Result<Outcome<Read>> {
        read_to(self.workspace.root(), turn, path.as_ref(), part, sink)
    }

    /// Reads a file without recording the read in any turn.
    pub fn peek(&self, path: impl AsRef<Path>) -> Result<Outcome<Read>> {
        preview::peek(self.workspace.root(), path.as_ref())
    }

    /// What these edits would make of a file. Changes and records nothing.
    pub fn preview(&self, path: impl AsRef<Path>, edits: &[Edit]) -> Result<Outcome<Preview>> {
        preview::preview(self.workspace.root(), path.as_ref(), edits)
    }

    /// Writes a file. Creates it if it does not exist.
    pub fn write(
        &self,
        turn: &dyn TurnState,
        path: impl Into<PathBuf>,
        bytes: impl Into<Vec<u8>>,
        expected: Expected,
    ) -> Result<Outcome<Applied>> {
        self.one(turn, "write_file", Change::new(path, Action::Write(bytes.into())).expecting(expected))
    }

    /// Creates a file that must not exist yet.
    pub fn create(
        &self,
        turn: &dyn TurnState,
        path: impl Into<PathBuf>,
        bytes: impl Into<Vec<u8>>,
    ) -> Result<Outcome<Applied>> {
        self.one(turn, "create_file", Change::new(path, Action::Create(bytes.into())))
    }

    /// Replaces old text with new text, several edits as one.
    pub fn edit(
        &self,
        turn: &dyn TurnState,
        path: impl Into<PathBuf>,
        edits: Vec<Edit>,
        expected: Expected,
    ) -> Result<Outcome<Applied>> {
        self.one(turn, "edit_file", Change::new(path, Action::Edit(edits)).expecting(expected))
    }

    /// Deletes a file.
    pub fn delete(
        &self,
        turn: &dyn TurnState,
        path: impl Into<PathBuf>,
        expected: Expected,
    ) -> Result<Outcome<Applied>> {
        self.one(turn, "delete_file", Change::new(path, Action::Delete).expecting(expected))
    }

    /// Moves a file to another path, which must be free.
    pub fn move_file(
        &self,
        turn: &dyn TurnState,
        path: impl Into<PathBuf>,
        to: impl Into<PathBuf>,
        expected: Expected,
    ) -> Result<Outcome<Applied>> {
        self.one(turn, "move_file", Change::new(path, Action::MoveTo(to.into())).expecting(expected))
    }

    /// Makes all of these changes or none.
    pub fn apply(&self, turn: &dyn TurnState, changes: Vec<Change>) -> Result<Outcome<Vec<Applied>>> {
        self.apply_as(turn, "write_files", changes)
    }

    /// Makes all of these changes or none. The ledger names this tool.
    pub fn apply_as(
        &self,
        turn: &dyn TurnState,
        tool: &str,
        changes: Vec<Change>,
    ) -> Result<Outcome<Vec<Applied>>> {
        match admit(self.request(turn, tool), changes)? {
            Admission::Granted(permit) => permit.commit(),
            Admission::Refused(refused) => Ok(Outcome::Refused(refused)),
        }
    }

    fn one(&self, turn: &dyn TurnState, tool: &str, change: Change) -> Result<Outcome<Applied>> {
        match self.apply_as(turn, tool, vec![change])? {
            Outcome::Done(mut applied) => match applied.pop() {
                Some(applied) => Ok(Outcome::Done(applied)),
                None => Err(Fault::invalid("nothing was changed")),
            },
            Outcome::Refused(refused) => Ok(Outcome::Refused(refused)),
        }
    }

    /// Writes bytes from recovery back to their path. The bytes that they replace go to recovery.
    pub fn restore(&self, turn: &dyn TurnState, id: &str) -> Result<Outcome<Applied>> {
        let root = self.workspace.root();
        let (entry, bytes) = recovery::read(root, id)?;
        let spot = root.spot_anywhere(&entry.path)?;
        let expected = match spot.map(|spot| spot.steady(READ_WAIT)).transpose()? {
            Some(Steady::File(file) | Steady::Busy(file)) => Expected::Hash(file.hash()?),
            _ => Expected::Absent,
        };
        self.one(turn, "restore", Change::new(entry.path.as_path(), Action::Write(bytes)).expecting(expected))
    }

    /// Creates a folder and its missing parents. Does nothing if it exists.
    pub fn create_folder(&self, turn: &dyn TurnState, path: impl AsRef<Path>) -> Result<Outcome<FilePath>> {
        folder_change::create(&self.request(turn, "create_directory"), path.as_ref())
    }

    /// Moves a folder to another path, which must be free. The turn still knows the files in it.
    pub fn move_folder(
        &self,
        turn: &dyn TurnState,
        path: impl AsRef<Path>,
        to: impl AsRef<Path>,
    ) -> Result<Outcome<FilePath>> {
        folder_change::move_to(&self.request(turn, "move_file"), path.as_ref(), to.as_ref())
    }

    /// Before a tool runs: compares every file that it will change with what the turn knows, and reserves all of them.
    pub fn pre_tool_use(&self, turn: &dyn TurnState, tool_use: &ToolUse) -> Result<Outcome<Ticket>> {
        tool_use::before(self.workspace.root(), turn, tool_use)
    }

    /// After the tool: remembers what it read and wrote, and ends its reservations.
    pub fn post_tool_use(&self, turn: &dyn TurnState, ticket: Ticket, result: ToolResult) -> Result<()> {
        tool_use::after(self.workspace.root(), turn, ticket, result)
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
        tool_use::keep_overwritten(self.workspace.root(), turn, path, before, bytes)
    }

    /// After a tool that may have changed files without announcing them: looks at these files again. Returns those with
    /// foreign changes.
    ///
    /// A change is the agent's own if the tool mentioned the file and no other guarded agent wrote these bytes or has
    /// reserved the file. Then the turn knows the new state. Any other change is foreign: the turn's next write is refused.
    pub fn look_again(
        &self,
        turn: &dyn TurnState,
        tool: &str,
        files: &[(FilePath, Mention)],
    ) -> Result<Vec<FilePath>> {
        tool_use::look_again(self.workspace.root(), turn, tool, files)
    }
}
