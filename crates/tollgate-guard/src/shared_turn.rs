//! A turn kept in a folder, for processes that end before the turn does: commands in a script, hooks of one agent.
//!
//! The folder is private to its user and preferably in memory. `turn.json` says whose turn it is, `files/` holds what the
//! agent knows, `leads/` where links led, and `stamps/` hashes of large files (see `turn_shard.rs`); `text/` holds bytes that the agent was shown.
//! `start.json`, `reads` and `changed` are for the record of the turn. Beside the turns, `commands/` says when the commands of each agent ran of which nobody saw what they did.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::disk::{gone_is_none, modified};
use crate::path::{FilePath, escape, unescape};
use crate::turn::{
    Known, READS_PER_TURN, Session, Sighting, SightingChange, Stamp, TEXT_PER_FILE, TEXT_PER_TURN, TurnRead,
    TurnStart, TurnState,
};
use crate::turn_shard::{Shard, WordShard, open_locked};
use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::file::{names_in, replace_file, replace_file_with_mode};
use tollgate_base::name::{Agent, TurnId};
use tollgate_base::private;
use tollgate_base::settings::{Durability, Settings, Unfinished, Unread};

/// The version of the format. A later version is refused.
const VERSION: u32 = 1;

/// A turn that nobody has used for a day belongs to an agent that is gone.
const FORGOTTEN: Duration = Duration::from_secs(24 * 3600);

/// The list of an agent's commands, in its folder.
const TIMES: &str = "times";

/// How a turn began, in its folder.
const START_FILE: &str = "start.json";

/// What its agent was shown, a line for each read.
const READS_FILE: &str = "reads";

/// A file that is there once the agent has changed something.
const CHANGED_FILE: &str = "changed";

/// The length of the list of an agent's commands, in bytes: about a thousand commands.
const COMMANDS: usize = 40 << 10;

/// The length of the list of what the agent was shown, in bytes: for paths of ordinary length, enough for all that a record may have.
const READS: usize = READS_PER_TURN * 160;

/// The turns of one workspace and one user.
#[derive(Debug, Clone)]
pub struct SharedTurns {
    folder: PathBuf,
}

/// What remains of a turn beyond its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaves {
    /// Nothing.
    Nothing,
    /// What the agent last knew of each file, for its other turns. They learn it at once.
    Known,
}

impl From<&Settings> for Leaves {
    /// `unread = "known"` compares with it, what an agent has seen it may destroy, and it stays in the tree in which it began.
    fn from(Settings { guard, git, .. }: &Settings) -> Self {
        match (guard.unread, guard.unfinished, git.stay) {
            (Unread::Allow | Unread::Refuse, Unfinished::Allow, false) => Self::Nothing,
            _ => Self::Known,
        }
    }
}

/// A turn that several processes share.
#[derive(Debug)]
pub struct SharedTurn {
    folder: PathBuf,
    session: Session,
    id: TurnId,
    agent: Agent,
    started: Timestamp,
}

#[derive(Serialize, Deserialize)]
struct About {
    version: u32,
    agent: Agent,
    started: Timestamp,
    /// Whether the agent's other turns learn what this one knows.
    #[serde(default)]
    known: bool,
}

impl SharedTurns {
    /// Keeps turns in this folder and creates it if it is missing. It must belong to this user and be closed to all others.
    pub fn new(folder: PathBuf) -> Result<Self> {
        private_folder(&folder)?;
        Ok(Self { folder })
    }

    /// The folder, for other things that the short-lived processes of an agent share.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Begins a turn, and deletes forgotten ones.
    pub fn begin(&self, id: TurnId, agent: Agent, now: Timestamp, leaves: Leaves) -> Result<SharedTurn> {
        self.forget(now)?;
        let folder = self.turn_folder(&id);
        for folder in [&self.folder.join("turns"), &folder, &folder.join("files"), &folder.join("text")] {
            private_folder(folder)?;
        }
        let about = About { version: VERSION, agent, started: now, known: leaves == Leaves::Known };
        let text = serde_json::to_vec(&about).map_err(|error| Fault::invalid(error.to_string()))?;
        // No turn survives a power failure, because no agent does.
        replace_file(&folder.join("turn.json"), &text, Durability::Fast)?;
        self.open(&id)
    }

    /// Opens a turn that has begun and not ended.
    pub fn open(&self, id: &TurnId) -> Result<SharedTurn> {
        let folder = self.turn_folder(id);
        let path = folder.join("turn.json");
        let missing = || Fault::no_turn(id);
        let text = gone_is_none(private::read(&path).at("read", &path))?.ok_or_else(missing)?;
        let about: About = serde_json::from_slice(&text).map_err(|error| Fault::damaged(&path, error))?;
        if about.version > VERSION {
            return Err(Fault::NewerFormat { path, found: about.version, known: VERSION });
        }
        let session = if about.known { self.session(&about.agent)? } else { Session::default() };
        Ok(SharedTurn { folder, session, id: id.clone(), agent: about.agent, started: about.started })
    }

