//! Refusing a request: telling the turn, the ledger and the agent, with everything known about the conflicting change.

use std::borrow::Borrow;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use similar::TextDiff;

use crate::conflict::{self, MERGE_TOOL};
use crate::disk::Found;
use crate::open_turn;
use crate::path::FilePath;
use crate::refusal::{ChangedBy, ErrorType, Outcome, Reason, Refusal, Refused};
use crate::request::Request;
use crate::root::Root;
use crate::turn::{FileState, TEXT_PER_FILE};
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_base::event::{Event, Mutation, RefusalStatus, WriteRefused};
use tollgate_base::ledger::{Entry, Line};
use tollgate_base::name::Agent;
use tollgate_base::settings::GuardMode;

/// The number of ledger lines in which to look for the author of a change. An older change is no news to the agent.
const LINES: usize = 256;

/// The length of a diff: enough to see what changed. A model that needs more reads the file again anyway.
const DIFF_BYTES: usize = 4096;

/// The time for a diff. A late refusal would be worse than one without a diff.
const DIFF_TIME: Duration = Duration::from_millis(100);

/// Refuses a request. There must be at least one refusal.
pub(crate) fn refuse<T>(request: &Request<'_>, mut refusals: Vec<Refusal>) -> Result<Outcome<T>> {
    refusals.sort_by(|a, b| a.path.cmp(&b.path));
    // The same for all changes of a request.
    let mut is_first = true;
    refusals.retain(|refusal| refusal.premises().is_empty() || std::mem::take(&mut is_first));
    for refusal in &mut refusals {
        request.turn.refused(&refusal.path)?;
        // From now on, a read of the part in question counts, too.
        refusal.premises().iter().try_for_each(|premise| request.turn.refused(&premise.path))?;
        explain(request, refusal)?;
    }
    let lines = append(request, &refusals, RefusalStatus::Denied)?;
    for (refusal, line) in refusals.iter_mut().zip(lines) {
        refusal.line = Some(line);
    }
    Ok(Outcome::Refused(Refused { refusals }))
}

/// Records a refusal that is not enforced.
pub(crate) fn observe(request: &Request<'_>, path: &FilePath, reason: Reason) -> Result<()> {
    record(request, &[Refusal::new(path.clone(), reason)], RefusalStatus::Observed)
}

/// What the mode makes of a reason against a change: a refusal, a ledger line, or nothing.
pub(crate) fn object(request: &Request<'_>, path: &FilePath, reason: Reason) -> Result<Option<Refusal>> {
    match request.root.settings().guard.mode {
        GuardMode::Enforce => Ok(Some(Refusal::new(path.clone(), reason))),
        GuardMode::Observe => observe(request, path, reason).map(|()| None),
        GuardMode::Off => Ok(None),
    }
}

/// Writes the ledger lines of refusals.
pub(crate) fn record(request: &Request<'_>, refusals: &[Refusal], status: RefusalStatus) -> Result<()> {
    append(request, refusals, status).map(drop)
}

/// Writes the ledger lines of refusals, and returns their numbers.
fn append(request: &Request<'_>, refusals: &[Refusal], status: RefusalStatus) -> Result<Range<u64>> {
    let entry = |refusal: &Refusal| {
        let (baseline_hash, current_hash) = refusal.hashes();
        let refused = WriteRefused {
            tool_name: request.tool.to_owned(),
            target_file: request.key(&refusal.path).display().to_string(),
            baseline_hash,
            current_hash,
            unfinished: refusal.unfinished().cloned(),
        };
        let event = match refusal.error_type() {
            ErrorType::StaleFile => Event::MutationConflict(refused, status, ErrorType::StaleFile),
            error => Event::MutationRefused(refused, status, error),
        };
        request.entry(event)
    };
    let entries: Vec<Entry> = refusals.iter().map(entry).collect();
    // Flushed: auditors look for refusals, and nothing else would bring these lines back.
    let numbers = request.root.ledger().append(&entries, request.root.durability())?;
    for (number, refusal) in numbers.clone().zip(refusals) {
        conflict::keep_found(request, refusal, number);
    }
    Ok(numbers)
}

/// Adds the author of the bytes on disk, and the diff.
fn explain(request: &Request<'_>, refusal: &mut Refusal) -> Result<()> {
    let path = request.key(&refusal.path).display().to_string();
    let Reason::Stale(stale) = &mut refusal.reason else { return Ok(()) };
    if stale.harm.is_some() {
        // Known already; and the agent has read nothing that the file could be compared with.
        return Ok(());
    }
    stale.changed_by = author_of(newest_lines(request.root)?, &path, stale.actual);
    // The refusal says it all: no note is needed on the change, nor on its author.
    open_turn::told(request.root, request.turn.id(), &[(&refusal.path, stale.actual)]);
    let author = stale.changed_by.as_ref().map(|by| (&by.agent, request.root.path(), Path::new(&path)));
    open_turn::told_of(request.root, request.turn.id(), author);
    if let (Some(old), Some(new)) = (stale.expected.digest(), stale.actual.digest())
        && let Some(old) = request.turn.text(old)?
        && let Some(new) = current_text(request.root, &refusal.path, new)?
    {
        stale.diff = bounded_diff(&old, &new);
    }
    Ok(())
}

