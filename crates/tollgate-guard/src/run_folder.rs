//! The folder of one run of a command, in `.tollgate/runs/`: the private layer of its view.
//!
//! A lock beside the folder says that the run lives. The folder of a dead run is removed by the next run and by the next
//! sweep: nothing in it was ever visible in the workspace.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::root::Root;
use tollgate_base::error::{At, Result};
use tollgate_base::file::names_in;
use tollgate_base::lock::{Lock, has_name};
use tollgate_base::name::random_id;

const RUNS: &str = "runs";

const LOCK: &str = ".lock";

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
        make_private(&runs)?;
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
            make_private(&path)?;
            return Ok(Self { path, lock_file, _lock: lock });
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the folder.
    pub fn remove(self) -> Result<()> {
        remove_tree(&self.path).at("remove the folder", &self.path)?;
        fs::remove_file(&self.lock_file).at("remove", &self.lock_file)
    }
}

/// Removes the folders of dead runs. Returns their number.
pub(crate) fn remove_dead(root: &Root) -> Result<usize> {
    let runs = root.state_path().join(RUNS);
    if !runs.exists() {
        return Ok(0);
    }
    let is_lock = |name: &OsStr| Path::new(name).extension().is_some_and(|end| end == &LOCK[1..]);
    let mut ids: Vec<OsString> = Vec::new();
    for name in names_in(&runs)? {
        let id = if is_lock(&name) { Path::new(&name).file_stem().unwrap_or_default() } else { &name };
        ids.push(id.to_owned());
    }
    ids.sort();
    ids.dedup();
    let mut removed = 0;
    for id in ids {
        let mut lock_file = runs.join(&id);
        lock_file.as_mut_os_string().push(LOCK);
        let Some(lock) = Lock::acquire(&lock_file, Duration::ZERO)? else { continue };
        // Another process has removed it between the opening of the file and its lock.
        if !has_name(lock.file()) {
            continue;
        }
        let folder = runs.join(&id);
        remove_tree(&folder).at("remove the folder", &folder)?;
        fs::remove_file(&lock_file).at("remove", &lock_file)?;
        removed += 1;
    }
    Ok(removed)
}

fn make_private(folder: &Path) -> Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.at("make the folder", folder),
    }
}

/// Removes a folder with everything in it. The kernel leaves folders in it that nobody may open.
fn remove_tree(folder: &Path) -> io::Result<()> {
    match fs::symlink_metadata(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => remove_tree(&entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    fs::remove_dir(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::{Options, Workspace};

    #[test]
    fn several_processes_remove_dead_runs_at_the_same_time() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(".tollgate")).unwrap();
        let workspace = Workspace::open(folder.path(), Options::default()).unwrap();
        let runs = folder.path().join(".tollgate").join(RUNS);
        make_private(&runs).unwrap();
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
