//! Scanning a folder: which tasks wait there, and whether they are complete.
//!
//! Invariant: a scan costs about as much as reading the folder and the dates of its files. What is in a file is read once
//! and remembered ([`super::cache`]) until its dates say that it may have changed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rustix::fs::{AtFlags, Dir, OFlags, statat};

use super::cache::Cache;
use super::disk::{Seen, names_in};
use super::layout::FolderStore;
use crate::brief::{Brief, Broken, HEAD};
use crate::state::{Slot, State};
use crate::store::{Ready, Scan, TaskSummary, Unfit};
use tollgate_base::error::{At, Result};
use tollgate_base::lock::open_noatime;
use tollgate_base::name::random_id;
use tollgate_base::task::TaskName;

/// A file that was this old when it was read cannot have changed since within the same tick of the clock that dates it.
const CERTAIN: SignedDuration = SignedDuration::from_secs(2);

impl FolderStore {
    pub(super) fn scan_state(&self, state: State, now: Timestamp) -> Result<Scan> {
        let mut scan = Scan::default();
        if state == State::InProgress {
            for agent in self.agents()? {
                self.scan_folder(&Slot::InProgress(agent), &mut Cache::default(), now, &mut scan)?;
            }
            return Ok(scan);
        }
        let path = self.private("cache", state.as_str());
        let mut cache = Cache::load(&path);
        self.scan_folder(&Slot::Free(state), &mut cache, now, &mut scan)?;
        cache.save(&path, &self.stage(&random_id()?));
        Ok(scan)
    }

    fn scan_folder(&self, slot: &Slot, cache: &mut Cache, now: Timestamp, scan: &mut Scan) -> Result<()> {
        let path = self.slot_folder(slot);
        let folder = match File::open(&path) {
            // An agent's folder that somebody has just deleted.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            folder => folder.at("read", &path)?,
        };
        let mut names = names(&folder, slot.state(), scan).at("read", &path)?;
        // In the order in which they lie on the disk, and in the cache.
        names.sort_unstable_by_key(|(_, ino)| *ino);
        scan.tasks.reserve(names.len());
        for (name, _) in names {
            // Claimed since the folder was read.
            let Ok(found) = statat(&folder, name.as_str(), AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let seen = Seen::from(&found);
            if !seen.is_file {
                scan.unfit.push(unfit(name.as_str(), slot.state(), "it is not a plain file"));
                continue;
            }
            let modified = modified(&seen);
            let brief = match cache.find(&seen) {
                Some(brief) => Ok(brief),
                None => match read_brief(&folder, &name) {
                    Ok(brief) => {
                        let age = now.duration_since(changed(&seen).max(modified));
                        if let (Ok(brief), true) = (&brief, age > CERTAIN) {
                            cache.add(&seen, brief);
                        }
                        brief
                    }
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => Err(Broken(format!("cannot read `{name}`: {error}"))),
                },
            };
            let ready = ready(&seen, self.options.settle, now);
            scan.tasks.push(TaskSummary { name, slot: slot.clone(), brief, ready, modified });
        }
        Ok(())
    }

    /// The names alone of the tasks in one state.
    pub(crate) fn scan_names(&self, state: State) -> Result<Vec<(TaskName, Slot)>> {
        let mut names = Vec::new();
        for slot in self.slots(Some(state))? {
            let found = names_in(&self.slot_folder(&slot))?;
            let tasks = found.iter().filter_map(|name| TaskName::of_file(name).ok());
            names.extend(tasks.map(|task| (task, slot.clone())));
        }
        Ok(names)
    }
}

/// The names and inodes of what may be a task.
fn names(folder: &File, state: State, scan: &mut Scan) -> io::Result<Vec<(TaskName, u64)>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !is_task(OsStr::from_bytes(name)) {
            continue;
        }
        match str::from_utf8(name) {
            Ok(name) => match TaskName::of_file(name) {
                Ok(task) => names.push((task, entry.ino())),
                Err(error) => scan.unfit.push(unfit(name, state, &error.to_string())),
            },
            Err(_) => {
                scan.unfit.push(unfit(&String::from_utf8_lossy(name), state, "its name is not UTF-8"));
            }
        }
    }
    Ok(names)
}

fn unfit(name: &str, state: State, why: &str) -> Unfit {
    Unfit { name: name.escape_debug().to_string(), state, why: why.to_owned() }
}

fn read_brief(folder: &File, task: &TaskName) -> io::Result<Result<Brief, Broken>> {
    let file = open_noatime(folder, task.as_str(), OFlags::RDONLY | OFlags::NONBLOCK)?;
    // Most tasks are short.
    let mut head = [0; 4 << 10];
    let read = file.read_at(&mut head, 0)?;
    if read < head.len() {
        return Ok(Brief::read(&head[..read]));
    }
    let mut head = Vec::new();
    file.take(HEAD as u64).read_to_end(&mut head)?;
    Ok(Brief::read(&head))
}

/// By its name alone: not hidden, and it ends in `.md`.
pub(super) fn is_task(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.ends_with(b".md") && !name.starts_with(b".")
}

/// When its bytes last changed, or were said to.
pub(super) fn modified(seen: &Seen) -> Timestamp {
    stamp(seen.modified)
}

/// When anything about it last changed, including its folder. Nobody can set this back.
pub(super) fn changed(seen: &Seen) -> Timestamp {
    stamp(seen.changed)
}

fn stamp((seconds, nanos): (i64, i64)) -> Timestamp {
    Timestamp::new(seconds, i32::try_from(nanos).unwrap_or(0)).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Whether a file is complete, as far as its dates tell.
pub(super) fn ready(seen: &Seen, settle: Duration, now: Timestamp) -> Ready {
    if seen.len == 0 {
        return Ready::Empty;
    }
    let (modified, changed) = (modified(seen), changed(seen));
    // Writing sets both dates alike. Moving sets only the change: the file was moved in after it was written.
    if changed > modified {
        return Ready::Now;
    }
    let settle = SignedDuration::try_from(settle).unwrap_or(SignedDuration::MAX);
    let age = now.duration_since(changed);
    // From the future: somebody has set the clock back, and waiting for that time would take long.
    if age >= settle || age < -settle {
        return Ready::Now;
    }
    Ready::After(Duration::try_from(settle - age).unwrap_or_default())
}
