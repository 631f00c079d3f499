//! One agent of one session: the state that its short-lived hook processes share.
//!
//! Each agent has a folder beside the turns, private to the user and in memory where possible. It has the name of the session,
//! the id of the running turn, the tool calls in progress, and a mark for each refusal. Several hooks of one agent may run at
//! the same time. So each file is created, replaced or removed in one step, and the one file that is read and then changed, the
//! running turn, has a lock. There is no background process. Folders that nothing has touched for a day are deleted.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{Mode, OFlags};
use tollgate::digest::Digest;
use tollgate::error::Fault;
use tollgate::gate::{Gate, ToolResult};
use tollgate::name::{Agent, TurnId};
use tollgate::path::{escape, unescape};
use tollgate::settings::Settings;
use tollgate::shared_turn::{SharedTurn, SharedTurns};
use tollgate::turn::{Asked, TurnState};
use tollgate::workspace::Beginning;
use tollgate_base::name::is_random_id;
use tollgate_base::private;

use super::agent_names::NameRequest;
use super::pending_call::{self, CallTime, Expectation, PendingCall};
use super::settle;
use crate::replace::{FileAccess, make_folder, replace_file};
use crate::session_turns::{AGENTS, WorkspaceTurn, folders_of, put_own, turns_of};

/// The age at which a folder is deleted, as for turns: its agent is gone.
const FORGOTTEN: Duration = Duration::from_secs(24 * 3600);

/// The longest name of an agent.
const LONGEST_NAME: usize = 64;

/// One agent of one session.
pub(super) struct HookSession<'t> {
    turns: &'t SharedTurns,
    folder: PathBuf,
    /// The agent's name in the ledger and in messages.
    agent: Agent,
    /// The name under which the session claims tasks: that of its main agent.
    claims_as: Agent,
    key: String,
    /// The key of the session's main agent.
    main: String,
    /// The current folder of the agent.
    here: PathBuf,
    /// The folders that hold the turns of all workspaces.
    places: Vec<PathBuf>,
    /// Who asked for the turn that may begin.
    asked: Asked,
}

impl<'t> HookSession<'t> {
    /// The agent of this program, session and subagent. The subagent is empty for the session's main agent. `here` is its current
    /// folder, `places` are the folders that hold the turns of all workspaces.
    pub(super) fn open(
        turns: &'t SharedTurns,
        [host, session, subagent]: [&str; 3],
        named: Option<Agent>,
        (root, settings): (&Path, &Settings),
        (here, places): (&Path, Vec<PathBuf>),
    ) -> Result<Self, Fault> {
        let folder_of = |key: &str| turns.folder().join(AGENTS).join(key);
        let main = key_of([host, session, ""]);
        let mut name = match named {
            Some(agent) => agent.to_string(),
            None => {
                let hashed = format!("{host}-{}", &hash(&[host, session])[..8]).parse()?;
                let request = NameRequest { host, key: &main, hashed };
                request.name(turns, &folder_of(&main), root, settings).to_string()
            }
        };
        let claims_as = name.parse()?;
        if !subagent.is_empty() {
            let suffix = &hash(&[subagent])[..6];
            name.truncate(LONGEST_NAME - 1 - suffix.len());
            name = format!("{name}.{suffix}");
        }
        let key = key_of([host, session, subagent]);
        Ok(Self {
            turns,
            folder: folder_of(&key),
            agent: name.parse()?,
            claims_as,
            key,
            main,
            here: here.to_owned(),
            places,
            asked: Asked { host: Some(host.to_owned()), ..Asked::default() },
        })
    }

    /// A turn that begins now was asked for by this prompt, and this model works on it.
    pub(super) fn asked(mut self, prompt: Option<String>, model: Option<String>) -> Self {
        (self.asked.prompt, self.asked.model) = (prompt, model);
        self
    }

    /// Notes the model of the session, for programs that say it only at its start.
    pub(super) fn note_model(&self) -> Result<(), Fault> {
        match &self.asked.model {
            Some(model) => replace_file(&self.folder.join("model"), model.as_bytes(), FileAccess::Private),
            None => Ok(()),
        }
    }

