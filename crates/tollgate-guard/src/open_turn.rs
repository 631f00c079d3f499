//! What a turn that goes on has read and changed: one file for each turn in `.tollgate/open/`, for the turn itself and for others.
//!
//! The turn looks here for the files on which its work is based (see `premises`), and every other turn for files on which
//! this one works, too (see [`crate::overlap`]). A turn that is recorded in the ledger makes its file when it begins, and deletes it
//! when it ends; a turn of one call has none. Nothing is flushed, and no lock is needed: each line is appended by one write, and a line that
//! cannot be read is skipped. No turn survives a power failure, and if a line is lost, its agent is not told of a change.
//!
//! The first line has the agent and the time; each other one begins with what it says: `B` how the turn began, if it is in the memory of one
//! process, which holds a lock on the file (see `left_turn`), `R` the agent was shown the whole file, `P` a part of it, `W` it changed it, `S` what the file was at a later look, `T` the agent was told of that, `O` it was told of another agent. Paths are relative to the workspace.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rustix::fs::{Mode, OFlags};

use crate::disk::{gone_is_none, modified, stamp_at};
use crate::path::{FilePath, escape, unescape};
use crate::protected::is_of_git;
use crate::root::Root;
use crate::turn::{Extent, FileState, Stamp, TurnStart, TurnState};
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::file::names_in;
use tollgate_base::lock::lock_file;
use tollgate_base::name::{Agent, TurnId};
use tollgate_base::private;
use tollgate_base::settings::GuardMode;

/// The folder in the state of a workspace.
const FOLDER: &str = "open";

/// The first words of a file. A file of another version is skipped.
const VERSION: &str = "tollgate-turn 1";

/// The begin of the line behind the first one, in the file of a turn in the memory of one process.
pub(crate) const BEGAN: &str = "B ";

/// The part of a file that is read, from its end: more than the last thousand reads. So a call costs the same in a turn that has read more.
const WINDOW: u64 = 256 << 10;

/// The length of the first line is less than this.
pub(crate) const FIRST_LINE: usize = 256;

/// How long a turn waits for a process that looks whether it has an owner, which takes microseconds.
const LOOK: Duration = Duration::from_secs(1);

/// A turn that goes on, with the files that it has read as a whole or changed.
#[derive(Debug, Clone)]
pub struct OpenTurn {
    /// Its id.
    pub id: TurnId,
    /// Its agent.
    pub agent: Agent,
    /// When it began.
    pub started: Timestamp,
    /// When it last read or changed a file.
    pub used: Timestamp,
    /// By their escaped paths.
    files: HashMap<String, TouchedFile>,
    /// The agents, trees and files of which it was told that they work there, too: as in its lines.
    told_of: HashSet<String>,
}

/// A file that a turn has read as a whole, or changed.
#[derive(Debug, Clone, Default)]
pub(crate) struct TouchedFile {
    /// When the agent was last shown all of it.
    pub(crate) read: Option<Timestamp>,
    /// What it was when the agent last read or changed it.
    pub(crate) known: Option<FileState>,
    /// What it was when it last had this stamp.
    pub(crate) looked: Option<(Stamp, FileState)>,
    /// The states of which the agent was told.
    pub(crate) told: Vec<FileState>,
    /// What the turn made of it.
    change: Option<TurnChange>,
    /// Later in the file is newer.
    order: usize,
}

impl TouchedFile {
    /// What the turn made of it. `None` if that is what it was before.
    pub(crate) fn change(&self) -> Option<TurnChange> {
        self.change.filter(|change| change.before != change.after)
    }
}

/// What a turn made of a file: from the state before its first change to the one after its last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TurnChange {
    pub(crate) before: FileState,
    pub(crate) after: FileState,
    pub(crate) time: Timestamp,
}

impl OpenTurn {
    /// The files that the agent was shown as a whole, relative to the workspace, in order of their paths.
    pub fn files_read(&self) -> Vec<PathBuf> {
        self.paths(|file| file.read.is_some())
    }

