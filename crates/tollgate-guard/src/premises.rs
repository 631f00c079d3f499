//! Whether what an agent's work rests on is still as the agent knows it: the files that it has read in its turn are looked at again.
//!
//! A file costs one look at its metadata, unless that has changed since the last look. The rule that a change must wait for the re-read
//! is in [`crate::judge`].

use crate::disk::{Quiet, stamp_at};
use crate::explain::{author_of, current_text, newest_lines};
use crate::look::{Look, READ_WAIT};
use crate::open_turn::{self, OpenTurn, TouchedFile};
use crate::path::FilePath;
use crate::premise::{ChangedPremise, difference};
use crate::root::Root;
use crate::turn::{Extent, FileState, TurnState};
use tollgate_base::error::Result;
use tollgate_base::ledger::Line;
use tollgate_base::lock::Pauses;

/// The number of files that are looked at: those that were read last. A look takes about a microsecond.
const WATCHED: usize = 1_000;

/// The files that the agent has read in this turn and that others have changed since, sorted by path.
pub(crate) fn changed(root: &Root, turn: &dyn TurnState) -> Result<Vec<ChangedPremise>> {
    match open_turn::load(&root.state_path(), turn.id())? {
        Some(open) => found(root, turn, &open, |_, _| true),
        None => Ok(Vec::new()),
    }
}

/// Those of them of which the agent was not told. It counts as told now.
pub(crate) fn news(root: &Root, turn: &dyn TurnState, open: &OpenTurn) -> Result<Vec<ChangedPremise>> {
    let changed = found(root, turn, open, |file, now| !file.told.contains(&now))?;
    let told: Vec<_> = changed.iter().map(|premise| (&premise.path, premise.now)).collect();
    open_turn::told(root, turn.id(), &told);
    Ok(changed)
}

/// The changed files among those that pass the filter.
fn found(
    root: &Root,
    turn: &dyn TurnState,
    open: &OpenTurn,
    wanted: impl Fn(&TouchedFile, FileState) -> bool,
) -> Result<Vec<ChangedPremise>> {
    let (mut changed, mut lines) = (Vec::new(), None);
    for (key, file) in open.newest_read().into_iter().take(WATCHED) {
        let (Some(read), Some(known)) = (file.read, file.known) else { continue };
        let path = FilePath::trusted(root.path().join(&key));
        let Some(now) = state_now(root, turn, &path, file)? else { continue };
        if now == known || !wanted(file, now) || !is_news(root, turn, &path, now)? {
            continue;
        }
        let lines: &Vec<Line> = match &mut lines {
            Some(lines) => lines,
            none => none.insert(newest_lines(root)?.collect()),
        };
        let changed_by = author_of(lines, &key.display().to_string(), now).map(|by| by.agent);
        if changed_by.as_ref() == Some(turn.agent()) || changed_by.is_none() && is_probably_own(turn, &path)?
        {
            // The agent has made it elsewhere: in another turn, or by a command of which nobody saw what it did.
            open_turn::read(root, turn.id(), &path, (now, Extent::Whole), root.now());
            continue;
        }
        let texts = match (known.digest(), now.digest()) {
            (Some(old), Some(new)) => turn.text(old)?.zip(current_text(root, &path, new)?),
            _ => None,
        };
        let (lines, diff) = texts.and_then(|(old, new)| difference(&old, &new)).unzip();
        changed.push(ChangedPremise { path, read, known, now, changed_by, lines, diff });
    }
    changed.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(changed)
}

/// What a file is now. `None` if nobody can tell: it is being written, or cannot be read.
fn state_now(
    root: &Root,
    turn: &dyn TurnState,
    path: &FilePath,
    file: &TouchedFile,
) -> Result<Option<FileState>> {
    let Some(stamp) = stamp_at(path.as_path()) else {
        if file.known == Some(FileState::Absent) || file.told.contains(&FileState::Absent) {
            return Ok(Some(FileState::Absent));
        }
        // Some editors move the old file away before they write the new one.
        let mut pauses = Pauses::lasting(READ_WAIT);
        while pauses.pause() {
            if stamp_at(path.as_path()).is_some() {
                return Ok(None);
            }
        }
        return Ok(Some(Look::at(root, path)?.state).filter(|state| *state == FileState::Absent));
    };
    if let Some((_, state)) = file.looked.filter(|(looked, _)| *looked == stamp) {
        return Ok(Some(state));
    }
    let since = root.now();
    let look = Look::at(root, path)?;
    if look.quiet == Quiet::Busy || look.state == FileState::Unreadable {
        return Ok(None);
    }
    // If it was changed between the two looks, the next call sees another stamp.
    if stamp.is_settled(since) {
        open_turn::looked(root, turn.id(), path, &stamp, look.state);
    }
    Ok(Some(look.state))
}

/// Whether the agent has not seen this state of a file, nor made it.
fn is_news(root: &Root, turn: &dyn TurnState, path: &FilePath, now: FileState) -> Result<bool> {
    let sees = |extent| Ok(turn.get(path)?.is_some_and(|sighting| sighting.baseline(extent) == now));
    if !sees(Extent::Whole)? && !sees(Extent::Part)? && !turn.has_seen(path, now)? {
        return Ok(true);
    }
    open_turn::read(root, turn.id(), path, (now, Extent::Whole), root.now());
    Ok(false)
}

/// Whether a file was changed while commands of the agent ran of which nobody saw what they did, and none of another agent.
fn is_probably_own(turn: &dyn TurnState, path: &FilePath) -> Result<bool> {
    stamp_at(path.as_path()).map_or(Ok(false), |stamp| turn.ran_alone_at(stamp.changed))
}
