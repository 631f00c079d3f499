//! Changing files: one, or several together. No other code changes guarded files.
//!
//! Every change of a file is a `Plan`. A commit makes all its changes or none, even if the process or the machine dies in
//! between, and never loses a save by another program. The steps, for all plans together:
//!
//! 1. **Stage** the new bytes with the owner, mode and attributes of the old file, and flush them.
//! 2. Make every target **quiet**: the kernel grants no lease while any process has the file open for writing.
//! 3. **Hash** through that descriptor and compare. Only here is a file called stale.
//! 4. Write a **journal** of names and hashes, if there is more than one thing to do.
//! 5. **Swap** each staged file with its target, in one atomic step. Both contents stay on disk.
//! 6. Flush the folders, then **verify** that the replaced file is the one that was hashed, and that no process has tried to
//!    write it. Otherwise a foreign save came in between: swap back, start again at 1.
//! 7. Append the **ledger line**: the commit point. A crash before it undoes a journalled commit; after it, the commit is
//!    final.
//! 8. The replaced file stays under its stage name. After a grace time it gets the **late-write check** (see
//!    `recovery.rs`): a program that resolved the path before step 5 and opened the file after step 6 has written into
//!    it. The check finds, keeps and reports that write.
//!
//! A commit of one file needs no journal, because the stage name says everything. A commit of more files than can be open
//! at the same time is in `large.rs`.

mod current;
mod journal;
mod large;
mod plan;
mod staging;
mod step;
mod undo;

use std::time::Instant;

use crate::disk::Folder;
use crate::explain::{record, refuse};
use crate::lost_claim::fenced_by_now;
use crate::refusal::{Outcome, Refusal};
use crate::request::Request;
use crate::stripe_lock::StripeLocks;
use tollgate_base::error::Result;
use tollgate_base::event::RefusalStatus;
use tollgate_base::ledger::Entry;
use tollgate_base::lock::Pauses;
use tollgate_base::settings::Durability;

pub(crate) use journal::{CommitJournal, FolderDeed, JournalContent, JournalRecord};
pub use plan::{Applied, Guarantee};
pub(crate) use plan::{Base, ByCommand, NewContent, Operation, Plan, file_changed, folder_moved};
use plan::{Looked, ROUNDS};
pub(crate) use staging::{make_folders, remove_folders};
use step::FileStep;
pub(crate) use undo::{complete, finish_swap, give_back, put_back, roll_back};

/// Makes all of these changes or none, and what is to be done later to folders. The caller has locked all paths.
pub(crate) fn commit(
    request: &Request<'_>,
    plans: Vec<Plan>,
    later: &[FolderDeed],
    locks: &StripeLocks,
) -> Result<Outcome<Vec<Applied>>> {
    let begun = Instant::now();
    // If this process dies, or the disk fails during an undo, the next process to lock these paths heals first.
    locks.mark()?;
    if large::is_large(&plans) || !later.is_empty() {
        return large::commit(request, plans, later, locks, begun);
    }
    let steps = plans.into_iter().map(|plan| FileStep::new(request, plan));
    let mut steps = steps.collect::<Result<Vec<FileStep>>>()?;
    let answer = rounds(request, &mut steps, locks, begun);
    if let Ok(Ok(changes)) = answer {
        let observed: Vec<Refusal> = steps.iter().filter_map(FileStep::observed).collect();
        if !observed.is_empty() {
            record(request, &observed, RefusalStatus::Observed)?;
        }
        return Ok(Outcome::Done(changes));
    }
    for step in &mut steps {
        step.discard_hidden(request.root);
    }
    for step in steps.iter_mut().rev() {
        step.folders.remove(request.root)?;
    }
    let refusals = answer?.err().unwrap_or_default();
    // If a mark cannot be cleared, the next process heals, which finds nothing to do.
    let _ = locks.clear();
    refuse(request, refusals)
}