    /// The files that the turn has changed, relative to the workspace, in order of their paths.
    pub fn files_changed(&self) -> Vec<PathBuf> {
        self.paths(|file| file.change().is_some())
    }

    fn paths(&self, wanted: impl Fn(&TouchedFile) -> bool) -> Vec<PathBuf> {
        let files = self.files.iter().filter(|(_, file)| wanted(file));
        let mut paths: Vec<PathBuf> = files.filter_map(|(word, _)| unescape(word)).collect();
        paths.sort();
        paths
    }

    /// The files that the agent was shown as a whole, the newest first.
    pub(crate) fn newest_read(&self) -> Vec<(PathBuf, &TouchedFile)> {
        let mut files: Vec<_> = self.files.iter().filter(|(_, file)| file.read.is_some()).collect();
        files.sort_by_key(|(_, file)| std::cmp::Reverse(file.order));
        files.into_iter().filter_map(|(word, file)| Some((unescape(word)?, file))).collect()
    }

    /// The files on which both turns work: both have changed them, or one has changed and the other one read them.
    pub(crate) fn shared_with(&self, other: &Self) -> impl Iterator<Item = PathBuf> {
        self.files.iter().filter_map(|(word, own)| {
            let others = other.files.get(word)?;
            let (changed, changed_there) = (own.change().is_some(), others.change().is_some());
            let touched = (changed || own.read.is_some()) && (changed_there || others.read.is_some());
            if touched && (changed || changed_there) { unescape(word) } else { None }
        })
    }

    /// What it knows of this file.
    pub(crate) fn file(&self, path: &Path) -> Option<&TouchedFile> {
        self.files.get(&escape(path))
    }

    /// Whether its agent was told that this one works on this file, in the workspace at this root.
    pub(crate) fn was_told_of(&self, agent: &Agent, root: &Path, file: &Path) -> bool {
        self.told_of.contains(&told_of_words(agent, root, file))
    }

    fn parse(id: TurnId, first: &str, lines: &str, used: Timestamp) -> Option<Self> {
        let (agent, started) = first.strip_prefix(VERSION)?.trim().split_once(' ')?;
        let (agent, started) = (agent.parse().ok()?, time_of(started.lines().next()?)?);
        let mut turn = Self { id, agent, started, used, files: HashMap::new(), told_of: HashSet::new() };
        for (order, line) in lines.split_inclusive('\n').enumerate() {
            // Without a line that its writer did not finish.
            let _ = line.strip_suffix('\n').and_then(|line| turn.take(order, line));
        }
        Some(turn)
    }

    /// Takes in one line. `None` if it cannot be read.
    fn take(&mut self, order: usize, line: &str) -> Option<()> {
        let (kind, rest) = line.split_once(' ')?;
        match kind {
            "O" => {
                self.told_of.insert(rest.to_owned());
                return Some(());
            }
            // For the record only.
            "B" | "P" => return Some(()),
            _ => {}
        }
        let (words, path) = rest.rsplit_once(' ')?;
        let mut words = words.split(' ');
        let file = match self.files.get_mut(path) {
            Some(file) => file,
            None => self.files.entry(path.to_owned()).or_default(),
        };
        match kind {
            "R" => {
                let (time, stamp) = (time_of(words.next()?)?, Stamp::parse(words.next()?));
                let state = state_of(words.next()?)?;
                (file.read, file.known) = (Some(time), Some(state));
                file.looked = stamp.map(|stamp| (stamp, state));
                file.order = order;
            }
            "W" => {
                let (time, before) = (time_of(words.next()?)?, state_of(words.next()?)?);
                let after = state_of(words.next()?)?;
                let before = file.change.map_or(before, |change| change.before);
                file.change = Some(TurnChange { before, after, time });
                (file.known, file.looked, file.order) = (Some(after), None, order);
            }
            "S" => file.looked = Some((Stamp::parse(words.next()?)?, state_of(words.next()?)?)),
            "T" => file.told.push(state_of(words.next()?)?),
            _ => {}
        }
        Some(())
    }
}

