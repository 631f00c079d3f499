//! The folders that hold turns between commands: private to the user, and in memory where possible.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use tollgate::error::Fault;
use tollgate::shared_turn::SharedTurns;
use tollgate::tasks::workspace_id;
use tollgate::workspace::STATE_FOLDER;

/// A folder for turns, in a parent folder that holds nothing else.
pub(crate) struct TurnPlace {
    parent: PathBuf,
    name: OsString,
}

impl TurnPlace {
    /// Whether the folder exists.
    pub(crate) fn exists(&self) -> bool {
        self.parent.join(&self.name).symlink_metadata().is_ok()
    }

    pub(crate) fn open(&self) -> Result<SharedTurns, Fault> {
        if self.parent.ends_with("run") {
            // In the workspace's own state, which users of its group may use, too.
            match fs::DirBuilder::new().mode(0o770).create(&self.parent) {
                Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(Fault::Io { doing: "make the folder", path: self.parent.clone(), source });
                }
                _ => {}
            }
        } else {
            // Creates it, or checks that it belongs to this user alone. Everyone may write to the folder above it, so
            // another user may have created it as a trap.
            SharedTurns::new(self.parent.clone())?;
        }
        SharedTurns::new(self.parent.join(&self.name))
    }
}

/// A folder in memory that every user may write to.
const MEMORY: &str = "/dev/shm";

/// The folder in memory for the turns of a user without a runtime folder.
pub(crate) fn turn_folder_in_memory(uid: u32) -> PathBuf {
    Path::new(MEMORY).join(format!("tollgate-{uid}"))
}

/// All places for the turns of a workspace, the best first.
pub(crate) fn turn_places(root: &Path, uid: u32, runtime: Option<&Path>) -> Result<Vec<TurnPlace>, Fault> {
    let id = workspace_id(root)?;
    let mut places = Vec::new();
    if let Some(runtime) = runtime {
        places.push(TurnPlace { parent: runtime.join("tollgate"), name: id.clone().into() });
    }
    if Path::new(MEMORY).is_dir() {
        places.push(TurnPlace { parent: turn_folder_in_memory(uid), name: id.into() });
    }
    // One folder for each user: several may share the workspace.
    let name = uid.to_string().into();
    places.push(TurnPlace { parent: root.join(STATE_FOLDER).join("run"), name });
    Ok(places)
}
