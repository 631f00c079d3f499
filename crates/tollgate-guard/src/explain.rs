//! Refusing a request: telling the turn, the ledger and the agent, with all that is known about the change in the way.

use crate::conflict;
use crate::diff;
use crate::disk::Found;
use crate::outcome::Refused;
use crate::path::FilePath;
use crate::refusal::{ChangedBy, ErrorType, Reason, Refusal};
use crate::request::Request;
use crate::turn::{FileState, TEXT_PER_FILE};
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_base::event::{Event, Mutation, RefusalStatus, WriteRefused};
use tollgate_base::ledger::Entry;

/// The number of ledger lines in which to look for the author of a change. An older change is no news to the agent.
const LINES: usize = 256;

/// Refuses a request. There must be at least one refusal.
pub(crate) fn refuse(request: &Request<'_>, mut refusals: Vec<Refusal>) -> Result<Refused> {
    refusals.sort_by(|a, b| a.path.cmp(&b.path));
    for refusal in &mut refusals {
        request.turn.refused(&refusal.path)?;
        explain(request, refusal)?;
    }
    record(request, &refusals, RefusalStatus::Denied)?;
    Ok(Refused::new(refusals))
}

/// Writes the ledger lines of refusals.
pub(crate) fn record(request: &Request<'_>, refusals: &[Refusal], status: RefusalStatus) -> Result<()> {
    let entry = |refusal: &Refusal| {
        let (baseline_hash, current_hash) = refusal.hashes();
        let refused = WriteRefused {
            tool_name: request.tool.to_owned(),
            target_file: request.ledger_path(&refusal.path),
            baseline_hash,
            current_hash,
        };
        let event = match refusal.error_type() {
            ErrorType::StaleFile => Event::MutationConflict(refused, status, ErrorType::StaleFile),
            error => Event::MutationRefused(refused, status, error),
        };
        request.author().entry(request.root, event)
    };
    let entries: Vec<Entry> = refusals.iter().map(entry).collect();
    // Flushed: auditors look for refusals, and nothing else would bring these lines back.
    let numbers = request.root.ledger().append(&entries, request.root.durability())?;
    for (number, refusal) in numbers.zip(refusals) {
        if let Reason::Stale(stale) = &refusal.reason {
            conflict::keep(request.root, number, stale);
        }
    }
    Ok(())
}

/// Adds the author of the bytes on disk, and the diff.
fn explain(request: &Request<'_>, refusal: &mut Refusal) -> Result<()> {
    let path = request.ledger_path(&refusal.path);
    let Reason::Stale(stale) = &mut refusal.reason else { return Ok(()) };
    stale.changed_by = author_of(request, &path, stale.actual)?;
    if let (Some(old), Some(new)) = (stale.expected.digest(), stale.actual.digest())
        && let Some(old) = request.turn.text(old)?
        && let Some(new) = current_text(request, &refusal.path, new)?
    {
        stale.diff = diff::bounded(&old, &new);
    }
    Ok(())
}

/// The author of the newest change in the ledger that gave the file this state.
pub(crate) fn author_of(request: &Request<'_>, path: &str, state: FileState) -> Result<Option<ChangedBy>> {
    for line in request.root.ledger().newest_first()?.take(LINES) {
        // `ledger verify` reports a damaged line. The refusal matters more than its details.
        let Ok(line) = line else { break };
        let Event::Mutation(Mutation::File(change), _) = &line.event else { continue };
        let place = change.moved_to.as_ref().unwrap_or(&change.target_file);
        if place == path && change.hash_after == state.digest() {
            return Ok(line.agent.map(|agent| ChangedBy { agent, time: line.time }));
        }
    }
    Ok(None)
}

/// The bytes on disk, if they still have this hash and are not too many to show.
fn current_text(request: &Request<'_>, path: &FilePath, digest: Digest) -> Result<Option<Vec<u8>>> {
    let Some(spot) = request.root.spot_anywhere(path)? else { return Ok(None) };
    match spot.open()? {
        Found::File(file) if file.len() <= TEXT_PER_FILE as u64 => {
            let (bytes, now) = file.read()?;
            Ok((now == digest).then_some(bytes))
        }
        _ => Ok(None),
    }
}
