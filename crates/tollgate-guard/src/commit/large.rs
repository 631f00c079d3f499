//! A commit of more files than a process may have open at the same time.
//!
//! Every file is opened, looked at, staged and closed before the next one, so nothing keeps the targets quiet until they are
//! swapped. Instead, after all swaps, each replaced file is made quiet and hashed once more: if another program has written it
//! since the first look, or still has it open for writing, all changes are undone and the commit starts again. The undo is
//! that of a dead process, from the journal.
//!
//! A commit with changes that only commands make is made in the same way, however small it is.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;

use super::journal::{CommitJournal, FolderDeed, JournalContent, JournalRecord};
use super::plan::{Applied, Base, Looked, Operation, Plan, ROUNDS};
use super::staging::remove_folders;
use super::step::{FileStep, Stand};
use super::undo::{roll_back, staged_spot};
use crate::disk::{Found, Linked, Quiet, Spot, gone_is_none, no_folder_is_none};
use crate::explain::{record, refuse};
use crate::lost_claim::fenced_by_now;
use crate::path::EscapedPath;
use crate::recovery::{check_later, keep_copy};
use crate::refusal::{Outcome, Refusal};
use crate::request::Request;
use crate::root::Root;
use crate::stage::{ChangeId, is_beside};
use crate::stripe_lock::StripeLocks;
use crate::turn::FileState;
use tollgate_base::error::{Fault, Result};
use tollgate_base::event::RefusalStatus;
use tollgate_base::ledger::Entry;
use tollgate_base::lock::Pauses;
use tollgate_base::settings::Durability;

/// The number of descriptors that the files of a commit may use. Some systems allow 256 for a process.
const DESCRIPTORS: usize = 128;

/// The descriptors of one file: its folder, its new folder, the file, the staged file and a lock.
const PER_FILE: usize = 5;

pub(super) fn is_large(plans: &[Plan]) -> bool {
    let alone = |plan: &Plan| plan.is_after_others() || matches!(plan.deed, Operation::SetMode(_));
    if plans.iter().any(alone) {
        return true;
    }
    let of = |plan: &Plan| {
        let to = plan.deed.moved_to().map_or(0, |to| to.missing.len());
        PER_FILE + plan.place.missing.len() + to
    };
    plans.iter().map(of).sum::<usize>() > DESCRIPTORS
}

/// Makes all of these changes or none. The caller has locked all paths and marked the locks.
pub(super) fn commit(
    request: &Request<'_>,
    mut plans: Vec<Plan>,
    later: &[FolderDeed],
    locks: &StripeLocks,
    begun: Instant,
) -> Result<Outcome<Vec<Applied>>> {
    let root = request.root;
    let mut folders = Folders::missing(request, &mut plans)?;
    let mut pauses = Pauses::lasting(root.settings().guard.quiet_wait.0);
    let mut refusals = Vec::new();
    for _ in 0..ROUNDS {
        let (mut steps, looked) = prepare(request, plans, &mut folders)?;
        refusals = match looked {
            Prepared::Ready => match apply(request, &mut steps, later, &mut folders, begun)? {
                Round::Made(journal) => return made(request, &steps, later, folders, journal, locks),
                Round::Undone => Vec::new(),
                Round::Failed(fault) => {
                    discard(root, steps)?;
                    folders.remove(root)?;
                    return Err(fault);
                }
            },
            Prepared::Busy(refusal) => vec![refusal],
            Prepared::Refused(refused) => {
                refusals = refused;
                discard(root, steps)?;
                break;
            }
        };
        let is_busy = !refusals.is_empty();
        if !is_busy {
            refusals = steps.iter().map(|closed| closed.step.busy()).collect();
        }
        plans = discard(root, steps)?;
        if is_busy && !pauses.pause() {
            break;
        }
    }
    folders.remove(root)?;
    // If a mark cannot be cleared, the next process heals, which finds nothing to do.
    let _ = locks.clear();
    refuse(request, refusals)
}

/// The folders that the commit creates.
struct Folders {
    wanted: BTreeSet<PathBuf>,
    made: Vec<PathBuf>,
    /// Names the folders until the change is made or undone, so that a crash does not leave them behind.
    intent: Option<CommitJournal>,
}

