//! One look at a folder: what waits there, and whether it is complete.
//!
//! Invariant: a look costs about as much as reading the folder and the dates of its files. What is in a file is read
//! once and remembered ([`super::cache`]) until its dates say that it may have changed.

use std::fs::{self, DirEntry};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::FolderStore;
use super::cache::{Cache, Stat};
use super::disk::open_task;
use crate::error::{At, Result};
use crate::vault::name::TaskName;
use crate::vault::state::{Slot, State};
use crate::vault::store::{Listed, Ready, Scan, Unfit};
use crate::vault::task::{Brief, Broken, HEAD};

/// A file this old when it was read cannot have been changed since within the same tick of the clock that dates it.
const CERTAIN: SignedDuration = SignedDuration::from_secs(2);

impl FolderStore {
    pub(super) fn scan_state(&self, state: State, now: Timestamp) -> Result<Scan> {
        let mut scan = Scan::default();
        if state == State::InProgress {
            for agent in self.agents()? {
                self.scan_slot(&Slot::InProgress(agent), &mut scan, &mut Cache::none(), now)?;
            }
            return Ok(scan);
        }
        let path = self.private("cache", state.as_str());
        let mut cache = Cache::load(&path);
        self.scan_slot(&Slot::Free(state), &mut scan, &mut cache, now)?;
        cache.save(&path, &self.private("stage", &crate::name::random_id()?));
        Ok(scan)
    }

    /// The names alone of what lies in one state.
    pub(crate) fn scan_names(&self, state: State) -> Result<Vec<(TaskName, Slot)>> {
        let slots = match state {
            State::InProgress => self.agents()?.into_iter().map(Slot::InProgress).collect(),
            state => vec![Slot::Free(state)],
        };
        let mut names = Vec::new();
        for slot in slots {
            let found = super::settle::names_in(&self.folder(&slot))?;
            let tasks = found.iter().filter_map(|name| TaskName::of_file(name).ok());
            names.extend(tasks.map(|task| (task, slot.clone())));
        }
        Ok(names)
    }

    fn scan_slot(&self, slot: &Slot, scan: &mut Scan, cache: &mut Cache, now: Timestamp) -> Result<()> {
        let folder = self.folder(slot);
        let entries = match fs::read_dir(&folder) {
            // An agent's folder that somebody removed a moment ago.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            entries => entries.at("read", &folder)?,
        };
        for entry in entries {
            let entry = entry.at("read", &folder)?;
            if !is_task(&entry) {
                continue;
            }
            let name = entry.file_name();
            let unfit = |why: &str| Unfit {
                name: name.to_string_lossy().escape_debug().to_string(),
                state: slot.state(),
                why: why.to_owned(),
            };
            let Some(text) = name.to_str() else {
                scan.unfit.push(unfit("its name is not UTF-8"));
                continue;
            };
            let task = match TaskName::of_file(text) {
                Ok(task) => task,
                Err(error) => {
                    scan.unfit.push(unfit(&error.to_string()));
                    continue;
                }
            };
            let meta = match entry.metadata() {
                Ok(meta) if meta.is_file() => meta,
                Ok(_) => {
                    scan.unfit.push(unfit("it is not a plain file"));
                    continue;
                }
                // Taken since the folder was read.
                Err(_) => continue,
            };
            let stat = Stat::of(&meta);
            let brief = match cache.find(&stat) {
                Some(brief) => Ok(brief),
                None => match self.read_brief(&task, slot) {
                    Ok(Some(brief)) => {
                        if let Ok(brief) = &brief
                            && now.duration_since(changed(&meta).max(modified(&meta))) > CERTAIN
                        {
                            cache.keep(&stat, brief);
                        }
                        brief
                    }
                    Ok(None) => continue,
                    Err(fault) => Err(Broken(fault.to_string())),
                },
            };
            let ready = ready(&meta, self.options.settle, now);
            scan.tasks.push(Listed { task, slot: slot.clone(), brief, ready, modified: modified(&meta) });
        }
        Ok(())
    }

    fn read_brief(&self, task: &TaskName, slot: &Slot) -> Result<Option<Result<Brief, Broken>>> {
        let path = self.path(task, slot);
        let Some((file, _)) = open_task(&path, false)? else { return Ok(None) };
        let mut head = Vec::new();
        file.take(HEAD as u64).read_to_end(&mut head).at("read", &path)?;
        Ok(Some(Brief::read(&head)))
    }
}

/// By its name alone: no dotfile, ends in `.md`.
pub(super) fn is_task(entry: &DirEntry) -> bool {
    let name = entry.file_name();
    let name = name.as_bytes();
    name.ends_with(b".md") && !name.starts_with(b".")
}

/// When its bytes last changed, or were said to.
pub(super) fn modified(meta: &fs::Metadata) -> Timestamp {
    stamp(meta.mtime(), meta.mtime_nsec())
}

/// When anything about it last changed, its place included. Nobody can set this back.
pub(super) fn changed(meta: &fs::Metadata) -> Timestamp {
    stamp(meta.ctime(), meta.ctime_nsec())
}

fn stamp(seconds: i64, nanos: i64) -> Timestamp {
    Timestamp::new(seconds, i32::try_from(nanos).unwrap_or(0)).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Whether a file is complete, as far as its dates tell.
pub(super) fn ready(meta: &fs::Metadata, settle: Duration, now: Timestamp) -> Ready {
    if meta.len() == 0 {
        return Ready::Empty;
    }
    let (modified, changed) = (modified(meta), changed(meta));
    // Writing dates both alike. Moving dates only the change: it was moved in after it was written.
    if changed > modified {
        return Ready::Now;
    }
    let settle = SignedDuration::try_from(settle).unwrap_or(SignedDuration::MAX);
    let age = now.duration_since(changed);
    // From the future: somebody has set the clock back, and waiting for it would be for long.
    if age >= settle || age < -settle {
        return Ready::Now;
    }
    Ready::After(Duration::try_from(settle - age).unwrap_or_default())
}
