//! When a command starts, by the clock of the file system, and what there is.
//!
//! A file that nobody has changed since has an older time of change. Nothing has to be copied or hashed at the start.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, Stat};

use tollgate_base::error::{At, Fault, Result};

/// The number of names up to which the whole workspace is listed and all its folders are watched. Beyond, that would take longer
/// than most commands, so only the folders are that the command names.
const MOST_NAMES: usize = 50_000;

/// The number of names from which on two threads list the rest. Both have ended before the command starts.
const FOR_ONE_THREAD: usize = 1_000;

/// FAT counts in steps of two seconds.
const LONGEST_TICK: Duration = Duration::from_secs(4);

/// The time of change of a file, in nanoseconds since 1970.
pub(super) fn changed(found: &fs::Metadata) -> i128 {
    i128::from(found.ctime()) * 1_000_000_000 + i128::from(found.ctime_nsec())
}

/// The time of change of a file that was looked at from its folder, in nanoseconds since 1970.
pub(super) fn changed_at(found: &Stat) -> i128 {
    i128::from(found.st_ctime) * 1_000_000_000 + i128::from(found.st_ctime_nsec)
}

/// Now, by the clock of the file system. Every change from now on has this time or a later one; every earlier change has an
/// earlier one.
pub(super) fn now_on_disk(folder: &Path) -> Result<i128> {
    let path = folder.join("start");
    let mark = || -> io::Result<i128> {
        let file = File::create(&path)?;
        let first = changed(&file.metadata()?);
        let patience = Instant::now() + LONGEST_TICK;
        let mut size = 1;
        // Kernels before 6.13 advance the clock every few milliseconds only. Later ones give a new time to a file whose last
        // one was looked at. The size is what every file system keeps; some have no modes.
        loop {
            size = 3 - size;
            file.set_len(size)?;
            let now = changed(&file.metadata()?);
            if now != first {
                return Ok(now);
            }
            if Instant::now() > patience {
                return Err(io::Error::new(io::ErrorKind::Unsupported, "the file system does not keep it"));
            }
        }
    };
    mark().at("take the time of", &path)
}

/// The names in the workspace, without those in git directories, in tollgate's state and in folders that are not guarded.
///
/// Everything but folders has a number: a search reads thousands of files, and a number is faster to note than a name.
#[derive(Default)]
pub(super) struct Names {
    folders: Vec<ListedFolder>,
    /// The names of everything but folders, in the order of their numbers.
    names: Vec<u8>,
    /// Where each of them ends.
    ends: Vec<usize>,
    /// How many names there are, with those of folders.
    entries: usize,
    /// The workspace has too many names, and only some of its folders were listed.
    is_partial: bool,
    /// The number of each folder, from the first question about a path on: most runs ask nothing.
    numbers: OnceCell<HashMap<PathBuf, usize>>,
    hasher: RandomState,
}

struct ListedFolder {
    /// Relative to the workspace.
    path: PathBuf,
    /// The numbers of the names in this folder.
    names: Range<usize>,
    /// Where to find a name, from the first question about one of them on.
    slots: OnceCell<Vec<Option<u32>>>,
}

impl Names {
    /// Lists the workspace, or if it has too many names, only these folders of it.
    pub(super) fn list(
        root: &Path,
        left_out: &[PathBuf],
        named: impl FnOnce() -> Vec<PathBuf>,
    ) -> Result<Self> {
        if !tracks_too_many(root) {
            let all = Self::list_all(root, left_out)?;
            if all.entries <= MOST_NAMES {
                return Ok(all);
            }
        }
        let mut found = Self { is_partial: true, ..Self::default() };
        let mut buffer = vec![MaybeUninit::uninit(); 32 * 1024];
        for folder in named() {
            let is_open = |part: &OsStr| part == ".git" || part == ".tollgate";
            if !folder.iter().any(is_open) && !left_out.iter().any(|out| folder.starts_with(out)) {
                found.list_folder(root, left_out, folder, &mut buffer, &mut Vec::new())?;
            }
        }
        Ok(found)
    }

    fn list_all(root: &Path, left_out: &[PathBuf]) -> Result<Self> {
        let mut found = Self::default();
        let mut next = vec![PathBuf::new()];
        found.list_below(root, left_out, &mut next, FOR_ONE_THREAD)?;
        let mut others = next.split_off(next.len() / 2);
        if !next.is_empty() {
            std::thread::scope(|scope| {
                let list_others = || {
                    let mut found = Self::default();
                    found.list_below(root, left_out, &mut others, MOST_NAMES).map(|()| found)
                };
                let thread = std::thread::Builder::new().spawn_scoped(scope, list_others);
                found.list_below(root, left_out, &mut next, MOST_NAMES)?;
                if let Ok(thread) = thread {
                    found.append(thread.join().map_err(|_| Fault::invalid("a thread has panicked"))??);
                }
                Ok(())
            })?;
        }
        // If there are few folders, or no second thread could be started.
        found.list_below(root, left_out, &mut others, MOST_NAMES)?;
        Ok(found)
    }

    /// Lists these folders and those below them, until there are more names than this.
    fn list_below(
        &mut self,
        root: &Path,
        left_out: &[PathBuf],
        next: &mut Vec<PathBuf>,
        most: usize,
    ) -> Result<()> {
        let mut buffer = vec![MaybeUninit::uninit(); 32 * 1024];
        while self.entries <= most
            && let Some(folder) = next.pop()
        {
            self.list_folder(root, left_out, folder, &mut buffer, next)?;
        }
        Ok(())
    }