fn rounds(
    request: &Request<'_>,
    steps: &mut [FileStep],
    locks: &StripeLocks,
    begun: Instant,
) -> Result<std::result::Result<Vec<Applied>, Vec<Refusal>>> {
    let mut busy = Pauses::lasting(request.root.settings().guard.quiet_wait.0);
    for _ in 0..ROUNDS {
        let mut again = None;
        let mut refused = Vec::new();
        let mut ready = Vec::with_capacity(steps.len());
        // All bytes are staged before the first file is made quiet, so that other programs wait for a moment only.
        for step in steps.iter_mut() {
            match step.stage(request.root)? {
                Looked::Ready => ready.push(step),
                Looked::Refused(refusal) => refused.push(refusal),
                Looked::Busy => again = Some(step.busy()),
            }
        }
        for step in ready {
            match step.look()? {
                Looked::Ready => {}
                Looked::Refused(refusal) => refused.push(refusal),
                Looked::Busy => again = Some(step.busy()),
            }
        }
        if refused.is_empty() && again.is_none() {
            let first = steps.iter().map(|step| step.plan.place.path()).min();
            refused.extend(first.map_or(Ok(None), |path| fenced_by_now(request, path))?);
        }
        if !refused.is_empty() {
            return Ok(Err(refused));
        }
        if again.is_none()
            && let Some(changes) = apply(request, steps, locks, begun)?
        {
            return Ok(Ok(changes));
        }
        // Lets other processes open the file before the next attempt.
        steps.iter_mut().for_each(FileStep::release_quiet);
        if let Some(refusal) = again
            && !busy.pause()
        {
            return Ok(Err(vec![refusal]));
        }
    }
    Ok(Err(steps.iter().map(FileStep::busy).collect()))
}

/// Makes the changes. `None` if a foreign save came in between: then all changes were undone.
fn apply(
    request: &Request<'_>,
    steps: &mut [FileStep],
    locks: &StripeLocks,
    begun: Instant,
) -> Result<Option<Vec<Applied>>> {
    let Request { root, turn, .. } = request;
    let durability = root.durability();
    for step in steps.iter_mut() {
        step.name_stage(root)?;
    }
    let journal = if steps.len() > 1 || steps.iter().any(FileStep::needs_journal) {
        let records = steps.iter().map(FileStep::record).collect();
        Some(CommitJournal::write(root, turn.agent(), Some(turn.id()), records, durability)?)
    } else {
        None
    };
    for step in steps.iter_mut() {
        step.forget_intent(root)?;
    }
    let attempt = swap_and_verify(steps, durability).and_then(|matched| {
        if matched {
            // The commit point. If the lines cannot be written, the changes are undone. Only the first line has the time.
            let mut took_us = Some(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX));
            let lines: Vec<Entry> = steps.iter().map(|step| step.line(request, took_us.take())).collect();
            let flush = match durability {
                // After a single swap or removal, the ledger line can be restored from the name of the replaced file.
                Durability::Durable if journal.is_some() || steps.iter().any(FileStep::leaves_no_trace) => {
                    Durability::Durable
                }
                _ => Durability::Fast,
            };
            root.ledger().append(&lines, flush)?;
        }
        Ok(matched)
    });
    if matches!(attempt, Ok(true)) {
        let changes = steps.iter().map(FileStep::applied).collect();
        // The changes are made. If something below fails, the marks stay, and the next process to lock these paths does it:
        // until then, a new file may have a second name in the stage.
        let mut tidy = true;
        for step in steps.iter_mut() {
            tidy &= step.finish(root).is_ok();
        }
        // Last, and only if the rest succeeded: on another file system, only the journal says what is left to do.
        if tidy && journal.is_none_or(|journal| journal.remove().is_ok()) {
            let _ = locks.clear();
        }
        return Ok(Some(changes));
    }
    for step in steps.iter_mut().rev() {
        step.undo(root)?;
    }
    flush_folders(steps, durability)?;
    if let Some(journal) = journal {
        journal.remove_for_good(root)?;
    }
    attempt.map(|_| None)
}

/// Whether all files could be swapped and no foreign save came in between.
fn swap_and_verify(steps: &mut [FileStep], durability: Durability) -> Result<bool> {
    for step in steps.iter_mut() {
        if !step.swap()? {
            return Ok(false);
        }
    }
    // Before the last check, not after it: this gives a program that is about to open the file time to be noticed.
    flush_folders(steps, durability)?;
    for step in steps.iter_mut() {
        if !step.verify()? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Without this, a power failure after the answer could bring the old names back.
fn flush_folders(steps: &[FileStep], durability: Durability) -> Result<()> {
    // In the order of the changes.
    let mut folders: Vec<Folder> = steps.iter().flat_map(FileStep::changed_folders).collect();
    if let Some(last) = folders.last()
        && folders.iter().all(|folder| folder.flushes_all && folder.same_device(last))
    {
        return last.flush(durability);
    }
    folders.sort_by(|a, b| a.shown().cmp(b.shown()));
    folders.dedup_by(|a, b| a.shown() == b.shown());
    folders.iter().try_for_each(|folder| folder.flush(durability))
}