    /// The agent stays in the working tree in which it was at its first turn, in whatever workspace that was. A subagent in the tree of its
    /// caller works in the trees that its caller has added, too.
    fn stays(&self, gate: &Gate, turn: &SharedTurn) -> Result<(), Fault> {
        if !gate.workspace().settings().git.stay {
            return Ok(());
        }
        let noted = |key: &str| {
            let folders = folders_of(key, &self.places).map(|(folder, _)| folder);
            folders.chain([self.folder.clone()]).find_map(|folder| noted_beginning(&folder))
        };
        let beginning = match noted(&self.key) {
            Some(beginning) => beginning,
            None => {
                let mut now = Beginning::now(&self.here)?;
                if let Some(main) = noted(&self.main).filter(|main| main.tree == now.tree) {
                    now.others = main.others;
                }
                now
            }
        };
        let lines = [&beginning.tree].into_iter().chain(&beginning.others);
        let text: String = lines.map(|path| escape(path) + "\n").collect();
        replace_file(&self.folder.join("began"), text.as_bytes(), FileAccess::Private)?;
        gate.workspace().session_began(turn.session(), &beginning)
    }

    /// Notes that the program has called its own hook in this session.
    pub(super) fn note_own_hook(&self) -> Result<(), Fault> {
        match self.has_own_hook() {
            true => Ok(()),
            false => replace_file(&self.folder.join("own"), b"", FileAccess::Private),
        }
    }

    /// Whether the program has called its own hook in this session.
    pub(super) fn has_own_hook(&self) -> bool {
        self.folder.join("own").exists()
    }

    /// The agent's name in the ledger and in messages.
    pub(super) fn agent(&self) -> &Agent {
        &self.agent
    }

    /// The name under which the session claims tasks. Its subagents work on them, too.
    pub(super) fn claims_as(&self) -> &Agent {
        &self.claims_as
    }

    /// The private folder of this agent.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of all turns, in which the commands of this agent find its turn.
    pub(super) fn turns(&self) -> &Path {
        self.turns.folder()
    }

    /// A unique name for a tool call.
    pub(super) fn call_name(&self, id: &[u8]) -> String {
        call_name(&self.key, id)
    }

    /// The running turn. Begins a new one if none runs, or if the program has begun another turn.
    pub(super) fn turn(&self, gate: &Gate, number: Option<&str>) -> Result<SharedTurn, Fault> {
        // Nearly always the turn runs already, and no lock is needed.
        if let Some(turn) = self.running(number)? {
            return Ok(turn);
        }
        let _lock = self.lock()?;
        match self.running(number)? {
            Some(turn) => Ok(turn),
            None => self.begin(gate, number),
        }
    }

    /// Begins a new turn. Settles the calls of the previous turn, and remembers what it saw if the settings say so.
    pub(super) fn next_turn(&self, gate: &Gate, number: Option<&str>) -> Result<(), Fault> {
        let _lock = self.lock()?;
        // A program may report the same turn twice.
        if number.is_some() && self.running(number)?.is_some() {
            return Ok(());
        }
        self.begin(gate, number).map(drop)
    }

    /// The agent is gone.
    pub(super) fn close(&self, gate: &Gate) -> Result<(), Fault> {
        if self.folder.exists() {
            let _lock = self.lock()?;
            self.end_turn(gate)?;
            let _ = private::remove_tree(&self.folder);
        }
        Ok(())
    }

    /// The running turn, whatever its number is, if there is one.
    pub(super) fn any_turn(&self) -> Result<Option<SharedTurn>, Fault> {
        self.running(None)
    }

    /// The running turn, if there is one and it has this number. Without a number, any running turn.
    fn running(&self, number: Option<&str>) -> Result<Option<SharedTurn>, Fault> {
        match self.read_turn()? {
            Some((id, known)) if number.is_none_or(|number| known == mark(number)) => self.existing(&id),
            _ => Ok(None),
        }
    }

    /// Begins a turn. The caller holds the lock.
    fn begin(&self, gate: &Gate, number: Option<&str>) -> Result<SharedTurn, Fault> {
        self.end_turn(gate)?;
        self.delete_forgotten();
        let now = gate.workspace().now();
        let leaves = gate.workspace().settings().into();
        gate.workspace().record_forgotten_turns(self.turns)?;
        let turn = self.turns.begin(TurnId::new()?, self.agent.clone(), now, leaves)?;
        self.stays(gate, &turn)?;
        let mut asked = self.asked.clone();
        asked.model = asked.model.or_else(|| private::read_to_string(&self.folder.join("model")).ok());
        gate.record_asked_turn(&turn, asked)?;
        let text = format!("{} {}\n", turn.id(), number.map(mark).unwrap_or_default());
        let root = escape(gate.workspace().path()) + "\n";
        replace_file(&self.folder.join("root"), root.as_bytes(), FileAccess::Private)?;
        replace_file(&self.folder.join("turn"), text.as_bytes(), FileAccess::Private)?;
        Ok(turn)
    }

