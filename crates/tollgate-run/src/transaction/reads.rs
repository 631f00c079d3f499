//! What a command reads, as the kernel reports it: which files, and whether it looked at a file before it wrote it.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{Event, ReadFlags, Reader, add_watch};
use rustix::fs::{AtFlags, Mode, OFlags, open, statat};
use rustix::io::Errno;

use super::hash::{hash, hash_up_to};
use super::start::{Names, changed, changed_at};
use super::view::{watched, watched_in_search};
use tollgate_base::digest::Digest;
use tollgate_guard::turn::TEXT_PER_FILE;

/// The number of files that are hashed when they are read for the first time, and the size of the largest. Enough for what an
/// agent looks at; a search through all files must not wait for hashes.
const MOST_HASHED: usize = 64;
const LARGEST_HASHED: u64 = 1 << 20;

/// A command that has read this many files, and has opened none for writing, searches. Programs that change files begin with
/// that much earlier.
const SEARCH: usize = 1_000;

/// What the command did to one file.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FileUse {
    /// It read the file before it changed it.
    pub(super) looked: bool,
    /// It may have read the file before it changed it.
    pub(super) unsure: bool,
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
    /// It opened the file for writing during a search, may have read it, and did not write.
    Open,
}

impl First {
    /// That a command may have looked says less than that it has looked.
    fn is_superseded_by(self, next: Self) -> bool {
        (self, next) == (Self::Open, Self::Look)
    }
}

/// How closely the command is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Closeness {
    /// Every read is reported, until it is clear that the command searches.
    #[default]
    Reads,
    /// The command searches. Only the end of a read is reported, which halves the cost.
    Search,
    /// Every read is reported again: the command searched, and now it writes.
    ReadsAgain,
}

pub(super) struct CommandReads {
    root: PathBuf,
    start: i128,
    watcher: Option<OwnedFd>,
    /// What the command did first to each name that was there when it started, by its number.
    listed: Vec<First>,
    /// What the command did first to every other name, by the number of its folder.
    new: HashMap<(usize, OsString), First>,
    /// The hashes of the files that it read first, by their numbers.
    at_start: HashMap<usize, Digest>,
    /// The bytes of the small ones among them: a merge needs them if the command is refused. Some megabytes at most.
    texts: HashMap<Digest, Vec<u8>>,
    hashed: usize,
    /// The number of files that it read first.
    read: usize,
    /// It has opened a file for writing, or changed a file or a folder.
    wrote: bool,
    /// Reports were lost.
    is_lost: bool,
    watch: Closeness,
    /// The view, if reads may be watched less closely in a search.
    view: Option<File>,
}

impl CommandReads {
    pub(super) fn new(root: &Path, start: i128, watcher: Option<OwnedFd>) -> Self {
        let (listed, new, at_start, texts, hashed) = Default::default();
        let (read, wrote, is_lost, watch, view) = Default::default();
        let root = root.to_owned();
        Self { root, start, watcher, listed, new, at_start, texts, hashed, read, wrote, is_lost, watch, view }
    }

    /// From now on, a search is watched less closely. This is the process of the command; if it has ended, nothing changes.
    pub(super) fn may_search(&mut self, pid: u32) {
        let view = self.root.strip_prefix("/").unwrap_or(&self.root);
        let view = Path::new("/proc").join(pid.to_string()).join("root").join(view);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        self.view = open(view, flags, Mode::empty()).ok().map(File::from);
    }

    /// Watches the command as closely as is necessary after the reports so far.
    pub(super) fn adapt(&mut self, names: &Names) {
        let Some(view) = &self.view else { return };
        let (next, flags) = match self.watch {
            Closeness::Reads if self.read >= SEARCH && !self.wrote => {
                (Closeness::Search, watched_in_search())
            }
            Closeness::Search if self.wrote => (Closeness::ReadsAgain, watched()),
            _ => return,
        };
        let view = PathBuf::from(format!("/proc/self/fd/{}", view.as_raw_fd()));
        self.watch = next;
        for (number, folder) in names.folders().enumerate() {
            // The command goes on, and the kernel drops reports if too many wait.
            if number % 256 == 255 {
                self.take(names);
            }
            let Some(watcher) = &self.watcher else { return };
            // Otherwise the command has removed the folder. The kernel keeps the number of the watch.
            let _ = add_watch(watcher, view.join(folder), flags);
        }
    }

