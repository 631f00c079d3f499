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
//!    write it. Otherwise a foreign save came in between: undo all swaps, start again at 1.
//! 7. Append the **ledger line**: the commit point. A crash before it undoes a journalled commit; after it, the commit is
//!    final.
//! 8. The replaced file stays under its stage name. After a grace time it gets the **late-write check** (see
//!    `recovery.rs`): a program that resolved the path before step 5 and opened the file after step 6 has written into
//!    it. The check finds, keeps and reports that write.
//!
//! A commit of one file needs no journal, because the stage name says everything.
//!
//! A commit of more than `OPEN_FILES` files closes each file after its look, so nothing keeps the targets quiet until they
//! are swapped. Instead, step 6 makes each replaced file quiet and hashes it once more.

mod current;
mod journal;
mod plan;
mod staging;
mod step;
mod undo;

use std::collections::HashSet;
use std::time::Instant;

use crate::disk::{Folder, no_folder_is_none};
use crate::explain::{record, refuse};
use crate::lost_claim::fenced_by_now;
use crate::path::EscapedPath;
use crate::refusal::{Outcome, Refusal};
use crate::request::Request;
use crate::stripe_lock::StripeLocks;
use tollgate_base::error::{Fault, Result};
use tollgate_base::event::RefusalStatus;
use tollgate_base::ledger::Entry;
use tollgate_base::lock::Pauses;
use tollgate_base::settings::Durability;

pub(crate) use journal::{CommitJournal, FolderChange, JournalContent, JournalRecord};
pub use plan::{AppliedChange, Guarantee};
pub(crate) use plan::{Base, ByCommand, NewContent, Operation, Plan, file_changed, folder_moved};
use plan::{Looked, ROUNDS};
use staging::NewFolders;
pub(crate) use staging::{make_folders, remove_folders};
use step::{FileStep, parent};
pub(crate) use undo::{complete, finish_swap, give_back, put_back, roll_back};
use undo::{flush_undone, undo_record};

/// The number of files that a commit has open at the same time. Each takes up to four descriptors: its folder, its new folder,
/// the file and the staged file. Some systems allow 256 for a process.
const OPEN_FILES: usize = 25;

/// Makes all of these changes or none, and what is to be done later to folders. The caller has locked all paths.
pub(crate) fn commit(
    request: &Request<'_>,
    plans: Vec<Plan>,
    later: &[FolderChange],
    locks: &StripeLocks,
) -> Result<Outcome<Vec<AppliedChange>>> {
    let begun = Instant::now();
    // If this process dies, or the disk fails during an undo, the next process to lock these paths heals first.
    locks.mark()?;
    let steps = plans.into_iter().map(|plan| FileStep::new(request, plan));
    let mut steps = steps.collect::<Result<Vec<FileStep>>>()?;
    let missing = steps.iter_mut().flat_map(|step| step.plan.take_missing()).collect();
    let folders = match steps.first() {
        Some(first) => NewFolders::new(request.root, &first.stage, missing)?,
        None => NewFolders::default(),
    };
    let mut commit = Commit { request, steps, later, folders, begun };
    match commit.rounds()? {
        End::Made(journal) => commit.finish(journal, locks),
        End::Refused(refusals) => {
            commit.discard()?;
            // If a mark cannot be cleared, the next process heals, which finds nothing to do.
            let _ = locks.clear();
            refuse(request, refusals)
        }
        End::Failed(fault) => commit.discard().and(Err(fault)),
    }
}

struct Commit<'a> {
    request: &'a Request<'a>,
    steps: Vec<FileStep>,
    later: &'a [FolderChange],
    folders: NewFolders,
    begun: Instant,
}

enum End {
    Made(Option<CommitJournal>),
    Refused(Vec<Refusal>),
    /// Whatever was done is undone.
    Failed(Fault),
}