impl Folders {
    /// The folders that the plans lack. They will exist, so the plans no longer list them.
    fn missing(request: &Request<'_>, plans: &mut [Plan]) -> Result<Self> {
        let mut wanted = BTreeSet::new();
        for plan in plans.iter_mut() {
            if plan.is_after_others() {
                continue;
            }
            match (plan.base, &mut plan.deed) {
                // Stale.
                (Base::Since(start), _) if start.was_present() && !plan.place.missing.is_empty() => {}
                (Base::Exactly(FileState::Present(_)), _) if !plan.place.missing.is_empty() => {}
                (_, Operation::Put { .. }) => wanted.extend(std::mem::take(&mut plan.place.missing)),
                (_, Operation::MoveTo(to)) if plan.place.missing.is_empty() => {
                    wanted.extend(std::mem::take(&mut to.missing));
                }
                _ => {}
            }
        }
        let intent = match plans.first() {
            Some(plan) if !wanted.is_empty() => {
                let Request { root, turn, .. } = request;
                let id = ChangeId::new(root.now())?;
                let record = JournalRecord::new(&id, &plan.place.relative, None, &wanted);
                Some(CommitJournal::write(
                    root,
                    turn.agent(),
                    Some(turn.id()),
                    vec![record],
                    Durability::Fast,
                )?)
            }
            _ => None,
        };
        Ok(Self { wanted, made: Vec::new(), intent })
    }

    /// Outermost first: a set of paths is sorted that way.
    fn make(&mut self, root: &Root) -> Result<()> {
        for path in &self.wanted {
            if root.spot(path)?.make_folder()? {
                self.made.push(path.clone());
            }
        }
        Ok(())
    }

    /// The change was not made: deletes those that are empty.
    fn remove(self, root: &Root) -> Result<()> {
        remove_folders(root, &self.made)?;
        self.intent.map_or(Ok(()), CommitJournal::remove)
    }
}

/// A step whose files are closed.
struct ClosedStep {
    step: FileStep,
    /// `None` if there is nothing to do.
    record: Option<JournalRecord>,
    /// Names a staged file that is not in the stage, until the journal of the commit does.
    intent: Option<CommitJournal>,
}

enum Prepared {
    Ready,
    Busy(Refusal),
    Refused(Vec<Refusal>),
}

/// Stages and looks at all files, one after the other. If that fails, nothing is left.
fn prepare(
    request: &Request<'_>,
    plans: Vec<Plan>,
    folders: &mut Folders,
) -> Result<(Vec<ClosedStep>, Prepared)> {
    let root = request.root;
    let mut steps = Vec::with_capacity(plans.len());
    let mut looked = Prepared::Ready;
    let all = || -> Result<()> {
        folders.make(root)?;
        for plan in plans {
            let (closed, look) = ClosedStep::prepare(request, plan)?;
            match (look, &mut looked) {
                (Looked::Ready, _) | (Looked::Busy, Prepared::Refused(_)) => {}
                (Looked::Busy, _) => looked = Prepared::Busy(closed.step.busy()),
                (Looked::Refused(refusal), Prepared::Refused(refused)) => refused.push(refusal),
                (Looked::Refused(refusal), _) => looked = Prepared::Refused(vec![refusal]),
            }
            steps.push(closed);
        }
        let first = steps.iter().map(|closed| closed.step.plan.place.path()).min();
        if let (Prepared::Ready, Some(path)) = (&looked, first)
            && let Some(refusal) = fenced_by_now(request, path)?
        {
            looked = Prepared::Refused(vec![refusal]);
        }
        Ok(())
    };
    if let Err(fault) = all() {
        discard(root, steps)?;
        remove_folders(root, &folders.made)?;
        if let Some(intent) = folders.intent.take() {
            intent.remove()?;
        }
        return Err(fault);
    }
    Ok((steps, looked))
}

impl ClosedStep {
    fn prepare(request: &Request<'_>, plan: Plan) -> Result<(Self, Looked)> {
        let root = request.root;
        let mut step = FileStep::new(request, plan)?;
        let looked = step.stage(root).and_then(|staged| match staged {
            Looked::Ready => step.look(),
            other => Ok(other),
        });
        let looked = looked.and_then(|looked| match looked {
            Looked::Ready => step.name_stage(root).map(|()| Looked::Ready),
            other => Ok(other),
        });
        let goes_on = matches!(looked, Ok(Looked::Ready)) && step.stand != Stand::Same;
        if !goes_on {
            step.discard_hidden(root);
        }
        let looked = looked?;
        let record = goes_on.then(|| step.record());
        let intent = step.close();
        Ok((Self { step, record, intent }, looked))
    }

