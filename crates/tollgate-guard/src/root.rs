//! The root of a workspace: its folder, opened, with the state in `.tollgate/`, the settings, the ledger and the clock.
//!
//! Everything that several processes must agree on is in the state and nowhere else: locks, the stage, journals, recovery,
//! reservations, the ledger. All code below [`crate::workspace`] works on a [`Root`].

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use rustix::fs::FileType;

use crate::disk::{Folder, Spot, no_folder_is_none};
use crate::path::FilePath;
use crate::place::{self, LastLink, Located, Way};
use crate::protected::{OfGit, Protected, normalise};
use crate::stage::{RecoveryKind, StageName, TargetName};
use crate::state_folder::{self, STATE_FOLDER, read_settings};
use crate::stripe_lock::Stripes;
use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::event::Event;
use tollgate_base::file::replace_file;
use tollgate_base::ledger::{Entry, Ledger};
use tollgate_base::name::{Agent, TurnId};
use tollgate_base::private;
use tollgate_base::settings::{Durability, Settings};
use tollgate_base::tracked::refuse_tracked;

/// What the library does not take from its environment by itself.
#[derive(Clone)]
pub struct Options {
    /// The clock.
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// A file outside the workspace that remembers the head of the ledger, so that a truncated ledger is noticed.
    pub ledger_head: Option<PathBuf>,
    /// What agents must not change, in addition to the paths in the settings.
    pub protected: Protected,
    /// Settings to use instead of those in the configuration file.
    pub settings: Option<Settings>,
    /// A folder for the state instead of `.tollgate/`: of a process in the private view of a run, which commits the files
    /// when it ends. There, the state of the workspace cannot be written.
    pub state: Option<PathBuf>,
}

impl Default for Options {
    /// The system's clock, no file for the ledger's head, no further protected paths.
    fn default() -> Self {
        Self {
            clock: Arc::new(Timestamp::now),
            ledger_head: None,
            protected: Protected::default(),
            settings: None,
            state: None,
        }
    }
}

/// The root of a workspace. A [`Workspace`](crate::workspace::Workspace) shares it.
pub struct Root {
    path: PathBuf,
    state: PathBuf,
    /// The workspace.
    pub(crate) folder: Folder,
    pub(crate) stage: Folder,
    pub(crate) journal: Folder,
    settings: Settings,
    pub(crate) stripes: Stripes,
    ledger: Ledger,
    protected: Protected,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    awaiting_check: Mutex<Vec<StageName>>,
}

/// The one path of a folder that exists: absolute, without links, each name as its folder lists it.
pub fn canonical_root(folder: &Path) -> Result<PathBuf> {
    place::canonical(&fs::canonicalize(folder).at("open the workspace", folder)?)
}

impl Root {
    /// Opens the folder, and creates its state if there is none.
    pub(crate) fn open(folder: &Path, options: Options) -> Result<Self> {
        let path = canonical_root(folder)?;
        let folder = Folder::open(&path)?;
        refuse_tracked(&path)?;
        let settings = match options.settings {
            Some(settings) => settings,
            None => read_settings(&path.join(STATE_FOLDER).join("config.toml"))?,
        };
        let state_path = options.state.unwrap_or_else(|| path.join(STATE_FOLDER));
        state_folder::create(&path, &state_path)?;
        let below = |name: &str| Folder::of_state(&state_path.join(name));
        // A write needs it later, when it has happened: a replaced file is moved there.
        below("history")?;
        let max_size = settings.ledger.max_size.0;
        let mut protected = options.protected;
        protected.paths.extend(settings.guard.protected.iter().cloned());
        let protected = protected.below(&path);
        Ok(Self {
            folder,
            stage: below("stage")?,
            journal: below("journal")?,
            stripes: Stripes { folder: state_path.join("locks") },
            ledger: Ledger::new(&state_path, &state_path.join("locks/ledger"), max_size, options.ledger_head),
            path,
            state: state_path,
            settings,
            protected,
            clock: options.clock,
            awaiting_check: Mutex::default(),
        })
    }

