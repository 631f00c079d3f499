//! The workspace: a folder of files, its settings, and tollgate's state in `.tollgate/`.
//!
//! Everything that several processes must agree on lies here and nowhere else: locks, the stage, journals, recovery,
//! reservations, the ledger. The state is as private as the workspace itself and never open to strangers.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;

use crate::commit::Displaced;
use crate::disk::Folder;
use crate::error::{At, Fault, Result};
use crate::ledger::{Ledger, LedgerOptions};
use crate::lock::{Lock, Stripes};
use crate::path::FilePath;
use crate::place::{self, Located};
use crate::recovery::Kind;
use crate::settings::{Settings, Unusable};

/// The folder of the state, in the root of the workspace.
pub const STATE_FOLDER: &str = ".tollgate";

/// The version of the state's format that this program reads and writes.
pub const STATE_VERSION: u32 = 1;

/// The longest that a process waits for another that makes the state. It takes some milliseconds.
const STATE_WAIT: Duration = Duration::from_secs(10);

/// What the library does not take from its surroundings by itself.
#[derive(Clone)]
pub struct Options {
    /// What time it is.
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// Where to remember the head of the ledger, outside the workspace, so that a cut tail is noticed.
    pub ledger_head: Option<PathBuf>,
    /// Paths that agents must not change, besides `.tollgate` and those in the settings; relative to the workspace.
    pub protected: Vec<PathBuf>,
    /// Paths below those that agents may change after all. The nearest folder that is named decides.
    pub open: Vec<PathBuf>,
    /// Settings to use instead of those in the configuration file.
    pub settings: Option<Settings>,
}

impl Default for Options {
    /// The system's clock, no witness for the ledger, nothing more protected.
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

/// An open workspace. Clones share it; threads may, too.
#[derive(Clone)]
pub struct Workspace(Arc<Inner>);

struct Inner {
    path: PathBuf,
    root: Folder,
    state: Folder,
    stage: Folder,
    recovery: Folder,
    journal: Folder,
    settings: Settings,
    stripes: Stripes,
    ledger: Ledger,
    protected: Vec<PathBuf>,
    open: Vec<PathBuf>,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    pending: Mutex<Vec<Displaced>>,
}

impl Workspace {
    /// Opens the folder, makes its state if there is none, and puts right what a crash has left half done.
    pub fn open(folder: impl AsRef<Path>, options: Options) -> Result<Self> {
        let path = fs::canonicalize(folder.as_ref()).at("open the workspace", folder.as_ref())?;
        let root = Folder::open(&path)?;
        let state_path = path.join(STATE_FOLDER);
        let settings = match options.settings {
            Some(settings) => settings,
            None => read_settings(&state_path.join("config.toml"))?,
        };
        make_state(&path, &state_path)?;
        let state = root.open_below(Path::new(STATE_FOLDER))?;
        let below = |name: &str| state.open_below(Path::new(name));
        let ledger_options =
            LedgerOptions { max_size: settings.ledger.max_size.0, head: options.ledger_head };
        let mut protected = settings.guard.protected.clone();
        protected.extend(options.protected);
        protected.push(STATE_FOLDER.into());
        let workspace = Self(Arc::new(Inner {
            root,
            stage: below("stage")?,
            recovery: below("recovery")?,
            journal: below("journal")?,
            state,
            stripes: Stripes::new(state_path.join("locks")),
            ledger: Ledger::new(&state_path, &state_path.join("locks/ledger"), ledger_options),
            path,
            settings,
            protected,
            open: options.open,
            clock: options.clock,
            pending: Mutex::default(),
        }));
        match workspace.heal() {
            // Told by `verify` and by `doctor`. Only what cannot be healed without it has to wait, not all work.
            Err(Fault::Damaged { path, .. }) if path.extension().is_some_and(|end| end == "jsonl") => {}
            // What a living process holds is in good hands.
            healed => drop(healed?),
        }
        Ok(workspace)
    }

    /// The root, canonical.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// The ledger.
    pub fn ledger(&self) -> &Ledger {
        &self.0.ledger
    }

    /// The folder of the state.
    pub fn state_path(&self) -> PathBuf {
        self.0.path.join(STATE_FOLDER)
    }

    /// The time, by the clock this workspace was given.
    pub fn now(&self) -> Timestamp {
        (self.0.clock)()
    }

    /// The canonical path of a file, whatever way it is spelled, whether or not it exists or lies in the workspace.
    pub fn canonical(&self, path: impl AsRef<Path>) -> Result<FilePath> {
        place::canonical(&self.0.path.join(path)).map(FilePath::trusted)
    }

    pub(crate) fn locate(&self, path: &Path) -> Result<Located> {
        place::locate(&self.0.path, path)
    }

