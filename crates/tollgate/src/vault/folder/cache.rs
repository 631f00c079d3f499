//! What was read in the files of one folder, remembered by their dates.
//!
//! Invariants: the cache only saves reading; a missing, torn or foreign one is as good as an empty one. An entry holds
//! only as long as inode, size and both dates are the same. A file that had changed a moment before it was read may
//! change again within the same tick of the clock, unseen: its entry is young, and counts only for those who were
//! already looking when it was made.
//!
//! The file: `TGC2`, then entries one after another: inode, size, mtime, ctime (each 8 bytes), the length of the rest
//! (4 bytes, the highest bit says that it is young), the rest as JSON; for the most common rest, a brief that asks for
//! nothing, the length is 0.

use std::cell::Cell;
use std::fs;
use std::ops::Range;
use std::path::Path;

use super::disk::Seen;
use crate::vault::task::Brief;

const MAGIC: &[u8; 4] = b"TGC2";

/// An entry without its rest.
const FIXED: usize = 36;

/// In the length of a rest.
const YOUNG: u32 = 1 << 31;

/// What a file is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    ino: u64,
    size: u64,
    modified: i64,
    changed: i64,
}

impl Stat {
    pub(super) fn of(seen: &Seen) -> Self {
        let nanos = |(seconds, nanos): (i64, i64)| seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos);
        Self { ino: seen.ino, size: seen.len, modified: nanos(seen.modified), changed: nanos(seen.changed) }
    }

    pub(super) fn seen(&self) -> Seen {
        let parts = |nanos: i64| (nanos.div_euclid(1_000_000_000), nanos.rem_euclid(1_000_000_000));
        let Self { ino, size, modified, changed } = *self;
        Seen { ino, len: size, modified: parts(modified), changed: parts(changed), is_file: true }
    }

    pub(super) fn numbers(&self) -> [u64; 4] {
        [self.ino, self.size, self.modified.cast_unsigned(), self.changed.cast_unsigned()]
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.numbers().into_iter().flat_map(u64::to_le_bytes));
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| bytes.get(at..at + 8)?.try_into().ok();
        Some(Self {
            ino: u64::from_le_bytes(word(0)?),
            size: u64::from_le_bytes(word(8)?),
            modified: i64::from_le_bytes(word(16)?),
            changed: i64::from_le_bytes(word(24)?),
        })
    }
}

/// The cache of one folder.
pub(super) struct Cache {
    /// The file as it was read.
    old: Vec<u8>,
    /// Where in it each inode's entry is, in the order of the inodes.
    places: Vec<(u64, usize)>,
    /// The place after the one that was last asked for: files are asked for in that order too.
    next: Cell<usize>,
    /// It was written after we had begun to look.
    overlaps: bool,
    /// What is worth keeping now: entries that were found, and new ones.
    found: Vec<usize>,
    fresh: Vec<u8>,
    fresh_count: usize,
    /// The brief that was read last, and where in the file it is.
    last: Option<(Range<usize>, Brief)>,
}

impl Cache {
    /// Remembers nothing.
    pub(super) fn none() -> Self {
        Self {
            old: Vec::new(),
            places: Vec::new(),
            next: Cell::default(),
            overlaps: false,
            found: Vec::new(),
            fresh: Vec::new(),
            fresh_count: 0,
            last: None,
        }
    }

    pub(super) fn load(path: &Path) -> Self {
        let mut cache = Self::none();
        let Ok(old) = fs::read(path) else { return cache };
        if !old.starts_with(MAGIC) {
            return cache;
        }
        cache.places.reserve(old.len() / FIXED);
        let mut at = MAGIC.len();
        while let Some(Entry { stat, rest, .. }) = entry(&old, at) {
            cache.places.push((stat.ino, at));
            at += FIXED + rest.len();
        }
        if !cache.places.is_sorted() {
            cache.places.sort_unstable();
        }
        cache.old = old;
        cache
    }

    /// As it is now, when we have waited.
    pub(super) fn load_again(&mut self, path: &Path) {
        let now = Self::load(path);
        *self = Self { overlaps: now.old != self.old, ..now };
    }

    /// Where this inode's entry is, if it counts.
    fn place(&self, ino: u64) -> Option<(usize, Entry<'_>)> {
        let next = self.next.get();
        let number = match self.places.get(next) {
            Some((known, _)) if *known == ino => next,
            _ => self.places.binary_search_by_key(&ino, |(known, _)| *known).ok()?,
        };
        self.next.set(number + 1);
        let at = self.places[number].1;
        let entry = entry(&self.old, at)?;
        (self.overlaps || !entry.young).then_some((at, entry))
    }

    /// Whether this inode was read, as long ago as may be.
    pub(super) fn has(&self, ino: u64) -> bool {
        self.place(ino).is_some()
    }

    /// What somebody has found of this inode since we began to look.
    pub(super) fn just_read(&mut self, ino: u64) -> Option<(Stat, Brief)> {
        if !self.overlaps {
            return None;
        }
        let (at, Entry { stat, .. }) = self.place(ino)?;
        Some((stat, self.brief(at)?))
    }

    pub(super) fn find(&mut self, stat: &Stat) -> Option<Brief> {
        let (at, _) = self.place(stat.ino).filter(|(_, entry)| entry.stat == *stat)?;
        self.brief(at)
    }