/// A turn begins: from now on it is told of changes, and others see what it works on.
pub(crate) fn begin(root: &Root, turn: &dyn TurnState, start: &TurnStart) -> Result<()> {
    if root.settings().guard.mode == GuardMode::Off {
        return Ok(());
    }
    let folder = folder(&root.state_path());
    let mode = fs::metadata(root.state_path()).at("look at", &folder)?.mode() & 0o770;
    private::create_folder(&folder, mode).at("make the folder", &folder)?;
    let file = folder.join(turn.id().as_str());
    let mode = Mode::from_raw_mode((mode & 0o660) as rustix::fs::RawMode);
    let opened = private::open_with_mode(&file, OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND, mode);
    let mut opened = File::from(opened.at("make", &file)?);
    let mut lines = format!("{VERSION} {} {}\n", turn.agent(), root.now().as_microsecond());
    let Some(alive) = turn.alive() else { return opened.write_all(lines.as_bytes()).at("write", &file) };
    // Locked before the line that says so: who finds the line and no lock knows that the process is gone.
    if alive.get().is_some() || lock_file(&opened, &file, LOOK).unwrap_or(false) {
        let start = serde_json::to_string(start).map_err(|error| Fault::invalid(error.to_string()))?;
        lines += &format!("{BEGAN}{start}\n");
    }
    opened.write_all(lines.as_bytes()).at("write", &file)?;
    // Keeps the first one.
    let _ = alive.set(opened);
    Ok(())
}

/// A turn ends.
pub(crate) fn end(root: &Root, turn: &TurnId) -> Result<()> {
    let file = folder(&root.state_path()).join(turn.as_str());
    gone_is_none(private::remove_file(&file).at("remove", &file)).map(drop)
}

/// The agent asked for this file, and was shown this much of this state. Only a whole read is a premise. `since`: it was read after this
/// time.
pub(crate) fn read(
    root: &Root,
    turn: &TurnId,
    path: &FilePath,
    (state, shown): (FileState, Extent),
    since: Timestamp,
) {
    if state.digest().is_none() || !is_noted(root, path) {
        return;
    }
    let kind = match shown {
        Extent::Whole => "R",
        Extent::Part => "P",
    };
    // A stamp that is older than the read belongs to the bytes that were read.
    let stamp = stamp_at(path.as_path()).filter(|stamp| stamp.is_settled(since));
    let stamp = stamp.map_or("-".to_owned(), |stamp| stamp.word());
    let time = root.now().as_microsecond();
    append(root, turn, &format!("{kind} {time} {stamp} {} {}\n", word_of(state), word_of_path(root, path)));
}

/// The turn has changed these files: path, state before and after.
pub(crate) fn changed(root: &Root, turn: &TurnId, changes: &[(&FilePath, FileState, FileState)]) {
    let time = root.now().as_microsecond();
    let line = |(path, before, after): &(&FilePath, FileState, FileState)| {
        let [before, after] = [*before, *after].map(word_of);
        format!("W {time} {before} {after} {}\n", word_of_path(root, path))
    };
    let lines: String = changes.iter().filter(|(path, ..)| is_noted(root, path)).map(line).collect();
    append(root, turn, &lines);
}

/// The lines that an agent was told of these states of files.
pub(crate) fn told(root: &Root, turn: &TurnId, files: &[(&FilePath, FileState)]) {
    let line = |(path, state): &(&FilePath, FileState)| {
        format!("T {} {}\n", word_of(*state), word_of_path(root, path))
    };
    append(root, turn, &files.iter().map(line).collect::<String>());
}

/// At a later look, a file with this stamp was this.
pub(crate) fn looked(root: &Root, turn: &TurnId, path: &FilePath, stamp: &Stamp, state: FileState) {
    append(root, turn, &format!("S {} {} {}\n", stamp.word(), word_of(state), word_of_path(root, path)));
}

