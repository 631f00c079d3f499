//! What a plan does to files: the move, and the change of the text. Applying a step and healing one both use this.
//!
//! Invariant: each function may die at any act and be run again by another process.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::disk::{Disk, Moved, no_name_left};
use super::layout::FolderStore;
use super::log::{Change, Plan};
use crate::block;
use crate::state::{Slot, Verb};
use crate::step::{Edit, Landed, Step};
use tollgate_base::error::{At, Result};
use tollgate_base::task::TaskName;

/// How much of the end of a file is read to find a claim's block. Only a worker with very long notes has a longer one.
const BLOCKS: u64 = 1 << 20;

impl FolderStore {
    /// Moves the file; `None` if it is not there. The answer is its name, the fallback name if its own is taken.
    pub(super) fn transfer(&self, plan: &Plan) -> Result<Option<TaskName>> {
        let step = &plan.step;
        if step.from == step.to {
            return Ok(Some(step.task.clone()));
        }
        let from = self.path(&step.task, &step.from);
        self.transfer_to(&from, plan.ino, &step.task, &step.to, &step.fallback_suffix)
    }

    pub(super) fn transfer_to(
        &self,
        from: &Path,
        ino: u64,
        task: &TaskName,
        to: &Slot,
        fallback_suffix: &str,
    ) -> Result<Option<TaskName>> {
        let mut name = task.clone();
        loop {
            match self.disk.transfer(from, &self.path(&name, to), ino)? {
                Moved::Done => return Ok(Some(name)),
                Moved::Missing => return Ok(None),
                Moved::Taken if name == *task => name = task.beside(fallback_suffix),
                Moved::Taken => return Err(no_name_left(task, to)),
            }
        }
    }

    /// Without it a power cut could bring the file back to where it was, although its step is marked as done. A rename is
    /// one act of the file system's journal: if it is on the disk for one folder, it is for the other.
    pub(super) fn sync_move(&self, step: &Step) -> Result<()> {
        if step.from == step.to { Ok(()) } else { self.disk.sync_folder(&self.slot_folder(&step.to)) }
    }

    pub(super) fn landed(&self, plan: &Plan, task: TaskName) -> Landed {
        let slot = plan.step.to.clone();
        Landed { path: Some(self.path(&task, &slot)), task, slot }
    }

    /// Where the file of a plan is: whether it is still where it came from, and under which name it is where it goes.
    pub(super) fn whereabouts(&self, plan: &Plan) -> (bool, Option<(TaskName, u64)>) {
        let step = &plan.step;
        let ino = |path: PathBuf| {
            self.disk.look(&path).ok().flatten().filter(|found| found.is_file).map(|found| found.ino)
        };
        let from = ino(self.path(&step.task, &step.from));
        if step.from == step.to {
            return (from.is_some(), None);
        }
        let names = [step.task.clone(), step.fallback_name()];
        let there = names.iter().find(|name| ino(self.path(name, &step.to)) == Some(plan.ino));
        // If an editor saved it in between, it has another inode. Its name identifies it, if it is nowhere else.
        let there = there.or_else(|| {
            let gone = from.is_none() && step.verb == Some(Verb::Claim);
            names.iter().find(|name| gone && ino(self.path(name, &step.to)).is_some())
        });
        let there = there.and_then(|name| ino(self.path(name, &step.to)).map(|ino| (name.clone(), ino)));
        (from.is_some() && there.is_none(), there)
    }

    /// Removes the change from the file again, if it, or a part of it, is in there and nothing else has changed.
    pub(super) fn take_out(&self, plan: &Plan, path: &Path) -> Result<()> {
        let Some(change) = &plan.change else { return Ok(()) };
        match half_written(&self.disk, change, path)? {
            Some(file) => self.disk.replace_tail(&file, path, change.at, &change.old),
            None => Ok(()),
        }
    }

    /// Makes the change of an interrupted step, unless it is made.
    pub(super) fn put_in(&self, plan: &Plan, path: &Path) -> Result<()> {
        let Some(change) = &plan.change else { return Ok(()) };
        if let Some(file) = half_written(&self.disk, change, path)? {
            self.disk.replace_tail(&file, path, change.at, &change.new)?;
            return self.disk.sync(&file, path);
        }
        // The file is as it was, or somebody has changed it since: make the change on what is there.
        let Some((file, seen)) = self.disk.open_task(path, true)? else { return Ok(()) };
        if let Some(change) = change_of(&plan.step, &file, seen.len).at("read", path)? {
            self.disk.replace_tail(&file, path, change.at, &change.new)?;
        }
        self.disk.sync(&file, path)
    }
}

/// The file, if its end is somewhere between old and new.
fn half_written(disk: &Disk, change: &Change, path: &Path) -> Result<Option<File>> {
    let Some((file, seen)) = disk.open_task(path, true)? else { return Ok(None) };
    let most = change.at + change.new.len().max(change.old.len()) as u64;
    if seen.len < change.at || seen.len > most {
        return Ok(None);
    }
    let mut end = vec![0; usize::try_from(seen.len - change.at).unwrap_or(0)];
    file.read_exact_at(&mut end, change.at).at("read", path)?;
    let mut bytes = end.iter().enumerate();
    let mixed = bytes.all(|(at, byte)| change.new.get(at) == Some(byte) || change.old.get(at) == Some(byte));
    Ok((mixed && end != change.old).then_some(file))
}

/// What the step changes in a file of this length: only from the first byte that differs, so that the plan is short.
pub(super) fn change_of(step: &Step, file: &File, len: u64) -> std::io::Result<Option<Change>> {
    let from = match &step.edit {
        Edit::Keep => return Ok(None),
        // The last byte tells whether the text ends with a newline.
        Edit::Open | Edit::Progress(..) | Edit::Draft(..) | Edit::Reject(..) => len.saturating_sub(1),
        Edit::Close(..) => len.saturating_sub(BLOCKS),
        Edit::Replace(_) => 0,
    };
    let mut start = from;
    let mut end = read(file, start, len)?;
    if let Edit::Close(claim, _) = &step.edit
        && start > 0
        && block::find(&end, &claim.id).is_none()
    {
        start = 0;
        end = read(file, start, len)?;
    }
    Ok(step.tail(&end).map(|tail| {
        let old = &end[tail.at..];
        let same = old.iter().zip(&tail.bytes).take_while(|(old, new)| old == new).count();
        let at = start + (tail.at + same) as u64;
        Change { at, old: old[same..].to_vec(), new: tail.bytes[same..].to_vec() }
    }))
}

/// The bytes of a file from `start` to `end`, or to its end.
pub(super) fn read(file: &File, start: u64, end: u64) -> std::io::Result<Vec<u8>> {
    let size = file.metadata()?.len().min(end).saturating_sub(start);
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
    match file.read_exact_at(&mut bytes, start) {
        // It was shortened at this moment.
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => read(file, start, end),
        read => read.map(|()| bytes),
    }
}
