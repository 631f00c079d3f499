//! The files of the view: where they are, what is in them, and whether a person is still writing them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rustix::fs::OFlags;

use crate::folder::disk::{Disk, Moved, fingerprint, open_task, read};
use crate::folder::make_state_folders;
use crate::folder::scan::{is_task, ready};
use crate::state::{Slot, State};
use crate::store::Ready;
use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::file::names_in;
use tollgate_base::lock::nobody_writes;
use tollgate_base::name::{Agent, random_id};
use tollgate_base::task::TaskName;

/// The file that says that the view is out of date.
pub(super) const STALE_MARK: &str = "STALE.md";

/// The longest file that can be a task, in bytes. An author's text has at most 1 MiB; agents add drafts and notes. A file is read
/// as a whole whenever something happens to it, so a longer one is not read at all.
pub(super) const LONGEST_FILE: u64 = 16 << 20;

/// Where a person finds the files that were set aside.
pub(super) fn aside_folder(folder: &Path) -> PathBuf {
    private_folder(folder).join("aside")
}

/// The lock of the process that maintains the view.
pub(super) fn lock_path(folder: &Path) -> PathBuf {
    private_folder(folder).join("lock")
}

/// The view's own state.
pub(super) fn private_folder(folder: &Path) -> PathBuf {
    folder.join(".tollgate").join("view")
}

/// A file of the view as it is now.
#[derive(Debug)]
pub(super) struct LocalFile {
    pub(super) slot: Slot,
    pub(super) bytes: Vec<u8>,
    pub(super) sha256: Digest,
    /// Whether a person has finished it.
    pub(super) ready: Ready,
}

/// The folders of the view.
pub(super) struct ViewFiles {
    pub(super) folder: PathBuf,
    pub(super) disk: Disk,
    settle: Duration,
}

impl ViewFiles {
    /// The folders, which are made if they are missing.
    pub(super) fn open(folder: &Path, disk: Disk, settle: Duration) -> Result<Self> {
        let files = Self { folder: folder.to_owned(), disk, settle };
        make_state_folders(folder)?;
        for path in [files.stage(""), aside_folder(folder)] {
            if !path.is_dir() {
                files.disk.make_folder(&path)?;
            }
        }
        Ok(files)
    }

    pub(super) fn path(&self, task: &TaskName, slot: &Slot) -> PathBuf {
        self.slot_folder(slot).join(task.as_str())
    }

    pub(super) fn slot_folder(&self, slot: &Slot) -> PathBuf {
        let folder = self.folder.join(slot.state().as_str());
        match slot {
            Slot::InProgress(agent) => folder.join(agent.as_str()),
            Slot::Free(_) => folder,
        }
    }

    /// Where new bytes wait before they get their name, and replaced ones before they are deleted.
    pub(super) fn stage(&self, name: &str) -> PathBuf {
        private_folder(&self.folder).join("stage").join(name)
    }

    /// The file at one place. A fault if it is too long.
    pub(super) fn look(&self, task: &TaskName, slot: &Slot, now: Timestamp) -> Result<Option<LocalFile>> {
        let path = self.path(task, slot);
        let Some((file, found)) = open_task(&path, OFlags::RDONLY)? else { return Ok(None) };
        if found.len() > LONGEST_FILE {
            return Err(too_long(&format!("`{slot}/{task}`"), "move it to another folder"));
        }
        let bytes = read(&file, 0, LONGEST_FILE).at("read", &path)?;
        let after = file.metadata().at("look at", &path)?;
        let mut ready = ready(&after, self.settle, now);
        // Bytes that were read while somebody wrote may be half old and half new.
        let is_whole = fingerprint(&found) == fingerprint(&after);
        if ready == Ready::Now && !(nobody_writes(file).at("look at", &path)? && is_whole) {
            ready = Ready::Open;
        }
        Ok(Some(LocalFile { slot: slot.clone(), sha256: Digest::of(&bytes), bytes, ready }))
    }

