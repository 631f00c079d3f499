//! The folder `.tollgate/`: how it is found, created and checked, and the settings in it.
//!
//! The state is as private as the workspace itself: users outside the workspace's group never have access.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::disk::gone_is_none;
use crate::stage::RecoveryKind;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::file::{TEMPORARY, names_in, replace_file};
use tollgate_base::lock::Lock;
use tollgate_base::private;
use tollgate_base::settings::{Durability, Settings};

/// The name of the state folder, in the root of the workspace.
pub const STATE_FOLDER: &str = ".tollgate";

/// The version of the state's format that this program reads and writes.
pub const STATE_VERSION: u32 = 1;

/// The longest time that a process waits while another creates the state, which takes a few milliseconds.
const STATE_WAIT: Duration = Duration::from_secs(10);

/// Whether a folder has the state of a workspace. A vault keeps its own state in a folder of the same name, and that alone
/// does not make it a workspace.
pub fn has_state(folder: &Path) -> bool {
    let state = folder.join(STATE_FOLDER);
    let of_a_vault = || {
        state.join("vault").exists() && !state.join("version").exists() && !state.join("config.toml").exists()
    };
    state.exists() && !of_a_vault()
}

/// Whether a folder is the root of a git checkout.
pub fn is_checkout(folder: &Path) -> bool {
    folder.join(".git").exists()
}

/// The nearest folder upward that has a state or is the root of a git checkout, else the folder itself.
pub fn find_root(folder: &Path) -> PathBuf {
    let found = folder.ancestors().find(|folder| has_state(folder) || is_checkout(folder));
    found.unwrap_or(folder).to_owned()
}

/// The settings in a file. The defaults if the file does not exist.
pub fn read_settings(path: &Path) -> Result<Settings> {
    let text = gone_is_none(fs::read_to_string(path).at("read the configuration", path))?;
    let Some(text) = text else {
        // Defaults instead of the settings that a link no longer leads to would be a surprise.
        return match path.is_symlink() {
            true => Err(Fault::Config {
                path: path.to_owned(),
                what: "it is a symbolic link that leads nowhere".into(),
            }),
            false => Ok(Settings::default()),
        };
    };
    Settings::parse(&text, path)
}

/// Creates what is missing of the state. Several processes may do so at the same time.
pub(crate) fn create(root: &Path, state: &Path) -> Result<()> {
    if check_version(&state.join("version"))? {
        return Ok(());
    }
    // The group may use the state if it may write the workspace. Other users never may.
    let root_mode = fs::metadata(root).at("look at", root)?.mode();
    let mode = if root_mode & 0o020 == 0 { 0o700 } else { 0o770 };
    let kept = ["contents", "refused"].into_iter().chain(RecoveryKind::ALL.map(RecoveryKind::folder));
    let folders = ["", "locks", "stage", "journal", "paths", "history"].into_iter().map(str::to_owned);
    for name in folders.chain(kept.map(|name| format!("history/{name}"))) {
        let folder = state.join(name);
        private::create_folder(&folder, mode).at("make", &folder)?;
    }
    // One process at a time, so that every temporary file found below was left by a crash.
    let lock = state.join("locks/state");
    let Some(_alone) = Lock::acquire(&lock, STATE_WAIT)? else {
        return Err(Fault::Locked { path: lock, waited_s: STATE_WAIT.as_secs() });
    };
    // Another process has created it while this one waited, and may already write files of its own.
    if check_version(&state.join("version"))? {
        return Ok(());
    }
    for name in names_in(state)? {
        if name.as_encoded_bytes().starts_with(TEMPORARY.as_bytes()) {
            private::remove_file(&state.join(&name)).at("remove", state.join(&name))?;
        }
    }
    // The files below flush the state folder only, and the last of them says that everything else exists.
    let history = state.join("history");
    private::sync_folder(&history).at("flush the folder", &history)?;
    // People may commit their configuration. The rest belongs to this machine only.
    write_once(&state.join(".gitignore"), "*\n!/.gitignore\n!/config.toml\n")?;
    // Last, because this file says that everything else exists.
    write_once(&state.join("version"), &format!("{STATE_VERSION}\n"))?;
    // Without this, a power failure could remove the whole state, including writes that were acknowledged later.
    private::sync_folder(root).at("flush the folder", root)
}

/// Whether the state exists, in a format that this program can read.
fn check_version(path: &Path) -> Result<bool> {
    let Some(text) = gone_is_none(private::read_to_string(path).at("read", path))? else { return Ok(false) };
    match text.trim().parse::<u32>() {
        Ok(found) if found > STATE_VERSION => {
            Err(Fault::NewerFormat { path: path.to_owned(), found, known: STATE_VERSION })
        }
        Ok(_) => Ok(true),
        Err(_) => Err(Fault::damaged(path, "it should hold the version of the state's format")),
    }
}

/// Writes a file unless it exists. Flushes its folder, and with it the folders created there.
fn write_once(path: &Path, text: &str) -> Result<()> {
    if path.symlink_metadata().is_ok() {
        Ok(())
    } else {
        replace_file(path, text.as_bytes(), Durability::Durable)
    }
}