/// The author of the newest of these changes that gave the file this state. The newest lines are first.
pub(crate) fn author_of(
    lines: impl IntoIterator<Item = impl Borrow<Line>>,
    path: &str,
    state: FileState,
) -> Option<ChangedBy> {
    for line in lines {
        let line = line.borrow();
        let Event::Mutation(Mutation::File(change), _) = &line.event else { continue };
        let (place, after) = match &change.moved_to {
            // Where it was, there is nothing now.
            Some(_) if change.target_file == path => (&change.target_file, None),
            Some(to) => (to, change.hash_after),
            None => (&change.target_file, change.hash_after),
        };
        if place == path && after == state.digest() {
            return line.agent.clone().map(|agent| ChangedBy { agent, time: line.time });
        }
    }
    None
}

/// The last lines of the ledger, newest first, up to a damaged one. `ledger verify` reports that line, and what the others say
/// only helps the agent.
pub(crate) fn newest_lines(root: &Root) -> Result<impl Iterator<Item = Line> + use<>> {
    Ok(root.ledger().newest_first()?.take(LINES).map_while(Result::ok))
}

/// Whether these lines, newest first, show that this agent brought the file from one state to the other: by guarded changes one
/// after the other, or by a merge, which shows the agent what it writes.
///
/// The newest line about the file must be about the state that it has now. Otherwise someone has saved the file after that line,
/// and it is a coincidence that an older line of the agent has the same hash.
pub(crate) fn is_own_change(
    agent: &Agent,
    lines: &[Line],
    path: &str,
    from: FileState,
    to: FileState,
) -> bool {
    let mut wanted = to.digest();
    for line in lines {
        let Event::Mutation(Mutation::File(change), _) = &line.event else { continue };
        if change.target_file != path && change.moved_to.as_deref() != Some(path) {
            continue;
        }
        if line.agent.as_ref() != Some(agent) || change.moved_to.is_some() || change.hash_after != wanted {
            return false;
        }
        wanted = change.hash_before;
        if change.tool_name == MERGE_TOOL || wanted == from.digest() {
            return true;
        }
    }
    false
}

/// The bytes on disk, if they still have this hash and are not too many to show.
pub(crate) fn current_text(root: &Root, path: &FilePath, digest: Digest) -> Result<Option<Vec<u8>>> {
    let Some(spot) = root.spot_anywhere(path)? else { return Ok(None) };
    match spot.open()? {
        Found::File(file) if file.len() <= TEXT_PER_FILE as u64 => {
            let (bytes, now) = file.read()?;
            Ok((now == digest).then_some(bytes))
        }
        _ => Ok(None),
    }
}

/// A unified diff of limited length. `None` if the bytes are not text.
pub(crate) fn bounded_diff(old: &[u8], new: &[u8]) -> Option<String> {
    let (old, new) = (str::from_utf8(old).ok()?, str::from_utf8(new).ok()?);
    if old.contains('\0') || new.contains('\0') {
        return None;
    }
    let diff = TextDiff::configure().timeout(DIFF_TIME).diff_lines(old, new);
    let text = diff.unified_diff().context_radius(2).header("what you read", "on disk").to_string();
    if text.len() <= DIFF_BYTES {
        return Some(text);
    }
    let end = (0..=DIFF_BYTES).rev().find(|&end| text.is_char_boundary(end))?;
    let end = text[..end].rfind('\n').map_or(end, |newline| newline + 1);
    Some(format!("{}... ({} bytes more)\n", &text[..end], text.len() - end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_shown() {
        let text = bounded_diff(b"a\nb\nc\n", b"a\nB\nc\n").unwrap();
        assert!(text.contains("-b\n+B\n"), "{text}");
    }

    #[test]
    fn a_long_diff_is_cut_and_says_so() {
        let (old, new) = ("ä\n".repeat(10_000), "ö\n".repeat(10_000));
        let text = bounded_diff(old.as_bytes(), new.as_bytes()).unwrap();
        assert!(text.len() < DIFF_BYTES + 50 && text.ends_with("bytes more)\n"));
    }

    #[test]
    fn bytes_that_are_not_text_are_not_shown() {
        assert_eq!(bounded_diff(b"\xff", b"a"), None);
        assert_eq!(bounded_diff(b"a", b"\0"), None);
    }
}
