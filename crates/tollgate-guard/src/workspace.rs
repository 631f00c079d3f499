//! The workspace: a folder of files, its settings, and tollgate's state in `.tollgate/`.
//!
//! Opening a workspace heals what a crash left. Changes by agents go through [`crate::gate`].

use std::ffi::OsString;
use std::fmt;
use std::fs::Metadata;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;

pub use crate::conflict::RefusedTexts;
use crate::conflict::{self, Conflict, RefusedCommand};
use crate::content::Content;
use crate::folder::{self, Listing};
use crate::git_rules;
use crate::heal::{self, heal};
use crate::notes;
use crate::open_turn;
use crate::other_tree;
pub use crate::other_tree::{Beginning, TreesBeside};
use crate::path::FilePath;
pub use crate::place::canonical;
use crate::place::{LastLink, Located};
use crate::recovery::{self, RecoveryEntry, Swept};
use crate::refusal::{Outcome, Reason, Refused};
use crate::retention;
pub use crate::root::{Options, Root, canonical_root};
use crate::session::Known;
use crate::shared_turn::SharedTurns;
pub use crate::state_folder::{
    STATE_FOLDER, STATE_VERSION, find_root, has_state, is_checkout, read_settings,
};
use crate::turn::{Extent, FileState, TurnState};
use crate::turn_life;
use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};
use tollgate_base::ledger::Line;
use tollgate_base::name::Agent;

/// An open workspace. Clones share it, and threads may too.
#[derive(Clone)]
pub struct Workspace(Arc<Root>);

impl Workspace {
    /// Opens the folder, creates its state if there is none, and heals what a crash left.
    pub fn open(folder: impl AsRef<Path>, options: Options) -> Result<Self> {
        let root = Root::open(folder.as_ref(), options)?;
        match heal(&root) {
            // `verify` and `doctor` report a damaged ledger. It must not stop all work, only the healing that needs it.
            Err(Fault::Damaged { path, .. }) if path.extension().is_some_and(|end| end == "jsonl") => {}
            // Paths that a living process holds are not this process's business.
            healed => drop(healed?),
        }
        Ok(Self(Arc::new(root)))
    }

    /// Refuses a path into tollgate's own state, for callers that hide it: it holds what others have deleted, and what is
    /// known about other agents. Every other path is allowed, and so are the tasks that an agent has claimed.
    pub fn shows(&self, path: impl AsRef<Path>) -> Result<Outcome<()>> {
        let path = self.canonical(path)?;
        let hidden = self.is_hidden(path.as_path());
        Ok(if hidden { Outcome::refused(path, Reason::Protected) } else { Outcome::Done(()) })
    }

    /// The file in the workspace to which a path leads, for somebody who may not look anywhere else.
    pub fn inside(&self, path: impl AsRef<Path>) -> Result<Outcome<FilePath>> {
        Ok(match self.locate(path.as_ref(), LastLink::Follow)? {
            Located::Inside(place) if self.is_hidden(place.way.path.as_path()) => {
                Outcome::refused(place.way.path, Reason::Protected)
            }
            Located::Inside(place) => Outcome::Done(place.way.path),
            Located::Outside(path) => Outcome::refused(path, Reason::Outside),
            Located::Root(path) => Outcome::refused(path, Reason::NotAFile),
        })
    }

    /// A session began there: its agent stays in that working tree.
    pub fn session_began(&self, session: &dyn Known, beginning: &Beginning) -> Result<()> {
        other_tree::session_began(self, session, beginning)
    }

    /// The other working trees that a command in a view of its own must not change, although they are not in the view.
    pub fn trees_beside(&self, session: &dyn Known) -> Result<TreesBeside> {
        other_tree::trees_beside(self, session)
    }

    /// The stashes whose whole change was shown to the agent, as files that its turn can know. `is_shown` says so of the changed lines.
    pub fn shown_stashes(&self, is_shown: impl Fn(&str) -> bool) -> Result<Vec<(FilePath, FileState)>> {
        git_rules::shown_stashes(self, is_shown)
    }

    /// What an agent should hear now, and has not heard in this turn: which files that it has read were changed by others, and which agents
    /// work on the same files. Empty if there is nothing. To be asked for only if the agent gets to see it. Paths in this folder are
    /// shown relative to it.
    pub fn notes(&self, turn: &dyn TurnState, folder: &Path) -> Result<String> {
        notes::notes(self, turn, folder)
    }

