//! What the user has agreed to, as far as opening a workspace depends on it: state of another user, and engines that may
//! get a password.
//!
//! The agreements are in the user's own state folder, one file per workspace and per engine, named after the hash of its
//! path or address. The command `tollgate trust` writes them; this file only reads them.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tollgate_base::digest::Digest;
use tollgate_base::private;
use tollgate_guard::workspace::STATE_FOLDER;

/// The user's agreements.
#[derive(Debug, Clone)]
pub struct Agreements {
    /// The folder with the agreements. `None` if the user has no folder for state: then nothing is trusted.
    pub folder: Option<PathBuf>,
    /// The user.
    pub uid: u32,
    /// The user who became root, by `SUDO_UID`.
    pub sudo: Option<u32>,
}

impl Agreements {
    /// The agreements in the user's folder for state.
    pub fn new(state: Option<&Path>, uid: u32, sudo: Option<u32>) -> Self {
        Self { folder: state.map(|state| state.join("tollgate").join("trusted")), uid, sudo }
    }

    /// The file with the agreement about a workspace.
    pub fn record(&self, root: &Path) -> Option<PathBuf> {
        let name = Digest::of(root.as_os_str().as_bytes()).to_string();
        self.folder.as_ref().map(|folder| folder.join(&name[..32]))
    }

    /// The lines of the record: the hash of the configuration, and the owner of the state.
    pub fn agreed(&self, root: &Path) -> Option<(String, String)> {
        let text = private::read_to_string(&self.record(root)?).ok()?;
        let mut lines = text.lines().map(str::to_owned);
        Some((lines.next()?, lines.next()?))
    }

    /// The file with the agreement about an engine.
    pub fn engine_record(&self, url: &str) -> Option<PathBuf> {
        let name = Digest::of(url.as_bytes()).to_string();
        self.folder.as_ref().map(|folder| folder.join(format!("engine-{}", &name[..32])))
    }

    /// Whether the user has chosen this engine, or has agreed to it, so that it may get a password.
    pub fn trusts_engine(&self, url: &str) -> bool {
        self.engine_record(url).is_some_and(|record| record.exists())
    }

    /// The user that owns the state of this workspace, if it is somebody else and this user has not agreed to that.
    pub fn stranger(&self, root: &Path) -> Option<u32> {
        let owner = self.foreign_owner(root)?;
        let agreed = self.agreed(root).is_some_and(|(_, agreed)| agreed == owner.to_string());
        (!agreed).then_some(owner)
    }

    /// The user that owns the state or the configuration of this workspace, if it is neither this user nor root.
    pub fn foreign_owner(&self, root: &Path) -> Option<u32> {
        let state = root.join(STATE_FOLDER);
        let owners = [state.clone(), state.join("config.toml")].map(|path| {
            // A link belongs to the user who made it, whatever it leads to.
            fs::symlink_metadata(path).ok().map(|found| found.uid())
        });
        let is_ours =
            |owner: &u32| *owner == self.uid || *owner == 0 || self.uid == 0 && self.sudo == Some(*owner);
        owners.into_iter().flatten().find(|owner| !is_ours(owner))
    }
}
