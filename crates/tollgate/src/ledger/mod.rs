//! The ledger: what happened in a workspace, one JSON object a line, never changed afterwards.
//!
//! Invariants:
//! - lines are only ever added at the end, under one lock, all lines of one call or none;
//! - `seq` starts at 1 and goes up by one; `prev` is the SHA-256 of the line before, without its newline, and the chain
//!   goes on from file to file;
//! - `ledger.jsonl` is the file that grows; when it is long it becomes `ledger-<first seq>.jsonl`, flushed, and is never
//!   touched again;
//! - no byte is dropped: a tail that a power cut has damaged is moved to `ledger.torn-<seq>`, and a line says so.
//!
//! `append` writes, `read` and `page` read from the end, `follow` reads what is added, `verify` reads everything, `head`
//! remembers the end elsewhere.
//!
//! Limit: the chain shows that a line was changed by someone who did not recompute all that follow. Whoever recomputes
//! them, or cuts the end off, is found only by the remembered head, which a process of the same user can change too.

mod append;
mod follow;
mod head;
mod page;
mod read;
mod verify;

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::digest::Digest;
use crate::error::{At, Fault, Result};
use crate::lock::Lock;
use crate::name::{Agent, TurnId};

pub use follow::{Followed, Follower};
pub use page::Page;
pub use read::NewestFirst;
pub use verify::{Problem, Verdict, Wrong};

/// The longest an append waits for others. One takes less than a millisecond, plus a flush: whoever holds the lock
/// for so long hangs.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// What happened, before it has its place in the ledger.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// When.
    pub time: Timestamp,
    /// Who did it, if it was an agent.
    pub agent: Option<Agent>,
    /// In which turn, if in one.
    pub turn: Option<TurnId>,
    /// What kind of thing.
    pub action_type: ActionType,
    /// What was asked for.
    pub payload: Value,
    /// What came of it.
    pub result: Value,
}

/// An entry in other hands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Said<'a, P, R> {
    pub(crate) time: Timestamp,
    pub(crate) agent: Option<&'a Agent>,
    pub(crate) turn: Option<&'a TurnId>,
    pub(crate) action_type: ActionType,
    pub(crate) payload: &'a P,
    pub(crate) result: &'a R,
}

impl<'a> From<&'a Entry> for Said<'a, Value, Value> {
    fn from(entry: &'a Entry) -> Self {
        let Entry { time, agent, turn, action_type, payload, result } = entry;
        let (agent, turn) = (agent.as_ref(), turn.as_ref());
        Self { time: *time, agent, turn, action_type: *action_type, payload, result }
    }
}

/// One line of the ledger. The order of the fields is the order of the keys in the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Its number.
    pub seq: u64,
    /// The SHA-256 of the line before it; zeros for the first.
    pub prev: Digest,
    /// When it happened.
    pub time: Timestamp,
    /// Who did it, if it was an agent.
    pub agent: Option<Agent>,
    /// In which turn, if in one.
    pub turn: Option<TurnId>,
    /// One of [`ActionType`], as text: a later tollgate may have written kinds that this one does not know.
    pub action_type: String,
    /// What was asked for.
    pub payload: Value,
    /// What came of it.
    pub result: Value,
}

macro_rules! action_types {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// The kinds of lines.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ActionType {
            $($(#[$doc])* $name,)*
        }

        impl ActionType {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// As it stands in the ledger.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

action_types! {
    /// A write was refused because the file is stale.
    MutationConflict = "MUTATION_CONFLICT",
    /// A write was refused for another reason.
    MutationRefused = "MUTATION_REFUSED",
    /// A write went through.
    Mutation = "MUTATION",
    /// Someone wrote into a file after it had been replaced.
    LateExternalWrite = "LATE_EXTERNAL_WRITE",
    /// Nobody told the end of a tool call, and its time is over.
    ReservationExpired = "RESERVATION_EXPIRED",
    /// A task was claimed.
    Claim = "CLAIM",
    /// A race for a task was lost.
    ClaimLost = "CLAIM_LOST",
    /// A claim's lease was extended.
    Renew = "RENEW",
    /// A task was released.
    Release = "RELEASE",
    /// A person approved or rejected a task.
    Approval = "APPROVAL",
    /// A task was taken back from a dead owner.
    Reclaim = "RECLAIM",
    /// A turn began.
    TurnStarted = "TURN_STARTED",
    /// A turn ended.
    TurnEnded = "TURN_ENDED",
    /// A damaged tail of the ledger was moved away.
    LedgerHealed = "LEDGER_HEALED",
}

impl fmt::Display for ActionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for ActionType {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.iter().copied().find(|known| known.as_str() == text).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|known| known.as_str()).collect();
            Fault::invalid(format!(
                "`{}` is no kind of ledger line: {}",
                text.escape_debug(),
                known.join(", ")
            ))
        })
    }
}

impl Serialize for ActionType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The last line of a ledger: its number and the SHA-256 of its bytes. The next line is chained to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The line's number.
    pub seq: u64,
    /// The SHA-256 of the line without its newline.
    pub hash: Digest,
}

impl Head {
    /// Before the first line.
    fn start() -> Self {
        Self { seq: 0, hash: Digest::from_bytes([0; 32]) }
    }
}

/// Whether an append survives a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// Not by itself: it survives the end of the process, not of the machine.
    No,
    /// The lines, and all before them, are on the disk when the call returns.
    Data,
}

