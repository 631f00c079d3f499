//! The folders that hold turns between commands: private to the user, and in memory where possible.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tollgate::error::{At, Fault};
use tollgate::shared_turn::SharedTurns;
use tollgate::tasks::workspace_id;
use tollgate::workspace::STATE_FOLDER;
use tollgate_base::private;

/// A folder for turns, in a parent folder that holds nothing else.
pub(crate) struct TurnPlace {
    parent: PathBuf,
    name: OsString,
}

impl TurnPlace {
    pub(crate) fn folder(&self) -> PathBuf {
        self.parent.join(&self.name)
    }

    /// Whether the folder exists.
    pub(crate) fn exists(&self) -> bool {
        self.folder().symlink_metadata().is_ok()
    }

    /// Whether commands in the sandbox of an agent program see the folder. Such sandboxes have a `/dev/shm` of their own.
    pub(crate) fn is_seen_in_sandboxes(&self) -> bool {
        !self.parent.starts_with(private::without_links(Path::new(MEMORY)))
    }

    pub(crate) fn open(&self) -> Result<SharedTurns, Fault> {
        if self.parent.ends_with("run") {
            // In the workspace's own state, which users of its group may use, too.
            private::create_folder(&self.parent, 0o770).at("make the folder", &self.parent)?;
        } else {
            // Creates it, or checks that it belongs to this user alone. Everyone may write to the folder above it, so
            // another user may have created it as a trap.
            SharedTurns::new(self.parent.clone())?;
        }
        SharedTurns::new(self.folder())
    }
}

/// A folder in memory that every user may write to.
const MEMORY: &str = "/dev/shm";

/// Another folder that every user may write to, and that sandboxes show.
const SHARED: &str = "/tmp";

/// The folders for the turns of a user without a runtime folder, the best first.
pub(crate) fn turn_folders_without_runtime(uid: u32) -> [PathBuf; 2] {
    // On some systems, both are links.
    [MEMORY, SHARED].map(|folder| private::without_links(Path::new(folder)).join(format!("tollgate-{uid}")))
}

/// All places for the turns of a workspace, the best first.
pub(crate) fn turn_places(root: &Path, uid: u32, runtime: Option<&Path>) -> Result<Vec<TurnPlace>, Fault> {
    let id = workspace_id(root)?;
    let mut places = Vec::new();
    if let Some(runtime) = runtime {
        places.push(TurnPlace { parent: runtime.join("tollgate"), name: id.clone().into() });
    }
    for parent in turn_folders_without_runtime(uid) {
        if parent.parent().is_some_and(Path::is_dir) {
            places.push(TurnPlace { parent, name: id.clone().into() });
        }
    }
    places.push(turn_place_in_workspace(root, uid));
    Ok(places)
}

/// The place in the state of the workspace. One folder for each user: several may share the workspace.
pub(crate) fn turn_place_in_workspace(root: &Path, uid: u32) -> TurnPlace {
    TurnPlace { parent: root.join(STATE_FOLDER).join("run"), name: uid.to_string().into() }
}