    /// Ends the turn. The caller holds the lock.
    fn end_turn(&self, gate: &Gate) -> Result<(), Fault> {
        self.settle_all(gate)?;
        let _ = private::remove_tree(&self.folder.join("refused"));
        let Some(turn) = self.running(None)? else { return Ok(()) };
        gate.record_turn_end(&turn)?;
        // Nobody waits for the end of a turn. Otherwise nothing would limit what is kept where only hooks run.
        let _ = gate.workspace().sweep();
        self.turns.end(turn)
    }

    /// The id of the running turn, and the mark of the program's number for it.
    fn read_turn(&self) -> Result<Option<(TurnId, String)>, Fault> {
        let path = self.folder.join("turn");
        let text = match private::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Fault::Io { doing: "read", path, source }),
        };
        let (id, known) = text.trim_end_matches('\n').split_once(' ').unwrap_or((&text, ""));
        match id.parse() {
            Ok(id) => Ok(Some((id, known.to_owned()))),
            Err(_) => Err(Fault::Damaged { path, what: "it should have the id of a turn".into() }),
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
        let path = self.folder.join("lock");
        let fault = |source| Fault::Io { doing: "lock", path: path.clone(), source };
        loop {
            make_folder(&self.folder, FileAccess::Private)?;
            let flags = OFlags::WRONLY | OFlags::CREATE;
            let file = match private::open_with_mode(&path, flags, Mode::RUSR | Mode::WUSR) {
                // Another hook has just closed the session.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                file => File::from(file.map_err(fault)?),
            };
            file.lock().map_err(fault)?;
            // While this process waited, another hook may have deleted the file, and a third one may hold a new one.
            if file.metadata().map_err(fault)?.nlink() > 0 {
                return Ok(file);
            }
        }
    }

    /// Records a call for the hook after the tool.
    pub(super) fn record(
        &self,
        call: &str,
        turn: &SharedTurn,
        expectation: Expectation,
    ) -> Result<(), Fault> {
        PendingCall::record(&self.folder, call, turn, expectation)
    }

    /// Takes a recorded call, if no other process has taken it.
    pub(super) fn take(&self, call: &str) -> Result<Option<(PendingCall, CallTime)>, Fault> {
        PendingCall::take(&self.folder, call)
    }

    /// The turn of a recorded call, if it still runs.
    pub(super) fn turn_of(&self, turn: &TurnId) -> Result<Option<SharedTurn>, Fault> {
        self.existing(turn)
    }

    /// The running turns of this agent in all workspaces, those of inner workspaces first, with this one. `places` are the folders that
    /// hold the turns of all workspaces.
    pub(super) fn all_turns(
        &self,
        turn: &SharedTurn,
        gate: &Gate,
        places: &[PathBuf],
    ) -> Result<Vec<WorkspaceTurn>, Fault> {
        let mut turns = turns_of(&self.key, places);
        let own = self.turns.open(turn.id())?;
        put_own(&mut turns, WorkspaceTurn { root: gate.workspace().path().to_owned(), turn: own });
        Ok(turns)
    }

    /// Settles this agent's calls that have written their files, except the call of this name.
    pub(super) fn settle_finished(&self, gate: &Gate, except: &str) -> Result<(), Fault> {
        settle::finished(self.turns, gate, &self.folder, except)
    }

    /// Settles a call that was taken and of which nobody knows how it ended.
    pub(super) fn settle(&self, gate: &Gate, call: PendingCall) -> Result<(), Fault> {
        settle::settle(self.turns, gate, call, ToolResult::Failed)
    }

    /// Settles all calls of this agent.
    pub(super) fn settle_all(&self, gate: &Gate) -> Result<(), Fault> {
        settle::all(self.turns, gate, &self.folder)
    }

    /// Whether the agent was told of the same refusal before. Remembers that it is told now, if it can.
    pub(super) fn was_told(&self, refusal: &[u8]) -> bool {
        let path = self.folder.join("refused").join(Digest::of(refusal).to_string());
        let was_told = path.exists();
        if !was_told {
            let _ = replace_file(&path, b"", FileAccess::Private);
        }
        was_told
    }

    /// Deletes the folders of agents that are long gone.
    fn delete_forgotten(&self) {
        let Some(all) = self.folder.parent() else { return };
        let keys = private::names(all).unwrap_or_default();
        for folder in
            keys.iter().filter(|key| key.to_str().is_some_and(is_random_id)).map(|key| all.join(key))
        {
            let touched =
                |name: &str| fs::symlink_metadata(folder.join(name)).and_then(|found| found.modified()).ok();
            let last = ["", "turn", "calls", "refused"].into_iter().filter_map(touched).max();
            let age = last.and_then(|last| SystemTime::now().duration_since(last).ok());
            if age.is_some_and(|age| age > FORGOTTEN) {
                let _ = private::remove_tree(&folder);
            }
        }
    }
}