    /// Makes the change visible. False if the path is no longer as it was.
    fn swap(&mut self, root: &Root) -> Result<bool> {
        let Some(record) = &self.record else { return Ok(true) };
        if let Some([before, after]) = record.mode {
            let Some(spot) = no_folder_is_none(root.spot(&record.path))? else { return Ok(false) };
            if spot.mode()? != Some(before) {
                return Ok(false);
            }
            spot.set_mode(after)?;
            self.step.stand = Stand::Swapped(None);
            return Ok(true);
        }
        if self.step.plan.is_after_others() {
            // The changes before this one have made room.
            for (folder, _) in &record.clears {
                root.spot(folder)?.remove_empty_folder()?;
            }
            for folder in &self.step.plan.place.missing {
                root.spot(folder)?.make_folder()?;
            }
        }
        let Some((spot, aside)) = spots(root, record)? else { return Ok(false) };
        let swap = match (record.base, record.new) {
            (Some(_), Some(_)) => gone_is_none(aside.swap(&spot))?.map(Some),
            (Some(_), None) => (gone_is_none(spot.rename_new(&aside))? == Some(true)).then_some(None),
            _ => match aside.link_new(&spot)? {
                Linked::Done => Some(None),
                Linked::Taken => None,
                Linked::Impossible => aside.rename_new(&spot)?.then_some(None),
            },
        };
        self.step.stand = swap.map_or(Stand::Before, Stand::Swapped);
        Ok(swap.is_some())
    }

    /// Whether no other program has written the replaced file, or has it open for writing.
    fn verify(&mut self, root: &Root) -> Result<bool> {
        let Some(record) = self.record.as_ref().filter(|record| record.base.is_some()) else {
            return Ok(true);
        };
        if record.mode.is_some() {
            return Ok(root.spot(&record.path)?.hash()? == record.base);
        }
        let Some(aside) = aside(root, record)? else { return Ok(false) };
        let Found::File(mut file) = aside.open_itself()? else { return Ok(false) };
        let quiet = file.quiet();
        file.refresh()?;
        self.step.current.quiet = quiet;
        // Another program may have changed owner or mode since they were copied.
        Ok(quiet != Quiet::Busy
            && Some(file.as_model()) == self.step.model
            && Some(file.hash()?) == record.base
            && file.undisturbed())
    }

    /// After the commit point: leaves the replaced file for the late-write check.
    fn finish(&self, root: &Root) -> Result<()> {
        let Some(record) = self.record.as_ref().filter(|record| record.to.is_none()) else { return Ok(()) };
        let Some(aside) = aside(root, record)? else { return Ok(()) };
        if record.base.is_none() {
            // The second name of a new file.
            aside.remove()
        } else if is_beside(aside.name()) {
            keep_copy(root, &aside, &self.step.stage)
        } else {
            check_later(root, self.step.stage.clone());
            Ok(())
        }
    }

    /// Deletes the staged file of a change that was not made.
    fn discard(self, root: &Root) -> Result<Plan> {
        if let Some(record) = &self.record
            && record.new.is_some()
            && let Some(aside) = aside(root, record)?
            // An undone change has given its file another name.
            && aside.hash()? == record.new
        {
            aside.remove()?;
        }
        if let Some(intent) = self.intent {
            intent.remove_for_good(root)?;
        }
        Ok(self.step.plan)
    }
}

fn discard(root: &Root, steps: Vec<ClosedStep>) -> Result<Vec<Plan>> {
    steps.into_iter().map(|closed| closed.discard(root)).collect()
}

/// The path of a change, and the other name that it uses. `None` if a folder is gone.
fn spots(root: &Root, record: &JournalRecord) -> Result<Option<(Spot, Spot)>> {
    let Some(spot) = no_folder_is_none(root.spot(&record.path))? else { return Ok(None) };
    Ok(aside(root, record)?.map(|aside| (spot, aside)))
}

