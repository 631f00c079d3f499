//! What was read in the files of one folder, remembered by their inode, size and dates.
//!
//! Invariants: the cache only saves reading; a missing, torn or foreign one is as good as an empty one. An entry holds only
//! while inode, size and both dates are the same. A file that had changed a moment before it was read may change again
//! within the same tick of the clock, unseen, so it is not remembered yet.
//!
//! The file: `TGC5`, then entries: the file's fingerprint (32 bytes), the length of the brief (4 bytes), the brief as JSON.

use std::collections::HashMap;
use std::path::Path;

use crate::brief::Brief;
use tollgate_base::private;

const MAGIC: &[u8; 4] = b"TGC5";

/// The cache of one folder.
#[derive(Default)]
pub(super) struct Cache<'a> {
    known: HashMap<[u8; 32], &'a [u8]>,
    /// The file as it will be written: all that was found or added.
    new: Vec<u8>,
    found: usize,
    added: usize,
}

impl<'a> Cache<'a> {
    pub(super) fn parse(file: &'a [u8]) -> Self {
        let mut cache = Self { new: MAGIC.to_vec(), ..Self::default() };
        let mut rest = file.strip_prefix(MAGIC).unwrap_or_default();
        while let Some((fingerprint, after)) = rest.split_first_chunk::<32>()
            && let Some((len, after)) = after.split_first_chunk::<4>()
            && let Some((brief, after)) = after.split_at_checked(u32::from_le_bytes(*len) as usize)
        {
            cache.known.insert(*fingerprint, brief);
            rest = after;
        }
        cache
    }

    /// What was read in this file before, if it has not changed.
    pub(super) fn find(&mut self, fingerprint: &[u8; 32]) -> Option<Brief> {
        let json = *self.known.get(fingerprint)?;
        let brief = serde_json::from_slice(json).ok()?;
        self.keep(fingerprint, json);
        self.found += 1;
        Some(brief)
    }

    pub(super) fn add(&mut self, fingerprint: &[u8; 32], brief: &Brief) {
        if let Ok(json) = serde_json::to_vec(brief) {
            self.keep(fingerprint, &json);
            self.added += 1;
        }
    }

    fn keep(&mut self, fingerprint: &[u8; 32], json: &[u8]) {
        let Ok(len) = u32::try_from(json.len()) else { return };
        self.new.extend_from_slice(fingerprint);
        self.new.extend_from_slice(&len.to_le_bytes());
        self.new.extend_from_slice(json);
    }

    /// Writes it if that is worth it: when a twentieth is new, or most of it is useless.
    pub(super) fn save(&self, path: &Path, stage: &Path) {
        let is_worth_it = self.added > 4 + self.found / 20 || self.known.len() > 256 + 4 * self.found;
        // Nothing depends on it: if it cannot be written, the files are read again.
        if is_worth_it
            && private::write(stage, &self.new).and_then(|()| private::rename(stage, path)).is_err()
        {
            let _ = private::remove_file(stage);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn brief(n: u8) -> Brief {
        Brief { action: n.is_multiple_of(2).then(|| n.to_string().into()), ..Brief::default() }
    }

    #[test]
    fn an_entry_holds_while_the_fingerprint_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let (path, stage) = (folder.path().join("c"), folder.path().join("s"));
        let mut cache = Cache::parse(b"");
        for n in 0..100 {
            assert!(cache.find(&[n; 32]).is_none());
            cache.add(&[n; 32], &brief(n));
        }
        cache.save(&path, &stage);
        let file = fs::read(&path).unwrap();
        let mut cache = Cache::parse(&file);
        for n in (0..100).filter(|n| n % 3 != 0) {
            assert_eq!(cache.find(&[n; 32]), Some(brief(n)));
        }
        for at in 0..32 {
            let mut other = [1; 32];
            other[at] = 2;
            assert!(cache.find(&other).is_none());
        }
        fs::remove_file(&path).unwrap();
        cache.save(&path, &stage);
        assert!(!path.exists(), "nothing is new, and little is useless");
    }

    #[test]
    fn a_torn_cache_is_an_empty_one() {
        let mut good = Cache::parse(b"");
        good.add(&[1; 32], &brief(1));
        good.add(&[2; 32], &brief(2));
        for cut in 0..good.new.len() {
            assert!(Cache::parse(&good.new[..cut]).find(&[2; 32]).is_none(), "cut at {cut}");
        }
        assert!(Cache::parse(&good.new).find(&[2; 32]).is_some());
        assert!(Cache::parse(&[0xff; 4096]).find(&[0xff; 32]).is_none());
    }
}
