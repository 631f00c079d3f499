//! When each agent program last called a hook of this workspace, for the doctor.

use std::fs;
use std::time::{Duration, SystemTime};

use tollgate::shared_turn::SharedTurns;
use tollgate_base::private;

/// Records that this program has called a hook.
pub(super) fn note(turns: &SharedTurns, host: &str) {
    let folder = turns.folder().join("called");
    let path = folder.join(host);
    let now = SystemTime::now();
    let recent = |found: fs::Metadata| {
        found
            .modified()
            .is_ok_and(|then| now.duration_since(then).is_ok_and(|age| age < Duration::from_secs(60)))
    };
    // Once a minute is enough, and saves most of the writes.
    if !fs::symlink_metadata(&path).is_ok_and(recent) {
        let _ = private::create_folder(&folder, 0o700);
        let _ = private::write(&path, "");
    }
}

/// When this program last called a hook here.
pub(super) fn time(turns: &SharedTurns, host: &str) -> Option<SystemTime> {
    fs::symlink_metadata(turns.folder().join("called").join(host)).ok()?.modified().ok()
}
