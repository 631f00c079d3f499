//! The workspace: a folder of files, its settings, and tollgate's state in `.tollgate/`.
//!
//! Opening a workspace heals what a crash left. Changes by agents go through [`crate::gate`].

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;

use crate::conflict::{self, Conflict};
use crate::folder::{self, Listing, PathInfo};
use crate::heal;
use crate::late_write::Swept;
use crate::outcome::Outcome;
use crate::path::FilePath;
use crate::recovery::{self, RecoveryEntry};
pub use crate::root::Options;
use crate::root::Root;
pub use crate::state_folder::{STATE_FOLDER, STATE_VERSION, find_root, read_settings};
use tollgate_base::error::{Fault, Result};
use tollgate_base::ledger::Ledger;
use tollgate_base::settings::Settings;

/// An open workspace. Clones share it, and threads may too.
#[derive(Clone)]
pub struct Workspace(Arc<Root>);

impl Workspace {
    /// Opens the folder, creates its state if there is none, and heals what a crash left.
    pub fn open(folder: impl AsRef<Path>, options: Options) -> Result<Self> {
        let root = Root::open(folder.as_ref(), options)?;
        match heal::heal(&root) {
            // `verify` and `doctor` report a damaged ledger. It must not stop all work, only the healing that needs it.
            Err(Fault::Damaged { path, .. }) if path.extension().is_some_and(|end| end == "jsonl") => {}
            // Paths that a living process holds are not this process's business.
            healed => drop(healed?),
        }
        Ok(Self(Arc::new(root)))
    }

    /// The canonical path of the workspace.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        self.0.settings()
    }

    /// The ledger.
    pub fn ledger(&self) -> &Ledger {
        self.0.ledger()
    }

    /// The folder of the state.
    pub fn state_path(&self) -> PathBuf {
        self.0.state_path()
    }

    /// The time, by the workspace's clock.
    pub fn now(&self) -> Timestamp {
        self.0.now()
    }

    /// The canonical path of a file, which need not exist or be in the workspace.
    pub fn canonical(&self, path: impl AsRef<Path>) -> Result<FilePath> {
        self.0.canonical(path.as_ref())
    }

    /// Lists a folder.
    pub fn list(&self, path: impl AsRef<Path>) -> Result<Outcome<Listing>> {
        folder::list(&self.0, path.as_ref())
    }

    /// The metadata of a file or folder. Follows a link that stays in the workspace.
    pub fn look_at(&self, path: impl AsRef<Path>) -> Result<Outcome<PathInfo>> {
        folder::look_at(&self.0, path.as_ref())
    }

    /// Makes all late-write checks that are due, and deletes recovery files that are too old or too many.
    ///
    /// Long-lived processes call this on a timer, the command line calls it after each write.
    pub fn sweep(&self) -> Result<Swept> {
        heal::sweep(&self.0)
    }

    /// The files in recovery, newest first. Includes replaced files that still await their late-write check.
    pub fn recovery(&self) -> Result<Vec<RecoveryEntry>> {
        recovery::list(&self.0)
    }

    /// One file in recovery, with its bytes.
    pub fn recovered(&self, id: &str) -> Result<(RecoveryEntry, Vec<u8>)> {
        recovery::read(&self.0, id)
    }

    /// The details of the refused write with this ledger line, if they are still kept.
    pub fn conflict(&self, seq: u64) -> Result<Option<Conflict>> {
        conflict::read(&self.0, seq)
    }

    pub(crate) fn root(&self) -> &Root {
        &self.0
    }
}