    /// The canonical path of the workspace.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path for locks, reservations and the ledger: relative to the workspace if possible, so that it does not depend on
    /// where the workspace is mounted.
    pub fn key(&self, path: &FilePath) -> PathBuf {
        let path = path.as_path();
        path.strip_prefix(&self.path).unwrap_or(path).to_owned()
    }

    /// The folder of the state.
    pub fn state_path(&self) -> PathBuf {
        self.state.clone()
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn durability(&self) -> Durability {
        self.settings.guard.durability
    }

    /// The ledger.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(crate) fn entry(&self, agent: Option<&Agent>, turn: Option<&TurnId>, event: Event) -> Entry {
        Entry { time: self.now(), agent: agent.cloned(), turn: turn.cloned(), event }
    }

    /// Appends a ledger line that nothing else would bring back after a power failure.
    pub(crate) fn record(&self, agent: Option<&Agent>, turn: Option<&TurnId>, event: Event) -> Result<()> {
        self.ledger.append(&[self.entry(agent, turn, event)], self.durability()).map(drop)
    }

    /// The time, by the workspace's clock.
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// How long ago this was, or how far it is in the future.
    pub(crate) fn age(&self, time: Timestamp) -> Duration {
        self.now().duration_since(time).unsigned_abs()
    }

    pub(crate) fn staged(&self, name: impl Into<OsString>) -> Spot {
        Spot::new(&self.stage, name)
    }

    /// The folder of all that is kept.
    pub(crate) fn history(&self) -> PathBuf {
        self.state.join("history")
    }

    pub(crate) fn recovery_folder(&self, kind: RecoveryKind) -> Result<Folder> {
        Folder::of_state(&self.history().join(kind.folder()))
    }

    /// The files that this process has replaced and not checked yet, oldest first.
    pub(crate) fn awaiting_check(&self) -> MutexGuard<'_, Vec<StageName>> {
        self.awaiting_check.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The canonical path of a file, which need not exist or be in the workspace.
    pub fn canonical(&self, path: impl AsRef<Path>) -> Result<FilePath> {
        place::canonical(&self.path.join(path)).map(FilePath::trusted)
    }

    /// Like [`Self::canonical`], but a symbolic link at the end of the path is not followed.
    pub fn canonical_link(&self, path: impl AsRef<Path>) -> Result<FilePath> {
        place::follow(&self.path.join(path), LastLink::Keep).map(|way| way.path)
    }

    /// Where a path leads, inside the workspace or outside.
    pub(crate) fn follow(&self, path: &Path) -> Result<Way> {
        place::follow(&self.path.join(path), LastLink::Follow)
    }

    pub(crate) fn locate(&self, path: &Path, last: LastLink) -> Result<Located> {
        place::locate(&self.path, path, last)
    }

    /// The spot of a file, relative to the workspace. Its folder must exist.
    pub(crate) fn spot(&self, relative: &Path) -> Result<Spot> {
        let folder = self.folder.open_below(relative.parent().unwrap_or(Path::new("")))?;
        Ok(Spot::new(&folder, relative.file_name().unwrap_or_default()))
    }

    /// The spot of a file inside or outside the workspace. `None` if its folder does not exist.
    pub(crate) fn spot_anywhere(&self, path: &FilePath) -> Result<Option<Spot>> {
        let path = path.as_path();
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
        let opened = no_folder_is_none(match folder.strip_prefix(&self.path) {
            Ok(below) => self.folder.open_below(below),
            Err(_) => Folder::open(folder),
        })?;
        Ok(opened.map(|folder| Spot::new(&folder, name)))
    }

