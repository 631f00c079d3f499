//! One look at a folder: what waits there, and whether it is complete.
//!
//! Invariant: a look costs about as much as reading the folder and the dates of its files. What is in a file is read
//! once and remembered ([`super::cache`]) until its dates say that it may have changed.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rustix::fs::OFlags;

use super::FolderStore;
use super::cache::{Cache, Stat};
use super::disk::{Seen, open_unnoticed_at};
use crate::error::{At, Result};
use crate::lock::Lock;
use crate::vault::name::TaskName;
use crate::vault::state::{Slot, State};
use crate::vault::store::{Listed, Ready, Scan, Unfit};
use crate::vault::task::{Brief, Broken, HEAD};

/// A file this old when it was read cannot have been changed since within the same tick of the clock that dates it.
const CERTAIN: SignedDuration = SignedDuration::from_secs(2);

/// So many files that nobody has read yet are worth waiting for somebody who is reading them.
const MANY: usize = 64;

/// The longest that is waited for whoever reads. After that everybody reads for themselves.
const READING: Duration = Duration::from_secs(2);

/// A file of a folder, before anything is read in it.
struct Entry {
    task: TaskName,
    stat: Stat,
    ready: Ready,
    modified: Timestamp,
    /// It had not changed for a while: what is read in it now is worth keeping.
    certain: bool,
}

impl FolderStore {
    pub(super) fn scan_state(&self, state: State, now: Timestamp) -> Result<Scan> {
        let mut scan = Scan::default();
        if state == State::InProgress {
            for agent in self.agents()? {
                let slot = Slot::InProgress(agent);
                let entries = self.list(&slot, &mut scan, now)?;
                self.read_all(&slot, entries, &mut scan, &mut Cache::none())?;
            }
            return Ok(scan);
        }
        let slot = Slot::Free(state);
        let entries = self.list(&slot, &mut scan, now)?;
        let path = self.private("cache", state.as_str());
        let mut cache = Cache::load(&path);
        // Of those who come to a full folder at the same time one reads for all.
        let is_long =
            |cache: &Cache| entries.iter().filter(|entry| !cache.has(&entry.stat)).nth(MANY).is_some();
        let mut reader = None;
        if is_long(&cache) {
            // Whoever cannot lock reads too: nothing depends on it.
            reader = Lock::acquire(&self.private("cache", &format!("{state}.lock")), READING).unwrap_or(None);
            cache = Cache::load(&path);
        }
        let _reader = reader.filter(|_| is_long(&cache));
        self.read_all(&slot, entries, &mut scan, &mut cache)?;
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

    fn list(&self, slot: &Slot, scan: &mut Scan, now: Timestamp) -> Result<Vec<Entry>> {
        let folder = self.folder(slot);
        let found = match fs::read_dir(&folder) {
            // An agent's folder that somebody removed a moment ago.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            found => found.at("read", &folder)?,
        };
        let mut entries = Vec::new();
        for entry in found {
            let entry = entry.at("read", &folder)?;
            let name = entry.file_name();
            if !is_task(&name) {
                continue;
            }
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
            match entry.metadata().map(|meta| Seen::from(&meta)) {
                Ok(seen) if seen.is_file => entries.push(Entry {
                    task,
                    stat: Stat::of(&seen),
                    ready: ready(&seen, self.options.settle, now),
                    modified: modified(&seen),
                    certain: now.duration_since(changed(&seen).max(modified(&seen))) > CERTAIN,
                }),
                Ok(_) => scan.unfit.push(unfit("it is not a plain file")),
                // Taken since the folder was read.
                Err(_) => {}
            }
        }
        Ok(entries)
    }

    fn read_all(&self, slot: &Slot, entries: Vec<Entry>, scan: &mut Scan, cache: &mut Cache) -> Result<()> {
        let path = self.folder(slot);
        let mut folder = None;
        scan.tasks.reserve(entries.len());
        for Entry { task, stat, ready, modified, certain } in entries {
            let brief = match cache.find(&stat) {
                Some(brief) => Ok(brief),
                None => {
                    let folder = match &folder {
                        Some(folder) => folder,
                        None => folder.insert(File::open(&path).at("open", &path)?),
                    };
                    match read_brief(folder, &task) {
                        Ok(brief) => {
                            if let (Ok(brief), true) = (&brief, certain) {
                                cache.keep(&stat, brief);
                            }
                            brief
                        }
                        // Taken since the folder was read.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                        Err(error) => Err(Broken(format!("cannot read `{task}`: {error}"))),
                    }
                }
            };
            scan.tasks.push(Listed { task, slot: slot.clone(), brief, ready, modified });
        }
        Ok(())
    }
}

fn read_brief(folder: &File, task: &TaskName) -> io::Result<Result<Brief, Broken>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = open_unnoticed_at(folder, task.as_str(), flags)?;
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

/// By its name alone: no dotfile, ends in `.md`.
pub(super) fn is_task(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.ends_with(b".md") && !name.starts_with(b".")
}

/// When its bytes last changed, or were said to.
pub(super) fn modified(seen: &Seen) -> Timestamp {
    stamp(seen.modified)
}

/// When anything about it last changed, its place included. Nobody can set this back.
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
