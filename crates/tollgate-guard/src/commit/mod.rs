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
//!    `late_write.rs`): a program that resolved the path before step 5 and opened the file after step 6 has written into
//!    it. The check finds, keeps and reports that write.
//!
//! A commit of one file needs no journal, because the stage name says everything.

mod current;
mod journal;
mod new_folders;
mod plan;
pub(crate) mod rollback;
mod staging;
mod step;
mod undo;

use std::time::Instant;

use crate::disk::Folder;
use crate::refusal::{Reason, Refusal};
use crate::root::Root;
use tollgate_base::error::Result;
use tollgate_base::ledger::Entry;
use tollgate_base::lock::Pauses;
use tollgate_base::settings::Durability;

use current::Looked;
pub(crate) use journal::{Journal, JournalContent, JournalRecord};
pub use plan::{Applied, Guarantee};
pub(crate) use plan::{Author, Base, Committed, Deed, Left, Plan, file_changed, folder_moved, stale};
use step::Step;
pub(crate) use undo::{finish_swap, give_back, put_back, remove_folder};

/// The number of times that a commit starts again because of a foreign save, before it says that the file is busy. Each
/// round takes a fraction of a millisecond, so only a program that saves without a pause comes near this limit.
const ROUNDS: usize = 200;

/// Makes all of these changes or none. The caller holds the locks of all paths.
pub(crate) fn commit(root: &Root, plans: Vec<Plan>, author: Author<'_>) -> Result<Committed> {
    let begun = Instant::now();
    let mut steps = Vec::with_capacity(plans.len());
    for plan in plans {
        steps.push(Step::new(root, plan, author)?);
    }
    let outcome = rounds(root, &mut steps, author, begun);
    if !matches!(outcome, Ok(Committed::Applied { .. })) {
        for step in &mut steps {
            step.discard_hidden(root);
        }
        for step in steps.iter_mut().rev() {
            step.remove_new_folders(root)?;
        }
    }
    outcome
}

fn rounds(root: &Root, steps: &mut [Step], author: Author<'_>, begun: Instant) -> Result<Committed> {
    let settings = &root.settings().guard;
    let mut busy = Pauses::lasting(settings.quiet_wait.0);
    for _ in 0..ROUNDS {
        let staged = look_at_all(steps, |step| step.stage(root))?;
        if !staged.refused.is_empty() {
            return Ok(Committed::Refused(staged.refused));
        }
        let looked = look_at_all(steps, Step::look)?;
        if !looked.refused.is_empty() {
            return Ok(Committed::Refused(looked.refused));
        }
        let again = staged.again.or(looked.again);
        if let Some(refusal) = again {
            // Lets other processes open the file before the next attempt.
            steps.iter_mut().for_each(Step::release_quiet);
            if !busy.pause() {
                return Ok(Committed::Refused(vec![refusal]));
            }
            continue;
        }
        match apply(root, steps, author, begun)? {
            Tried::Done(changes, left) => {
                let observed = steps.iter().filter_map(Step::observed).collect();
                return Ok(Committed::Applied { changes, observed, left });
            }
            Tried::Missed => steps.iter_mut().for_each(Step::release_quiet),
        }
    }
    let refusals = steps.iter().map(|step| step.refusal(Reason::Busy { holder: None }));
    Ok(Committed::Refused(refusals.collect()))
}

/// The result of a look at all files.
#[derive(Default)]
struct LookedAtAll {
    refused: Vec<Refusal>,
    /// A file that another process is writing, if there is one.
    again: Option<Refusal>,
}

fn look_at_all(steps: &mut [Step], mut look: impl FnMut(&mut Step) -> Result<Looked>) -> Result<LookedAtAll> {
    let mut all = LookedAtAll::default();
    for step in steps {
        match look(step)? {
            Looked::Ready => {}
            Looked::Refused(reason) => all.refused.push(step.refusal(reason)),
            Looked::Taken(reason) => all.refused.push(step.refusal_of_target(reason)),
            Looked::Busy | Looked::Disturbed => all.again = Some(step.refusal(Reason::Busy { holder: None })),
        }
    }
    Ok(all)
}

enum Tried {
    Done(Vec<Applied>, Left),
    /// A foreign save came in between, so all changes were undone.
    Missed,
}

fn apply(root: &Root, steps: &mut [Step], author: Author<'_>, begun: Instant) -> Result<Tried> {
    let durability = root.durability();
    for step in steps.iter_mut() {
        step.name_stage(root)?;
    }
    let journal = if steps.len() > 1 || steps.iter().any(Step::needs_journal) {
        Some(Journal::write(root, author, steps.iter().map(Step::record).collect(), durability)?)
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
            let lines = steps.iter().map(|step| step.line(root, author, took_us.take()));
            let lines: Vec<Entry> = lines.collect();
            let flush = match durability {
                // After a single swap or removal, the ledger line can be restored from the name of the replaced file.
                Durability::Durable if journal.is_some() || steps.iter().any(Step::leaves_no_trace) => {
                    Durability::Durable
                }
                _ => Durability::Fast,
            };
            root.ledger().append(&lines, flush)?;
        }
        Ok(matched)
    });
    if matches!(attempt, Ok(true)) {
        let changes = steps.iter().map(Step::applied).collect();
        // The changes are made. If something below fails, the next process to heal the workspace does it.
        let mut tidy = true;
        for step in steps.iter_mut() {
            tidy &= step.finish(root).is_ok();
        }
        // Last, and only if the rest succeeded: on another file system, only the journal says what is left to do.
        tidy = tidy && journal.is_none_or(|journal| journal.remove().is_ok());
        return Ok(Tried::Done(changes, if tidy { Left::Nothing } else { Left::Something }));
    }
    for step in steps.iter_mut().rev() {
        step.undo(root)?;
    }
    flush_folders(steps, durability)?;
    if let Some(journal) = journal {
        journal.remove_for_good(root)?;
    }
    attempt.map(|_| Tried::Missed)
}

/// Whether all files could be swapped and no foreign save came in between.
fn swap_and_verify(steps: &mut [Step], durability: Durability) -> Result<bool> {
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
fn flush_folders(steps: &[Step], durability: Durability) -> Result<()> {
    // In the order of the changes.
    let mut folders: Vec<Folder> = steps.iter().flat_map(Step::changed_folders).collect();
    if let Some(last) = folders.last()
        && folders.iter().all(|folder| folder.flushes_all() && folder.same_device(last))
    {
        return last.flush(durability);
    }
    folders.sort_by(|a, b| a.shown().cmp(b.shown()));
    folders.dedup_by(|a, b| a.shown() == b.shown());
    folders.iter().try_for_each(|folder| folder.flush(durability))
}
