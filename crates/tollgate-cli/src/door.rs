//! The door: from arguments and surroundings to a workspace, a turn and a gate.
//!
//! What lies outside the workspace is found here: the folder of the turns, which is the user's alone and preferably in
//! memory, and the witness of the ledger's head. Both are kept per workspace, known by its path, its inode and its birth:
//! a new folder at an old path is another workspace.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::UNIX_EPOCH;

use jiff::Timestamp;
use tollgate::digest::Digest;
use tollgate::error::Fault;
use tollgate::gate::Gate;
use tollgate::ledger::{Ledger, LedgerOptions};
use tollgate::name::{Agent, TurnId};
use tollgate::settings::LedgerSettings;
use tollgate::shared_turn::{SharedTurn, SharedTurns};
use tollgate::turn::{Sightings, Turn};
use tollgate::vault::claim::ClaimId;
use tollgate::workspace::{Options, STATE_FOLDER, Workspace, find_root, read_settings};

use crate::answer::{Form, Stop};
use crate::arguments::Everywhere;
use crate::surroundings::Surroundings;
use crate::tasks::Walls;
use crate::words;

/// How this process was called, and by whom.
#[derive(Debug)]
pub(crate) struct Door {
    everywhere: Everywhere,
    surroundings: Surroundings,
    /// Looked for once.
    root: OnceLock<(PathBuf, FoundBy)>,
}

/// Why a folder is the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FoundBy {
    /// It was named.
    Name,
    /// It, or a folder above, has tollgate's state.
    State,
    /// It, or a folder above, is the root of a git checkout.
    Git,
    /// It is the current folder.
    Here,
}

impl Door {
    pub(crate) fn new(surroundings: Surroundings, everywhere: Everywhere) -> Self {
        Self { everywhere, surroundings, root: OnceLock::new() }
    }

    /// The same call, for another workspace.
    pub(crate) fn elsewhere(&self, workspace: &Path) -> Self {
        let mut everywhere = self.everywhere.clone();
        everywhere.workspace = Some(workspace.to_owned());
        Self::new(Surroundings::look(), everywhere)
    }

    /// A door to another workspace that shares nothing with this user's own: not the turns, not the state.
    pub(crate) fn apart(root: &Path, runtime: &Path, state: &Path, agent: Option<Agent>) -> Self {
        let surroundings = Surroundings {
            turn: None,
            agent: None,
            claim_id: None,
            runtime: Some(runtime.to_owned()),
            state: Some(state.to_owned()),
            ..Surroundings::look()
        };
        Self::new(surroundings, Everywhere::of(root, agent))
    }

    /// What every command was given.
    pub(crate) fn everywhere(&self) -> &Everywhere {
        &self.everywhere
    }

