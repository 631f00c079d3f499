//! Stripe locks: kernel locks on the paths of one workspace.
//!
//! The guarded files themselves are never locked, because a replacement would leave the lock on the old inode. Instead
//! each path belongs to one of 256 stripes, chosen by the hash of the path, and each stripe is a lock file. One more lock
//! file stands for all stripes: who locks some stripes shares it, and who needs many of them takes it alone, because each
//! lock file needs a descriptor.
//!
//! A lock file starts with an 8-byte mark, and that of a stripe goes on with one line of text:
//! - A holder sets a mark before it changes files and clears it when it is done. If the next holder finds a mark, the
//!   last one died during a change, which must be recovered before anything else happens to these paths.
//! - The line holds the reservations of the stripe's paths (see `reservation.rs`).

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::lock::{Lock, open};
use tollgate_base::name::random_id;

/// The length of a mark in bytes. The line follows.
const MARK: usize = 8;

/// The largest number of stripes that are locked one by one. A process may be allowed only a few hundred descriptors.
const MOST: usize = 32;

/// The stripes of one workspace.
#[derive(Debug, Clone)]
pub(crate) struct Stripes {
    pub(crate) folder: PathBuf,
}

/// Several locks. Every process takes them in the same order, so no two processes wait for each other.
#[derive(Debug)]
#[must_use = "a lock that is dropped at once locks nothing"]
pub(crate) struct StripeLocks {
    folder: PathBuf,
    /// The lock of all stripes, shared with others unless `alone`.
    all: Lock,
    alone: bool,
    locks: Vec<(u8, Lock)>,
}

/// The marks of dead holders, each with its stripe. `None`: the holder had locked all stripes.
pub(crate) type Marks = Vec<(Option<u8>, [u8; MARK])>;

/// The stripe of a path. The path is relative to the workspace, so it is the same in every container that mounts it.
pub(crate) fn stripe(path: &Path) -> u8 {
    Digest::of(path.as_os_str().as_bytes()).as_bytes()[0]
}

impl Stripes {
    /// Locks the stripes of these paths. `None` if others held one of them the whole time.
    pub(crate) fn acquire<'a>(
        &self,
        paths: impl IntoIterator<Item = &'a Path>,
        wait: Duration,
    ) -> Result<Option<StripeLocks>> {
        self.acquire_all(paths.into_iter().map(stripe).collect(), wait)
    }

    /// Locks one stripe.
    pub(crate) fn acquire_one(&self, stripe: u8, wait: Duration) -> Result<Option<StripeLocks>> {
        self.acquire_all([stripe].into(), wait)
    }

    fn acquire_all(&self, stripes: BTreeSet<u8>, wait: Duration) -> Result<Option<StripeLocks>> {
        let deadline = Instant::now() + wait;
        let all = self.folder.join("all");
        let alone = stripes.len() > MOST;
        let all = if alone { Lock::acquire(&all, wait)? } else { Lock::acquire_shared(&all, wait)? };
        let Some(all) = all else { return Ok(None) };
        let mut locks = Vec::new();
        for stripe in stripes.into_iter().filter(|_| !alone) {
            let left = deadline.saturating_duration_since(Instant::now());
            match Lock::acquire(&stripe_file(&self.folder, stripe), left)? {
                Some(lock) => locks.push((stripe, lock)),
                None => return Ok(None),
            }
        }
        Ok(Some(StripeLocks { folder: self.folder.clone(), all, alone, locks }))
    }
}

fn stripe_file(folder: &Path, stripe: u8) -> PathBuf {
    folder.join(format!("{stripe:02x}"))
}

impl StripeLocks {
    pub(crate) fn marks(&self) -> Result<Marks> {
        let mut marks = Vec::new();
        let stripes = self.locks.iter().map(|(stripe, lock)| (Some(*stripe), lock));
        for (stripe, lock) in stripes.chain([(None, &self.all)]) {
            let mut mark = [0; MARK];
            let length = lock.file().read_at(&mut mark, 0).at("read the lock", "locks")?;
            if length > 0 && mark != [0; MARK] {
                marks.push((stripe, mark));
            }
        }
        Ok(marks)
    }

    /// Marks the stripes: their holder is about to change files.
    pub(crate) fn mark(&self) -> Result<()> {
        let mark = u64::from_str_radix(&random_id()?, 16).unwrap_or(1).max(1).to_ne_bytes();
        self.put(mark)
    }

    pub(crate) fn clear(&self) -> Result<()> {
        self.put([0; MARK])
    }

    fn put(&self, mark: [u8; MARK]) -> Result<()> {
        let put = |lock: &Lock| lock.file().write_all_at(&mark, 0).at("mark the lock", "locks");
        if self.alone {
            return put(&self.all);
        }
        self.locks.iter().try_for_each(|(_, lock)| put(lock))
    }

