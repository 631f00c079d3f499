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
    /// What the file held when the command started.
    pub(super) at_start: Option<Digest>,
}

/// Which came first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum First {
    #[default]
    Neither,
    Look,
    Change,
}

pub(super) struct CommandReads {
    root: PathBuf,
    start: i128,
    watcher: Option<OwnedFd>,
    /// What the command did first to each name that was there when it started, by its number.
    listed: Vec<First>,
    /// The same for other names, by the number of their folder.
    new: HashMap<(usize, OsString), First>,
    /// The hashes of the files that it read first, by their numbers.
    at_start: HashMap<usize, Digest>,
    hashed: usize,
}

impl CommandReads {
    pub(super) fn new(root: &Path, start: i128, watcher: Option<OwnedFd>) -> Self {
        let (listed, new, at_start, hashed) = Default::default();
        Self { root: root.to_owned(), start, watcher, listed, new, at_start, hashed }
    }

    /// From where the reports come. `None` if nobody knows what the command reads.
    pub(super) fn watcher(&self) -> Option<&OwnedFd> {
        self.watcher.as_ref()
    }

    /// Nobody knows any more what the command reads.
    pub(super) fn give_up(&mut self) {
        self.watcher = None;
        self.listed.clear();
        self.new.clear();
        self.at_start.clear();
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
        let name = OsStr::from_bytes(name.to_bytes());
        let is_read = flags.intersects(ReadFlags::ACCESS | ReadFlags::CLOSE_NOWRITE);
        let first = if is_read { First::Look } else { First::Change };
        let Some(listed) = names.number(number, name) else {
            self.new.entry((number, name.to_owned())).or_insert(first);
            return;
        };
        if self.listed.is_empty() {
            self.listed.resize(names.count(), First::Neither);
        }
        if self.listed[listed] != First::Neither {
            return;
        }
        self.listed[listed] = first;
        if is_read && self.hashed < MOST_HASHED {
            self.hashed += 1;
            let digest = self.hash_at_start(&folder.join(name));
            self.at_start.extend(digest.map(|digest| (listed, digest)));
        }
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
        let Some((folder, name)) = names.place(path) else { return Some(FileUse::default()) };
        Some(match names.number(folder, name) {
            Some(number) => self.of_listed(number),
            None => {
                let looked = self.new.get(&(folder, name.to_owned())) == Some(&First::Look);
                FileUse { looked, at_start: None }
            }
        })
    }

    fn of_listed(&self, number: usize) -> FileUse {
        let looked = self.listed.get(number) == Some(&First::Look);
        FileUse { looked, at_start: self.at_start.get(&number).copied() }
    }

    /// The files that the command looked at, of those that were there when it started, folder by folder.
    pub(super) fn looked_at(&self, names: &Names) -> Vec<(PathBuf, FileUse)> {
        let mut folders: Vec<_> = names.folders().enumerate().collect();
        folders.sort_unstable_by_key(|(_, folder)| *folder);
        let mut files = Vec::new();
        for (number, folder) in folders {
            let looked = names.in_folder(number).filter(|name| self.listed.get(*name) == Some(&First::Look));
            let mut looked: Vec<_> = looked.map(|number| (names.name(number), number)).collect();
            looked.sort_unstable();
            files.extend(looked.into_iter().map(|(name, number)| (folder.join(name), self.of_listed(number))));
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
