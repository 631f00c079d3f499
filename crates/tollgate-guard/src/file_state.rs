//! What a file was at one moment, and how to tell without its bytes that it still is. This file does no I/O.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use tollgate_base::digest::Digest;

/// What a file was at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileState {
    /// The file existed and had these bytes.
    Present(Digest),
    /// The file did not exist.
    Absent,
    /// The file existed but could not be read, so its bytes are unknown.
    Unreadable,
}

impl FileState {
    /// The hash, if there were bytes to hash.
    pub fn digest(self) -> Option<Digest> {
        match self {
            Self::Present(digest) => Some(digest),
            Self::Absent | Self::Unreadable => None,
        }
    }
}

impl From<Option<Digest>> for FileState {
    fn from(digest: Option<Digest>) -> Self {
        digest.map_or(Self::Absent, Self::Present)
    }
}

/// What identifies the bytes of a file as long as nobody can have written it: see `Stamp::is_settled`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size: u64,
    /// In nanoseconds since 1970.
    pub(crate) modified: i128,
    pub(crate) changed: i128,
}

/// Two writes within this time may leave the same time stamps. The coarsest file systems in use have two seconds.
const RACY: Duration = Duration::from_secs(2);

impl Stamp {
    /// Whether a write from now on would change the stamp.
    pub(crate) fn is_settled(&self, now: Timestamp) -> bool {
        let newest = self.modified.max(self.changed);
        i128::try_from(RACY.as_nanos()).is_ok_and(|racy| now.as_nanosecond() - newest > racy)
    }

    /// As one word.
    pub(crate) fn word(&self) -> String {
        let Self { device, inode, size, modified, changed } = self;
        format!("{device}:{inode}:{size}:{modified}:{changed}")
    }

    /// Reverses [`Stamp::word`].
    pub(crate) fn parse(word: &str) -> Option<Self> {
        let mut parts = word.split(':');
        let mut number = || parts.next()?.parse::<i128>().ok();
        let mut size = || u64::try_from(number()?).ok();
        let (device, inode, size) = (size()?, size()?, size()?);
        Some(Self { device, inode, size, modified: number()?, changed: number()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_settles_once_a_write_would_change_it() {
        let at = |ms: i64| Timestamp::from_millisecond(ms).unwrap();
        let stamp = |modified, changed| Stamp { device: 1, inode: 2, size: 3, modified, changed };
        let second = 1_000_000_000;
        assert!(!stamp(second, second).is_settled(at(3000)), "inside the window");
        assert!(stamp(second, second).is_settled(at(3001)));
        assert!(!stamp(second, 2 * second).is_settled(at(3001)), "the newer one counts");
        assert!(!stamp(9 * second, second).is_settled(at(3001)), "a time in the future proves nothing");
    }
}
