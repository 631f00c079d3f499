//! A turn kept in a folder, for processes that live shorter than the turn: commands in a script, hooks of one agent.
//!
//! The folder is private to its user and preferably in memory. A turn is 256 small files, chosen by the hash of the
//! path, so that looking one file up costs the same in a turn of ten files and of ten thousand. Each line has a fixed
//! length up to the path and is changed in place, under a lock, so a file that is read a thousand times takes one line.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::{At, Fault, Result};
use crate::lock::stripe;
use crate::name::{Agent, TurnId};
use crate::path::{FilePath, escape, unescape};
use crate::turn::{FileState, Sighting, Sightings, TEXT_PER_FILE, TEXT_PER_TURN};

/// The version of the format. A later one is refused, not misread.
const VERSION: u32 = 1;

/// What nobody has touched for a day belongs to an agent that is gone.
const FORGOTTEN: Duration = Duration::from_secs(24 * 3600);

/// The turns of one workspace and one user.
#[derive(Debug, Clone)]
pub struct SharedTurns {
    folder: PathBuf,
}

/// What stays of a turn when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaves {
    /// Nothing.
    Nothing,
    /// What the agent last knew of each file, for `unread = "known"` in its later turns.
    Known,
}

/// A turn that several processes share.
#[derive(Debug)]
pub struct SharedTurn {
    folder: PathBuf,
    known: PathBuf,
    id: TurnId,
    agent: Agent,
    started: Timestamp,
}

#[derive(Serialize, Deserialize)]
struct About {
    version: u32,
    agent: Agent,
    started: Timestamp,
}

impl SharedTurns {
    /// In this folder, which is made if it is not there. It must belong to this user and be closed to all others.
    pub fn new(folder: PathBuf) -> Result<Self> {
        private_folder(&folder)?;
        Ok(Self { folder })
    }

    /// The folder, for what else an agent's short-lived processes have to tell each other.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Begins a turn, and clears away what was forgotten.
    pub fn begin(&self, id: TurnId, agent: Agent, now: Timestamp) -> Result<SharedTurn> {
        self.forget(now)?;
        let folder = self.turn_folder(&id);
        for folder in [&self.folder.join("turns"), &folder, &folder.join("files"), &folder.join("text")] {
            private_folder(folder)?;
        }
        let about = About { version: VERSION, agent, started: now };
        let text = serde_json::to_vec(&about).map_err(|error| Fault::invalid(error.to_string()))?;
        let unfinished = folder.join("turn.tmp");
        fs::write(&unfinished, text).at("write", &unfinished)?;
        let path = folder.join("turn.json");
        fs::rename(&unfinished, &path).at("rename", &path)?;
        self.open(&id)
    }

    /// Opens a turn that was begun and has not ended.
    pub fn open(&self, id: &TurnId) -> Result<SharedTurn> {
        let folder = self.turn_folder(id);
        let path = folder.join("turn.json");
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Fault::Missing { what: format!("the turn `{id}`") });
            }
            Err(error) => return Err(error).at("read", &path),
        };
        let about: About = serde_json::from_slice(&text).map_err(|error| Fault::damaged(&path, error))?;
        if about.version > VERSION {
            return Err(Fault::NewerFormat { path, found: about.version, known: VERSION });
        }
        let known = self.folder.join("known").join(about.agent.as_str());
        Ok(SharedTurn { folder, known, id: id.clone(), agent: about.agent, started: about.started })
    }

    /// The turns that have not ended, oldest first.
    pub fn list(&self) -> Result<Vec<SharedTurn>> {
        let mut turns = Vec::new();
        for name in names(&self.folder.join("turns"))? {
            let Some(id) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            match self.open(&id) {
                Ok(turn) => turns.push(turn),
                // It ended just now, or is just being made.
                Err(Fault::Missing { .. }) => {}
                Err(fault) => return Err(fault),
            }
        }
        turns.sort_by_key(|turn| turn.started);
        Ok(turns)
    }

    /// Ends a turn.
    pub fn end(&self, turn: SharedTurn, leaves: Leaves) -> Result<()> {
        if leaves == Leaves::Known {
            private_folder(&self.folder.join("known"))?;
            private_folder(&turn.known)?;
            for (path, sighting) in turn.files()? {
                let last = Sighting::new(sighting.baseline(crate::turn::Extent::Whole));
                Shard::of(&turn.known, &path).update(&path, &mut |_| last)?;
            }
        }
        remove_folder(&turn.folder)
    }

    fn turn_folder(&self, id: &TurnId) -> PathBuf {
        self.folder.join("turns").join(id.as_str())
    }

    fn forget(&self, now: Timestamp) -> Result<()> {
        for kind in ["turns", "known"] {
            let folder = self.folder.join(kind);
            for name in names(&folder)? {
                let path = folder.join(name);
                // The newest of the folders inside tells when the turn was last used.
                let used = [path.clone(), path.join("files"), path.join("text")]
                    .iter()
                    .filter_map(|path| fs::metadata(path).ok()?.modified().ok())
                    .max()
                    .and_then(|used| Timestamp::try_from(used).ok());
                if used.is_some_and(|used| now.duration_since(used).unsigned_abs() > FORGOTTEN) {
                    remove_folder(&path)?;
                }
            }
        }
        Ok(())
    }
}