    /// The number of files that the command looked at, of those that were there when it started.
    pub(super) fn count(&self) -> usize {
        self.read
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
                    self.is_lost = true;
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
        let is_read = flags.intersects(ReadFlags::ACCESS | ReadFlags::CLOSE_NOWRITE);
        // A new or deleted folder counts, too.
        self.wrote |= !is_read;
        let Some(name) = event.file_name().filter(|_| !flags.contains(ReadFlags::ISDIR)) else { return };
        let Ok(number) = usize::try_from(event.wd() - 1) else { return };
        let Some(folder) = names.folder(number) else { return };
        let name = OsStr::from_bytes(name.to_bytes());
        let first = match is_read {
            true => First::Look,
            false if !flags.contains(ReadFlags::CLOSE_WRITE) => First::Change,
            false if self.watch == Closeness::Reads => return,
            false => First::Open,
        };
        let Some(listed) = names.number(number, name) else {
            let known = self.new.entry((number, name.to_owned())).or_insert(first);
            if known.is_superseded_by(first) {
                *known = first;
            }
            return;
        };
        if self.listed.is_empty() {
            self.listed.resize(names.count(), First::Neither);
        }
        if self.listed[listed] != First::Neither && !self.listed[listed].is_superseded_by(first) {
            return;
        }
        self.listed[listed] = first;
        self.read += usize::from(is_read);
        if is_read && self.hashed < MOST_HASHED {
            self.hashed += 1;
            let digest = self.hash_at_start(&folder.join(name));
            self.at_start.extend(digest.map(|digest| (listed, digest)));
        }
    }

    /// The hash of a file that nobody has changed since the start. Keeps its bytes if they are few.
    fn hash_at_start(&mut self, path: &Path) -> Option<Digest> {
        let file = File::open(self.root.join(path)).ok()?;
        let is_old = |file: &File| {
            let found = file.metadata().ok()?;
            (found.is_file() && found.len() <= LARGEST_HASHED && changed(&found) < self.start).then_some(())
        };
        is_old(&file)?;
        if file.metadata().ok()?.len() > TEXT_PER_FILE as u64 {
            let digest = hash_up_to(&file, LARGEST_HASHED).ok()?;
            return is_old(&file).map(|()| digest);
        }
        let mut bytes = Vec::new();
        (&file).take(TEXT_PER_FILE as u64).read_to_end(&mut bytes).ok()?;
        is_old(&file)?;
        let digest = Digest::of(&bytes);
        self.texts.insert(digest, bytes);
        Some(digest)
    }

    /// The bytes that this file had when the command looked at it, and their hash. `None` if they were not kept.
    pub(super) fn text_at_start(&self, names: &Names, path: &Path) -> Option<(Digest, &[u8])> {
        let digest = self.of(names, path)?.at_start?;
        Some((digest, self.texts.get(&digest)?))
    }

    /// What the command did to this file. `None` if nobody knows.
    pub(super) fn of(&self, names: &Names, path: &Path) -> Option<FileUse> {
        if self.watcher.is_none() {
            return self.is_lost.then(|| FileUse { unsure: true, ..FileUse::default() });
        }
        let Some((folder, name)) = names.place(path) else {
            return (!names.is_partial()).then(FileUse::default);
        };
        Some(match names.number(folder, name) {
            Some(number) => self.of_listed(number),
            None => self.file_use(self.new.get(&(folder, name.to_owned())).copied(), None),
        })
    }

    fn of_listed(&self, number: usize) -> FileUse {
        self.file_use(self.listed.get(number).copied(), self.at_start.get(&number).copied())
    }

    fn file_use(&self, first: Option<First>, at_start: Option<Digest>) -> FileUse {
        let looked = first == Some(First::Look);
        // During a search, nobody reports a read of a file that is still open, or was opened for writing, too.
        FileUse { looked, unsure: !looked && self.watch != Closeness::Reads, at_start }
    }

    /// Those of the files that the command looked at whose hashes are known.
    pub(super) fn hashed(&self, names: &Names) -> Vec<(PathBuf, FileUse)> {
        let mut files: Vec<_> =
            self.at_start.keys().map(|number| (names.path(*number), self.of_listed(*number))).collect();
        files.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        files
    }

    /// The files that the command looked at, of those that were there when it started, folder by folder.
    pub(super) fn looked_at(&self, names: &Names) -> Vec<(PathBuf, FileUse)> {
        let mut folders: Vec<_> = names.folders().enumerate().collect();
        folders.sort_unstable_by_key(|(_, folder)| *folder);
        let mut files = Vec::new();
        for (number, folder) in folders {
            let is_one = |name: &usize| matches!(self.listed.get(*name), Some(First::Look | First::Open));
            let looked = names.in_folder(number).filter(is_one);
            let mut looked: Vec<_> = looked.map(|number| (names.name(number), number)).collect();
            looked.sort_unstable();
            files
                .extend(looked.into_iter().map(|(name, number)| (folder.join(name), self.of_listed(number))));
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