    /// The brief at this place, which is worth keeping.
    fn brief(&mut self, at: usize) -> Option<Brief> {
        let Entry { rest, .. } = entry(&self.old, at)?;
        let brief = match &self.last {
            // Many tasks of a folder ask for the same.
            Some((last, brief)) if self.old.get(last.clone()) == Some(rest) => brief.clone(),
            _ if rest.is_empty() => Brief::default(),
            _ => {
                let brief: Brief = serde_json::from_slice(rest).ok()?;
                let place = at + FIXED..at + FIXED + rest.len();
                self.last = Some((place, brief.clone()));
                brief
            }
        };
        self.found.push(at);
        Some(brief)
    }

    pub(super) fn keep(&mut self, stat: &Stat, brief: &Brief, young: bool) {
        let rest = if *brief == Brief::default() { Ok(Vec::new()) } else { serde_json::to_vec(brief) };
        let Ok(rest) = rest else { return };
        let Some(len) = u32::try_from(rest.len()).ok().filter(|len| *len < YOUNG) else { return };
        stat.write(&mut self.fresh);
        self.fresh.extend_from_slice(&(len | if young { YOUNG } else { 0 }).to_le_bytes());
        self.fresh.extend_from_slice(&rest);
        self.fresh_count += 1;
    }

    /// Writes it if that is worth it: when a twentieth is new, or most of what is in it has gone.
    pub(super) fn save(&self, path: &Path, stage: &Path) {
        let worth = self.fresh_count > 4 + self.found.len() / 20;
        let wasteful = self.places.len() > 256 && self.places.len() > 4 * self.found.len();
        if !worth && !wasteful {
            return;
        }
        let mut bytes = Vec::with_capacity(self.old.len() + self.fresh.len() + MAGIC.len());
        bytes.extend_from_slice(MAGIC);
        for at in &self.found {
            if let Some(Entry { rest, .. }) = entry(&self.old, *at) {
                bytes.extend_from_slice(&self.old[*at..at + FIXED + rest.len()]);
            }
        }
        bytes.extend_from_slice(&self.fresh);
        // Nothing depends on it: if it cannot be written, the files are read again.
        if fs::write(stage, bytes).and_then(|()| fs::rename(stage, path)).is_err() {
            let _ = fs::remove_file(stage);
        }
    }
}

struct Entry<'a> {
    stat: Stat,
    young: bool,
    rest: &'a [u8],
}

fn entry(bytes: &[u8], at: usize) -> Option<Entry<'_>> {
    let stat = Stat::read(bytes.get(at..)?)?;
    let len = u32::from_le_bytes(bytes.get(at + 32..at + FIXED)?.try_into().ok()?);
    let rest = bytes.get(at + FIXED..at + FIXED + (len & !YOUNG) as usize)?;
    Some(Entry { stat, young: len & YOUNG != 0, rest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_holds_as_long_as_the_dates() {
        let folder = tempfile::tempdir().unwrap();
        let (path, stage) = (folder.path().join("c"), folder.path().join("s"));
        let stat = |n: u64| Stat { ino: n, size: 1, modified: -2, changed: 3 };
        let brief =
            |n: u64| Brief { action: n.is_multiple_of(2).then(|| n.to_string().into()), ..Brief::default() };
        let mut cache = Cache::load(&path);
        for n in (0..50).rev().chain(50..100) {
            assert!(cache.find(&stat(n)).is_none());
            cache.keep(&stat(n), &brief(n), n == 7);
        }
        cache.save(&path, &stage);
        let mut cache = Cache::load(&path);
        for n in (0..100).chain((0..100).rev()) {
            assert_eq!(cache.find(&stat(n)), (n != 7).then(|| brief(n)));
        }
        for other in
            [Stat { size: 2, ..stat(1) }, Stat { modified: 0, ..stat(1) }, Stat { changed: 0, ..stat(1) }]
        {
            assert!(cache.find(&other).is_none());
        }
    }

    #[test]
    fn what_is_young_counts_for_those_who_were_already_looking() {
        let folder = tempfile::tempdir().unwrap();
        let (path, stage) = (folder.path().join("c"), folder.path().join("s"));
        let stat = |n: u64| Stat { ino: n, size: 1, modified: 1, changed: 1 };
        let mut looking = Cache::load(&path);
        let mut reader = Cache::load(&path);
        (0..100).for_each(|n| reader.keep(&stat(n), &Brief::default(), true));
        reader.save(&path, &stage);
        looking.load_again(&path);
        assert!((0..100).all(|n| looking.just_read(n) == Some((stat(n), Brief::default()))));
        let mut late = Cache::load(&path);
        assert!(!late.has(1) && late.find(&stat(1)).is_none() && late.just_read(1).is_none());
        late.load_again(&path);
        assert!(!late.has(1), "nobody has read since it began");
    }

    #[test]
    fn a_torn_cache_is_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c");
        let mut good = Cache::none();
        good.keep(&Stat { ino: 1, size: 1, modified: 1, changed: 1 }, &Brief::default(), false);
        let bytes = [MAGIC.as_slice(), &good.fresh, &good.fresh].concat();
        for cut in 0..bytes.len() {
            fs::write(&path, &bytes[..cut]).unwrap();
            let cache = Cache::load(&path);
            assert!(cache.places.len() <= 1);
        }
        fs::write(&path, [0xff; 4096]).unwrap();
        assert!(Cache::load(&path).places.is_empty());
    }
}
