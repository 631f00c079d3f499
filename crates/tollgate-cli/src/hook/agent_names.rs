//! The names of agents that call hooks: the name of their program and a number, such as `program-2`.
//!
//! A file of the workspace, changed under a lock, says which session has which name. All worktrees of a repository use the file
//! of the main tree. Invariant: no two sessions that are in use have the same name. A session keeps its name until it has not
//! called a hook for [`FORGOTTEN`]; then its number is free, unless something else still has the name: a turn, what an agent
//! knows, a claimed task, a table in the configuration. The bare name of a program is never given: its MCP server has it.
//!
//! Where a number cannot be unique or cannot be had, the name has a hash of the session instead: if other machines share the
//! tasks, or if the file cannot be changed.

use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::{SignedDuration, Timestamp};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use tollgate::State;
use tollgate::error::Fault;
use tollgate::name::Agent;
use tollgate::settings::Settings;
use tollgate::shared_turn::SharedTurns;
use tollgate::tasks::{VaultHome, shared_with};
use tollgate::turn::TurnState as _;
use tollgate::workspace::{Options, STATE_FOLDER, Workspace, has_state};
use tollgate_base::file::{names_in, replace_file};
use tollgate_base::lock::Lock;
use tollgate_base::private;

use crate::replace::{self, FileAccess};

/// The version of the file's format. A later version is left alone.
const VERSION: u32 = 1;

/// The age at which a number is free again: longer than turns and what agents know are kept, which is a day.
const FORGOTTEN: SignedDuration = SignedDuration::from_hours(7 * 24);

/// How often a session notes that it is in use. Much shorter than [`FORGOTTEN`], and long enough to cost nothing.
const NOTED: Duration = Duration::from_secs(3600);

/// The most sessions in the file, so that it stays small: a hundred new ones a day.
const MOST: usize = 700;

/// The longest wait for the lock. Its holder writes one small file, but the machine may be busy. Half of a hook's deadline.
const WAIT: Duration = Duration::from_secs(4);

/// The sessions of a workspace and their names.
#[derive(Serialize, Deserialize)]
struct NameList {
    version: u32,
    sessions: Vec<NamedSession>,
}

#[derive(Serialize, Deserialize)]
struct NamedSession {
    name: Agent,
    /// The key of the session's main agent.
    session: String,
    /// When it last noted that it is in use.
    used: Timestamp,
}

/// What the name of a session is made from.
pub(super) struct NameRequest<'a> {
    /// The name of the program.
    pub(super) host: &'a str,
    /// The key of the session's main agent.
    pub(super) key: &'a str,
    /// A name that no other session has, for a session that gets no number.
    pub(super) hashed: Agent,
}

impl NameRequest<'_> {
    /// The name of this session. The private folder of its agent keeps the name, so that most hooks take no lock.
    pub(super) fn name(self, turns: &SharedTurns, folder: &Path, root: &Path, settings: &Settings) -> Agent {
        let kept_in = folder.join("name");
        let kept = kept(&kept_in);
        if let Some((name, NameUse::Noted)) = kept {
            return name;
        }
        let kept = kept.map(|(name, _)| name);
        let name = match (self.numbered(kept.clone(), turns, root, settings), kept) {
            (Ok(Some(name)), _) => name,
            // A session keeps its name. It is not noted, so the next hook asks the file of the workspace again.
            (Err(_), Some(kept)) => return kept,
            // A name must not stop an agent, and this one is unique, too.
            (Ok(None) | Err(_), _) => self.hashed,
        };
        // If this fails, the next hook asks the file of the workspace again.
        let _ = replace::replace_file(&kept_in, name.as_str().as_bytes(), FileAccess::Private);
        name
    }

    /// The name with a number; `None` if the session must not have one.
    fn numbered(
        &self,
        kept: Option<Agent>,
        turns: &SharedTurns,
        root: &Path,
        settings: &Settings,
    ) -> Result<Option<Agent>, Fault> {
        let home = home(root, settings)?;
        if home.settings.vault.is_shared() || kept.as_ref() == Some(&self.hashed) {
            return Ok(None);
        }
        let state = home.root.join(STATE_FOLDER);
        let lock = state.join("locks").join("agents");
        let Some(_alone) = Lock::acquire(&lock, WAIT)? else {
            return Err(Fault::Locked { path: lock, waited_s: WAIT.as_secs() });
        };
        let path = state.join("agents.json");
        let mut list = NameList::read(&path)?;
        let now = Timestamp::now();
        let name = match list.sessions.iter_mut().find(|known| known.session == self.key) {
            Some(known) => {
                known.used = now;
                known.name.clone()
            }
            None => {
                // A time in the future, because the clock was set back, is not long ago.
                list.sessions.retain(|known| now.duration_since(known.used) < FORGOTTEN);
                let Some(name) = list.free(self.host, kept, &NameTraces::of(turns, home)?) else {
                    return Ok(None);
                };
                list.sessions.push(NamedSession {
                    name: name.clone(),
                    session: self.key.to_owned(),
                    used: now,
                });
                name
            }
        };
        let text = serde_json::to_vec(&list).map_err(|error| Fault::invalid(error.to_string()))?;
        // Otherwise two sessions could have one name after a power failure.
        replace_file(&path, &text, settings.guard.durability)?;
        Ok(Some(name))
    }
}

