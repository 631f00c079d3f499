//! Turns from events: what the short-lived hook processes of one agent tell each other.
//!
//! Each agent of each session has a folder beside the turns, private to the user and preferably in memory: the id of its
//! running turn, a slip for each tool call under way, and a mark for each refusal. Several hooks of one agent may run at
//! once, so everything is a file that is made or removed in one step, and the one thing that is read and changed, the
//! running turn, is under a lock. There is no daemon; what nobody has touched for a day is cleared away.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tollgate::digest::Digest;
use tollgate::error::Fault;
use tollgate::gate::{Gate, Ticket, ToolResult};
use tollgate::ledger::ActionType;
use tollgate::name::{Agent, TurnId};
use tollgate::settings::Unread;
use tollgate::shared_turn::{Leaves, SharedTurn, SharedTurns};
use tollgate::turn::{Sightings, Turn};

use super::process::Process;

/// The version of a slip. A later one is left to its program.
const VERSION: u32 = 1;

/// As for turns: what is older belongs to an agent that is gone.
const FORGOTTEN: Duration = Duration::from_secs(24 * 3600);

/// One agent of one session.
pub(crate) struct Session<'t> {
    turns: &'t SharedTurns,
    folder: PathBuf,
    /// Its name, for the ledger and for others.
    pub(crate) agent: Agent,
    key: String,
}

/// A tool call under way: left before the tool, taken after it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Slip {
    version: u32,
    turn: TurnId,
    agent: Agent,
    /// None for a command of which no file is known beforehand.
    pub(crate) ticket: Option<Ticket>,
    /// What files will hold, where that is known.
    predicted: Vec<(PathBuf, Digest)>,
    /// Files that the call names and that were not what the turn knows: what they become is not the agent's own.
    pub(crate) foreign: Vec<PathBuf>,
    /// The program that runs the tool.
    host: Option<Process>,
}

/// When a slip was made, by the clock of the kernel that also stamps files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Since(i128);

/// When a file was last changed. Times of change cannot be set by hand, unlike those of modification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    /// Before the slip was made.
    Before,
    /// So near to it that the clock may be wrong: it has to be looked at, and it was not this call.
    Near,
    /// Since, or nobody can tell.
    Since,
}

impl Since {
    pub(crate) fn last_changed(self, path: &Path) -> Last {
        // The kernel's clock ticks a hundred times a second at least; two ticks, and a little.
        const TICKS: i128 = 30_000_000;
        // The cheapest call that tells: it is made for every file of the turn.
        let Ok(found) = rustix::fs::lstat(path) else { return Last::Since };
        // A link's own time does not tell about the file behind it.
        if rustix::fs::FileType::from_raw_mode(found.st_mode).is_symlink() {
            return Last::Since;
        }
        #[allow(clippy::useless_conversion, reason = "their types depend on the system")]
        let changed = i128::from(found.st_ctime) * 1_000_000_000 + i128::from(found.st_ctime_nsec);
        match changed - self.0 {
            0.. => Last::Since,
            near if near >= -TICKS => Last::Near,
            _ => Last::Before,
        }
    }
}

fn changed(metadata: &fs::Metadata) -> i128 {
    i128::from(metadata.ctime()) * 1_000_000_000 + i128::from(metadata.ctime_nsec())
}

impl<'t> Session<'t> {
    /// Of this program, session and helper.
    pub(crate) fn open(
        turns: &'t SharedTurns,
        [host, session, helper]: [&str; 3],
        named: Option<Agent>,
    ) -> Result<Self, Fault> {
        let hash = |parts: &[&str]| Digest::of(parts.join("\0").as_bytes()).to_string();
        let key = hash(&[host, session, helper])[..16].to_owned();
        let mut name = match named {
            Some(agent) => agent.to_string(),
            None => format!("{host}-{}", &hash(&[host, session])[..8]),
        };
        if !helper.is_empty() {
            name.truncate(64 - 7);
            name = format!("{name}.{}", &hash(&[helper])[..6]);
        }
        let folder = turns.folder().join("hooks").join(&key);
        Ok(Self { turns, folder, agent: name.parse()?, key })
    }

    /// A name for a tool call that no other has.
    pub(crate) fn call(&self, id: &[u8]) -> String {
        format!("{}-{}", self.key, &Digest::of(id).to_string()[..16])
    }

    /// The running turn, if one was begun.
    pub(crate) fn running(&self) -> Result<Option<SharedTurn>, Fault> {
        match self.read_turn()? {
            Some((id, _)) => self.existing(&id),
            None => Ok(None),
        }
    }

    /// The running turn; a new one, if none runs or the program has gone on to another.
    pub(crate) fn turn(&self, gate: &Gate, number: Option<&str>) -> Result<SharedTurn, Fault> {
        let is_same = |known: &str| number.is_none_or(|number| known == mark(number));
        // Nearly always it runs already, and one look is enough.
        if let Some((id, known)) = self.read_turn()?
            && is_same(&known)
            && let Some(turn) = self.existing(&id)?
        {
            return Ok(turn);
        }
        let _lock = self.lock()?;
        if let Some((id, known)) = self.read_turn()?
            && is_same(&known)
            && let Some(turn) = self.existing(&id)?
        {
            return Ok(turn);
        }
        self.begin(gate, number)
    }

