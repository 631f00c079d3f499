//! What a command reads, as the kernel reports it: which files, and whether it looked at a file before it wrote it.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{Event, ReadFlags, Reader};
use rustix::fs::{AtFlags, Mode, OFlags, open, statat};
use rustix::io::Errno;

use super::hash::{hash, hash_up_to};
use super::start::{Names, changed, changed_at};
use tollgate_base::digest::Digest;

/// The number of files that are hashed when they are read for the first time, and the size of the largest. Enough for what an
/// agent looks at; a search through all files must not wait for hashes.
const MOST_HASHED: usize = 64;
const LARGEST_HASHED: u64 = 1 << 20;

/// What the command did to one file.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FileUse {
    /// It read the file before it changed it.
    pub(super) looked: bool,
    changed: bool,
    /// What the file held when the command started.
    pub(super) at_start: Option<Digest>,
}

pub(super) struct CommandReads {
    root: PathBuf,
    start: i128,
    watcher: Option<OwnedFd>,
    /// For each folder, by its number, what the command did to files in it.
    touched: Vec<HashMap<OsString, FileUse>>,
    hashed: usize,
}

impl CommandReads {
    pub(super) fn new(root: &Path, start: i128, watcher: Option<OwnedFd>) -> Self {
        Self { root: root.to_owned(), start, watcher, touched: Vec::new(), hashed: 0 }
    }

    /// From where the reports come. `None` if nobody knows what the command reads.
    pub(super) fn watcher(&self) -> Option<&OwnedFd> {
        self.watcher.as_ref()
    }

    /// Nobody knows any more what the command reads.
    pub(super) fn give_up(&mut self) {
        self.watcher = None;
        self.touched.clear();
    }

    /// Takes all reports that there are.
    pub(super) fn take(&mut self, names: &Names) {
        let Some(watcher) = self.watcher.take() else { return };
        let mut buffer = [MaybeUninit::uninit(); 64 * 1024];
        let mut reader = Reader::new(&watcher, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => {
                    self.give_up();
                    return;
                }
                Ok(event) => self.note(names, &event),
                Err(Errno::INTR) => {}
                // No more for now.
                Err(_) => break,
            }
        }
        self.watcher = Some(watcher);
    }

    /// Whether reports may wait for a moment: what they are about is not hashed any more.
    pub(super) fn may_wait(&self) -> bool {
        self.hashed >= MOST_HASHED
    }

    fn note(&mut self, names: &Names, event: &Event<'_>) {
        let flags = event.events();
        let Some(name) = event.file_name().filter(|_| !flags.contains(ReadFlags::ISDIR)) else { return };
        let Ok(number) = usize::try_from(event.wd() - 1) else { return };
        let Some(folder) = names.folder(number) else { return };
        if self.touched.len() <= number {
            self.touched.resize_with(number + 1, HashMap::new);
        }
        let name = OsStr::from_bytes(name.to_bytes());
        let is_read = flags.intersects(ReadFlags::ACCESS | ReadFlags::CLOSE_NOWRITE);
        if let Some(touched) = self.touched[number].get_mut(name) {
            match is_read {
                true => touched.looked |= !touched.changed,
                false => touched.changed = true,
            }
            return;
        }
        let at_start = (is_read && self.hashed < MOST_HASHED)
            .then(|| {
                self.hashed += 1;
                self.hash_at_start(&folder.join(name))
            })
            .flatten();
        let touched = FileUse { looked: is_read, changed: !is_read, at_start };
        self.touched[number].insert(name.to_owned(), touched);
    }

    /// The hash of a file that nobody has changed since the start.
    fn hash_at_start(&self, path: &Path) -> Option<Digest> {
        let file = File::open(self.root.join(path)).ok()?;
        let is_old = |file: &File| {
            let found = file.metadata().ok()?;
            (found.is_file() && found.len() <= LARGEST_HASHED && changed(&found) < self.start).then_some(())
        };
        is_old(&file)?;
        let digest = hash_up_to(&file, LARGEST_HASHED).ok()?;
        is_old(&file)?;
        Some(digest)
    }

    /// What the command did to this file. `None` if nobody knows.
    pub(super) fn of(&self, names: &Names, path: &Path) -> Option<FileUse> {
        self.watcher.as_ref()?;
        let place = names.place(path);
        let touched = place.and_then(|(number, name)| self.touched.get(number)?.get(name));
        Some(touched.copied().unwrap_or_default())
    }

    /// The files that the command looked at, of those that were there when it started, folder by folder.
    pub(super) fn looked_at(&self, names: &Names) -> Vec<(PathBuf, FileUse)> {
        let mut folders: Vec<_> = names.folders().enumerate().zip(&self.touched).collect();
        folders.sort_unstable_by_key(|((_, folder), _)| *folder);
        let mut files = Vec::new();
        for ((number, folder), touched) in folders {
            let is_one = |name: &OsStr, touched: &FileUse| touched.looked && names.has_in(number, name);
            let mut looked: Vec<_> = touched.iter().filter(|(name, touched)| is_one(name, touched)).collect();
            looked.sort_unstable_by_key(|(name, _)| *name);
            files.extend(looked.into_iter().map(|(name, touched)| (folder.join(name), *touched)));
        }
        files
    }

    /// The files of these that another program has changed since the start.
    pub(super) fn changed_by_others(&self, files: &[(PathBuf, FileUse)]) -> Vec<PathBuf> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // Shorter paths are faster to follow, and there may be thousands.
        let root = open(&self.root, flags, Mode::empty());
        let is_old = |path: &Path| {
            let found = root.as_ref().ok().and_then(|root| statat(root, path, AtFlags::empty()).ok());
            found.is_some_and(|found| changed_at(&found) < self.start)
        };
        let is_same = |path: &Path, was: Option<Digest>| {
            was.is_some_and(|was| hash(&self.root.join(path)).is_ok_and(|now| now == was))
        };
        let changed =
            files.iter().filter(|(path, touched)| !is_old(path) && !is_same(path, touched.at_start));
        changed.map(|(path, _)| path.clone()).collect()
    }
}