impl SharedTurn {
    /// When it began.
    pub fn started(&self) -> Timestamp {
        self.started
    }

    /// Every file the turn knows, in the order of their paths.
    pub fn files(&self) -> Result<Vec<(FilePath, Sighting)>> {
        let folder = self.folder.join("files");
        let mut files = Vec::new();
        for name in names(&folder)? {
            files.extend(Shard { path: folder.join(name) }.all()?);
        }
        files.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(files)
    }

    /// The files that are wanted, in the order of their paths. Of the others nothing but the path is looked at.
    pub fn files_where(&self, mut wanted: impl FnMut(&Path) -> bool) -> Result<Vec<FilePath>> {
        let folder = self.folder.join("files");
        let mut files = Vec::new();
        for name in names(&folder)? {
            let text = Shard { path: folder.join(name) }.text()?;
            let paths = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')?.get(FIXED..));
            files.extend(paths.filter_map(unescape).filter(|path| wanted(path)).map(FilePath::trusted));
        }
        files.sort_unstable();
        Ok(files)
    }

    fn shard(&self, path: &FilePath) -> Shard {
        Shard::of(&self.folder.join("files"), path)
    }
}

impl Sightings for SharedTurn {
    fn id(&self) -> &TurnId {
        &self.id
    }

    fn agent(&self) -> &Agent {
        &self.agent
    }

    fn get(&self, path: &FilePath) -> Result<Option<Sighting>> {
        self.shard(path).get(path)
    }

    fn update(&self, path: &FilePath, change: &mut dyn FnMut(Option<Sighting>) -> Sighting) -> Result<()> {
        self.shard(path).update(path, change)
    }

    fn known(&self, path: &FilePath) -> Result<Option<FileState>> {
        Ok(Shard::of(&self.known, path).get(path)?.map(|sighting| sighting.initial()))
    }

    fn keep_text(&self, digest: Digest, bytes: &[u8]) -> Result<()> {
        let folder = self.folder.join("text");
        let path = folder.join(digest.to_string());
        if bytes.len() > TEXT_PER_FILE || path.exists() || !self.reserve_text(bytes.len())? {
            return Ok(());
        }
        let unfinished = folder.join(format!("tmp-{}", crate::name::random_id()?));
        fs::write(&unfinished, bytes).at("write", &unfinished)?;
        fs::rename(&unfinished, &path).at("rename", &unfinished)
    }

    fn text(&self, digest: Digest) -> Result<Option<Arc<[u8]>>> {
        let path = self.folder.join("text").join(digest.to_string());
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).at("read", &path),
        }
    }
}

impl SharedTurn {
    /// Whether there is room for so many more bytes of text.
    fn reserve_text(&self, count: usize) -> Result<bool> {
        let path = self.folder.join("text_bytes");
        let mut file = open_locked(&path)?;
        let mut text = String::new();
        file.read_to_string(&mut text).at("read", &path)?;
        let used = text.trim().parse::<usize>().unwrap_or(0) + count;
        if used > TEXT_PER_TURN {
            return Ok(false);
        }
        // Always of the same length, so that one write replaces it.
        file.write_all_at(format!("{used:>20}\n").as_bytes(), 0).at("write", &path)?;
        Ok(true)
    }
}

/// The sightings of all paths that share a hash byte.
struct Shard {
    path: PathBuf,
}

/// First, last, part (a letter and 64 digits each), whether refused, a space; then the path to the end of the line.
const FIXED: usize = 3 * 65 + 2;

impl Shard {
    fn of(folder: &Path, path: &FilePath) -> Self {
        Self { path: folder.join(format!("{:02x}", stripe(path.as_path()))) }
    }