/// An agent was told that these agents work on these files, in the workspaces at these roots.
pub(crate) fn told_of<'a>(
    root: &Root,
    turn: &TurnId,
    others: impl IntoIterator<Item = (&'a Agent, &'a Path, &'a Path)>,
) {
    let line = |(agent, at, file): (&Agent, &Path, &Path)| format!("O {}\n", told_of_words(agent, at, file));
    append(root, turn, &others.into_iter().map(line).collect::<String>());
}

/// A turn that goes on. `None` if it is not recorded, or has ended.
pub(crate) fn load(state: &Path, id: &TurnId) -> Result<Option<OpenTurn>> {
    let path = folder(state).join(id.as_str());
    let Some(file) = gone_is_none(private::open(&path, OFlags::RDONLY).at("open", &path))? else {
        return Ok(None);
    };
    let found = file.metadata().at("look at", &path)?;
    let start = found.len().saturating_sub(WINDOW);
    let mut bytes = vec![0; usize::try_from(found.len() - start).unwrap_or(0)];
    file.read_exact_at(&mut bytes, start).at("read", &path)?;
    let text = String::from_utf8_lossy(&bytes);
    let used = found.modified().ok().and_then(|time| time.try_into().ok()).unwrap_or_default();
    if start == 0 {
        let (first, lines) = text.split_once('\n').unwrap_or_default();
        return Ok(OpenTurn::parse(id.clone(), first, lines, used));
    }
    let mut first = [0; FIRST_LINE];
    file.read_exact_at(&mut first, 0).at("read", &path)?;
    // The window begins within a line.
    let (_, lines) = text.split_once('\n').unwrap_or_default();
    Ok(OpenTurn::parse(id.clone(), &String::from_utf8_lossy(&first), lines, used))
}

/// The turns that go on in the workspace with this state and were used since this time, the oldest first, without this one.
pub(crate) fn all(state: &Path, since: Timestamp, except: Option<&TurnId>) -> Result<Vec<OpenTurn>> {
    let mut turns = Vec::new();
    for name in names_in(&folder(state))? {
        let Some(id) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        if except != Some(&id) && modified(&folder(state).join(&name)).is_some_and(|used| used >= since) {
            turns.extend(load(state, &id)?);
        }
    }
    turns.sort_by(|a, b| (a.started, &a.id).cmp(&(b.started, &b.id)));
    Ok(turns)
}

pub(crate) fn folder(state: &Path) -> PathBuf {
    state.join(FOLDER)
}

/// git's own files are nobody's premise.
fn is_noted(root: &Root, path: &FilePath) -> bool {
    !is_of_git(&root.key(path))
}

/// Appends lines in one write. Nothing depends on them, so a file that cannot be written, in a sandbox for example, is no fault.
fn append(root: &Root, turn: &TurnId, lines: &str) {
    if lines.is_empty() {
        return;
    }
    let path = folder(&root.state_path()).join(turn.as_str());
    if let Ok(mut file) = private::open(&path, OFlags::WRONLY | OFlags::APPEND) {
        let _ = file.write_all(lines.as_bytes());
    }
}

fn word_of_path(root: &Root, path: &FilePath) -> String {
    escape(&root.key(path))
}

fn told_of_words(agent: &Agent, root: &Path, file: &Path) -> String {
    format!("{agent} {} {}", escape(root), escape(file))
}

fn word_of(state: FileState) -> String {
    match state {
        FileState::Present(digest) => digest.to_string(),
        FileState::Absent => "absent".to_owned(),
        FileState::Unreadable => "unreadable".to_owned(),
    }
}

pub(crate) fn state_of(word: &str) -> Option<FileState> {
    Some(match word {
        "absent" => FileState::Absent,
        "unreadable" => FileState::Unreadable,
        digest => FileState::Present(digest.parse().ok()?),
    })
}

pub(crate) fn time_of(word: &str) -> Option<Timestamp> {
    Timestamp::from_microsecond(word.parse().ok()?).ok()
}