/// Where an agent began, as its folder says.
fn noted_beginning(folder: &Path) -> Option<Beginning> {
    let text = private::read_to_string(&folder.join("began")).ok()?;
    let mut paths = text.lines().map_while(unescape);
    Some(Beginning { tree: paths.next()?, others: paths.collect() })
}

fn hash(parts: &[&str]) -> String {
    Digest::of(parts.join("\0").as_bytes()).to_string()
}

/// The key of an agent: of its program, its session and its subagent.
fn key_of(names: [&str; 3]) -> String {
    hash(&names)[..16].to_owned()
}

/// The workspaces in which this agent has begun a turn; only those with this tool call, if one is given. `all` are the
/// folders that hold the turns of all workspaces.
pub(super) fn workspaces_of(names: [&str; 3], call: Option<&[u8]>, all: &[PathBuf]) -> Vec<PathBuf> {
    let key = key_of(names);
    let wanted =
        |folder: &Path| call.is_none_or(|id| pending_call::is_recorded(folder, &call_name(&key, id)));
    let found = folders_of(&key, all).filter(|(folder, _)| wanted(folder));
    found.map(|(_, root)| root).collect()
}

/// The workspaces in which this agent has a running turn that knows files, the inner ones first.
pub(super) fn used_workspaces(names: [&str; 3], all: &[PathBuf]) -> Vec<PathBuf> {
    let knows = |turn: &SharedTurn| turn.names().is_ok_and(|names| !names.is_empty());
    let used = turns_of(&key_of(names), all).into_iter().filter(|found| knows(&found.turn));
    used.map(|found| found.root).collect()
}

fn call_name(key: &str, id: &[u8]) -> String {
    format!("{key}-{}", &Digest::of(id).to_string()[..16])
}

/// The program's number of a turn, as a word without spaces.
fn mark(number: &str) -> String {
    Digest::of(number.as_bytes()).to_string()[..16].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_lock_that_was_deleted_while_a_hook_waited_for_it_does_not_count() {
        let keep = tempfile::tempdir().unwrap();
        let turns = SharedTurns::new(keep.path().join("turns")).unwrap();
        let (agent, claims_as): (Agent, Agent) = ("a".parse().unwrap(), "a".parse().unwrap());
        let folder = keep.path().join("session");
        let session = HookSession {
            turns: &turns,
            folder,
            agent,
            claims_as,
            key: "k".into(),
            main: "k".into(),
            here: keep.path().into(),
            places: Vec::new(),
            asked: Asked::default(),
        };
        let first = session.lock().unwrap();
        let inode = format!(":{} ", first.metadata().unwrap().ino());
        std::thread::scope(|scope| {
            let second = scope.spawn(|| session.lock().unwrap());
            let waits = |line: &str| line.contains("->") && line.contains(&inode);
            while !fs::read_to_string("/proc/locks").unwrap().lines().any(waits) {
                std::thread::yield_now();
            }
            fs::remove_dir_all(&session.folder).unwrap();
            drop(first);
            let second = second.join().unwrap().metadata().unwrap();
            assert_eq!(fs::metadata(session.folder.join("lock")).unwrap().ino(), second.ino());
        });
    }
}