/// The other name that a change uses: the new path of a moved file, else the staged or deleted file. `None` if its folder is
/// gone.
fn aside(root: &Root, record: &JournalRecord) -> Result<Option<Spot>> {
    match (&record.to, &record.staged) {
        (Some(to), _) => no_folder_is_none(root.spot(to)),
        (None, Some(name)) if is_beside(name.as_os_str()) => {
            Ok(no_folder_is_none(root.spot(&record.path))?.map(|spot| staged_spot(root, &spot, name)))
        }
        // The folder of the path may have become a file.
        (None, Some(name)) => Ok(Some(root.staged(&name.0))),
        (None, None) => Ok(None),
    }
}

enum Round {
    Made(Option<CommitJournal>),
    /// A foreign save came in between: all changes were undone.
    Undone,
    /// All changes were undone.
    Failed(Fault),
}

/// Makes the changes. A fault of this function itself means that an undo failed: the next process heals.
fn apply(
    request: &Request<'_>,
    steps: &mut [ClosedStep],
    later: &[FolderDeed],
    folders: &mut Folders,
    begun: Instant,
) -> Result<Round> {
    let Request { root, turn, .. } = *request;
    let durability = root.durability();
    let mut records: Vec<JournalRecord> = steps.iter().filter_map(|closed| closed.record.clone()).collect();
    if let Some(first) = records.first_mut() {
        first.made.extend(folders.made.iter().cloned().map(EscapedPath));
    }
    let content = JournalContent::new(turn.agent().clone(), Some(turn.id().clone()), records, later.to_vec());
    let journal = match content.records.is_empty() {
        true => None,
        false => match CommitJournal::write_content(root, &content, durability) {
            Ok(journal) => Some(journal),
            Err(fault) => return Ok(Round::Failed(fault)),
        },
    };
    let attempt = swap_and_verify(root, steps, &content).and_then(|matched| {
        if matched {
            // The commit point. Only the first line has the time.
            let mut took_us = Some(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX));
            let line = |closed: &ClosedStep| closed.step.line(request, took_us.take());
            let lines: Vec<Entry> = steps.iter().map(line).collect();
            root.ledger().append(&lines, durability)?;
        }
        Ok(matched)
    });
    if matches!(attempt, Ok(true)) {
        return Ok(Round::Made(journal));
    }
    roll_back(root, &content)?;
    folders.made.clear();
    if let Some(journal) = journal {
        journal.remove_for_good(root)?;
    }
    Ok(attempt.map_or_else(Round::Failed, |_| Round::Undone))
}

fn swap_and_verify(root: &Root, steps: &mut [ClosedStep], content: &JournalContent) -> Result<bool> {
    for closed in steps.iter_mut() {
        // The journal of the commit names the staged file now.
        if let Some(intent) = closed.intent.take() {
            intent.remove_for_good(root)?;
        }
    }
    for closed in steps.iter_mut() {
        if !closed.swap(root)? {
            return Ok(false);
        }
    }
    flush_folders(root, content)?;
    for closed in steps.iter_mut() {
        if !closed.verify(root)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Without this, a power failure after the answer could bring the old names back.
fn flush_folders(root: &Root, content: &JournalContent) -> Result<()> {
    let durability = root.durability();
    for folder in content.folders() {
        if let Some(folder) = no_folder_is_none(root.folder.open_below(&folder))? {
            folder.flush(durability)?;
        }
    }
    root.stage.flush(durability)
}

/// The changes are made. If something here fails, the marks stay, and the next process to lock these paths does it.
fn made(
    request: &Request<'_>,
    steps: &[ClosedStep],
    later: &[FolderDeed],
    folders: Folders,
    journal: Option<CommitJournal>,
    locks: &StripeLocks,
) -> Result<Outcome<Vec<Applied>>> {
    let root = request.root;
    let mut tidy = true;
    for closed in steps {
        tidy &= closed.finish(root).is_ok();
    }
    tidy &= later.iter().all(|deed| deed.make(root).is_ok());
    tidy &= folders.intent.is_none_or(|intent| intent.remove().is_ok());
    // Last, and only if the rest succeeded: on another file system, only the journal says what is left to do.
    if tidy && journal.is_none_or(|journal| journal.remove().is_ok()) {
        let _ = locks.clear();
    }
    let observed: Vec<Refusal> = steps.iter().filter_map(|closed| closed.step.observed()).collect();
    if !observed.is_empty() {
        record(request, &observed, RefusalStatus::Observed)?;
    }
    Ok(Outcome::Done(steps.iter().map(|closed| closed.step.applied()).collect()))
}