    /// The spot of a file that a command has written, in its own view of the workspace.
    pub(crate) fn spot_of_command(&self, path: &Path) -> Result<Spot> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Fault::no_file(path));
        };
        Ok(Spot::new(&Folder::open(folder)?, name))
    }

    /// All files below a folder, relative to the workspace. Includes everything that is not a folder.
    pub(crate) fn files_below(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            for (name, kind) in self.folder.open_below(&folder)?.entries()? {
                let path = folder.join(name);
                if kind == FileType::Directory { folders.push(path) } else { found.push(path) }
            }
        }
        Ok(found)
    }

    /// The file name of a staged file. A path that is too long for a name is written to `.tollgate/paths/`, once and for
    /// good, and the name has its hash.
    pub(crate) fn stage_file_name(&self, stage: &StageName) -> Result<OsString> {
        if let Some(name) = stage.file_name() {
            return Ok(name);
        }
        let too_long = || Fault::invalid("the name of a staged file is too long");
        let TargetName::Path(path) = &stage.target else { return Err(too_long()) };
        let bytes = path.as_os_str().as_bytes();
        let hash = Digest::of(bytes);
        let file = self.long_path(hash);
        if !file.exists() {
            replace_file(&file, bytes, self.durability())?;
        }
        let stage = StageName { target: TargetName::Hashed(hash), ..stage.clone() };
        stage.file_name().ok_or_else(too_long)
    }

    pub(crate) fn target_path(&self, target: &TargetName) -> Result<PathBuf> {
        match target {
            TargetName::Path(path) => Ok(path.clone()),
            TargetName::Hashed(hash) => {
                let file = self.long_path(*hash);
                Ok(OsString::from_vec(private::read(&file).at("read", &file)?).into())
            }
        }
    }

    fn long_path(&self, hash: Digest) -> PathBuf {
        self.state_path().join("paths").join(hash.to_string())
    }

    /// Whether agents must not change this path.
    pub fn is_protected(&self, path: impl AsRef<Path>) -> Result<bool> {
        let path = path.as_ref();
        Ok(self.protects(path, self.canonical(path)?.as_path()))
    }

    /// Whether agents must not change this path: as it is given, or as it is after all links are resolved.
    pub(crate) fn protects(&self, given: &Path, canonical: &Path) -> bool {
        let given = normalise(&self.path.join(given));
        self.protected.covers(&self.path, canonical) || self.protected.covers(&self.path, &given)
    }

    /// Whether a command must not change this path, absolute or relative to the workspace.
    pub(crate) fn protects_from_commands(&self, path: &Path, of_git: OfGit) -> bool {
        self.protected.covers_for_commands(&self.path, &self.path.join(path), of_git)
    }

    /// Whether an absolute path is one of those that are listed as protected, or below one.
    pub(crate) fn is_closed(&self, path: &Path) -> bool {
        self.protected.paths.iter().any(|closed| path.starts_with(closed))
    }

    /// Whether one of the paths that are listed as protected is below this absolute path.
    pub(crate) fn holds_closed(&self, path: &Path) -> bool {
        self.protected.paths.iter().any(|closed| closed != path && closed.starts_with(path))
    }

    /// Whether commands may change a folder in the root, relative to the workspace, without a guard.
    pub fn may_pass(&self, folder: &Path) -> bool {
        self.protected.may_pass(&self.path, &self.path.join(folder))
    }

    /// The names below this path that agents must not change, whether or not they exist. A folder or a link that comes to
    /// this path could bring them.
    pub fn protected_names_below(&self, path: &FilePath) -> impl Iterator<Item = PathBuf> {
        self.protected.names_below(path.as_path())
    }

    /// The protected paths that exist below this folder, which agents must therefore not move or delete.
    pub fn protected_within(&self, folder: &FilePath) -> Vec<PathBuf> {
        self.protected.within(&self.path, folder.as_path())
    }

    /// Whether an absolute path is in tollgate's own state, at any depth, and is not one that agents may change.
    pub(crate) fn is_hidden(&self, path: &Path) -> bool {
        let Ok(relative) = path.strip_prefix(&self.path) else { return false };
        let is_state = relative.iter().any(|name| name.eq_ignore_ascii_case(STATE_FOLDER));
        is_state && !self.protected.open.iter().any(|open| path.starts_with(open))
    }
}
