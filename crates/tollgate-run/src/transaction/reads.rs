//! What a command reads, as the kernel reports it: which files, and whether it looked at a file before it wrote it.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{Event, ReadFlags, Reader};
use rustix::io::Errno;

use super::start::{Names, changed};
use tollgate_base::digest::{Digest, Hasher};

/// The number of files that are hashed when they are read for the first time, and the size of the largest. Enough for what an
/// agent looks at; a search through all files must not wait for hashes.
const MOST_HASHED: usize = 256;
const LARGEST_HASHED: u64 = 1 << 20;

/// What the command did to one file.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Touched {
    /// It read the file before it changed it.
    pub(super) looked: bool,
    changed: bool,
    /// What the file held when the command started.
    pub(super) at_start: Option<Digest>,
}

pub(super) struct Reads {
    root: PathBuf,
    start: i128,
    watcher: Option<OwnedFd>,
    touched: HashMap<PathBuf, Touched>,
    hashed: usize,
}

impl Reads {
    pub(super) fn new(root: &Path, start: i128, watcher: Option<OwnedFd>) -> Self {
        Self { root: root.to_owned(), start, watcher, touched: HashMap::new(), hashed: 0 }
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

    fn note(&mut self, names: &Names, event: &Event<'_>) {
        let flags = event.events();
        let Some(name) = event.file_name().filter(|_| !flags.contains(ReadFlags::ISDIR)) else { return };
        let folder = usize::try_from(event.wd() - 1).ok().and_then(|number| names.folder(number));
        let Some(folder) = folder else { return };
        let path = folder.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
        let is_read = flags.intersects(ReadFlags::ACCESS | ReadFlags::CLOSE_NOWRITE);
        let is_new = !self.touched.contains_key(&path);
        if is_new && is_read && self.hashed < MOST_HASHED {
            self.hashed += 1;
            let at_start = self.hash_at_start(&path);
            self.touched.insert(path, Touched { looked: true, changed: false, at_start });
            return;
        }
        let touched = self.touched.entry(path).or_default();
        match is_read {
            true => touched.looked |= !touched.changed,
            false => touched.changed = true,
        }
    }

    /// The hash of a file that nobody has changed since the start.
    pub(super) fn hash_at_start(&self, path: &Path) -> Option<Digest> {
        let mut file = File::open(self.root.join(path)).ok()?;
        let is_old = |file: &File| {
            let found = file.metadata().ok()?;
            (found.is_file() && found.len() <= LARGEST_HASHED && changed(&found) < self.start).then_some(())
        };
        is_old(&file)?;
        let mut hasher = Hasher::default();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match file.read(&mut buffer).ok()? {
                0 => break,
                count => hasher.update(&buffer[..count]),
            }
        }
        is_old(&file)?;
        Some(hasher.finish())
    }

    /// What the command did to this file. `None` if nobody knows.
    pub(super) fn of(&self, path: &Path) -> Option<Touched> {
        self.watcher.as_ref()?;
        Some(self.touched.get(path).copied().unwrap_or_default())
    }

    /// The files that the command looked at, sorted.
    pub(super) fn looked_at(&self) -> Vec<(PathBuf, Touched)> {
        let looked = self.touched.iter().filter(|(_, touched)| touched.looked);
        let mut files: Vec<_> = looked.map(|(path, touched)| (path.clone(), *touched)).collect();
        files.sort_by(|a, b| a.0.cmp(&b.0));
        files
    }
}
