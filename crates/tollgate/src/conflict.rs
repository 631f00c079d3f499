//! What a refused write ran into: whose change it was, and the diff, kept for a while beside the ledger.
//!
//! The ledger's line has hashes only, because it is kept for ever and file contents should not be. This is bounded like
//! recovery, by the same age, and by number. Nothing depends on it: where it is missing, a reader is told less.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::{At, Result};
use crate::refusal::{ChangedBy, Stale};
use crate::workspace::Workspace;

/// So many are kept. A diff has at most 4 KiB, so this is 4 MiB.
const MOST: usize = 1000;

/// What is known about one refused write beyond its ledger line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// Who wrote what was on disk, if it was a guarded agent.
    pub changed_by: Option<ChangedBy>,
    /// From what the agent knew to what was on disk, bounded, if both were known and text.
    pub diff: Option<String>,
}

impl Workspace {
    /// What the refused write with this line in the ledger ran into, if it is still kept.
    pub fn conflict(&self, seq: u64) -> Result<Option<Conflict>> {
        let path = self.conflict_folder().join(seq.to_string());
        match fs::read(&path) {
            // Half written by a process that died: as good as not kept.
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).at("read", &path),
        }
    }

    /// A refusal is more important than its footnote: what cannot be kept is not.
    pub(crate) fn keep_conflict(&self, seq: u64, stale: &Stale) {
        let conflict = Conflict { changed_by: stale.changed_by.clone(), diff: stale.diff.clone() };
        if conflict.changed_by.is_none() && conflict.diff.is_none() {
            return;
        }
        let folder = self.conflict_folder();
        let Ok(bytes) = serde_json::to_vec(&conflict) else { return };
        // The folder of recovery is closed to strangers, so this one is.
        let _ = fs::create_dir(&folder);
        let _ = fs::write(folder.join(seq.to_string()), bytes);
    }

    /// Drops what is older or more than is kept. Says how many.
    pub(crate) fn prune_conflicts(&self, now: Timestamp, max_age: Duration) -> Result<usize> {
        let folder = self.conflict_folder();
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            entries => entries.at("list", &folder)?,
        };
        let mut kept: Vec<(u64, PathBuf)> = entries
            .filter_map(|entry| {
                let path = entry.ok()?.path();
                Some((path.file_name()?.to_str()?.parse().ok()?, path))
            })
            .collect();
        // The newest first.
        kept.sort_unstable_by(|a, b| b.cmp(a));
        let old = |path: &PathBuf| {
            let written = fs::symlink_metadata(path).and_then(|found| found.modified()).ok();
            let written = written.and_then(|written| Timestamp::try_from(written).ok());
            written.is_some_and(|written| now.duration_since(written).unsigned_abs() > max_age)
        };
        let mut pruned = 0;
        for (index, (_, path)) in kept.iter().enumerate() {
            if index >= MOST || old(path) {
                fs::remove_file(path).at("remove", path)?;
                pruned += 1;
            }
        }
        Ok(pruned)
    }

    fn conflict_folder(&self) -> PathBuf {
        self.state_path().join("recovery").join("conflicts")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Stale;
    use crate::turn::FileState;
    use crate::workspace::Options;

    #[test]
    fn what_is_kept_is_bounded_by_age_and_number() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(folder.path(), Options::default()).unwrap();
        let stale = |diff: Option<&str>| Stale {
            expected: FileState::Absent,
            actual: FileState::Absent,
            changed_by: None,
            diff: diff.map(str::to_owned),
        };
        workspace.keep_conflict(1, &stale(None));
        assert_eq!(workspace.conflict(1).unwrap(), None, "nothing to tell");
        let most = MOST as u64;
        for seq in 2..most + 4 {
            workspace.keep_conflict(seq, &stale(Some("-a\n+b\n")));
        }
        let (now, day) = (Timestamp::now(), Duration::from_secs(86_400));
        assert_eq!(workspace.prune_conflicts(now, day).unwrap(), 2);
        assert_eq!(workspace.conflict(3).unwrap(), None);
        assert_eq!(workspace.conflict(4).unwrap().unwrap().diff.as_deref(), Some("-a\n+b\n"));
        fs::write(workspace.conflict_folder().join("4"), "{\"changed_by\":").unwrap();
        assert_eq!(workspace.conflict(4).unwrap(), None, "half written");
        assert_eq!(workspace.prune_conflicts(now + day * 2, day).unwrap(), MOST);
    }
}
