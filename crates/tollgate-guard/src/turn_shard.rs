//! What a shared turn knows about files: 256 small files ("shards"), chosen by the hash of the path.
//!
//! A lookup costs the same in a turn of ten files and of ten thousand. Each line has a fixed length up to the path and is
//! changed in place, under a lock, so a file that is read a thousand times takes one line.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::disk::gone_is_none;
use crate::path::{FilePath, escape, unescape};
use crate::stripe_lock::stripe;
use crate::turn::{FileState, Sighting, SightingChange};
use tollgate_base::error::{At, Result};

/// The sightings of all paths with the same hash byte.
pub(crate) struct Shard {
    path: PathBuf,
}

/// The length of a line up to the path: the hash of the first read, the last state and the partly seen state (a letter and 64 digits
/// each), whether the agent was refused, and a space.
const FIXED: usize = 3 * 65 + 2;

impl Shard {
    pub(crate) fn of(folder: &Path, path: &FilePath) -> Self {
        Self::at(folder.join(format!("{:02x}", stripe(path.as_path()))))
    }

    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    pub(crate) fn get(&self, path: &FilePath) -> Result<Option<Sighting>> {
        let text = self.text()?;
        Ok(find(&text, path).and_then(|at| parse(&text[at..])))
    }

    pub(crate) fn update(&self, path: &FilePath, change: &mut SightingChange<'_>) -> Result<()> {
        let mut file = open_locked(&self.path)?;
        let mut text = String::new();
        file.read_to_string(&mut text).at("read", &self.path)?;
        let at = find(&text, path);
        let before = at.and_then(|at| parse(&text[at..]));
        let Some(after) = change(before).filter(|after| before != Some(*after)) else { return Ok(()) };
        let fixed = print(after);
        match at {
            Some(at) => file.write_all_at(fixed.as_bytes(), at as u64),
            None => {
                // Overwrites a last line that its writer did not finish.
                let end = text.rfind('\n').map_or(0, |newline| newline + 1) as u64;
                let line = format!("{fixed}{}\n", escape(path.as_path()));
                file.set_len(end).and_then(|()| file.write_all_at(line.as_bytes(), end))
            }
        }
        .at("write", &self.path)
    }

    /// The sightings of the paths that pass the filter.
    pub(crate) fn sightings_where(
        &self,
        wanted: &mut dyn FnMut(&Path) -> bool,
    ) -> Result<Vec<(FilePath, Sighting)>> {
        let line = |line: &str| {
            let path = unescape(line.strip_suffix('\n')?.get(FIXED..)?)?;
            // Most lines do not pass, and hashes take longer to parse than paths.
            let sighting = wanted(&path).then(|| parse(line)).flatten()?;
            Some((FilePath::trusted(path), sighting))
        };
        Ok(self.text()?.split_inclusive('\n').filter_map(line).collect())
    }

    fn text(&self) -> Result<String> {
        read_shared(&self.path)
    }
}

/// The text of a file. Empty if nothing was written yet.
fn read_shared(path: &Path) -> Result<String> {
    let mut text = String::new();
    if let Some(mut file) = gone_is_none(File::open(path).at("open", path))? {
        file.lock_shared().at("lock", path)?;
        file.read_to_string(&mut text).at("read", path)?;
    }
    Ok(text)
}

/// One word for each key: 256 small files like shards. The last line about a key counts.
pub(crate) struct WordShard {
    path: PathBuf,
}

impl WordShard {
    pub(crate) fn of(folder: &Path, key: &Path) -> Self {
        Self::at(folder.join(format!("{:02x}", stripe(key))))
    }

    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// All keys, those with several lines more than once.
    pub(crate) fn keys(&self) -> Result<Vec<PathBuf>> {
        let key = |line: &str| unescape(line.strip_suffix('\n')?.split_once(' ')?.0);
        Ok(read_shared(&self.path)?.split_inclusive('\n').filter_map(key).collect())
    }

    pub(crate) fn get(&self, key: &Path) -> Result<Option<String>> {
        let text = read_shared(&self.path)?;
        let key = escape(key);
        let word = text.split_inclusive('\n').rev().find_map(|line| {
            let (found, word) = line.strip_suffix('\n')?.split_once(' ')?;
            (found == key).then(|| word.to_owned())
        });
        Ok(word)
    }

    pub(crate) fn set(&self, key: &Path, word: &str) -> Result<()> {
        let mut file = open_locked(&self.path)?;
        let mut text = String::new();
        file.read_to_string(&mut text).at("read", &self.path)?;
        // Overwrites a last line that its writer did not finish.
        let end = text.rfind('\n').map_or(0, |newline| newline + 1) as u64;
        let line = format!("{} {word}\n", escape(key));
        file.set_len(end).and_then(|()| file.write_all_at(line.as_bytes(), end)).at("write", &self.path)
    }
}

/// Where the line of a path begins.
fn find(text: &str, path: &FilePath) -> Option<usize> {
    let word = escape(path.as_path());
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if line.ends_with('\n') && line.get(FIXED..).is_some_and(|rest| rest.trim_end_matches('\n') == word) {
            return Some(at);
        }
        at += line.len();
    }
    None
}

fn print(Sighting { first, last, part, refused }: Sighting) -> String {
    let state = |state: Option<FileState>| match state {
        None => format!("-{:064}", 0),
        Some(FileState::Absent) => format!("A{:064}", 0),
        Some(FileState::Unreadable) => format!("U{:064}", 0),
        Some(FileState::Present(digest)) => format!("P{digest}"),
    };
    format!(
        "{}{}{}{} ",
        state(first.map(FileState::Present)),
        state(Some(last)),
        state(part),
        if refused { 'R' } else { '-' }
    )
}

fn parse(line: &str) -> Option<Sighting> {
    let state = |index: usize| -> Option<Option<FileState>> {
        let word = line.get(index * 65..(index + 1) * 65)?;
        Some(match word.as_bytes()[0] {
            b'-' => None,
            b'A' => Some(FileState::Absent),
            b'U' => Some(FileState::Unreadable),
            b'P' => Some(FileState::Present(word.get(1..)?.parse().ok()?)),
            _ => return None,
        })
    };
    let refused = line.as_bytes().get(195) == Some(&b'R');
    let first = state(0)?.and_then(FileState::digest);
    Some(Sighting { first, last: state(1)??, part: state(2)?, refused })
}

/// Opens a file and locks it. Locks are held for microseconds only, so a wait without a limit is safe.
pub(crate) fn open_locked(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(path).at("open", path)?;
    file.lock().at("lock", path)?;
    Ok(file)
}
