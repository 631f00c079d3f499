//! The folders of one round: a workspace, and beside it what the participants write down.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tollgate::error::{Fault, Result};

use crate::Rogue;

/// Files that only agents change. Their chains must be unbroken. The first half is for fast agents, the second for slow ones;
/// each half sees the others now and then.
pub(crate) const GUARDED: [&str; 8] =
    ["shared-0", "shared-1", "shared-2", "shared-3", "shared-4", "shared-5", "shared-6", "shared-7"];

/// Two files that are always changed together.
pub(crate) const PAIR: [&str; 2] = ["pair-x", "pair-y"];

const SETTINGS: &str = "[guard]\ndurability = \"fast\"\n[vault]\ntree = \"own\"\ndurability = \"fast\"\nsettle = \"0s\"\nretry = []\n\
                        max_attempts = 1000\n[work]\nbreaker = 0\n";

pub(crate) struct Arena {
    folder: PathBuf,
    pub(crate) seed: u64,
    /// Which round this is.
    pub(crate) number: u64,
    pub(crate) rogue: Option<Rogue>,
}

impl Arena {
    pub(crate) fn new(dir: Option<&Path>, seed: u64, number: u64, rogue: Option<Rogue>) -> Result<Self> {
        let top = dir.map_or_else(std::env::temp_dir, Path::to_owned);
        let folder = top.join(format!("tollgate-stress-{}-{number}", std::process::id()));
        let arena = Self { folder, seed, number, rogue };
        arena.workspace("w", SETTINGS)?;
        for file in GUARDED.iter().chain(&PAIR) {
            put(&arena.root().join(file), "start\n")?;
        }
        Ok(arena)
    }

    /// Makes a workspace with these settings.
    pub(crate) fn workspace(&self, name: &str, settings: &str) -> Result<PathBuf> {
        let root = self.beside(name);
        put(&root.join(".tollgate/config.toml"), settings)?;
        for state in ["Needs_Action", "In_Progress", "Pending_Approval", "Approved", "Done", "Rejected"] {
            make(&root.join("vault").join(state))?;
        }
        Ok(root)
    }

    /// Makes a workspace whose tasks are in another store.
    pub(crate) fn workspace_with_store(&self, name: &str, store: &str) -> Result<PathBuf> {
        self.workspace(name, &SETTINGS.replace("[vault]\n", &format!("[vault]\n{store}\nlease = \"10s\"\n")))
    }

    /// The workspace in which agents change files.
    pub(crate) fn root(&self) -> PathBuf {
        self.beside("w")
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Participants stop when this file exists.
    pub(crate) fn stop(&self) -> PathBuf {
        self.beside("stop")
    }

    /// A command with an environment of its own.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.beside("home"))
            .env("XDG_STATE_HOME", self.beside("state"))
            .env("XDG_RUNTIME_DIR", self.beside("run"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if std::env::var_os("TOLLGATE_STRESS_KEEP").is_none() {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// A program of tollgate, built beside this one.
pub(crate) fn program(name: &str) -> PathBuf {
    let this = std::env::current_exe().unwrap_or_default();
    this.with_file_name(name)
}

pub(crate) fn put(path: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
    if let Some(folder) = path.parent() {
        make(folder)?;
    }
    fs::write(path, bytes).map_err(|source| Fault::Io { doing: "write", path: path.to_owned(), source })
}

pub(crate) fn make(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|source| Fault::Io {
        doing: "make the folder",
        path: folder.to_owned(),
        source,
    })
}