/// How a ledger is kept.
#[derive(Debug, Clone)]
pub struct LedgerOptions {
    /// Past this size the ledger goes on in a new file.
    pub max_size: u64,
    /// The file that remembers the last known head, outside the workspace; it and its folder are made when needed.
    pub head: Option<PathBuf>,
}

/// The ledger of one workspace. Clones share what they know about its end.
#[derive(Debug, Clone)]
pub struct Ledger(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    path: PathBuf,
    lock: PathBuf,
    options: LedgerOptions,
    writer: Mutex<append::Writer>,
}

impl Ledger {
    /// The ledger in this folder, guarded by this lock file. Touches nothing yet; the folder must exist by the time of
    /// the first append.
    pub fn new(folder: &Path, lock: &Path, options: LedgerOptions) -> Self {
        Self(Arc::new(Shared {
            folder: folder.to_owned(),
            path: folder.join("ledger.jsonl"),
            lock: lock.to_owned(),
            options,
            writer: Mutex::default(),
        }))
    }

    /// The file that grows.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Adds a line for each entry, all or none. The answer is the lines' numbers, in the order of the entries.
    ///
    /// If the ledger's tail was damaged, a line of type [`ActionType::LedgerHealed`] comes before them; it is not in the
    /// answer. The cost does not depend on the length of the ledger.
    pub fn append(&self, entries: &[Entry], flush: Flush) -> Result<Range<u64>> {
        let said: Vec<_> = entries.iter().map(Said::from).collect();
        self.append_said(&said, flush)
    }

    /// The same for what is not an [`Entry`].
    pub(crate) fn append_said<P: Serialize, R: Serialize>(
        &self,
        said: &[Said<'_, P, R>],
        flush: Flush,
    ) -> Result<Range<u64>> {
        append::append(&self.0, said, flush)
    }

    /// Makes every line that was appended until now survive a power cut.
    pub fn sync(&self) -> Result<()> {
        // The current file is enough: the others were flushed before they got their names.
        match open_to_read(&self.0.path)? {
            Some(file) => file.sync_data().at("flush", &self.0.path),
            None => Ok(()),
        }
    }

    /// All lines, the newest first, through all files. Nothing is read before it is asked for, and nobody is kept from
    /// appending. A damaged line is an `Err` in its place; the lines before it still follow.
    pub fn newest_first(&self) -> Result<NewestFirst> {
        NewestFirst::new(&self.0)
    }

    /// The lines with a smaller number than `seq`, the newest first. Finds its place by bisection, so that a look at the
    /// middle of a long ledger costs no more than one at its end.
    pub fn newest_before(&self, seq: u64) -> Result<NewestFirst> {
        NewestFirst::before(&self.0, seq)
    }

    /// The lines with a greater number than `seq`, the oldest first: call it again with the last number to follow the
    /// ledger. Reads only from the end back to `seq`. Damaged lines are left out; [`Ledger::verify`] names them.
    pub fn lines_after(&self, seq: u64) -> Result<Vec<Line>> {
        let mut lines = Vec::new();
        for line in self.newest_first()? {
            match line {
                Ok(line) if line.seq <= seq => break,
                Ok(line) => lines.push(line),
                Err(Fault::Damaged { .. }) => {}
                Err(fault) => return Err(fault),
            }
        }
        lines.reverse();
        Ok(lines)
    }

    /// Reads everything from the first line to the last and says what is wrong, if anything is. Stops at the first
    /// problem. Needs memory for two lines, whatever the length.
    pub fn verify(&self) -> Result<Verdict> {
        verify::verify(&self.0)
    }
}

impl Shared {
    fn lock(&self) -> Result<Lock> {
        Lock::acquire(&self.lock, LOCK_WAIT)?.ok_or_else(|| self.locked())
    }

    fn locked(&self) -> Fault {
        Fault::Locked { path: self.lock.clone(), waited_s: LOCK_WAIT.as_secs() }
    }

    /// The files that are full, the oldest first, with the number of their first line. If the file that grew when it was
    /// opened is among them by now, only those before it.
    fn full_files(&self, before: Option<&File>) -> Result<Vec<(u64, PathBuf)>> {
        let mut found = Vec::new();
        let items = match self.folder.read_dir() {
            // To ask about a workspace where nothing happened yet is no fault.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            items => items.at("list", &self.folder)?,
        };
        for item in items {
            let name = item.at("list", &self.folder)?.file_name();
            if let Some(first) = name.to_str().and_then(first_seq_in) {
                found.push((first, self.folder.join(&name)));
            }
        }
        found.sort_unstable();
        if let Some(before) = before {
            let id = identity(before).at("look at", &self.path)?;
            let same =
                |path: &Path| path.symlink_metadata().is_ok_and(|found| (found.dev(), found.ino()) == id);
            if let Some(at) = found.iter().position(|(_, path)| same(path)) {
                found.truncate(at);
            }
        }
        Ok(found)
    }

    fn full_file(&self, first_seq: u64) -> PathBuf {
        self.folder.join(format!("ledger-{first_seq}.jsonl"))
    }
}

fn first_seq_in(name: &str) -> Option<u64> {
    name.strip_prefix("ledger-")?.strip_suffix(".jsonl")?.parse().ok()
}

fn identity(file: &File) -> io::Result<(u64, u64)> {
    let found = file.metadata()?;
    Ok((found.dev(), found.ino()))
}

/// `None` if it is not there.
fn open_to_read(path: &Path) -> Result<Option<File>> {
    // Not through a link: it could make a reader wait on a pipe, or show someone else's file as the ledger.
    match OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).at("open", path),
    }
}

#[cfg(test)]
mod tests;
