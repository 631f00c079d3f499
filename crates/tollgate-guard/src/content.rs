//! The store of contents: all bytes that tollgate keeps for recovery, merges and the history, each content once.
//!
//! `.tollgate/history/contents/` has one file for each content. Its name is the SHA-256 of the bytes, with the ending `.z` if the
//! file is compressed, and its time is when the content was last kept. `.tollgate/history/removed` has a line with the hash of each
//! content that was deleted, and of the id of each record of a turn that was, so that nobody takes what is gone for what never was here. The oldest lines go when there
//! are some ten thousand.
//!
//! Nothing depends on a content, so it may be deleted at any time. Each read compares the bytes with the hash.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rustix::fs::{OFlags, Timespec, Timestamps};
use rustix::io::retry_on_intr;

use crate::disk::{Folder, Linked, Spot, Target, gone_is_none, modified};
use crate::root::Root;
use tollgate_base::digest::Digest;
use tollgate_base::error::{At, Result};
use tollgate_base::file::{TEMPORARY, names_in, replace_file_with_mode};
use tollgate_base::private;
use tollgate_base::settings::Durability;

/// What the store has of a content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Its bytes.
    Kept(Vec<u8>),
    /// It was deleted: too old, or no room.
    NoLongerKept,
    /// It was never kept.
    NeverKept,
}

impl Content {
    /// The bytes, if they are kept.
    pub fn bytes(self) -> Option<Vec<u8>> {
        match self {
            Self::Kept(bytes) => Some(bytes),
            Self::NoLongerKept | Self::NeverKept => None,
        }
    }
}

/// The endings of names.
const ENDINGS: [&str; 2] = ["", COMPRESSED];
const COMPRESSED: &str = ".z";

/// File systems store files in blocks of this size. A file of one block cannot become smaller.
const BLOCK: usize = 4096;

/// Larger files are not compressed: it would take a second, and the memory for the whole file twice.
pub(crate) const LARGEST_COMPRESSED: usize = 16 << 20;

/// The level of compression. Higher ones take several times as long and save little more.
const LEVEL: u8 = 3;

/// After this time, the writer of an incomplete file is dead.
const WRITTEN_WITHIN: Duration = Duration::from_secs(60);

/// The list of what was removed loses its older half when it is larger: some 15,000 contents are gone by then.
const LONGEST_LIST: usize = 1 << 20;

/// A file of the store.
pub(crate) struct StoredContent {
    pub(crate) digest: Digest,
    pub(crate) kept: Timestamp,
    pub(crate) size: u64,
    pub(crate) spot: Spot,
}

/// Keeps these bytes from now on.
pub(crate) fn put(root: &Root, bytes: &[u8], mode: Option<u32>, durability: Durability) -> Result<Digest> {
    let (digest, now) = (Digest::of(bytes), root.now());
    if !keep_on(root, digest, now) {
        let smaller = compressed(bytes);
        let (ending, bytes) = smaller.as_ref().map_or(("", bytes), |smaller| (COMPRESSED, smaller));
        write(&file(root, digest, ending), bytes, mode, now, durability)?;
    }
    Ok(digest)
}

/// Keeps the bytes of a quiet file, which was replaced at this time: the file gets a second name here, or a compressed copy is made.
/// `bytes` are those of the file, unless it is large. Returns whether they are kept here now.
pub(crate) fn adopt(
    root: &Root,
    (spot, from): (&Spot, &Target),
    digest: Digest,
    bytes: Option<&[u8]>,
    time: Timestamp,
) -> Result<bool> {
    if keep_on(root, digest, time) {
        return Ok(true);
    }
    let copy = |ending: &str, bytes: &[u8]| {
        let mode = Some(from.as_model().mode());
        write(&file(root, digest, ending), bytes, mode, time, root.durability()).map(|()| true)
    };
    if let Some(smaller) = bytes.and_then(compressed) {
        return copy(COMPRESSED, &smaller);
    }
    if from.links()? > 1 {
        // Under its other names, anybody may change it.
        return bytes.map_or(Ok(false), |bytes| copy("", bytes));
    }
    let place = Spot::new(&Folder::of_state(&folder(root))?, digest.to_string());
    if spot.link_new(&place)? == Linked::Impossible {
        return Ok(false);
    }
    set_time(&place.shown(), time).map(|()| true)
}

/// A content of the store.
pub(crate) fn get(root: &Root, digest: Digest) -> Result<Content> {
    for ending in ENDINGS {
        let file = file(root, digest, ending);
        let bytes = match private::read(&file) {
            // Another user's private file.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => continue,
            bytes => gone_is_none(bytes.at("read", &file))?,
        };
        let Some(bytes) = bytes else { continue };
        let bytes = if ending.is_empty() { Some(bytes) } else { inflated(&bytes) };
        if let Some(bytes) = bytes.filter(|bytes| Digest::of(bytes) == digest) {
            return Ok(Content::Kept(bytes));
        }
        // Damaged, so it is lost. The next one to keep these bytes writes them again.
        note_removed(root, &[digest])?;
        gone_is_none(private::remove_file(&file).at("remove", &file))?;
    }
    Ok(if was_removed(root, digest)? { Content::NoLongerKept } else { Content::NeverKept })
}

/// Whether such a content was deleted.
pub(crate) fn was_removed(root: &Root, digest: Digest) -> Result<bool> {
    let removed = list_of_removed(root);
    let list = gone_is_none(private::read(&removed).at("read", &removed))?.unwrap_or_default();
    let hash = digest.to_string();
    Ok(list.split(|byte| *byte == b'\n').any(|line| line == hash.as_bytes()))
}

