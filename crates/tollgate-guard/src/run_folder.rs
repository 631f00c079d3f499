//! The folder of one run of a command, in `.tollgate/runs/`: the private layer of its view.
//!
//! A lock beside the folder says that the run lives. The folder of a dead run is removed by the next run and by the next
//! sweep: nothing in it was ever visible in the workspace.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::disk::gone_is_none;
use crate::root::Root;
use tollgate_base::error::{At, Result};
use tollgate_base::lock::{Lock, has_name};
use tollgate_base::name::{is_random_id, random_id};
use tollgate_base::private;

const RUNS: &str = "runs";

const LOCK: &str = ".lock";

/// Nobody else may look into the layer of a command.
const MODE: u32 = 0o700;

/// The folder of a run that lives as long as this value.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    lock_file: PathBuf,
    _lock: Lock,
}

impl RunFolder {
    /// Creates a folder, and removes those of dead runs.
    pub fn create(root: &Root) -> Result<Self> {
        let runs = root.state_path().join(RUNS);
        private::create_folder(&runs, MODE).at("make the folder", &runs)?;
        remove_dead(root)?;
        loop {
            let id = random_id()?;
            let lock_file = runs.join(format!("{id}{LOCK}"));
            // Before the folder: a folder without a living lock is removed.
            let Some(lock) = Lock::acquire(&lock_file, Duration::ZERO)? else { continue };
            // Another process may have taken the new file for that of a dead run.
            if !has_name(lock.file()) {
                continue;
            }
            let path = runs.join(id);
            private::create_folder(&path, MODE).at("make the folder", &path)?;
            return Ok(Self { path, lock_file, _lock: lock });
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the folder.
    pub fn remove(self) -> Result<()> {
        remove(&self.path, &self.lock_file)
    }
}

/// Removes the folders of dead runs. Returns their number. Names that no run makes are left alone: somebody else brought them.
pub(crate) fn remove_dead(root: &Root) -> Result<usize> {
    let runs = root.state_path().join(RUNS);
    let Some(names) = gone_is_none(private::names(&runs).at("list the folder", &runs))? else { return Ok(0) };
    let id_of = |name: &OsString| {
        let name = name.to_str()?;
        let id = name.strip_suffix(LOCK).unwrap_or(name);
        is_random_id(id).then(|| id.to_owned())
    };
    let ids: BTreeSet<String> = names.iter().filter_map(id_of).collect();
    let mut removed = 0;
    for id in ids {
        let lock_file = runs.join(format!("{id}{LOCK}"));
        let Some(lock) = Lock::acquire(&lock_file, Duration::ZERO)? else { continue };
        // Another process has removed it between the opening of the file and its lock.
        if !has_name(lock.file()) {
            continue;
        }
        remove(&runs.join(&id), &lock_file)?;
        removed += 1;
    }
    Ok(removed)
}

/// The lock last: a folder without one is removed by the next run.
fn remove(folder: &Path, lock_file: &Path) -> Result<()> {
    private::remove_tree(folder).at("remove the folder", folder)?;
    private::remove_file(lock_file).at("remove", lock_file)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::workspace::{Options, Workspace};

    #[test]
    fn several_processes_remove_dead_runs_at_the_same_time() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(".tollgate")).unwrap();
        let workspace = Workspace::open(folder.path(), Options::default()).unwrap();
        let runs = folder.path().join(".tollgate").join(RUNS);
        fs::create_dir(&runs).unwrap();
        for round in 0..300 {
            let dead = runs.join(format!("{round:016x}"));
            fs::create_dir(&dead).unwrap();
            fs::write(runs.join(format!("{round:016x}{LOCK}")), "").unwrap();
            std::thread::scope(|scope| {
                let removers: Vec<_> = (0..4).map(|_| scope.spawn(|| remove_dead(&workspace))).collect();
                let removed: usize =
                    removers.into_iter().map(|remover| remover.join().unwrap().unwrap()).sum();
                assert!(removed >= 1, "round {round}: nobody has removed it");
            });
            assert!(!dead.exists());
        }
    }
}