impl NameList {
    fn read(path: &Path) -> Result<Self, Fault> {
        let text = match private::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(Fault::Io { doing: "read", path: path.to_owned(), source }),
        };
        // With `durability = "fast"`, a power failure may leave an empty file.
        if text.is_empty() {
            return Ok(Self { version: VERSION, sessions: Vec::new() });
        }
        let list: Self = serde_json::from_slice(&text)
            .map_err(|error| Fault::Damaged { path: path.to_owned(), what: error.to_string() })?;
        match list.version {
            ..=VERSION => Ok(list),
            found => Err(Fault::NewerFormat { path: path.to_owned(), found, known: VERSION }),
        }
    }

    /// The name that the session had, else the name of this program with the lowest number, if nobody else has it.
    fn free(&self, host: &str, kept: Option<Agent>, remains: &NameTraces) -> Option<Agent> {
        let is_listed = |name: &Agent| self.sessions.iter().any(|known| known.name == *name);
        if self.sessions.len() >= MOST {
            return None;
        }
        // The file was deleted, and what remains under this name is the session's own.
        if let Some(name) = kept.filter(|name| !is_listed(name)) {
            return Some(name);
        }
        let mut numbered = (1..=2 * MOST).filter_map(|number| format!("{host}-{number}").parse().ok());
        numbered.find(|name| !is_listed(name) && !remains.have(name))
    }
}

/// What an earlier session may have left under its name, and what people have given a name to.
struct NameTraces {
    home: VaultHome,
    known: PathBuf,
    in_turns: BTreeSet<Agent>,
}

impl NameTraces {
    fn of(turns: &SharedTurns, home: VaultHome) -> Result<Self, Fault> {
        let in_turns = turns.list()?.iter().map(|turn| turn.agent().clone()).collect();
        Ok(Self { home, known: turns.folder().join("known"), in_turns })
    }

    fn have(&self, name: &Agent) -> bool {
        // A folder that cannot be listed may have tasks.
        let claimed = self.home.tasks_folder().join(State::InProgress.as_str()).join(name.as_str());
        self.in_turns.contains(name)
            || self.home.settings.agent.contains_key(name)
            || self.known.join(name.as_str()).exists()
            || !names_in(&claimed).is_ok_and(|tasks| tasks.is_empty())
    }
}

/// The workspace with the file: the main tree if this is a linked worktree and the main tree is set up.
fn home(root: &Path, settings: &Settings) -> Result<VaultHome, Fault> {
    let Some(main) = shared_with(root, settings)?.filter(|main| has_state(main)) else {
        return Ok(VaultHome { root: root.to_owned(), settings: settings.clone() });
    };
    let home = VaultHome::at(main)?;
    // Perhaps nothing was ever guarded in the main tree. Then this completes its state.
    let options = Options { settings: Some(home.settings.clone()), ..Options::default() };
    Workspace::open(&home.root, options)?;
    Ok(home)
}

/// Whether a session has noted lately that its name is in use.
enum NameUse {
    Noted,
    Old,
}

/// The name in a private folder.
fn kept(path: &Path) -> Option<(Agent, NameUse)> {
    let mut file = private::open(path, OFlags::RDONLY).ok()?;
    let mut name = String::new();
    file.read_to_string(&mut name).ok()?;
    let noted = file.metadata().and_then(|found| found.modified()).ok()?;
    // An age that is not known, because the clock was set back, is an old one.
    let is_new = SystemTime::now().duration_since(noted).is_ok_and(|age| age < NOTED);
    Some((name.parse().ok()?, if is_new { NameUse::Noted } else { NameUse::Old }))
}
