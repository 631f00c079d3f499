//! Turns that a process has left: it was killed before it could end them, or never did.
//!
//! A turn in the memory of one process holds a lock on its file in `.tollgate/open/` (see [`crate::open_turn`]), which the kernel releases
//! when the process is gone. From the lines of the file, the next process writes the record that the turn would have left. Of a turn that
//! several processes share, nobody knows whether it goes on; its file is deleted after a day.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use rustix::fs::OFlags;

use crate::disk::gone_is_none;
use crate::open_turn::{BEGAN, FIRST_LINE, folder, state_of, time_of};
use crate::path::{FilePath, unescape};
use crate::root::Root;
use crate::turn::{Extent, Turn, TurnState};
use tollgate_base::error::{At, Result};
use tollgate_base::file::names_in;
use tollgate_base::lock::has_name;
use tollgate_base::name::TurnId;
use tollgate_base::private;

/// A shared turn that nobody has used for a day belongs to an agent that is gone.
const FORGOTTEN: Duration = Duration::from_secs(24 * 3600);

/// Hands out each turn that its process has left, with the time of its last use, and deletes its file.
pub(crate) fn take(root: &Root, mut keep: impl FnMut(&Turn, Timestamp) -> Result<()>) -> Result<()> {
    let folder = folder(&root.state_path());
    for name in names_in(&folder)? {
        let Some(id) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        let path = folder.join(name);
        // What belongs to another user is theirs to delete.
        let Ok(file) = private::open(&path, OFlags::RDONLY) else { continue };
        // The lock of a turn that goes on is held. One that has ended in between has no file any more.
        if file.try_lock().is_err() || !has_name(&file) {
            continue;
        }
        let used = file.metadata().and_then(|found| found.modified()).at("look at", &path)?;
        let used = Timestamp::try_from(used).unwrap_or_default();
        match known_to(root, &id, &path, file)? {
            Some(turn) => keep(&turn, used)?,
            None if used < root.now() - FORGOTTEN => {}
            None => continue,
        }
        gone_is_none(private::remove_file(&path).at("remove", &path))?;
    }
    Ok(())
}

/// What a turn in the memory of one process knows, as far as its file says it. `None` for any other turn.
pub(crate) fn of_process(root: &Root, id: &TurnId) -> Result<Option<Turn>> {
    let path = folder(&root.state_path()).join(id.as_str());
    match gone_is_none(private::open(&path, OFlags::RDONLY).at("open", &path))? {
        Some(file) => known_to(root, id, &path, file),
        None => Ok(None),
    }
}

fn known_to(root: &Root, id: &TurnId, path: &Path, mut file: File) -> Result<Option<Turn>> {
    let mut start = [0; FIRST_LINE + BEGAN.len()];
    let length = file.read_at(&mut start, 0).at("read", path)?;
    let is_of_process = |(_, rest): (&str, &str)| rest.starts_with(BEGAN);
    if !String::from_utf8_lossy(&start[..length]).split_once('\n').is_some_and(is_of_process) {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).at("read", path)?;
    replay(root, id, &String::from_utf8_lossy(&bytes))
}

/// Lets a turn learn again what its lines say.
fn replay(root: &Root, id: &TurnId, text: &str) -> Result<Option<Turn>> {
    let mut lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    let agent = lines.next().and_then(|first| first.split(' ').nth(2)?.parse().ok());
    let Some(agent) = agent else { return Ok(None) };
    let turn = Turn::begin(id.clone(), agent);
    for line in lines {
        if let Some(start) = line.strip_prefix(BEGAN) {
            serde_json::from_str(start).map_or(Ok(()), |start| turn.began(&start))?;
            continue;
        }
        let words: Vec<&str> = line.split(' ').collect();
        let &[kind, time, _, state, path] = words.as_slice() else { continue };
        let (Some(time), Some(state), Some(path)) = (time_of(time), state_of(state), unescape(path)) else {
            continue;
        };
        let path = FilePath::trusted(root.path().join(path));
        match kind {
            "R" => turn.was_shown(&path, state, Extent::Whole, time)?,
            "P" => turn.was_shown(&path, state, Extent::Part, time)?,
            "W" => turn.wrote(&path, state)?,
            _ => {}
        }
    }
    Ok(Some(turn))
}