    /// A new turn: what the last one left under way is settled, and what it knew is remembered as the settings say.
    pub(crate) fn next_turn(&self, gate: &Gate, number: Option<&str>) -> Result<(), Fault> {
        let _lock = self.lock()?;
        match (number, self.read_turn()?) {
            // A program may tell us twice.
            (Some(number), Some((id, known))) if known == mark(number) && self.existing(&id)?.is_some() => {
                Ok(())
            }
            _ => self.begin(gate, number).map(drop),
        }
    }

    /// Under the lock.
    fn begin(&self, gate: &Gate, number: Option<&str>) -> Result<SharedTurn, Fault> {
        self.end_turn(gate)?;
        self.forget();
        let now = gate.workspace().now();
        let turn = self.turns.begin(TurnId::new()?, self.agent.clone(), now)?;
        gate.record_turn(&turn, ActionType::TurnStarted)?;
        let text = format!("{} {}\n", turn.id(), number.map(mark).unwrap_or_default());
        self.put(&self.folder.join("turn"), text.as_bytes())?;
        Ok(turn)
    }

    fn end_turn(&self, gate: &Gate) -> Result<(), Fault> {
        self.settle_all(gate)?;
        let _ = fs::remove_dir_all(self.folder.join("refused"));
        let Some(turn) = self.running()? else { return Ok(()) };
        gate.record_turn(&turn, ActionType::TurnEnded)?;
        let leaves = match gate.workspace().settings().guard.unread {
            Unread::Known => Leaves::Known,
            Unread::Allow | Unread::Refuse => Leaves::Nothing,
        };
        self.turns.end(turn, leaves)
    }

    /// The agent is gone.
    pub(crate) fn close(&self, gate: &Gate) -> Result<(), Fault> {
        if self.folder.exists() {
            let _lock = self.lock()?;
            self.end_turn(gate)?;
            let _ = fs::remove_dir_all(&self.folder);
        }
        Ok(())
    }

