//! The late-write check of replaced files.
//!
//! A program may have resolved a path just before a guarded write replaced the file, and opened it just after. It then
//! writes into the replaced file, which nobody reads any more. So tollgate keeps replaced files in the stage, hashes each
//! one again after a grace time, and moves it to recovery. A file that was changed is reported in the ledger.

use crate::disk::{Found, Quiet};
use crate::recovery::{keep, keep_late};
use crate::root::Root;
use crate::stage::{ChangeId, Displaced, RecoveryKind, Standing};
use crate::turn::FileState;
use tollgate_base::error::Result;
use tollgate_base::settings::Durability;

/// The number of replaced files that a process collects before it checks those that are due. The ledger is then flushed
/// once for all of them.
const BATCH: usize = 64;

/// The number of grace times after which a file is checked even though a program still has it open for writing.
const PATIENCE: u32 = 10;

/// What a sweep has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Replaced files that passed the late-write check and went to recovery.
    pub kept: usize,
    /// Writes by programs outside tollgate that were found late.
    pub late: usize,
    /// Changes whose missing ledger line was added.
    pub completed: usize,
    /// Saves by programs outside tollgate that were put back at their path.
    pub put_back: usize,
    /// Staged files of changes that were not made.
    pub removed: usize,
    /// Recovery files that were too old or too many.
    pub pruned: usize,
}

/// Remembers a file that this process has replaced. From time to time, checks those that are due.
pub(crate) fn check_later(root: &Root, displaced: Displaced) {
    let due: Vec<Displaced> = {
        let mut waiting = root.displaced();
        waiting.push(displaced);
        if waiting.len() < BATCH || !is_due(root, &waiting[0].stage.id, 1) {
            return;
        }
        let count = waiting.iter().take_while(|displaced| is_due(root, &displaced.stage.id, 1)).count();
        waiting.drain(..count).collect()
    };
    // If this fails, the files stay in the stage, and the next sweep checks them.
    let _ = check(root, due, &mut Swept::default());
}

/// Checks those of these files that are due. Their changes have ledger lines, or are settled.
pub(crate) fn check(root: &Root, displaced: Vec<Displaced>, swept: &mut Swept) -> Result<()> {
    if root.durability() == Durability::Durable {
        // Once a file has left the stage, a lost ledger line can no longer be restored from its name.
        root.ledger().sync()?;
    }
    for Displaced { name, stage } in displaced {
        if !is_due(root, &stage.id, 1) {
            continue;
        }
        let spot = root.staged(name);
        let Found::File(mut file) = spot.open()? else { continue };
        if stage.base == FileState::Absent && stage.standing == Standing::Open {
            // The second name of a new file, which is at its path.
            spot.remove()?;
            continue;
        }
        // Without the lease, a late writer could write just after the hash was taken.
        let busy = file.quiet() == Quiet::Busy;
        if busy && !is_due(root, &stage.id, PATIENCE) {
            continue;
        }
        file.refresh()?;
        let found = FileState::Present(file.hash()?);
        if !busy && found == stage.base {
            swept.kept += 1;
            keep(root, &spot, RecoveryKind::Replaced)?;
        } else if !busy && found == stage.new && stage.standing == Standing::Settled {
            swept.removed += 1;
            keep(root, &spot, RecoveryKind::TakenBack)?;
        } else {
            swept.late += 1;
            keep_late(root, &spot, &stage)?;
        }
    }
    Ok(())
}

fn is_due(root: &Root, id: &ChangeId, times: u32) -> bool {
    let grace = root.settings().guard.grace.0 * times;
    root.now().duration_since(id.time()).unsigned_abs() >= grace
}
