//! What was read in the files of one folder, remembered by their inode, size and dates.
//!
//! Invariants: the cache only saves reading; a missing, torn or foreign one is as good as an empty one. An entry holds only
//! while inode, size and both dates are the same. A file that had changed a moment before it was read may change again
//! within the same tick of the clock, unseen, so it is not remembered yet.
//!
//! The file: `TGC3`, then entries in the order of their inodes: inode, size, mtime, ctime (8 bytes each), the length of the
//! rest (4 bytes), the rest as JSON. For the most common rest, a brief that asks for nothing, the length is 0.

use std::fs;
use std::path::Path;

use super::disk::Seen;
use crate::brief::Brief;

const MAGIC: &[u8; 4] = b"TGC3";

/// An entry without its rest.
const FIXED: usize = 36;

/// The cache of one folder. Ask for files in the order of their inodes.
#[derive(Default)]
pub(super) struct Cache {
    /// The file as it was read.
    old: Vec<u8>,
    /// Where in it the next entry is.
    at: usize,
    /// The file as it will be written.
    new: Vec<u8>,
    found: usize,
    added: usize,
    /// How many entries were passed because nobody asked for them.
    passed: usize,
}

impl Cache {
    pub(super) fn load(path: &Path) -> Self {
        let old = fs::read(path).ok().filter(|old| old.starts_with(MAGIC)).unwrap_or_default();
        Self { at: MAGIC.len(), new: MAGIC.to_vec(), old, ..Self::default() }
    }

    /// What was read in this file before, if it has not changed.
    pub(super) fn find(&mut self, seen: &Seen) -> Option<Brief> {
        let numbers = seen.numbers();
        loop {
            let (known, rest) = entry(&self.old, self.at)?;
            if known[0] > numbers[0] {
                return None;
            }
            let start = self.at;
            self.at += FIXED + rest.len();
            if known == numbers {
                let brief =
                    if rest.is_empty() { Brief::default() } else { serde_json::from_slice(rest).ok()? };
                self.new.extend_from_slice(&self.old[start..self.at]);
                self.found += 1;
                return Some(brief);
            }
            self.passed += 1;
        }
    }

    pub(super) fn add(&mut self, seen: &Seen, brief: &Brief) {
        let rest = if *brief == Brief::default() { Ok(Vec::new()) } else { serde_json::to_vec(brief) };
        let Ok(rest) = rest else { return };
        let Ok(len) = u32::try_from(rest.len()) else { return };
        self.new.extend(seen.numbers().into_iter().flat_map(u64::to_le_bytes));
        self.new.extend_from_slice(&len.to_le_bytes());
        self.new.extend_from_slice(&rest);
        self.added += 1;
    }

    /// Writes it if that is worth it: when a twentieth is new, or most of it is useless.
    pub(super) fn save(&self, path: &Path, stage: &Path) {
        let worth = self.added > 4 + self.found / 20;
        let useless = self.passed > 256 + 3 * self.found;
        if !worth && !useless {
            return;
        }
        // Nothing depends on it: if it cannot be written, the files are read again.
        if fs::write(stage, &self.new).and_then(|()| fs::rename(stage, path)).is_err() {
            let _ = fs::remove_file(stage);
        }
    }
}

fn entry(bytes: &[u8], at: usize) -> Option<([u64; 4], &[u8])> {
    let fixed = bytes.get(at..at + FIXED)?;
    let word = |at: usize| fixed[at..at + 8].try_into().map(u64::from_le_bytes).unwrap_or(0);
    let len = u32::from_le_bytes(fixed[32..].try_into().ok()?) as usize;
    let rest = bytes.get(at + FIXED..at + FIXED + len)?;
    Some(([word(0), word(8), word(16), word(24)], rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(ino: u64) -> Seen {
        Seen { ino, len: 1, modified: (-2, 0), changed: (3, 0), is_file: true }
    }

    fn brief(n: u64) -> Brief {
        Brief { action: n.is_multiple_of(2).then(|| n.to_string().into()), ..Brief::default() }
    }

    #[test]
    fn an_entry_holds_while_the_dates_are_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let (path, stage) = (folder.path().join("c"), folder.path().join("s"));
        let mut cache = Cache::load(&path);
        for n in 0..100 {
            assert!(cache.find(&seen(n)).is_none());
            cache.add(&seen(n), &brief(n));
        }
        cache.save(&path, &stage);
        let mut cache = Cache::load(&path);
        for n in (0..100).filter(|n| n % 3 != 0) {
            assert_eq!(cache.find(&seen(n)), Some(brief(n)));
        }
        for other in [
            Seen { len: 2, ..seen(1) },
            Seen { modified: (0, 0), ..seen(1) },
            Seen { changed: (3, 1), ..seen(1) },
        ] {
            assert!(Cache::load(&path).find(&other).is_none());
        }
    }

    #[test]
    fn a_torn_cache_is_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c");
        let mut good = Cache::load(&path);
        good.add(&seen(1), &brief(1));
        good.add(&seen(2), &brief(2));
        for cut in 0..good.new.len() {
            fs::write(&path, &good.new[..cut]).unwrap();
            assert!(Cache::load(&path).find(&seen(2)).is_none(), "cut at {cut}");
        }
        fs::write(&path, [0xff; 4096]).unwrap();
        assert!(Cache::load(&path).find(&seen(1)).is_none());
    }
}
