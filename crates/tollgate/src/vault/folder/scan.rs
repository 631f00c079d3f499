//! One look at a folder: what waits there, and whether it is complete.
//!
//! Invariant: a look costs about as much as reading the folder and the dates of its files. What is in a file is read
//! once and remembered ([`super::cache`]) until its dates say that it may have changed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rustix::fs::{AtFlags, Dir, OFlags, statat};

use super::FolderStore;
use super::cache::{Cache, Stat};
use super::disk::Seen;
use crate::error::{At, Result};
use crate::lock::{Lock, open_unnoticed};
use crate::vault::name::TaskName;
use crate::vault::state::{Slot, State};
use crate::vault::store::{Listed, Ready, Scan, Unfit};
use crate::vault::task::{Brief, Broken, HEAD};

/// A file this old when it was read cannot have been changed since within the same tick of the clock that dates it.
const CERTAIN: SignedDuration = SignedDuration::from_secs(2);

/// What is read in a folder is remembered in so many parts, so that several may read in a full one.
const PARTS: usize = 4;

/// So many files of a part that nobody has read yet are worth waiting for somebody who is reading them.
const MANY: usize = 16;

/// The longest that is waited for whoever reads. After that everybody reads for themselves.
const READING: Duration = Duration::from_secs(2);

/// A file of a folder, by its name and its inode.
type Named = (TaskName, u64);

/// Some files of a folder, and what is remembered of them.
struct Part {
    named: Vec<Named>,
    cache: Cache,
    path: PathBuf,
}

impl Part {
    fn is_long(&self) -> bool {
        self.named.iter().filter(|(_, ino)| !self.cache.has(*ino)).nth(MANY).is_some()
    }
}

/// A folder that is looked at.
struct Look<'a> {
    slot: &'a Slot,
    folder: File,
    now: Timestamp,
    scan: &'a mut Scan,
}

impl FolderStore {
    pub(super) fn scan_state(&self, state: State, now: Timestamp) -> Result<Scan> {
        let mut scan = Scan::default();
        if state == State::InProgress {
            for agent in self.agents()? {
                let slot = Slot::InProgress(agent);
                if let Some(mut look) = self.look_at(&slot, now, &mut scan)? {
                    let named = look.names().at("read", self.folder(&slot))?;
                    self.read_all(&mut look, named, &mut Cache::none(), false);
                }
            }
            return Ok(scan);
        }
        let slot = Slot::Free(state);
        let Some(mut look) = self.look_at(&slot, now, &mut scan)? else { return Ok(scan) };
        let mut named = look.names().at("read", self.folder(&slot))?;
        // In the order in which they lie on the disk, and in memory.
        named.sort_unstable_by_key(|(_, ino)| *ino);
        let mut parts: [Vec<Named>; PARTS] = std::array::from_fn(|_| Vec::new());
        for (task, ino) in named {
            parts[(ino % PARTS as u64) as usize].push((task, ino));
        }
        let part = |(number, named): (usize, _)| {
            let path = self.private("cache", &format!("{state}-{number}"));
            Part { named, cache: Cache::load(&path), path }
        };
        let mut parts: Vec<Part> = parts.into_iter().enumerate().map(part).collect();
        // Those who come to a full folder at the same time share it out. What others read is waited for at the end.
        for patience in [Duration::ZERO, READING] {
            let mut others = Vec::new();
            for part in parts {
                others.extend(self.read_part(&mut look, part, patience)?);
            }
            parts = others;
        }
        Ok(scan)
    }

    /// Lists a part. It comes back if somebody reads it now and there is no patience.
    fn read_part(&self, look: &mut Look<'_>, mut part: Part, patience: Duration) -> Result<Option<Part>> {
        let mut reader = None;
        if part.is_long() {
            reader = match Lock::acquire(&part.path.with_extension("lock"), patience) {
                Ok(None) if patience.is_zero() => return Ok(Some(part)),
                // Whoever cannot lock reads too: nothing depends on it.
                reader => reader.unwrap_or(None),
            };
            part.cache.load_again(&part.path);
        }
        let reader = reader.filter(|_| part.is_long());
        self.read_all(look, part.named, &mut part.cache, reader.is_some());
        part.cache.save(&part.path, &self.private("stage", &crate::name::random_id()?));
        Ok(None)
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

    /// `None` if there is no such folder: an agent's that somebody removed a moment ago.
    fn look_at<'a>(&self, slot: &'a Slot, now: Timestamp, scan: &'a mut Scan) -> Result<Option<Look<'a>>> {
        let path = self.folder(slot);
        match File::open(&path) {
            Ok(folder) => Ok(Some(Look { slot, folder, now, scan })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).at("read", &path),
        }
    }

    /// Lists these. For those who wait what is young is kept too.
    fn read_all(&self, look: &mut Look<'_>, named: Vec<Named>, cache: &mut Cache, others_wait: bool) {
        look.scan.tasks.reserve(named.len());
        for (task, ino) in named {
            // Somebody has looked at it since we began.
            let (seen, brief) = match cache.just_read(ino) {
                Some((stat, brief)) => (stat.seen(), Some(brief)),
                None => match look.seen(&task) {
                    Some(seen) => (seen, cache.find(&Stat::of(&seen))),
                    None => continue,
                },
            };
            let (modified, changed) = (modified(&seen), changed(&seen));
            let brief = match brief {
                Some(brief) => Ok(brief),
                None => match read_brief(&look.folder, &task) {
                    Ok(brief) => {
                        let young = look.now.duration_since(changed.max(modified)) <= CERTAIN;
                        if let (Ok(brief), true) = (&brief, !young || others_wait) {
                            cache.keep(&Stat::of(&seen), brief, young);
                        }
                        brief
                    }
                    // Taken since the folder was read.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => Err(Broken(format!("cannot read `{task}`: {error}"))),
                },
            };
            let ready = ready(&seen, self.options.settle, look.now);
            look.scan.tasks.push(Listed { task, slot: look.slot.clone(), brief, ready, modified });
        }
    }
}

impl Look<'_> {
    fn unfit(&mut self, name: &str, why: impl Into<String>) {
        let name = name.escape_debug().to_string();
        self.scan.unfit.push(Unfit { name, state: self.slot.state(), why: why.into() });
    }

    /// What lies in the folder and may be a task.
    fn names(&mut self) -> io::Result<Vec<Named>> {
        let mut named = Vec::new();
        for entry in Dir::read_from(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if !is_task(OsStr::from_bytes(name)) {
                continue;
            }
            match str::from_utf8(name) {
                Ok(name) => match TaskName::of_file(name) {
                    Ok(task) => named.push((task, entry.ino())),
                    Err(error) => self.unfit(name, error.to_string()),
                },
                Err(_) => self.unfit(&String::from_utf8_lossy(name), "its name is not UTF-8"),
            }
        }
        Ok(named)
    }

    /// `None` if it cannot be a task, or was taken since the folder was read.
    fn seen(&mut self, task: &TaskName) -> Option<Seen> {
        let found = statat(&self.folder, task.as_str(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let seen = Seen::from(&found);
        if !seen.is_file {
            self.unfit(task.as_str(), "it is not a plain file");
        }
        seen.is_file.then_some(seen)
    }
}

fn read_brief(folder: &File, task: &TaskName) -> io::Result<Result<Brief, Broken>> {
    let file = open_unnoticed(folder, task.as_str(), OFlags::RDONLY | OFlags::NONBLOCK)?;
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