    pub(crate) fn is_protected(&self, relative: &Path) -> bool {
        let nearest = |named: &[PathBuf]| {
            let above = named.iter().filter(|folder| relative.starts_with(folder));
            above.map(|folder| folder.components().count()).max()
        };
        nearest(&self.0.protected).is_some_and(|protected| Some(protected) >= nearest(&self.0.open))
    }

    pub(crate) fn root(&self) -> &Folder {
        &self.0.root
    }

    pub(crate) fn state(&self) -> &Folder {
        &self.0.state
    }

    pub(crate) fn stage(&self) -> &Folder {
        &self.0.stage
    }

    pub(crate) fn recovery_folder(&self) -> &Folder {
        &self.0.recovery
    }

    pub(crate) fn journal(&self) -> &Folder {
        &self.0.journal
    }

    pub(crate) fn stripes(&self) -> &Stripes {
        &self.0.stripes
    }

    pub(crate) fn pending(&self) -> &Mutex<Vec<Displaced>> {
        &self.0.pending
    }
}

/// The nearest folder upward that has a state, else the nearest that is the root of a git checkout, else the folder itself.
pub fn find_root(folder: &Path) -> PathBuf {
    let has = |name: &'static str| move |folder: &&Path| folder.join(name).exists();
    // A vault keeps what it knows in a folder of the same name. That alone makes no workspace of it.
    let of_a_vault = |folder: &&Path| {
        let state = folder.join(STATE_FOLDER);
        state.join("vault").exists() && !state.join("version").exists() && !state.join("config.toml").exists()
    };
    let has_state = |folder: &&Path| has(STATE_FOLDER)(folder) && !of_a_vault(folder);
    let found = folder.ancestors().find(has_state).or_else(|| folder.ancestors().find(has(".git")));
    found.unwrap_or(folder).to_owned()
}

/// The settings in a file; the defaults if there is none.
pub fn read_settings(path: &Path) -> Result<Settings> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Settings::default()),
        Err(error) => return Err(error).at("read the configuration", path),
    };
    text.parse().map_err(|error: Unusable| Fault::Config { path: path.to_owned(), what: error.to_string() })
}

/// Makes what is missing of the state. Several processes may do so at once.
fn make_state(root: &Path, state: &Path) -> Result<()> {
    if check_version(&state.join("version"))? {
        return Ok(());
    }
    // The group may use the state if it may write the workspace; strangers never.
    let root_mode = fs::metadata(root).at("look at", root)?.mode();
    let mode = if root_mode & 0o020 == 0 { 0o700 } else { 0o770 };
    let recovery = Kind::ALL.map(|kind| format!("recovery/{}", kind.folder()));
    let folders = ["", "locks", "stage", "journal", "recovery", "paths"].into_iter();
    for name in folders.chain(recovery.iter().map(String::as_str)) {
        let folder = state.join(name);
        match uninterrupted(|| fs::DirBuilder::new().mode(mode).create(&folder)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(error).at("make", &folder);
            }
            _ => {}
        }
    }
    // One at a time, so that what somebody is writing can be told from what a crash has left half written.
    let lock = state.join("locks/state");
    let Some(_alone) = Lock::acquire(&lock, STATE_WAIT)? else {
        return Err(Fault::Locked { path: lock, waited_s: STATE_WAIT.as_secs() });
    };
    for item in fs::read_dir(state).at("list", state)? {
        let item = item.at("list", state)?;
        if item.file_name().as_encoded_bytes().starts_with(b"tmp-") {
            fs::remove_file(item.path()).at("remove", item.path())?;
        }
    }
    // A person may commit their configuration; the rest is of this machine only.
    put_whole(&state.join(".gitignore"), "*\n!/.gitignore\n!/config.toml\n")?;
    // Last, because it says that everything else is there.
    put_whole(&state.join("version"), &format!("{STATE_VERSION}\n"))?;
    // Without this a power cut could take the whole state away from under writes that were acknowledged later.
    for folder in [state, root] {
        fs::File::open(folder).and_then(|open| open.sync_all()).at("flush the folder", folder)?;
    }
    Ok(())
}

/// Whether the state is there, in a format that this program knows.
fn check_version(path: &Path) -> Result<bool> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error).at("read", path),
    };
    match text.trim().parse::<u32>() {
        Ok(found) if found > STATE_VERSION => {
            Err(Fault::NewerFormat { path: path.to_owned(), found, known: STATE_VERSION })
        }
        Ok(_) => Ok(true),
        Err(_) => Err(Fault::damaged(path, "it should hold the version of the state's format")),
    }
}

/// Writes a small file whole: nobody ever sees a part of it. What is there already stays.
fn put_whole(path: &Path, text: &str) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    let temporary = path.with_file_name(format!("tmp-{}", crate::name::random_id()?));
    fs::write(&temporary, text).at("write", &temporary)?;
    uninterrupted(|| fs::rename(&temporary, path)).at("rename", &temporary)
}

/// The standard library repeats reads and writes that a signal has interrupted, but not these.
fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            answer => return answer,
        }
    }
}
