//! Details of refused writes: who changed the file, and the diff.
//!
//! The ledger line has hashes only, because the ledger is kept forever and file contents should not be. The details are
//! deleted after the same time as recovery files, and their number is limited. Nothing depends on them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::disk::{gone_is_none, modified};
use crate::refusal::{ChangedBy, Stale};
use crate::root::Root;
use tollgate_base::error::{At, Result};
use tollgate_base::file::names_in;
use tollgate_base::private;

/// The number of conflicts that are kept. A diff has at most 4 KiB, so this is 4 MiB.
const MOST: usize = 1000;

/// The details of one refused write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// The author of the bytes on disk, if it was a guarded agent.
    pub changed_by: Option<ChangedBy>,
    /// The diff from the bytes that the agent knew to those on disk, of limited length, if both were known and text.
    pub diff: Option<String>,
}

/// The details of the refused write with this ledger line, if they are still kept.
pub(crate) fn read(root: &Root, seq: u64) -> Result<Option<Conflict>> {
    let path = folder(root).join(seq.to_string());
    let bytes = gone_is_none(private::read(&path).at("read", &path))?;
    // If the writer died before it finished, there are no details.
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

/// Keeps the details of a refusal. Errors are ignored, because the refusal matters more.
pub(crate) fn keep(root: &Root, seq: u64, stale: &Stale) {
    let conflict = Conflict { changed_by: stale.changed_by.clone(), diff: stale.diff.clone() };
    if conflict.changed_by.is_none() && conflict.diff.is_none() {
        return;
    }
    let folder = folder(root);
    let Ok(bytes) = serde_json::to_vec(&conflict) else { return };
    // The parent folder is closed to other users, so this one is too.
    let _ = private::create_folder(&folder, 0o770);
    let _ = private::write(&folder.join(seq.to_string()), bytes);
}

/// Deletes details that are too old or too many. Returns the number of deleted files.
pub(crate) fn prune(root: &Root, now: Timestamp, max_age: Duration) -> Result<usize> {
    let folder = folder(root);
    let number = |name: OsString| Some((name.to_str()?.parse::<u64>().ok()?, folder.join(name)));
    let mut kept: Vec<(u64, PathBuf)> = names_in(&folder)?.into_iter().filter_map(number).collect();
    // Newest first.
    kept.sort_unstable_by(|a, b| b.cmp(a));
    let old = |written| now.duration_since(written).unsigned_abs() > max_age;
    let mut pruned = 0;
    for (index, (_, path)) in kept.iter().enumerate() {
        if index >= MOST || modified(path).is_some_and(old) {
            private::remove_file(path).at("remove", path)?;
            pruned += 1;
        }
    }
    Ok(pruned)
}

fn folder(root: &Root) -> PathBuf {
    root.state_path().join("recovery").join("conflicts")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Stale;
    use crate::root::Options;
    use crate::turn::FileState;

    #[test]
    fn conflicts_are_limited_by_age_and_number() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path(), Options::default()).unwrap();
        let stale = |diff: Option<&str>| Stale {
            expected: FileState::Absent,
            actual: FileState::Absent,
            changed_by: None,
            diff: diff.map(str::to_owned),
            mergeable: false,
        };
        keep(&root, 1, &stale(None));
        assert_eq!(read(&root, 1).unwrap(), None, "a refusal without details");
        let most = MOST as u64;
        for seq in 2..most + 4 {
            keep(&root, seq, &stale(Some("-a\n+b\n")));
        }
        let (now, day) = (Timestamp::now(), Duration::from_secs(86_400));
        assert_eq!(prune(&root, now, day).unwrap(), 2);
        assert_eq!(read(&root, 3).unwrap(), None);
        assert_eq!(read(&root, 4).unwrap().unwrap().diff.as_deref(), Some("-a\n+b\n"));
        std::fs::write(super::folder(&root).join("4"), "{\"changed_by\":").unwrap();
        assert_eq!(read(&root, 4).unwrap(), None, "an incomplete file");
        assert_eq!(prune(&root, now + day * 2, day).unwrap(), MOST);
    }
}
