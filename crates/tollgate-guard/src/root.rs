//! The root of a workspace: its folder, opened, with the state in `.tollgate/`, the settings, the ledger and the clock.
//!
//! Everything that several processes must agree on is in the state and nowhere else: locks, the stage, journals, recovery,
//! reservations, the ledger. All code below [`crate::workspace`] works on a [`Root`].

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

use crate::disk::{Folder, Spot};
use crate::path::FilePath;
use crate::place::{self, Located, Place};
use crate::stage::{Displaced, RecoveryKind};
use crate::state_folder::{self, STATE_FOLDER, read_settings};
use crate::stripe_lock::Stripes;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::ledger::{Ledger, LedgerOptions};
use tollgate_base::settings::{Durability, Settings};

/// What the library does not take from its environment by itself.
#[derive(Clone)]
pub struct Options {
    /// The clock.
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// A file outside the workspace that remembers the head of the ledger, so that a truncated ledger is noticed.
    pub ledger_head: Option<PathBuf>,
    /// Paths that agents must not change, in addition to `.tollgate` and those in the settings. Relative to the workspace.
    pub protected: Vec<PathBuf>,
    /// Paths below protected ones that agents may change. The nearest folder in the two lists decides.
    pub open: Vec<PathBuf>,
    /// Settings to use instead of those in the configuration file.
    pub settings: Option<Settings>,
}

impl Default for Options {
    /// The system's clock, no file for the ledger's head, no further protected paths.
    fn default() -> Self {
        Self {
            clock: Arc::new(Timestamp::now),
            ledger_head: None,
            protected: Vec::new(),
            open: Vec::new(),
            settings: None,
        }
    }
}

/// The root of a workspace.
pub(crate) struct Root {
    path: PathBuf,
    folder: Folder,
    stage: Folder,
    recovery: Folder,
    journal: Folder,
    settings: Settings,
    stripes: Stripes,
    ledger: Ledger,
    protected: Vec<PathBuf>,
    open: Vec<PathBuf>,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    displaced: Mutex<Vec<Displaced>>,
}

impl Root {
    /// Opens the folder, and creates its state if there is none.
    pub(crate) fn open(folder: &Path, options: Options) -> Result<Self> {
        let path = fs::canonicalize(folder).at("open the workspace", folder)?;
        let folder = Folder::open(&path)?;
        let state_path = path.join(STATE_FOLDER);
        let settings = match options.settings {
            Some(settings) => settings,
            None => read_settings(&state_path.join("config.toml"))?,
        };
        state_folder::create(&path, &state_path)?;
        let state = folder.open_below(Path::new(STATE_FOLDER))?;
        let below = |name: &str| state.open_below(Path::new(name));
        let ledger_options =
            LedgerOptions { max_size: settings.ledger.max_size.0, head: options.ledger_head };
        let mut protected = settings.guard.protected.clone();
        protected.extend(options.protected);
        protected.push(STATE_FOLDER.into());
        Ok(Self {
            folder,
            stage: below("stage")?,
            recovery: below("recovery")?,
            journal: below("journal")?,
            stripes: Stripes::new(state_path.join("locks")),
            ledger: Ledger::new(&state_path, &state_path.join("locks/ledger"), ledger_options),
            path,
            settings,
            protected,
            open: options.open,
            clock: options.clock,
            displaced: Mutex::default(),
        })
    }

    /// The canonical path of the workspace.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn state_path(&self) -> PathBuf {
        self.path.join(STATE_FOLDER)
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn durability(&self) -> Durability {
        self.settings.guard.durability
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// The folder of the workspace.
    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    pub(crate) fn stage(&self) -> &Folder {
        &self.stage
    }

    /// A file in the stage.
    pub(crate) fn staged(&self, name: impl Into<OsString>) -> Spot {
        Spot::new(&self.stage, name)
    }

    pub(crate) fn journal(&self) -> &Folder {
        &self.journal
    }

    pub(crate) fn recovery(&self, kind: RecoveryKind) -> Result<Folder> {
        self.recovery.open_below(Path::new(kind.folder()))
    }

    pub(crate) fn stripes(&self) -> &Stripes {
        &self.stripes
    }

    /// The files that this process has replaced and not checked yet, oldest first.
    pub(crate) fn displaced(&self) -> MutexGuard<'_, Vec<Displaced>> {
        self.displaced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The canonical path of a file, which need not exist or be in the workspace.
    pub(crate) fn canonical(&self, path: &Path) -> Result<FilePath> {
        place::canonical(&self.path.join(path)).map(FilePath::trusted)
    }

    pub(crate) fn locate(&self, path: &Path) -> Result<Located> {
        place::locate(&self.path, path)
    }

    /// The place of a relative path that was recorded earlier.
    pub(crate) fn place_of(&self, relative: &Path) -> Place {
        Place {
            path: FilePath::trusted(self.path.join(relative)),
            relative: relative.to_owned(),
            name: relative.file_name().unwrap_or_default().to_owned(),
            missing: Vec::new(),
        }
    }

    /// The spot of a file inside or outside the workspace. `None` if its folder does not exist.
    pub(crate) fn spot_anywhere(&self, path: &FilePath) -> Result<Option<Spot>> {
        let path = path.as_path();
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
        let opened = match folder.strip_prefix(&self.path) {
            Ok(below) => self.folder.open_below(below),
            Err(_) => Folder::open(folder),
        };
        match opened {
            Ok(folder) => Ok(Some(Spot::new(&folder, name))),
            Err(Fault::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Whether agents must not change this path, which is relative to the workspace.
    pub(crate) fn is_protected(&self, relative: &Path) -> bool {
        let nearest = |named: &[PathBuf]| {
            let above = named.iter().filter(|folder| relative.starts_with(folder));
            above.map(|folder| folder.components().count()).max()
        };
        nearest(&self.protected).is_some_and(|protected| Some(protected) >= nearest(&self.open))
    }
}