    /// Lists one folder. Those in it are added to `next`.
    fn list_folder(
        &mut self,
        root: &Path,
        left_out: &[PathBuf],
        folder: PathBuf,
        buffer: &mut [MaybeUninit<u8>],
        next: &mut Vec<PathBuf>,
    ) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path = root.join(&folder);
        // Otherwise it is gone, or closed to us and so to the command.
        let Ok(fd) = rustix::fs::openat(CWD, &path, flags, Mode::empty()) else { return Ok(()) };
        let first = self.ends.len();
        let mut entries = RawDir::new(&fd, buffer);
        while let Some(entry) = entries.next() {
            let entry = match entry {
                // It was removed in the meantime.
                Err(rustix::io::Errno::NOENT) => break,
                entry => entry.at("list the folder", &path)?,
            };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b".." | b".git" | b".tollgate") {
                continue;
            }
            self.entries += 1;
            let kind = match entry.file_type() {
                FileType::Unknown => kind_of(&path.join(OsStr::from_bytes(name))),
                known => known,
            };
            if kind == FileType::Directory {
                let below = folder.join(OsStr::from_bytes(name));
                if !left_out.contains(&below) {
                    next.push(below);
                }
            } else {
                self.names.extend_from_slice(name);
                self.ends.push(self.names.len());
            }
        }
        let names = first..self.ends.len();
        self.folders.push(ListedFolder { path: folder, names, slots: OnceCell::new() });
        Ok(())
    }

    /// Adds what was listed elsewhere.
    fn append(&mut self, other: Self) {
        let (names, numbers) = (self.names.len(), self.ends.len());
        self.entries += other.entries;
        self.names.extend(other.names);
        self.ends.extend(other.ends.into_iter().map(|end| names + end));
        self.folders.extend(other.folders.into_iter().map(|mut folder| {
            folder.names = numbers + folder.names.start..numbers + folder.names.end;
            folder
        }));
    }

    /// Whether the workspace has too many names, so that only some of its folders were listed.
    pub(super) fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// All folders, relative to the workspace, in the order of their numbers.
    pub(super) fn folders(&self) -> impl Iterator<Item = &Path> {
        self.folders.iter().map(|folder| folder.path.as_path())
    }

    /// The folder with this number.
    pub(super) fn folder(&self, number: usize) -> Option<&Path> {
        self.folders.get(number).map(|folder| folder.path.as_path())
    }

    /// The numbers of the names in the folder with this number.
    pub(super) fn in_folder(&self, number: usize) -> Range<usize> {
        self.folders[number].names.clone()
    }

    /// The name with this number.
    pub(super) fn name(&self, number: usize) -> &OsStr {
        let first = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        OsStr::from_bytes(&self.names[first..self.ends[number]])
    }

    /// The path with the name with this number, relative to the workspace.
    pub(super) fn path(&self, number: usize) -> PathBuf {
        let folder = self.folders.partition_point(|folder| folder.names.end <= number);
        self.folders[folder].path.join(self.name(number))
    }

    /// How many names there are.
    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    /// The number of the folder of this path, and its name there.
    pub(super) fn place<'a>(&self, path: &'a Path) -> Option<(usize, &'a OsStr)> {
        let number_all = || self.folders().map(Path::to_owned).zip(0..).collect();
        let numbers = self.numbers.get_or_init(number_all);
        let number = numbers.get(path.parent().unwrap_or(Path::new("")))?;
        Some((*number, path.file_name()?))
    }

    /// Whether there was something other than a folder at this path. `None` if nobody looked there.
    pub(super) fn has(&self, path: &Path) -> Option<bool> {
        let is_open = |part: &OsStr| part == ".git" || part == ".tollgate";
        if path.iter().any(is_open) {
            return None;
        }
        match self.place(path) {
            Some((folder, name)) => Some(self.number(folder, name).is_some()),
            None => (!self.is_partial).then_some(false),
        }
    }

    /// The number of this name in the folder with that number. `None` if nothing but perhaps a folder had it.
    pub(super) fn number(&self, folder: usize, name: &OsStr) -> Option<usize> {
        let folder = &self.folders[folder];
        let slots = folder.slots.get_or_init(|| self.slots(folder));
        for slot in self.way(slots.len(), name) {
            let number = slots[slot]? as usize;
            if self.name(number) == name {
                return Some(number);
            }
        }
        None
    }

    /// A hash table of the names in a folder. Those of the standard library would need a copy of each name.
    fn slots(&self, folder: &ListedFolder) -> Vec<Option<u32>> {
        let mut slots = vec![None; (2 * folder.names.len()).next_power_of_two()];
        for number in folder.names.clone() {
            let free = self.way(slots.len(), self.name(number)).find(|slot| slots[*slot].is_none());
            slots[free.expect("half of the slots are free")] = u32::try_from(number).ok();
        }
        slots
    }

    /// The slots in which a name may be, the most likely one first.
    fn way(&self, slots: usize, name: &OsStr) -> impl Iterator<Item = usize> + use<> {
        // Only the low bits count.
        let first = self.hasher.hash_one(name.as_bytes()) as usize;
        (0..slots).map(move |step| first.wrapping_add(step) & (slots - 1))
    }
}

/// Whether git's index, by the number at its beginning, has more names than are listed. That saves listing them to find out.
fn tracks_too_many(root: &Path) -> bool {
    let mut head = [0; 12];
    let read = File::open(root.join(".git/index")).and_then(|mut index| index.read_exact(&mut head));
    let [.., a, b, c, d] = head;
    read.is_ok() && head.starts_with(b"DIRC") && u32::from_be_bytes([a, b, c, d]) as usize > MOST_NAMES
}

fn kind_of(path: &Path) -> FileType {
    rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)
        .map_or(FileType::Unknown, |found| FileType::from_raw_mode(found.st_mode))
}