    fn get(&self, path: &FilePath) -> Result<Option<Sighting>> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).at("open", &self.path),
        };
        file.lock_shared().at("lock", &self.path)?;
        let text = self.read(&mut file)?;
        Ok(find(&text, path).and_then(|at| parse(&text[at..])))
    }

    fn update(&self, path: &FilePath, change: &mut dyn FnMut(Option<Sighting>) -> Sighting) -> Result<()> {
        let mut file = open_locked(&self.path)?;
        let text = self.read(&mut file)?;
        let at = find(&text, path);
        let before = at.and_then(|at| parse(&text[at..]));
        let after = change(before);
        if before == Some(after) {
            return Ok(());
        }
        let fixed = print(after);
        match at {
            Some(at) => file.write_all_at(fixed.as_bytes(), at as u64),
            None => {
                // A line that was cut off by the end of its process is written over.
                let end = text.rfind('\n').map_or(0, |newline| newline + 1) as u64;
                let line = format!("{fixed}{}\n", escape(path.as_path()));
                file.set_len(end).and_then(|()| file.write_all_at(line.as_bytes(), end))
            }
        }
        .at("write", &self.path)
    }

    fn all(&self) -> Result<Vec<(FilePath, Sighting)>> {
        let text = self.text()?;
        let line = |line: &str| {
            let path = unescape(line.get(FIXED..)?)?;
            Some((FilePath::trusted(path), parse(line)?))
        };
        Ok(text.lines().filter_map(line).collect())
    }

    fn text(&self) -> Result<String> {
        let mut file = File::open(&self.path).at("open", &self.path)?;
        file.lock_shared().at("lock", &self.path)?;
        self.read(&mut file)
    }

    fn read(&self, file: &mut File) -> Result<String> {
        let mut text = String::new();
        file.read_to_string(&mut text).at("read", &self.path)?;
        Ok(text)
    }
}

/// Where the line of a path begins.
fn find(text: &str, path: &FilePath) -> Option<usize> {
    let word = escape(path.as_path());
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if line.ends_with('\n') && line.get(FIXED..).is_some_and(|rest| rest.trim_end_matches('\n') == word) {
            return Some(at);
        }
        at += line.len();
    }
    None
}

fn print(sighting: Sighting) -> String {
    let (first, last, part, refused) = sighting.parts();
    let state = |state: Option<FileState>| match state {
        None => format!("-{:064}", 0),
        Some(FileState::Absent) => format!("A{:064}", 0),
        Some(FileState::Unreadable) => format!("U{:064}", 0),
        Some(FileState::Present(digest)) => format!("P{digest}"),
    };
    format!("{}{}{}{} ", state(Some(first)), state(Some(last)), state(part), if refused { 'R' } else { '-' })
}

fn parse(line: &str) -> Option<Sighting> {
    let state = |index: usize| -> Option<Option<FileState>> {
        let word = line.get(index * 65..(index + 1) * 65)?;
        Some(match word.as_bytes()[0] {
            b'-' => None,
            b'A' => Some(FileState::Absent),
            b'U' => Some(FileState::Unreadable),
            b'P' => Some(FileState::Present(word.get(1..)?.parse().ok()?)),
            _ => return None,
        })
    };
    Some(Sighting::from_parts(state(0)??, state(1)??, state(2)?, line.as_bytes().get(195) == Some(&b'R')))
}

fn open_locked(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(path).at("open", path)?;
    // Held for microseconds only, so waiting without a limit is safe.
    file.lock().at("lock", path)?;
    Ok(file)
}

/// Makes a folder that only this user can enter, or checks that it is one. In a place that everyone can write to, a
/// folder of that name may be somebody else's trap.
fn private_folder(path: &Path) -> Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error).at("make the folder", path),
    }
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

fn names(folder: &Path) -> Result<Vec<std::ffi::OsString>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry.at("list the folder", folder)?.file_name())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).at("list the folder", folder),
    }
}