    /// The id of the running turn, and the mark of the program's own number for it.
    fn read_turn(&self) -> Result<Option<(TurnId, String)>, Fault> {
        let path = self.folder.join("turn");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Fault::Io { doing: "read", path, source }),
        };
        let (id, known) = text.trim_end_matches('\n').split_once(' ').unwrap_or((&text, ""));
        match id.parse() {
            Ok(id) => Ok(Some((id, known.to_owned()))),
            Err(_) => Err(Fault::Damaged { path, what: "it should hold the id of a turn".into() }),
        }
    }

    fn existing(&self, id: &TurnId) -> Result<Option<SharedTurn>, Fault> {
        match self.turns.open(id) {
            Ok(turn) => Ok(Some(turn)),
            Err(Fault::Missing { .. }) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    fn lock(&self) -> Result<File, Fault> {
        self.make_folder(&self.folder)?;
        let path = self.folder.join("lock");
        let fault = |source| Fault::Io { doing: "lock", path: path.clone(), source };
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(fault)?;
        file.lock().map_err(fault)?;
        Ok(file)
    }

    fn make_folder(&self, folder: &Path) -> Result<(), Fault> {
        let made = fs::DirBuilder::new().mode(0o700).recursive(true).create(folder);
        made.map_err(|source| Fault::Io { doing: "make the folder", path: folder.to_owned(), source })
    }

    /// Writes a small file whole.
    fn put(&self, path: &Path, bytes: &[u8]) -> Result<(), Fault> {
        let unfinished = path.with_extension(format!("tmp-{}", std::process::id()));
        let write = || {
            let mut file = fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&unfinished)?;
            file.write_all(bytes)?;
            // Not flushed: nothing here outlives the machine.
            fs::rename(&unfinished, path)
        };
        let written = match write() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                path.parent().map_or(Ok(()), |folder| self.make_folder(folder))?;
                write()
            }
            written => written,
        };
        written.map_err(|source| Fault::Io { doing: "write", path: path.to_owned(), source })
    }

    fn slip_path(&self, call: &str) -> PathBuf {
        self.folder.join("calls").join(call)
    }

    /// Leaves a slip for the hook after the tool.
    pub(crate) fn leave(
        &self,
        call: &str,
        turn: &SharedTurn,
        ticket: Option<Ticket>,
        predicted: Vec<(PathBuf, Digest)>,
        foreign: Vec<PathBuf>,
    ) -> Result<(), Fault> {
        let (id, agent) = (turn.id().clone(), turn.agent().clone());
        let slip =
            Slip { version: VERSION, turn: id, agent, ticket, predicted, foreign, host: Process::of_host() };
        let bytes = serde_json::to_vec(&slip).map_err(|error| Fault::Invalid { what: error.to_string() })?;
        self.put(&self.slip_path(call), &bytes)
    }

    /// Takes the slip of a call, if it was left and nobody else has taken it.
    pub(crate) fn take(&self, call: &str) -> Result<Option<(Slip, Since)>, Fault> {
        take(&self.slip_path(call))
    }

    /// The turn that a slip was left in, if it runs still.
    pub(crate) fn turn_of(&self, slip: &Slip) -> Result<Option<SharedTurn>, Fault> {
        self.existing(&slip.turn)
    }

    /// A call whose program never told its end is over once its file holds what it was to hold.
    pub(crate) fn settle_done(&self, gate: &Gate, but: &str) -> Result<(), Fault> {
        for path in slips(&self.folder) {
            if !path.ends_with(but)
                && peek(&path).is_some_and(|slip| slip.is_done())
                && let Some((slip, _)) = take(&path)?
            {
                settle(self.turns, gate, slip, ToolResult::Succeeded)?;
            }
        }
        Ok(())
    }

    /// The agent waits, or goes on to something else: none of its calls is under way any more.
    pub(crate) fn settle_all(&self, gate: &Gate) -> Result<(), Fault> {
        for path in slips(&self.folder) {
            if let Some((slip, _)) = take(&path)? {
                settle(self.turns, gate, slip, ToolResult::Failed)?;
            }
        }
        Ok(())
    }

    /// Whether this very refusal was told before. Remembers that it is told now.
    pub(crate) fn was_told(&self, what: &[u8]) -> bool {
        let path = self.folder.join("refused").join(Digest::of(what).to_string());
        path.exists() || self.put(&path, b"").is_err()
    }

    /// Clears away the folders of agents that are long gone.
    fn forget(&self) {
        let Some(all) = self.folder.parent() else { return };
        for entry in fs::read_dir(all).into_iter().flatten().flatten() {
            let touched =
                |name: &str| fs::metadata(entry.path().join(name)).and_then(|found| found.modified()).ok();
            let last = ["", "turn", "calls", "refused"].into_iter().filter_map(touched).max();
            let age = last.and_then(|last| SystemTime::now().duration_since(last).ok());
            if age.is_some_and(|age| age > FORGOTTEN) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

impl Slip {
    fn is_done(&self) -> bool {
        let holds = |(path, digest): &(PathBuf, Digest)| {
            fs::read(path).is_ok_and(|bytes| Digest::of(&bytes) == *digest)
        };
        let all = self.ticket.as_ref().map_or(0, |ticket| ticket.changes().count());
        all > 0 && self.predicted.len() == all && self.predicted.iter().all(holds)
    }
}

/// Settles the calls of all agents that can be seen to be over: their files hold what they were to hold, or the program
/// that ran the tool is dead.
pub(crate) fn settle_what_is_over(gate: &Gate, all: &[SharedTurns]) -> Result<(), Fault> {
    for turns in all {
        for entry in fs::read_dir(turns.folder().join("hooks")).into_iter().flatten().flatten() {
            for path in slips(&entry.path()) {
                let Some(slip) = peek(&path) else { continue };
                let dead = slip.host.as_ref().is_some_and(|host| !host.is_alive());
                if (dead || slip.is_done())
                    && let Some((slip, _)) = take(&path)?
                {
                    let result = if slip.is_done() { ToolResult::Succeeded } else { ToolResult::Failed };
                    settle(turns, gate, slip, result)?;
                }
            }
        }
    }
    Ok(())
}

fn settle(turns: &SharedTurns, gate: &Gate, slip: Slip, result: ToolResult) -> Result<(), Fault> {
    let Some(ticket) = slip.ticket else { return Ok(()) };
    let turn: Box<dyn Sightings> = match turns.open(&slip.turn) {
        Ok(turn) => Box::new(turn),
        // It has ended, and nobody will ask it any more; but its reservations must go.
        Err(Fault::Missing { .. }) => Box::new(Turn::begin(slip.turn, slip.agent)),
        Err(fault) => return Err(fault),
    };
    let mut ticket = ticket;
    // Nobody knows what the agent was shown.
    ticket.judge_reads(|_, _| None);
    gate.post_tool_use(turn.as_ref(), ticket, result)
}

fn slips(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.join("calls")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.extension().is_none()).collect()
}

fn peek(path: &Path) -> Option<Slip> {
    let slip: Slip = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    (slip.version == VERSION).then_some(slip)
}

/// Whoever renames it away has it; nobody else can.
fn take(path: &Path) -> Result<Option<(Slip, Since)>, Fault> {
    let fault = |doing| move |source| Fault::Io { doing, path: path.to_owned(), source };
    let since = match fs::metadata(path) {
        Ok(found) => Since(changed(&found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fault("look at")(error)),
    };
    let taken = path.with_extension(format!("taken-{}", std::process::id()));
    match fs::rename(path, &taken) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fault("take")(error)),
    }
    let bytes = fs::read(&taken).map_err(fault("read"));
    let _ = fs::remove_file(&taken);
    match serde_json::from_slice::<Slip>(&bytes?) {
        Ok(slip) if slip.version == VERSION => Ok(Some((slip, since))),
        _ => Err(Fault::Damaged { path: path.to_owned(), what: "it should tell of a tool call".into() }),
    }
}

/// The program's number of a turn, as a word without spaces.
fn mark(number: &str) -> String {
    Digest::of(number.as_bytes()).to_string()[..16].to_owned()
}