impl Commit<'_> {
    /// A fault means that an undo failed: the next process heals.
    fn rounds(&mut self) -> Result<End> {
        let mut pauses = Pauses::lasting(self.request.root.settings().guard.quiet_wait.0);
        for _ in 0..ROUNDS {
            match self.look() {
                Err(fault) => return Ok(End::Failed(fault)),
                Ok((refused, _)) if !refused.is_empty() => return Ok(End::Refused(refused)),
                Ok((_, Some(busy))) => {
                    self.steps.iter_mut().for_each(FileStep::release_quiet);
                    if !pauses.pause() {
                        return Ok(End::Refused(vec![busy]));
                    }
                }
                Ok((_, None)) => {
                    if let Some(end) = self.apply()? {
                        return Ok(end);
                    }
                }
            }
        }
        Ok(End::Refused(self.steps.iter().map(FileStep::busy).collect()))
    }

    /// Stages the new bytes of all files and looks at the old ones. Returns the refusals, and one of a busy file, if there is
    /// one.
    fn look(&mut self) -> Result<(Vec<Refusal>, Option<Refusal>)> {
        let root = self.request.root;
        let (mut refused, mut busy) = (Vec::new(), None);
        self.folders.make(root)?;
        let stays_open = self.steps.len() <= OPEN_FILES;
        for steps in self.steps.chunks_mut(OPEN_FILES) {
            let mut ready = Vec::with_capacity(steps.len());
            // All bytes are staged before the first file is made quiet, so that other programs wait for a moment only.
            for step in steps.iter_mut() {
                match step.stage(root)? {
                    Looked::Ready => ready.push(step),
                    Looked::Refused(refusal) => refused.push(refusal),
                    Looked::Busy => busy = Some(step.busy()),
                }
            }
            for step in ready {
                match step.look()? {
                    Looked::Ready => step.name_stage(root)?,
                    Looked::Refused(refusal) => refused.push(refusal),
                    Looked::Busy => busy = Some(step.busy()),
                }
            }
            if !stays_open {
                steps.iter_mut().for_each(FileStep::close);
            }
        }
        if refused.is_empty() && busy.is_none() {
            let first = self.steps.iter().map(|step| step.plan.place.path()).min();
            refused.extend(first.map_or(Ok(None), |path| fenced_by_now(self.request, path))?);
        }
        Ok((refused, busy))
    }

    /// Makes the changes. `None` if a foreign save came in between: then all changes were undone. A fault means that an undo
    /// failed.
    fn apply(&mut self) -> Result<Option<End>> {
        let Request { root, turn, .. } = *self.request;
        let durability = root.durability();
        let mut records: Vec<JournalRecord> = self.steps.iter().filter_map(FileStep::record).collect();
        if let Some(first) = records.first_mut() {
            first.made.extend(self.folders.made.iter().cloned().map(EscapedPath));
        }
        let is_one_name = self.steps.len() == 1
            && self.folders.made.is_empty()
            && self.later.is_empty()
            && !self.steps.iter().any(FileStep::needs_journal);
        let needs_journal = !is_one_name && !records.is_empty();
        let content =
            JournalContent::new(turn.agent().clone(), Some(turn.id().clone()), records, self.later.to_vec());
        let journal = match needs_journal {
            true => match CommitJournal::write_content(root, &content, durability) {
                Ok(journal) => Some(journal),
                Err(fault) => return Ok(Some(End::Failed(fault))),
            },
            false => None,
        };
        let attempt = self.swap_and_verify(journal.is_some()).and_then(|matched| {
            if matched {
                self.append_lines(is_one_name)?;
            }
            Ok(matched)
        });
        if matches!(attempt, Ok(true)) {
            return Ok(Some(End::Made(journal)));
        }
        self.undo(&content)?;
        if let Some(journal) = journal {
            journal.remove_for_good(root)?;
        }
        for step in &mut self.steps {
            step.start_again(root)?;
        }
        Ok(attempt.err().map(End::Failed))
    }

    /// Whether all files could be swapped and no foreign save came in between.
    fn swap_and_verify(&mut self, has_journal: bool) -> Result<bool> {
        let root = self.request.root;
        for step in &mut self.steps {
            step.forget_intent(root)?;
        }
        for step in &mut self.steps {
            if !step.swap(root, has_journal)? {
                return Ok(false);
            }
        }
        // Before the last check, not after it: this gives a program that is about to open the file time to be noticed.
        self.flush_folders()?;
        for step in &mut self.steps {
            if !step.verify(root)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Without this, a power failure after the answer could bring the old names back.
    fn flush_folders(&self) -> Result<()> {
        let root = self.request.root;
        let durability = root.durability();
        if durability == Durability::Fast {
            return Ok(());
        }
        let made = self.folders.made.iter().map(|made| (parent(made), None));
        // The folder that was changed last comes first.
        let changed = self.steps.iter().rev().flat_map(FileStep::changed_folders).chain(made);
        let mut seen = HashSet::new();
        let mut newest: Option<Folder> = None;
        let mut flush = |folder: &Folder| match &newest {
            Some(newest) if newest.flushes_all && newest.same_device(folder) => Ok(()),
            _ => {
                newest.get_or_insert_with(|| folder.clone());
                folder.flush(durability)
            }
        };
        for (path, held) in changed {
            if !seen.insert(path) {
                continue;
            }
            match held {
                Some(folder) => flush(folder)?,
                None => {
                    no_folder_is_none(root.folder.open_below(path))?
                        .map_or(Ok(()), |opened| flush(&opened))?;
                }
            }
        }
        flush(&root.stage)
    }

    /// The commit point. If the lines cannot be written, the changes are undone.
    fn append_lines(&self, is_one_name: bool) -> Result<()> {
        let root = self.request.root;
        // Only the first line has the time.
        let mut took_us = Some(u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX));
        let lines: Vec<Entry> =
            self.steps.iter().map(|step| step.line(self.request, took_us.take())).collect();
        let flush = match root.durability() {
            // After a single swap or removal, the ledger line can be restored from the name of the replaced file.
            Durability::Durable if is_one_name && !self.steps.iter().any(FileStep::leaves_no_trace) => {
                Durability::Fast
            }
            durability => durability,
        };
        root.ledger().append(&lines, flush).map(drop)
    }

    /// Undoes all changes, the last one first.
    fn undo(&mut self, content: &JournalContent) -> Result<()> {
        let root = self.request.root;
        let mut records = content.records.iter().rev();
        for step in self.steps.iter().rev().filter(|step| !step.is_done_already()) {
            let Some(record) = records.next() else { break };
            undo_record(root, record, content, step.held())?;
        }
        self.folders.made.clear();
        flush_undone(root, content)
    }

    /// The changes are made. If something here fails, the marks stay, and the next process to lock these paths does it: until
    /// then, a new file may have a second name in the stage.
    fn finish(
        mut self,
        journal: Option<CommitJournal>,
        locks: &StripeLocks,
    ) -> Result<Outcome<Vec<AppliedChange>>> {
        let root = self.request.root;
        let changes = self.steps.iter().map(FileStep::applied).collect();
        let mut tidy = true;
        for step in &mut self.steps {
            tidy &= step.finish(root).is_ok();
        }
        tidy &= self.later.iter().all(|folder| folder.make(root).is_ok());
        tidy &= self.folders.keep().is_ok();
        // Last, and only if the rest succeeded: on another file system, only the journal says what is left to do.
        if tidy && journal.is_none_or(|journal| journal.remove().is_ok()) {
            let _ = locks.clear();
        }
        let observed: Vec<Refusal> = self.steps.iter().filter_map(FileStep::observed).collect();
        if !observed.is_empty() {
            record(self.request, &observed, RefusalStatus::Observed)?;
        }
        Ok(Outcome::Done(changes))
    }

    /// The changes were not made: deletes what was staged for them.
    fn discard(mut self) -> Result<()> {
        let root = self.request.root;
        for step in &mut self.steps {
            step.release_quiet();
            // If this fails, the next sweep deletes it.
            let _ = step.discard(root);
        }
        self.folders.remove(root)
    }
}