    /// All files of this name, in all folders.
    pub(super) fn named(&self, task: &TaskName, now: Timestamp) -> Result<Vec<LocalFile>> {
        let mut found = Vec::new();
        for state in State::ALL {
            for slot in self.slots(state)? {
                found.extend(self.look(task, &slot, now)?);
            }
        }
        Ok(found)
    }

    /// The slots of a state that have folders.
    fn slots(&self, state: State) -> Result<Vec<Slot>> {
        if state != State::InProgress {
            return Ok(vec![Slot::Free(state)]);
        }
        let mut agents: Vec<Agent> = names_in(&self.folder.join(state.as_str()))?
            .iter()
            .filter_map(|name| name.to_str()?.parse().ok())
            .collect();
        agents.sort();
        Ok(agents.into_iter().map(Slot::InProgress).collect())
    }

    /// The names of all tasks whose files are in the folders of this state.
    pub(super) fn list(&self, state: State) -> Result<Vec<TaskName>> {
        let mut tasks = Vec::new();
        for slot in self.slots(state)? {
            let folder = self.slot_folder(&slot);
            if !folder.is_dir() {
                continue;
            }
            let names = names_in(&folder)?.into_iter().filter(|name| is_task(name));
            tasks.extend(names.filter_map(|name| TaskName::of_file(name.to_str()?).ok()));
        }
        Ok(tasks)
    }

    /// Moves a file to the place where a person finds it; `None` if it is gone.
    pub(super) fn keep(&self, from: &Path, task: &TaskName) -> Result<Option<PathBuf>> {
        let folder = aside_folder(&self.folder);
        let to = folder.join(task.beside(&random_id()?).as_str());
        if self.disk.transfer(from, &to, 0)? == Moved::Missing {
            return Ok(None);
        }
        self.disk.sync_folder(&folder)?;
        Ok(Some(to))
    }

    /// Writes a text to the place where a person finds it.
    pub(super) fn keep_text(&self, text: &[u8], task: &TaskName) -> Result<PathBuf> {
        let folder = aside_folder(&self.folder);
        let to = folder.join(task.beside(&random_id()?).as_str());
        self.disk.create(&to, text)?;
        self.disk.sync_folder(&folder)?;
        Ok(to)
    }

    /// Whether this file has exactly these bytes and nobody can be writing to it any more.
    pub(super) fn is_settled(&self, path: &Path, expected: &[Option<Digest>]) -> Result<bool> {
        let Some((file, found)) = open_task(path, OFlags::RDONLY)? else { return Ok(true) };
        if found.len() > LONGEST_FILE {
            return Ok(false);
        }
        let quiet = nobody_writes(file.try_clone().at("open", path)?).at("look at", path)?;
        let sha256 = Digest::of(&read(&file, 0, LONGEST_FILE).at("read", path)?);
        Ok(quiet && expected.contains(&Some(sha256)))
    }

    /// The time since when the view is out of date, and why; written once in an outage. Whether it was written now.
    pub(super) fn mark_stale(&self, since: Timestamp, why: &str) -> Result<bool> {
        let path = self.folder.join(STALE_MARK);
        if path.exists() {
            return Ok(false);
        }
        let text = format!(
            "# These folders are out of date\n\nSince {since}: {}\n\n\
             Nothing can be claimed until the store can be reached again. What you change here in the meantime is compared \
             with the store then. This file disappears when the folders are up to date.\n",
            why.escape_debug(),
        );
        self.disk.replace_file(&path, text.as_bytes(), self.disk.durability).map(|()| true)
    }

    /// The view is up to date. Whether it was marked as out of date.
    pub(super) fn mark_fresh(&self) -> Result<bool> {
        let path = self.folder.join(STALE_MARK);
        let was_stale = fs::symlink_metadata(&path).is_ok();
        if was_stale {
            self.disk.remove(&path)?;
        }
        Ok(was_stale)
    }
}

/// What is longer than [`LONGEST_FILE`], and what a person can do.
pub(super) fn too_long(what: &str, to_do: &str) -> Fault {
    Fault::invalid(format!("{what} has more than {} MiB, too much for a task: {to_do}", LONGEST_FILE >> 20))
}