fn remove_folder(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).at("remove the folder", path),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turn::Extent;

    fn state(text: &str) -> FileState {
        FileState::Present(Digest::of(text.as_bytes()))
    }

    fn path(name: &str) -> FilePath {
        FilePath::trusted(Path::new("/w").join(name))
    }

    fn turns() -> (tempfile::TempDir, SharedTurns) {
        let keep = tempfile::tempdir().unwrap();
        let turns = SharedTurns::new(keep.path().join("run")).unwrap();
        (keep, turns)
    }

    fn begin(turns: &SharedTurns, id: &str) -> SharedTurn {
        turns.begin(id.parse().unwrap(), "blue".parse().unwrap(), Timestamp::now()).unwrap()
    }

    #[test]
    fn what_one_process_saw_the_next_one_knows() {
        let (_keep, turns) = turns();
        let first = begin(&turns, "t1");
        first.observe(&path("a"), state("one"), Extent::Whole).unwrap();
        first.observe(&path("b\nc"), FileState::Absent, Extent::Whole).unwrap();
        first.observe(&path("u"), FileState::Unreadable, Extent::Whole).unwrap();
        let second = turns.open(&"t1".parse().unwrap()).unwrap();
        second.refused(&path("a")).unwrap();
        second.observe(&path("a"), state("two"), Extent::Part).unwrap();
        let sighting = first.get(&path("a")).unwrap().unwrap();
        assert_eq!(sighting.initial(), state("one"));
        assert_eq!(sighting.baseline(Extent::Whole), state("one"));
        assert_eq!(sighting.baseline(Extent::Part), state("two"));
        assert_eq!(first.get(&path("b\nc")).unwrap().unwrap().initial(), FileState::Absent);
        assert_eq!(first.get(&path("u")).unwrap().unwrap().initial(), FileState::Unreadable);
        assert_eq!(first.files().unwrap().len(), 3);
        let wanted = first.files_where(|path| !path.ends_with("a")).unwrap();
        assert_eq!(wanted, [path("b\nc"), path("u")]);
        assert_eq!(first.get(&path("b")).unwrap(), None);
    }

    #[test]
    fn an_ended_turn_leaves_nothing_or_what_is_known() {
        let (keep, turns) = turns();
        let turn = begin(&turns, "t1");
        turn.observe(&path("a"), state("one"), Extent::Whole).unwrap();
        turns.end(turn, Leaves::Nothing).unwrap();
        assert!(turns.open(&"t1".parse().unwrap()).is_err());
        assert_eq!(fs::read_dir(keep.path().join("run/turns")).unwrap().count(), 0);
        let turn = begin(&turns, "t2");
        assert_eq!(turn.known(&path("a")).unwrap(), None);
        turn.observe(&path("a"), state("one"), Extent::Whole).unwrap();
        turn.wrote(&path("a"), state("two")).unwrap();
        turns.end(turn, Leaves::Known).unwrap();
        let turn = begin(&turns, "t3");
        assert_eq!(turn.get(&path("a")).unwrap(), None);
        assert_eq!(turn.known(&path("a")).unwrap(), Some(state("two")));
    }

    #[test]
    fn many_at_once_lose_nothing() {
        let (_keep, turns) = turns();
        begin(&turns, "t1");
        std::thread::scope(|scope| {
            for worker in 0..8 {
                let turns = &turns;
                scope.spawn(move || {
                    let turn = turns.open(&"t1".parse().unwrap()).unwrap();
                    for index in 0..100 {
                        let name = path(&format!("{worker}-{index}"));
                        turn.observe(&name, state("x"), Extent::Whole).unwrap();
                        turn.wrote(&name, state("y")).unwrap();
                    }
                });
            }
        });
        let files = turns.open(&"t1".parse().unwrap()).unwrap().files().unwrap();
        assert_eq!(files.len(), 800);
        assert!(files.iter().all(|(_, sighting)| sighting.initial() == state("x")));
        assert!(files.iter().all(|(_, sighting)| sighting.baseline(Extent::Whole) == state("y")));
    }

    #[test]
    fn a_line_that_was_cut_off_is_ignored() {
        let (keep, turns) = turns();
        let turn = begin(&turns, "t1");
        turn.observe(&path("a"), state("one"), Extent::Whole).unwrap();
        let shard =
            keep.path().join("run/turns/t1/files").join(format!("{:02x}", stripe(path("a").as_path())));
        let whole = fs::read(&shard).unwrap();
        for length in 0..whole.len() {
            fs::write(&shard, &whole[..length]).unwrap();
            assert_eq!(turn.get(&path("a")).unwrap(), None, "cut at {length}");
            turn.observe(&path("a"), state("two"), Extent::Whole).unwrap();
            assert_eq!(turn.get(&path("a")).unwrap().unwrap().initial(), state("two"), "cut at {length}");
        }
    }

    #[test]
    fn texts_are_kept_and_bounded() {
        let (_keep, turns) = turns();
        let turn = begin(&turns, "t1");
        turn.keep_text(Digest::of(b"x"), b"x").unwrap();
        assert_eq!(turn.text(Digest::of(b"x")).unwrap().as_deref(), Some(b"x".as_slice()));
        assert_eq!(turn.text(Digest::of(b"y")).unwrap(), None);
        assert!(!turn.reserve_text(TEXT_PER_TURN).unwrap());
        assert!(turn.reserve_text(TEXT_PER_TURN - 1).unwrap());
        turn.keep_text(Digest::of(b"z"), b"z").unwrap();
        assert_eq!(turn.text(Digest::of(b"z")).unwrap(), None);
    }

    #[test]
    fn a_folder_open_to_others_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let keep = tempfile::tempdir().unwrap();
        let folder = keep.path().join("run");
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(SharedTurns::new(folder.clone()).is_err());
        fs::remove_dir(&folder).unwrap();
        std::os::unix::fs::symlink(keep.path(), &folder).unwrap();
        assert!(SharedTurns::new(folder).is_err());
    }

    #[test]
    fn the_forgotten_are_cleared_away() {
        let (_keep, turns) = turns();
        begin(&turns, "t1");
        let later = Timestamp::now() + FORGOTTEN + Duration::from_secs(60);
        turns.begin("t2".parse().unwrap(), "blue".parse().unwrap(), later).unwrap();
        assert!(turns.open(&"t1".parse().unwrap()).is_err());
    }
}
