//! Scanning a folder: which tasks wait there, and whether they are complete.
//!
//! Invariant: a scan costs about as much as reading the folder and the dates of its files. What is in a file is read once
//! and remembered ([`super::cache`]) until its dates say that it may have changed.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rustix::fs::OFlags;

use super::FolderStore;
use super::cache::Cache;
use super::disk::{fingerprint, read_range};
use crate::brief::{Brief, HEAD, UnreadableTask};
use crate::state::Slot;
use crate::store::{NotATask, Ready, Scan, TaskSummary};
use tollgate_base::error::{At, Result};
use tollgate_base::lock::open_noatime;
use tollgate_base::task::TaskName;

/// A file that was this old when it was read cannot have changed since within the same tick of the clock that dates it:
/// ticks of kernels last 10 ms at most.
const CERTAIN: SignedDuration = SignedDuration::from_millis(100);

/// What [`CERTAIN`] is where files are dated in whole seconds, or in pairs of them.
const CERTAIN_IN_SECONDS: SignedDuration = SignedDuration::from_secs(3);

impl FolderStore {
    /// Adds what is in one folder.
    pub(super) fn scan_folder(
        &self,
        slot: &Slot,
        cache: &mut Cache<'_>,
        now: Timestamp,
        scan: &mut Scan,
    ) -> Result<()> {
        let path = self.slot_folder(slot);
        let entries = match fs::read_dir(&path) {
            // An agent's folder that somebody has just deleted.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.at("read", &path)?,
        };
        for entry in entries {
            let entry = entry.at("read", &path)?;
            let name = entry.file_name();
            if !is_task(&name) {
                if let Some(why) = overlooked(&entry).filter(|_| slot.state().is_claimable()) {
                    let name = name.to_string_lossy().escape_debug().to_string();
                    scan.unfit.push(NotATask { name, state: slot.state(), why: why.to_owned() });
                }
                continue;
            }
            // Claimed since the folder was read.
            let Ok(found) = entry.metadata() else { continue };
            let name = match fit(&name, &found) {
                Ok(name) => name,
                Err(why) => {
                    let name = name.to_string_lossy().escape_debug().to_string();
                    scan.unfit.push(NotATask { name, state: slot.state(), why });
                    continue;
                }
            };
            let (fingerprint, modified) = (fingerprint(&found), modified(&found));
            let brief = match cache.find(&fingerprint) {
                _ if is_shared(slot, &found) => Err(shared()),
                Some(brief) => Ok(brief),
                None => match read_brief(&entry.path(), found.len()) {
                    Ok(brief) => {
                        if let (Ok(brief), true) = (&brief, is_certain(changed(&found), modified, now)) {
                            cache.add(&fingerprint, brief);
                        }
                        brief
                    }
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => Err(UnreadableTask(format!("cannot read `{name}`: {error}"))),
                },
            };
            let ready = ready(&found, self.options.settle, now);
            scan.tasks.push(TaskSummary { name, slot: slot.clone(), brief, ready, modified });
        }
        Ok(())
    }
}

/// The task's name, or why this cannot be a task.
fn fit(name: &OsStr, found: &Metadata) -> Result<TaskName, String> {
    let name = name.to_str().ok_or("its name is not UTF-8")?;
    let task = TaskName::of_file(name).map_err(|error| error.to_string())?;
    if found.is_file() { Ok(task) } else { Err("it is not a plain file".to_owned()) }
}

fn read_brief(path: &Path, len: u64) -> io::Result<Result<Brief, UnreadableTask>> {
    let file = open_noatime(path, OFlags::RDONLY | OFlags::NONBLOCK)?;
    Ok(Brief::read(&read_range(&file, 0, len.min(HEAD as u64))?))
}

/// Whether a change after this moment would show in the dates of a file.
fn is_certain(changed: Timestamp, modified: Timestamp, now: Timestamp) -> bool {
    let age = now.duration_since(changed.max(modified));
    age > if changed.subsec_nanosecond() == 0 { CERTAIN_IN_SECONDS } else { CERTAIN }
}

/// Why an author may be surprised that this is not a task.
fn overlooked(entry: &fs::DirEntry) -> Option<&'static str> {
    let name = entry.file_name();
    let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
    match name.as_bytes() {
        [b'.', ..] => None,
        _ if is_folder => Some("it is a folder, and tasks in it are not found"),
        [.., b'.', b'm' | b'M', b'd' | b'D'] => Some("its name must end in `.md`"),
        _ => None,
    }
}

/// Whether a task that may be claimed has more than one name. A block for one of them would be in all.
pub(super) fn is_shared(slot: &Slot, found: &Metadata) -> bool {
    slot.state().is_claimable() && found.nlink() > 1
}

pub(super) fn shared() -> UnreadableTask {
    UnreadableTask("its file has several names (hard links): copy it to a file of its own".to_owned())
}

/// By its name alone: not hidden, and it ends in `.md`.
pub(crate) fn is_task(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.ends_with(b".md") && !name.starts_with(b".")
}

/// When its bytes last changed, or were said to.
pub(super) fn modified(found: &Metadata) -> Timestamp {
    stamp(found.mtime(), found.mtime_nsec())
}

/// When anything about it last changed, including its folder. Nobody can set this back.
pub(super) fn changed(found: &Metadata) -> Timestamp {
    stamp(found.ctime(), found.ctime_nsec())
}

fn stamp(seconds: i64, nanos: i64) -> Timestamp {
    Timestamp::new(seconds, i32::try_from(nanos).unwrap_or(0)).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Whether a file is complete, as far as its dates tell.
pub(crate) fn ready(found: &Metadata, settle: Duration, now: Timestamp) -> Ready {
    if found.len() == 0 {
        return Ready::Empty;
    }
    let (modified, changed) = (modified(found), changed(found));
    let settle = SignedDuration::try_from(settle).unwrap_or(SignedDuration::MAX);
    let age = now.duration_since(changed);
    // Writing sets both dates alike. Moving sets only the change: the file was moved in after it was written. A date from
    // the future: somebody has set the clock back, and waiting for that time would take long.
    if changed > modified || age >= settle || age < -settle {
        return Ready::Now;
    }
    Ready::After(Duration::try_from(settle - age).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_remembered_once_a_change_would_show_in_its_dates() {
        let at = |millis: i64| Timestamp::from_millisecond(1_000_000_000 + millis).unwrap();
        for (changed, modified, now, certain) in [
            (1, 1, 101, false),
            (1, 1, 102, true),
            (1, 90, 102, false),
            (90, 1, 102, false),
            // In whole seconds.
            (0, 0, 200, false),
            (0, 0, 3000, false),
            (0, 0, 3001, true),
            // From the future.
            (500, 500, 0, false),
        ] {
            assert_eq!(is_certain(at(changed), at(modified), at(now)), certain, "{changed} {modified} {now}");
        }
    }
}