    /// What this agent knew in all its turns with [`Leaves::Known`], and in calls without a turn.
    pub fn session(&self, agent: &Agent) -> Result<Session> {
        let known = self.folder.join("known");
        let folder = known.join(agent.as_str());
        for folder in [&known, &folder, &folder.join("leads")] {
            private_folder(folder)?;
        }
        Ok(Session::within(Arc::new(KnownFolder(folder))))
    }

    /// The turns that have not ended, oldest first.
    pub fn list(&self) -> Result<Vec<SharedTurn>> {
        let mut turns = Vec::new();
        for name in names_in(&self.folder.join("turns"))? {
            let Some(id) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            match self.open(&id) {
                Ok(turn) => turns.push(turn),
                // The turn has just ended, or is just being created.
                Err(Fault::Missing { .. }) => {}
                Err(fault) => return Err(fault),
            }
        }
        turns.sort_by_key(|turn| turn.started);
        Ok(turns)
    }

    /// The turns that nobody has used for a day, each with the time of its last use. [`Self::begin`] deletes them.
    pub fn forgotten(&self, now: Timestamp) -> Result<Vec<(SharedTurn, Timestamp)>> {
        let (folder, limit) = (self.folder.join("turns"), now - FORGOTTEN);
        let mut found = Vec::new();
        for name in names_in(&folder)? {
            let path = folder.join(&name);
            let Some(id) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            // One that cannot be opened is deleted all the same.
            if is_older(&path, limit)?
                && let Ok(turn) = self.open(&id)
            {
                let used = [READS_FILE, "files", ""].map(|name| modified(&path.join(name)));
                found.push((turn, used.into_iter().flatten().max().unwrap_or(limit)));
            }
        }
        Ok(found)
    }

    /// Ends a turn.
    pub fn end(&self, turn: SharedTurn) -> Result<()> {
        remove_folder(&turn.folder)
    }

    fn turn_folder(&self, id: &TurnId) -> PathBuf {
        self.folder.join("turns").join(id.as_str())
    }

    fn forget(&self, now: Timestamp) -> Result<()> {
        for kind in ["turns", "known", "commands"] {
            let folder = self.folder.join(kind);
            for name in names_in(&folder)? {
                let path = folder.join(name);
                if is_older(&path, now - FORGOTTEN)? {
                    remove_folder(&path)?;
                }
            }
        }
        Ok(())
    }
}

impl SharedTurn {
    /// When the turn began.
    pub fn started(&self) -> Timestamp {
        self.started
    }

    /// Every file that the turn knows, sorted by path.
    pub fn files(&self) -> Result<Vec<(FilePath, Sighting)>> {
        self.sightings_where(|_| true)
    }

    /// The files whose paths pass the filter, sorted by path.
    pub fn files_where(&self, wanted: impl FnMut(&Path) -> bool) -> Result<Vec<FilePath>> {
        Ok(self.sightings_where(wanted)?.into_iter().map(|(path, _)| path).collect())
    }

    fn sightings_where(&self, mut wanted: impl FnMut(&Path) -> bool) -> Result<Vec<(FilePath, Sighting)>> {
        let folder = self.folder.join("files");
        let mut files = Vec::new();
        for name in names_in(&folder)? {
            files.extend(Shard::at(folder.join(name)).sightings_where(&mut wanted)?);
        }
        // After the filter: comparing all paths of a large turn takes longer than looking at the files.
        files.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(files)
    }

    /// The folder with the times at which commands ran of which nobody saw what they did, a folder for each agent.
    fn commands(&self) -> PathBuf {
        self.folder.ancestors().nth(2).unwrap_or(&self.folder).join("commands")
    }

    fn shard(&self, path: &FilePath) -> Shard {
        Shard::of(&self.folder.join("files"), path)
    }

    /// Adds to the number of bytes of text. False if there is no room for them.
    fn reserve_text(&self, count: usize) -> Result<bool> {
        let path = self.folder.join("text_bytes");
        let mut file = open_locked(&path)?;
        let mut text = String::new();
        file.read_to_string(&mut text).at("read", &path)?;
        let used = text.trim().parse::<usize>().unwrap_or(0) + count;
        if used > TEXT_PER_TURN {
            return Ok(false);
        }
        // The length is fixed, so that one write replaces the number.
        file.write_all_at(format!("{used:>20}\n").as_bytes(), 0).at("write", &path)?;
        Ok(true)
    }
}

