//! Pieces of sentences: paths, hashes, times, sizes and counts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use tollgate::turn::FileState;
pub(crate) use tollgate::visible::ago;
use tollgate::visible::plain;

/// The place and the time of the reader of a message.
#[derive(Debug)]
pub(crate) struct Viewpoint {
    /// The reader's folder, canonical. Paths below it are shown relative to it. `None` if it does not exist.
    pub(crate) base: Option<PathBuf>,
    /// Ages are relative to this time.
    pub(crate) now: Timestamp,
}

/// A path as the user would type it: relative to their folder if it is below that folder.
pub(crate) fn shown(view: &Viewpoint, path: &Path) -> String {
    let below = view.base.as_deref().and_then(|base| path.strip_prefix(base).ok());
    let path = match below {
        Some(below) if !below.as_os_str().is_empty() => below,
        _ => path,
    };
    short(&plain(&path.to_string_lossy()))
}

/// An absolute path, quoted for a shell.
pub(crate) fn quoted(path: &Path) -> String {
    format!("'{}'", plain(&path.to_string_lossy()).replace('\'', "'\\''"))
}

/// A word of a command, quoted for a shell if it must be.
pub(crate) fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) { text.to_owned() } else { quoted(Path::new(text)) }
}

/// The text, with its middle cut out if it is too long to read.
pub(crate) fn short(text: &str) -> String {
    const END: usize = 100;
    let count = text.chars().count();
    if count <= 3 * END {
        return text.to_owned();
    }
    let first: String = text.chars().take(END).collect();
    let last: String = text.chars().skip(count - END).collect();
    format!("{first}...{last}")
}

pub(super) fn hash_or_none(state: FileState) -> String {
    match state {
        FileState::Present(digest) => digest.short(),
        FileState::Absent => "no file".into(),
        FileState::Unreadable => "unreadable".into(),
    }
}

pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..10_240 => format!("{bytes} B"),
        10_240..10_485_760 => format!("{} KiB", bytes >> 10),
        10_485_760..10_737_418_240 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

/// A time to wait, rounded up to seconds.
pub(super) fn seconds(time: Duration) -> String {
    format!("{} s", time.as_millis().div_ceil(1_000).max(1))
}

/// `1 file`, `2 files`.
pub(crate) fn count(number: usize, thing: &str) -> String {
    counted(number, thing, &format!("{thing}s"))
}

pub(crate) fn counted(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// A time, to the second. More digits are for programs.
pub(super) fn moment(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