    /// A command that names this file has shown all of it to the agent: these bytes, which it read after this time, in nanoseconds since
    /// 1970.
    pub fn was_shown(&self, turn: &dyn TurnState, path: &FilePath, digest: Digest, since: i128) {
        let since = Timestamp::from_nanosecond(since).unwrap_or(Timestamp::UNIX_EPOCH);
        open_turn::read(self, turn.id(), path, (FileState::Present(digest), Extent::Whole), since);
    }

    /// Keeps the records of turns that nobody has ended. To be called before another turn begins there, which deletes them.
    pub fn record_forgotten_turns(&self, turns: &SharedTurns) -> Result<()> {
        turn_life::keep_forgotten(self, turns)
    }

    /// A time of the file system, in nanoseconds since 1970.
    pub fn time_of(&self, nanoseconds: i128) -> Timestamp {
        Timestamp::from_nanosecond(nanoseconds).unwrap_or_else(|_| self.now())
    }

    /// A command begins in a turn of its own, which has no lines in the ledger.
    pub fn lone_turn_begins(&self, turn: &dyn TurnState) -> Result<()> {
        turn_life::lone_begins(self, turn)
    }

    /// The command has ended. Keeps the record of its turn.
    pub fn lone_turn_ends(&self, turn: &dyn TurnState) -> Result<()> {
        turn_life::lone_ends(self, turn)
    }

    /// Lists a folder.
    pub fn list(&self, path: impl AsRef<Path>) -> Result<Outcome<Listing>> {
        folder::list(self, path.as_ref())
    }

    /// The metadata of a file or folder. Follows a link that stays in the workspace.
    pub fn look_at(&self, path: impl AsRef<Path>) -> Result<Outcome<Metadata>> {
        folder::look_at(self, path.as_ref())
    }

    /// Makes all late-write checks that are due, and deletes recovery files that are too old or too many.
    ///
    /// Long-lived processes call this on a timer, the command line calls it after each write.
    pub fn sweep(&self) -> Result<Swept> {
        heal::sweep(self)
    }

    /// The files in recovery, newest first. Includes replaced files that still await their late-write check.
    pub fn recovery(&self) -> Result<Vec<RecoveryEntry>> {
        recovery::list(self)
    }

    /// One file in recovery, with its bytes.
    pub fn recovered(&self, id: &str) -> Result<(RecoveryEntry, Vec<u8>)> {
        match recovery::read(self, id) {
            Err(Fault::Missing { .. }) if heal::was_made(self, id)? => Err(Fault::no_longer_kept(id)),
            read => read,
        }
    }

    /// The bytes of an entry of [`recovery`](Self::recovery), and their hash; `None` if it was deleted in the meantime.
    pub fn recovered_entry(&self, entry: &RecoveryEntry) -> Result<Option<(RecoveryEntry, Vec<u8>)>> {
        recovery::read_entry(self, entry.clone())
    }

    /// The bytes with this hash, if they are kept: replaced, refused, or written late.
    pub fn content(&self, digest: Digest) -> Result<Content> {
        recovery::find(self, digest)
    }

    /// The number of bytes that all that is kept takes.
    pub fn history_size(&self) -> Result<u64> {
        retention::used(self)
    }

    /// The details of the refused write with this ledger line, if they are still kept.
    pub fn conflict(&self, seq: u64) -> Result<Option<Conflict>> {
        conflict::conflict(self, seq)
    }

    /// Keeps a refused command and the folder in which it ran, if running it again may help. Whether it is kept.
    pub fn keep_refused_command(
        &self,
        agent: &Agent,
        refused: &Refused,
        words: &[OsString],
        folder: &Path,
    ) -> Result<bool> {
        conflict::keep_command(self, agent, refused, words, folder)
    }

    /// The refused command with this ledger line, or the newest one: of this agent, or of any. `None` if none is kept.
    pub fn refused_command(
        &self,
        line: Option<u64>,
        agent: Option<&Agent>,
    ) -> Result<Option<RefusedCommand>> {
        conflict::refused_command(self, line, agent)
    }

    /// Notes that a person has dismissed a refusal, so that nobody is asked to do anything about it. `line` is its ledger line.
    pub fn dismiss(&self, line: &Line) -> Result<()> {
        conflict::dismiss(self, line)
    }

    /// What the agent of a refused write had read, what was on disk, and what it wanted to write. `line` is the ledger line
    /// of the refusal; `None` if the texts are no longer kept, or this is another line.
    pub fn refused_texts(&self, line: &Line) -> Result<Option<RefusedTexts>> {
        conflict::texts(self, line)
    }
}

impl fmt::Debug for Workspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Workspace").field(&self.path()).finish()
    }
}

impl Deref for Workspace {
    type Target = Root;

    fn deref(&self) -> &Root {
        &self.0
    }
}
