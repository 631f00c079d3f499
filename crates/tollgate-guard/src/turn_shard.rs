//! What a shared turn knows about files: 256 small files ("shards"), chosen by the hash of the path.
//!
//! A lookup costs the same in a turn of ten files and of ten thousand. A file that is read a thousand times takes one line:
//! the line of a sighting has a fixed length up to the path and is changed in place, under a lock. Words have any length, so
//! a new word for a key replaces the whole small file.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, RawMode};

use crate::disk::gone_is_none;
use crate::path::{FilePath, escape, unescape};
use crate::stripe_lock::stripe;
use crate::turn::{FileState, Sighting, SightingChange};
use tollgate_base::error::{At, Result};
use tollgate_base::file::replace_file_with_mode;
use tollgate_base::private;
use tollgate_base::settings::Durability;

/// Only its user may read what an agent knows.
const PRIVATE: u32 = 0o600;

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
    if let Some(mut file) = gone_is_none(private::open(path, OFlags::RDONLY).at("open", path))? {
        file.lock_shared().at("lock", path)?;
        file.read_to_string(&mut text).at("read", path)?;
    }
    Ok(text)
}

/// One word for each key: 256 small files like shards. The last line about a key counts; earlier versions left older ones.
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
        let mut file = self.open_locked()?;
        let mut text = String::new();
        file.read_to_string(&mut text).at("read", &self.path)?;
        // Without a last line that its writer did not finish.
        let end = text.rfind('\n').map_or(0, |newline| newline + 1);
        let key = escape(key);
        let is_other = |line: &&str| line.split_once(' ').is_none_or(|(found, _)| found != key);
        let mut kept: String = text[..end].split_inclusive('\n').filter(is_other).collect();
        let line = format!("{key} {word}\n");
        if kept.len() == end {
            let written =
                file.set_len(end as u64).and_then(|()| file.write_all_at(line.as_bytes(), end as u64));
            return written.at("write", &self.path);
        }
        kept.push_str(&line);
        if kept == text {
            return Ok(());
        }
        // Not in place: a process that died on the way would take the words of other keys with it. Not flushed: no turn
        // survives a power failure.
        replace_file_with_mode(&self.path, kept.as_bytes(), Durability::Fast, Some(PRIVATE))
    }

    /// Opens the file and locks it. It may have been replaced while this process waited for the lock.
    fn open_locked(&self) -> Result<File> {
        loop {
            let file = open_locked(&self.path)?;
            if file.metadata().at("look at", &self.path)?.nlink() > 0 {
                return Ok(file);
            }
        }
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
    let opened =
        private::open_with_mode(path, OFlags::RDWR | OFlags::CREATE, Mode::from_raw_mode(PRIVATE as RawMode));
    let file = File::from(opened.at("open", path)?);
    file.lock().at("lock", path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::thread;

    use super::*;

    #[test]
    fn a_key_takes_one_line_however_often_its_word_changes() {
        let keep = tempfile::tempdir().unwrap();
        let path = keep.path().join("00");
        let shard = || WordShard { path: path.clone() };
        let (a, b) = (Path::new("a b"), Path::new("b"));
        // As an earlier version left it, with a last line that its writer did not finish.
        fs::write(&path, format!("{} old\nb x\n{} older\nb hal", escape(a), escape(a))).unwrap();
        for n in 0..1000 {
            shard().set(a, &format!("word-{n}")).unwrap();
            assert_eq!(shard().get(b).unwrap().as_deref(), Some("x"));
        }
        shard().set(b, "y").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{} word-999\nb y\n", escape(a)));
        let before = fs::metadata(&path).unwrap().ino();
        shard().set(b, "y").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().ino(), before, "the same word changes nothing");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(keep.path()).unwrap().count(), 1);
    }

    #[test]
    fn words_that_are_set_at_the_same_time_are_all_kept() {
        let keep = tempfile::tempdir().unwrap();
        let path = keep.path().join("00");
        let key = |worker: usize| PathBuf::from(format!("key-{worker}"));
        thread::scope(|scope| {
            for worker in 0..4 {
                let shard = WordShard { path: path.clone() };
                scope.spawn(move || {
                    for n in 0..200 {
                        shard.set(&key(worker), &n.to_string()).unwrap();
                        assert_eq!(shard.get(&key(worker)).unwrap(), Some(n.to_string()));
                    }
                });
            }
        });
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 4);
    }
}