impl TurnState for SharedTurn {
    fn id(&self) -> &TurnId {
        &self.id
    }

    fn agent(&self) -> &Agent {
        &self.agent
    }

    fn get(&self, path: &FilePath) -> Result<Option<Sighting>> {
        self.shard(path).get(path)
    }

    fn update(&self, path: &FilePath, change: &mut SightingChange<'_>) -> Result<()> {
        let mut after = None;
        self.shard(path).update(path, &mut |seen| {
            after = change(seen);
            after
        })?;
        after.map_or(Ok(()), |after| self.session.set(path, after))
    }

    fn led_to(&self, name: &Path) -> Result<Option<FilePath>> {
        led_to(&self.folder.join("leads"), name)
    }

    fn set_lead(&self, name: &Path, path: &FilePath) -> Result<()> {
        let folder = self.folder.join("leads");
        private_folder(&folder)?;
        WordShard::of(&folder, name).set(name, &escape(path.as_path()))?;
        self.session.set_lead(name, path)
    }

    fn names(&self) -> Result<Vec<PathBuf>> {
        names_of(&self.folder.join("files"), &self.folder.join("leads"))
    }

    fn session(&self) -> &dyn Known {
        &self.session
    }

    fn stamped(&self, path: &FilePath, stamp: &Stamp) -> Result<Option<Digest>> {
        let word = WordShard::of(&self.folder.join("stamps"), path.as_path()).get(path.as_path())?;
        let digest = |word: String| word.strip_prefix(&stamp_word(stamp))?.parse().ok();
        Ok(word.and_then(digest))
    }

    fn keep_stamp(&self, path: &FilePath, stamp: &Stamp, digest: Digest) -> Result<()> {
        let folder = self.folder.join("stamps");
        private_folder(&folder)?;
        let word = format!("{}{digest}", stamp_word(stamp));
        WordShard::of(&folder, path.as_path()).set(path.as_path(), &word)
    }

    fn ran(&self, from: Timestamp, to: Timestamp) -> Result<()> {
        let own = self.commands().join(self.agent.as_str());
        for folder in [&self.commands(), &own] {
            private_folder(folder)?;
        }
        let path = own.join(TIMES);
        let mut file = open_locked(&path)?;
        let mut text = String::new();
        file.read_to_string(&mut text).at("read", &path)?;
        if text.len() > COMMANDS {
            let half =
                text[text.len() / 2..].split_once('\n').map_or(String::new(), |(_, half)| half.to_owned());
            file.set_len(0).at("write", &path)?;
            text = half;
            file.write_all_at(text.as_bytes(), 0).at("write", &path)?;
        }
        let line = format!("{} {}\n", from.as_nanosecond(), to.as_nanosecond());
        file.write_all_at(line.as_bytes(), text.len() as u64).at("write", &path)
    }

    fn ran_alone_at(&self, time: i128) -> Result<bool> {
        let mut ran = false;
        for name in names_in(&self.commands())? {
            let path = self.commands().join(&name).join(TIMES);
            let text = gone_is_none(private::read_to_string(&path).at("read", &path))?.unwrap_or_default();
            let is_during = |line: &str| {
                let (from, to) = line.split_once(' ')?;
                Some((from.parse::<i128>().ok()?..=to.parse::<i128>().ok()?).contains(&time))
            };
            if text.lines().any(|line| is_during(line) == Some(true)) {
                let agent: Option<Agent> = name.to_str().and_then(|name| name.parse().ok());
                if !agent.is_some_and(|agent| agent.is_same_session(&self.agent)) {
                    return Ok(false);
                }
                ran = true;
            }
        }
        Ok(ran)
    }

    fn began(&self, start: &TurnStart) -> Result<()> {
        let text = serde_json::to_vec(start).map_err(|error| Fault::invalid(error.to_string()))?;
        replace_file_with_mode(&self.folder.join(START_FILE), &text, Durability::Fast, Some(0o600))
    }

    fn start(&self) -> Result<Option<TurnStart>> {
        let path = self.folder.join(START_FILE);
        let text = gone_is_none(private::read(&path).at("read", &path))?;
        text.map(|text| serde_json::from_slice(&text).map_err(|error| Fault::damaged(&path, error)))
            .transpose()
    }

    fn note_read(&self, read: &TurnRead) -> Result<()> {
        let path = self.folder.join(READS_FILE);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND;
        let opened = private::open_with_mode(&path, flags, Mode::RUSR | Mode::WUSR);
        let mut file = File::from(opened.at("open", &path)?);
        if file.metadata().at("look at", &path)?.len() > READS as u64 {
            return Ok(());
        }
        // At once, so that the lines of several processes do not mix.
        file.write_all(read.line().as_bytes()).at("write", &path)
    }