    pub(crate) fn form(&self) -> Form {
        self.everywhere.form()
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    pub(crate) fn uid(&self) -> u32 {
        self.surroundings.uid
    }

    /// What relative paths are relative to.
    pub(crate) fn base(&self) -> Result<PathBuf, Fault> {
        let folder = match (&self.surroundings.folder, &self.everywhere.workspace) {
            (_, Some(given)) if given.is_absolute() => return Ok(given.clone()),
            (Ok(folder), _) => folder,
            (Err(_), _) => return Err(Fault::Missing { what: "the current folder".into() }),
        };
        Ok(match &self.everywhere.workspace {
            Some(given) => folder.join(given),
            None => folder.clone(),
        })
    }

    /// A path as the user gave it, absolute.
    pub(crate) fn path(&self, given: &Path) -> Result<PathBuf, Fault> {
        if given.as_os_str().is_empty() {
            return Err(Fault::Invalid { what: "the path is empty".into() });
        }
        Ok(self.base()?.join(given))
    }

    /// The root of the workspace, canonical, and why it is that.
    pub(crate) fn root(&self) -> Result<(PathBuf, FoundBy), Fault> {
        if let Some(root) = self.root.get() {
            return Ok(root.clone());
        }
        let root = self.find_root()?;
        Ok(self.root.get_or_init(|| root).clone())
    }

    fn find_root(&self) -> Result<(PathBuf, FoundBy), Fault> {
        let base = self.base()?;
        let (root, found_by) = match &self.everywhere.workspace {
            Some(_) => (base, FoundBy::Name),
            None => {
                let root = find_root(&base);
                let found_by = if root.join(STATE_FOLDER).exists() {
                    FoundBy::State
                } else if root.join(".git").exists() {
                    FoundBy::Git
                } else {
                    FoundBy::Here
                };
                (root, found_by)
            }
        };
        match fs::canonicalize(&root) {
            Ok(root) => Ok((root, found_by)),
            Err(source) => Err(Fault::Io { doing: "open the workspace", path: root, source }),
        }
    }

    /// Whether anything has ever been guarded here. Who only looks does not make a state where there is none.
    pub(crate) fn has_state(&self) -> Result<bool, Fault> {
        Ok(self.root()?.0.join(STATE_FOLDER).join("version").exists())
    }

    pub(crate) fn workspace(&self) -> Result<Workspace, Fault> {
        let (root, _) = self.root()?;
        let settings = read_settings(&root.join(STATE_FOLDER).join("config.toml"))?;
        let ledger_head = self.ledger_head(&root)?;
        let Walls { mut protected, open } = self.walls(&root, &settings);
        protected.extend(crate::host::protected());
        let settings = Some(settings);
        Workspace::open(&root, Options { ledger_head, protected, open, settings, ..Options::default() })
    }

    pub(crate) fn gate(&self) -> Result<Gate, Fault> {
        Ok(Gate::new(self.workspace()?))
    }

    /// The ledger alone, which can be read also where the workspace cannot be opened.
    pub(crate) fn ledger(&self) -> Result<Ledger, Fault> {
        let (root, _) = self.root()?;
        let state = root.join(STATE_FOLDER);
        let max_size = LedgerSettings::default().max_size.0;
        let head = self.ledger_head(&root)?;
        Ok(Ledger::new(&state, &state.join("locks").join("ledger"), LedgerOptions { max_size, head }))
    }

    /// Where the last known head of the ledger is remembered; nowhere, if the user has no folder for state.
    pub(crate) fn ledger_head(&self, root: &Path) -> Result<Option<PathBuf>, Fault> {
        let id = identity(root)?;
        Ok(self.surroundings.state.as_ref().map(|state| state.join("tollgate").join("heads").join(id)))
    }

    /// The agent that was named by an argument.
    pub(crate) fn named_agent(&self) -> Option<&Agent> {
        self.everywhere.agent.as_ref()
    }

    /// The agent that was named by an argument or by the environment.
    pub(crate) fn named_by_environment(&self) -> Result<Option<Agent>, Stop> {
        match (&self.everywhere.agent, &self.surroundings.agent) {
            (Some(agent), _) => Ok(Some(agent.clone())),
            (None, Some(agent)) => from_environment("TOLLGATE_AGENT", agent).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Who acts.
    pub(crate) fn agent(&self) -> Result<Agent, Stop> {
        if let Some(agent) = &self.everywhere.agent {
            return Ok(agent.clone());
        }
        if let Some(agent) = &self.surroundings.agent {
            return from_environment("TOLLGATE_AGENT", agent);
        }
        let user = self.surroundings.user.as_deref().and_then(sanitised);
        user.map_or_else(|| Ok("cli".parse()?), Ok)
    }

    /// Whether an agent is at work: then what only people may do is refused.
    pub(crate) fn inside_an_agent(&self) -> Option<String> {
        self.surroundings.agent.as_ref().map(|agent| agent.to_string_lossy().into_owned())
    }

    /// Whose files are written: the agent of the turn that was named, else who acts.
    pub(crate) fn writer(&self) -> Option<Agent> {
        match self.turn_id() {
            Ok(Some(_)) => self.shared_turn().ok().map(|(_, turn)| turn.agent().clone()),
            _ => self.agent().ok(),
        }
    }

    /// The claim that was named.
    pub(crate) fn claim_id(&self, named: Option<&ClaimId>) -> Result<ClaimId, Stop> {
        match named {
            Some(id) => Ok(id.clone()),
            None => self.given_claim()?.ok_or_else(words::no_claim_id),
        }
    }

    /// What visitors of a server must show, if the environment says so.
    pub(crate) fn token(&self) -> Result<Option<String>, Stop> {
        match &self.surroundings.token {
            Some(token) => token.to_str().map(|token| Some(token.to_owned())).ok_or_else(words::bad_token),
            None => Ok(None),
        }
    }

    /// The user, by name, whatever agent is named.
    pub(crate) fn person(&self) -> String {
        let user = self.surroundings.user.as_deref().and_then(sanitised);
        user.map_or_else(|| "somebody".to_owned(), |user| user.as_str().to_owned())
    }

    /// The claim that whoever started this process holds for its agent.
    pub(crate) fn given_claim(&self) -> Result<Option<ClaimId>, Stop> {
        let given = self.surroundings.claim_id.as_ref();
        given.map(|id| from_environment("TOLLGATE_CLAIM_ID", id)).transpose()
    }

    /// Where programs are looked for.
    pub(crate) fn search_path(&self) -> Option<&OsStr> {
        self.surroundings.path.as_deref()
    }

    /// This program, to be started once more.
    pub(crate) fn program(&self) -> &Path {
        &self.surroundings.program
    }

    /// Whether the user leaves it to git how ssh is run.
    pub(crate) fn plain_ssh(&self) -> bool {
        !self.surroundings.ssh
    }

    /// The user's folder for tollgate's state.
    pub(crate) fn user_state(&self) -> Option<PathBuf> {
        self.surroundings.state.as_ref().map(|state| state.join("tollgate"))
    }

    /// The turn that was named, if one was.
    pub(crate) fn turn_id(&self) -> Result<Option<TurnId>, Stop> {
        match (&self.everywhere.turn, &self.surroundings.turn) {
            (Some(id), _) => Ok(Some(id.clone())),
            (None, Some(id)) => from_environment("TOLLGATE_TURN", id).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// The turn that a command belongs to: the one that was named, else one of its own.
    pub(crate) fn turn(&self) -> Result<Box<dyn Sightings>, Stop> {
        match self.turn_id()? {
            Some(_) => Ok(Box::new(self.shared_turn()?.1)),
            None => Ok(Box::new(Turn::begin(TurnId::new()?, self.agent()?))),
        }
    }

    /// The turn that was named, and those beside it.
    pub(crate) fn shared_turn(&self) -> Result<(SharedTurns, SharedTurn), Stop> {
        let Some(id) = self.turn_id()? else { return Err(words::no_turn()) };
        let mut why_not = Fault::Missing { what: format!("the turn `{id}`") };
        for place in self.existing_turn_places()? {
            // A place that cannot be used matters only if the turn is not in another: a stranger could have made it.
            let found = place.open().and_then(|turns| turns.open(&id).map(|turn| (turns, turn)));
            match (found, &self.everywhere.agent) {
                (Ok((_, turn)), Some(agent)) if agent != turn.agent() => {
                    return Err(words::turn_of_another(&turn, agent));
                }
                (Ok(found), _) => return Ok(found),
                (Err(Fault::Missing { .. }), _) => {}
                (Err(fault), _) => why_not = fault,
            }
        }
        Err(why_not.into())
    }

    /// Where there are turns, or were.
    pub(crate) fn existing_turns(&self) -> Result<Vec<SharedTurns>, Fault> {
        self.existing_turn_places()?.iter().map(TurnPlace::open).collect()
    }

    /// All places, not only the best: a turn may have been begun where there was no runtime folder.
    fn existing_turn_places(&self) -> Result<Vec<TurnPlace>, Fault> {
        let mut places = self.turn_places()?;
        places.retain(|place| place.parent.join(&place.name).symlink_metadata().is_ok());
        Ok(places)
    }

    /// Where new turns are kept: the first place that can be used.
    pub(crate) fn new_turns(&self) -> Result<SharedTurns, Fault> {
        let mut refused = Fault::Invalid { what: "there is no folder for turns".into() };
        for place in self.turn_places()? {
            match place.open() {
                Ok(turns) => return Ok(turns),
                Err(fault) => refused = fault,
            }
        }
        Err(refused)
    }

    fn turn_places(&self) -> Result<Vec<TurnPlace>, Fault> {
        let (root, _) = self.root()?;
        let id = identity(&root)?;
        let uid = self.surroundings.uid;
        let mut places = Vec::new();
        if let Some(runtime) = &self.surroundings.runtime {
            places.push(TurnPlace { parent: runtime.join("tollgate"), name: id.clone().into() });
        }
        let memory = Path::new("/dev/shm");
        if memory.is_dir() {
            places.push(TurnPlace { parent: memory.join(format!("tollgate-{uid}")), name: id.into() });
        }
        // One folder for each user: several may share the workspace.
        let name = uid.to_string().into();
        places.push(TurnPlace { parent: root.join(STATE_FOLDER).join("run"), name });
        Ok(places)
    }
}

/// A folder for turns, in a folder that is only for that.
struct TurnPlace {
    parent: PathBuf,
    name: OsString,
}

impl TurnPlace {
    fn open(&self) -> Result<SharedTurns, Fault> {
        if self.parent.ends_with("run") {
            // Below the workspace's own state, which others of its group may use, too.
            match fs::DirBuilder::new().mode(0o770).create(&self.parent) {
                Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(Fault::Io { doing: "make the folder", path: self.parent.clone(), source });
                }
                _ => {}
            }
        } else {
            // Makes it, or checks that it is this user's alone: in a place that everyone can write to, it may be a trap.
            SharedTurns::new(self.parent.clone())?;
        }
        SharedTurns::new(self.parent.join(&self.name))
    }
}

/// By what a workspace is known outside of it.
pub(crate) fn identity(root: &Path) -> Result<String, Fault> {
    let metadata =
        fs::metadata(root).map_err(|source| Fault::Io { doing: "look at", path: root.into(), source })?;
    let mut known = root.as_os_str().as_bytes().to_vec();
    known.push(0);
    known.extend(metadata.ino().to_le_bytes());
    // The number of a folder that was removed may be given to the next; not every file system tells the birth.
    let born = metadata.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    known.extend(born.map_or(0, |born| born.as_nanos()).to_le_bytes());
    Ok(Digest::of(&known).to_string()[..16].to_owned())
}

fn from_environment<T: std::str::FromStr<Err = Fault>>(name: &str, value: &OsString) -> Result<T, Stop> {
    value.to_string_lossy().parse().map_err(|fault: Fault| words::bad_variable(name, &fault))
}

/// A user's name as the name of an agent; none if nothing is left of it.
fn sanitised(user: &str) -> Option<Agent> {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.@+".contains(c) { c } else { '-' };
    let name: String = user.chars().map(plain).collect();
    // As long as a name may be. All of it is ASCII by now.
    name.trim_matches(['.', '-']).chars().take(64).collect::<String>().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_user_name_makes_an_agent_or_none() {
        let name = |user: &str| sanitised(user).map(|agent| agent.as_str().to_owned());
        assert_eq!(name("ada").as_deref(), Some("ada"));
        assert_eq!(name("DOMAIN\\ada lovelace").as_deref(), Some("DOMAIN-ada-lovelace"));
        assert_eq!(name("..ada\x1b[").as_deref(), Some("ada"));
        assert_eq!(name(&"x".repeat(100)), Some("x".repeat(64)));
        assert_eq!(name("--"), None);
        assert_eq!(name("日本"), None);
    }

    #[test]
    fn a_new_folder_at_the_same_path_is_another_workspace() {
        let keep = tempfile::tempdir().unwrap();
        let path = keep.path().join("w");
        fs::create_dir(&path).unwrap();
        let first = identity(&path).unwrap();
        assert_eq!(identity(&path).unwrap(), first);
        fs::remove_dir(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_ne!(identity(&path).unwrap(), first);
    }
}