/// The bytes of a content in the store of the workspace with this state, if it has them. Changes nothing there.
pub(crate) fn peek(state: &Path, digest: Digest) -> Option<Vec<u8>> {
    ENDINGS.iter().find_map(|ending| {
        let bytes = private::read(&state.join("history/contents").join(format!("{digest}{ending}"))).ok()?;
        let bytes = if ending.is_empty() { bytes } else { inflated(&bytes)? };
        (Digest::of(&bytes) == digest).then_some(bytes)
    })
}

/// Whether there is such a content.
pub(crate) fn has(root: &Root, digest: Digest) -> bool {
    ENDINGS.iter().any(|ending| modified(&file(root, digest, ending)).is_some())
}

/// All contents. Deletes what processes that were killed have not completed.
pub(crate) fn all(root: &Root) -> Result<Vec<StoredContent>> {
    let folder = Folder::of_state(&folder(root))?;
    remove_incomplete(root, folder.shown())?;
    let stored = |name: &OsStr| {
        let text = name.to_str()?;
        let digest = text.strip_suffix(COMPRESSED).unwrap_or(text).parse().ok()?;
        let spot = Spot::new(&folder, name);
        let found = fs::symlink_metadata(spot.shown()).ok()?;
        Some(StoredContent { digest, kept: found.modified().ok()?.try_into().ok()?, size: found.len(), spot })
    };
    Ok(folder.names()?.iter().filter_map(|name| stored(name)).collect())
}

/// Deletes files that a killed process has not completed.
pub(crate) fn remove_incomplete(root: &Root, folder: &Path) -> Result<()> {
    for name in names_in(folder)? {
        let file = folder.join(&name);
        let is_incomplete = name.as_encoded_bytes().starts_with(TEMPORARY.as_bytes());
        if is_incomplete && modified(&file).is_some_and(|written| root.age(written) > WRITTEN_WITHIN) {
            gone_is_none(private::remove_file(&file).at("remove", &file))?;
        }
    }
    Ok(())
}

/// Remembers that these contents are deleted. Before they are: otherwise a process that is killed in between would have said
/// that they never were here.
pub(crate) fn note_removed(root: &Root, removed: &[Digest]) -> Result<()> {
    if removed.is_empty() {
        return Ok(());
    }
    let path = list_of_removed(root);
    let list = gone_is_none(private::read(&path).at("read", &path))?.unwrap_or_default();
    if list.len() > LONGEST_LIST {
        // Lines have one length, so the rest begins with a whole one.
        let line = removed[0].to_string().len() + 1;
        let rest = list.len() / line / 2 * line;
        replace_file_with_mode(&path, &list[list.len() - rest..], Durability::Fast, None)?;
    }
    let lines: String = removed.iter().map(|digest| format!("{digest}\n")).collect();
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND;
    private::open(&path, flags).and_then(|mut file| file.write_all(lines.as_bytes())).at("write", &path)
}

/// If the content is here, it is kept as if it had come at this time. Returns whether it is here.
fn keep_on(root: &Root, digest: Digest, time: Timestamp) -> bool {
    let file =
        ENDINGS.map(|ending| file(root, digest, ending)).into_iter().find(|file| modified(file).is_some());
    let Some(file) = file else { return false };
    modified(&file).is_some_and(|kept| kept >= time) || set_time(&file, time).is_ok()
}

/// Remembers when a file of the store was last kept.
pub(crate) fn set_time(file: &Path, time: Timestamp) -> Result<()> {
    let time = Timespec { tv_sec: time.as_second(), tv_nsec: time.subsec_nanosecond().into() };
    let times = Timestamps { last_access: time, last_modification: time };
    let opened = private::open(file, OFlags::RDONLY | OFlags::NONBLOCK).at("open", file)?;
    // If it is another user's file, it is kept a little shorter.
    let _ = retry_on_intr(|| rustix::fs::futimens(&opened, &times));
    Ok(())
}

/// `mode` is that of the file from which the bytes come: what only its user may read, only its user may read here.
fn write(
    file: &Path,
    bytes: &[u8],
    mode: Option<u32>,
    time: Timestamp,
    durability: Durability,
) -> Result<()> {
    replace_file_with_mode(file, bytes, durability, mode.map(|mode| mode & 0o660 | 0o600))?;
    set_time(file, time)
}

/// The bytes compressed, if that saves a quarter.
pub(crate) fn compressed(bytes: &[u8]) -> Option<Vec<u8>> {
    compressed_at(bytes, LEVEL)
}

/// The same, at another level.
pub(crate) fn compressed_at(bytes: &[u8], level: u8) -> Option<Vec<u8>> {
    if !(BLOCK + 1..=LARGEST_COMPRESSED).contains(&bytes.len()) {
        return None;
    }
    let smaller = miniz_oxide::deflate::compress_to_vec(bytes, level);
    (smaller.len() <= bytes.len() / 4 * 3).then_some(smaller)
}

/// Reverses [`compressed`].
pub(crate) fn inflated(bytes: &[u8]) -> Option<Vec<u8>> {
    miniz_oxide::inflate::decompress_to_vec_with_limit(bytes, LARGEST_COMPRESSED).ok()
}

fn file(root: &Root, digest: Digest, ending: &str) -> PathBuf {
    folder(root).join(format!("{digest}{ending}"))
}

fn folder(root: &Root) -> PathBuf {
    root.history().join("contents")
}

fn list_of_removed(root: &Root) -> PathBuf {
    root.history().join("removed")
}