    /// Clears the mark of a dead process that had locked all stripes, after what it left was healed. Until this lock is
    /// released, no other process can lock all of them.
    pub(crate) fn clear_all(&self) -> Result<()> {
        self.all.file().write_all_at(&[0; MARK], 0).at("mark the lock", "locks")
    }

    /// The line in the lock file of this path's stripe. Empty if there is none.
    pub(crate) fn line(&self, path: &Path) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.with_file(path, |mut file| {
            let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut bytes));
            read.map(drop).at("read the lock", "locks")
        })?;
        Ok(line_of(&bytes).to_vec())
    }

    /// Replaces the line. The rest of a longer, earlier line stays behind the newline and does not count.
    pub(crate) fn put_line(&self, path: &Path, mut line: Vec<u8>) -> Result<()> {
        line.push(b'\n');
        self.with_file(path, |file| file.write_all_at(&line, MARK as u64).at("write to the lock", "locks"))
    }

    fn with_file(&self, path: &Path, act: impl FnOnce(&File) -> Result<()>) -> Result<()> {
        let number = stripe(path);
        match self.locks.iter().find(|(held, _)| *held == number) {
            Some((_, lock)) => act(lock.file()),
            None if self.alone => act(&open(&stripe_file(&self.folder, number))?),
            None => Err(Fault::invalid("the lock of this path is not held")),
        }
    }
}

/// The line in the bytes of a lock file, which other processes also read without the lock. Empty if the line has no end.
pub(crate) fn line_of(bytes: &[u8]) -> &[u8] {
    let text = bytes.get(MARK..).unwrap_or_default();
    text.iter().position(|byte| *byte == b'\n').map_or(&[], |end| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_excludes_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let stripes = Stripes { folder: folder.path().to_owned() };
        let (a, b) = (Path::new("a"), Path::new("b"));
        assert_ne!(stripe(a), stripe(b));
        let held = stripes
            .acquire([a, a], Duration::ZERO)
            .unwrap()
            .expect("a stripe that is asked for twice is locked once");
        assert!(stripes.acquire([b, a], Duration::from_millis(1)).unwrap().is_none());
        assert!(
            stripes.acquire([b], Duration::ZERO).unwrap().is_some(),
            "a failed attempt releases the locks that it took"
        );
        assert_eq!(held.marks().unwrap(), []);
        held.mark().unwrap();
        drop(held);
        let held = stripes.acquire([a], Duration::ZERO).unwrap().unwrap();
        assert_eq!(held.marks().unwrap().len(), 1, "the dead holder left a mark");
        held.clear().unwrap();
        assert_eq!(held.marks().unwrap(), []);
        drop(held);
        assert!(stripes.acquire([b, a], Duration::ZERO).unwrap().is_some());
    }

    #[test]
    fn many_stripes_are_locked_as_one() {
        let folder = tempfile::tempdir().unwrap();
        let stripes = Stripes { folder: folder.path().to_owned() };
        let names: Vec<PathBuf> = (0..1000).map(|number| PathBuf::from(number.to_string())).collect();
        let many = || stripes.acquire(names.iter().map(PathBuf::as_path), Duration::ZERO).unwrap();
        let one = || stripes.acquire([Path::new("0")], Duration::ZERO).unwrap();
        let held = one().unwrap();
        assert!(many().is_none(), "one of them is locked");
        held.put_line(Path::new("0"), b"line".to_vec()).unwrap();
        drop(held);
        let held = many().unwrap();
        assert!(held.alone && held.locks.is_empty(), "one descriptor is enough");
        assert!(one().is_none());
        assert_eq!(held.line(Path::new("0")).unwrap(), b"line");
        held.mark().unwrap();
        drop(held);
        let held = one().unwrap();
        assert!(matches!(held.marks().unwrap()[..], [(None, _)]), "the dead holder left a mark");
        held.clear_all().unwrap();
        assert_eq!(held.marks().unwrap(), []);
    }

    #[test]
    fn a_line_is_replaced_whole() {
        let folder = tempfile::tempdir().unwrap();
        let locks = Stripes { folder: folder.path().to_owned() };
        let (path, long) = (Path::new("a"), vec![b'x'; 5000]);
        let held = locks.acquire([path], Duration::ZERO).unwrap().unwrap();
        for line in [&b""[..], &long, b"short"] {
            held.mark().unwrap();
            held.put_line(path, line.to_vec()).unwrap();
            assert_eq!(held.line(path).unwrap(), line);
            let file = std::fs::read(folder.path().join(format!("{:02x}", stripe(path)))).unwrap();
            assert_eq!(line_of(&file), line);
        }
        assert!(held.line(Path::new("b")).is_err(), "the stripe of `b` is not locked");
    }
}