    fn reads(&self) -> Result<Vec<TurnRead>> {
        let path = self.folder.join(READS_FILE);
        let text = gone_is_none(private::read_to_string(&path).at("read", &path))?;
        Ok(TurnRead::all_in(&text.unwrap_or_default()))
    }

    fn note_change(&self) -> Result<()> {
        let path = self.folder.join(CHANGED_FILE);
        private::open_with_mode(&path, OFlags::WRONLY | OFlags::CREATE, Mode::RUSR | Mode::WUSR)
            .map(drop)
            .at("open", &path)
    }

    fn has_changed(&self) -> Result<bool> {
        Ok(modified(&self.folder.join(CHANGED_FILE)).is_some())
    }

    fn keep_text(&self, digest: Digest, bytes: &[u8]) -> Result<()> {
        let path = self.folder.join("text").join(digest.to_string());
        if bytes.len() > TEXT_PER_FILE || path.exists() || !self.reserve_text(bytes.len())? {
            return Ok(());
        }
        replace_file(&path, bytes, Durability::Fast)
    }

    fn text(&self, digest: Digest) -> Result<Option<Arc<[u8]>>> {
        let path = self.folder.join("text").join(digest.to_string());
        Ok(gone_is_none(private::read(&path).at("read", &path))?.map(Arc::from))
    }
}

/// A stamp as one word, before the hash.
fn stamp_word(stamp: &Stamp) -> String {
    stamp.word() + ":"
}

fn led_to(leads: &Path, name: &Path) -> Result<Option<FilePath>> {
    let word = WordShard::of(leads, name).get(name)?;
    Ok(word.and_then(|word| unescape(&word)).map(FilePath::trusted))
}

/// The paths of all files in the shards of one folder, and the names in those of another.
fn names_of(files: &Path, leads: &Path) -> Result<Vec<PathBuf>> {
    let mut names = Vec::new();
    for shard in names_in(files)?.into_iter().map(|name| files.join(name)).filter(|path| *path != leads) {
        // Only the paths are wanted.
        Shard::at(shard).sightings_where(&mut |path| {
            names.push(path.to_owned());
            false
        })?;
    }
    for shard in names_in(leads)? {
        names.extend(WordShard::at(leads.join(shard)).keys()?);
    }
    Ok(names)
}

/// What an agent knows beyond its turns, in a folder of its own.
#[derive(Debug)]
struct KnownFolder(PathBuf);

impl Known for KnownFolder {
    fn get(&self, path: &FilePath) -> Result<Option<Sighting>> {
        Shard::of(&self.0, path).get(path)
    }

    fn set(&self, path: &FilePath, sighting: Sighting) -> Result<()> {
        Shard::of(&self.0, path).update(path, &mut |_| Some(sighting))
    }

    fn led_to(&self, name: &Path) -> Result<Option<FilePath>> {
        led_to(&self.0.join("leads"), name)
    }

    fn set_lead(&self, name: &Path, path: &FilePath) -> Result<()> {
        WordShard::of(&self.0.join("leads"), name).set(name, &escape(path.as_path()))
    }

    fn names(&self) -> Result<Vec<PathBuf>> {
        names_of(&self.0, &self.0.join("leads"))
    }
}

/// Whether a folder and everything in it was last written before this time. The folder alone does not tell: a line of a shard is
/// rewritten in place, which changes the time of the shard only. What is from the future, because the clock was set back, is new.
fn is_older(path: &Path, limit: Timestamp) -> Result<bool> {
    if modified(path).is_none_or(|written| written >= limit) {
        return Ok(false);
    }
    let is_folder = fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    let inside = if is_folder { names_in(path)? } else { Vec::new() };
    // Ends at the first new name, so that a turn that is in use costs little.
    for name in inside {
        if !is_older(&path.join(name), limit)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Creates a folder that only this user can enter, or checks that it is one. Where every user can write, another user may
/// have created a folder of that name as a trap.
fn private_folder(path: &Path) -> Result<()> {
    private::create_folder(path, 0o700).at("make the folder", path)?;
    let metadata = fs::symlink_metadata(path).at("look at", path)?;
    let private = metadata.is_dir()
        && metadata.uid() == rustix::process::geteuid().as_raw()
        && metadata.mode() & 0o077 == 0;
    if private {
        Ok(())
    } else {
        Err(Fault::damaged(path, "it must be a folder that only its owner can enter, and yours"))
    }
}

fn remove_folder(path: &Path) -> Result<()> {
    private::remove_tree(path).at("remove the folder", path)
}

#[cfg(test)]
mod tests;
