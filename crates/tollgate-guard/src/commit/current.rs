//! The file that is at the path of a change, as the last look found it.
//!
//! Only this file decides that a write is stale, and only on a hash that was taken while nobody could write the file. Where
//! the kernel grants no leases, the hash must stay the same for a moment.

use std::time::Duration;

use super::plan::{Base, Looked, Operation, Plan};
use crate::change::StartState;
use crate::disk::{Found, Model, Quiet, Spot, Target};
use crate::turn::FileState;
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_base::lock::Pauses;

/// How long a file may be missing before it counts as deleted. Some editors move the old file away before they write the
/// new one.
const GAP: Duration = Duration::from_millis(200);

/// How long a hash must stay the same, and nobody may have the file open for writing, where there are no leases.
const SETTLE: Duration = Duration::from_millis(20);

/// The file at the path.
pub(super) struct Current {
    pub(super) file: Option<Target>,
    pub(super) state: FileState,
    pub(super) quiet: Quiet,
}

impl Current {
    /// Makes the file quiet, hashes it and compares.
    pub(super) fn look(&mut self, spot: &Spot, plan: &Plan) -> Result<Looked> {
        let Some(file) = &mut self.file else { return self.look_at_nothing(spot, plan) };
        if matches!(
            plan.base,
            Base::Exactly(FileState::Absent) | Base::Since(StartState { was: Some(FileState::Absent), .. })
        ) {
            // No file should be there. There is no need to wait for quiet.
            return Ok(plan.stale(FileState::Absent, FileState::Present(file.hash()?)));
        }
        self.quiet = file.quiet();
        if self.quiet == Quiet::Busy {
            return Ok(Looked::Busy);
        }
        // Only from now on is the length final.
        file.refresh()?;
        let digest = file.hash()?;
        if !file.undisturbed() || !spot.holds(file)? {
            return Ok(Looked::Busy);
        }
        self.state = FileState::Present(digest);
        let expected = match plan.base {
            Base::Exactly(expected) if expected != self.state => Some(expected),
            Base::Since(since) if !since.holds(file.changed(), digest) => Some(since.expected()),
            _ => None,
        };
        if let Some(expected) = expected {
            if self.quiet == Quiet::Unavailable && !settled(file, digest)? {
                return Ok(Looked::Busy);
            }
            return Ok(plan.stale(expected, self.state));
        }
        Ok(Looked::Ready)
    }

    fn look_at_nothing(&mut self, spot: &Spot, plan: &Plan) -> Result<Looked> {
        self.state = FileState::Absent;
        self.quiet = Quiet::Held;
        match (plan.file_expected(), &plan.operation) {
            (Some(expected), _) => {
                let mut pauses = Pauses::lasting(GAP);
                while spot.inode()?.is_none() {
                    if !pauses.pause() {
                        return Ok(plan.stale(expected, FileState::Absent));
                    }
                }
                Ok(Looked::Busy)
            }
            (_, Operation::Put { .. }) if spot.inode()?.is_some() => Ok(Looked::Busy),
            (_, Operation::Put { .. }) => Ok(Looked::Ready),
            (_, Operation::Remove | Operation::MoveTo(_) | Operation::SetMode(_)) => {
                Err(plan.place.path().missing())
            }
        }
    }

    /// After the swap: whether no other process has written the replaced file, or tried to. `model` is the file as it was when
    /// its metadata were copied to the replacement.
    pub(super) fn verify(&mut self, replacement: Option<&mut Target>, model: Option<Model>) -> Result<bool> {
        let Some(file) = &mut self.file else { return Ok(true) };
        if !file.undisturbed() {
            return Ok(false);
        }
        if self.quiet == Quiet::Unavailable {
            // A program that had the file open before the swap would write into the replaced file.
            if file.quiet() == Quiet::Busy {
                return Ok(false);
            }
            // Without a lease, only the bytes can tell.
            file.refresh()?;
            if FileState::Present(file.hash()?) != self.state {
                return Ok(false);
            }
        }
        // Another program may have changed owner or mode since they were copied.
        if let Some(replacement) = replacement
            && Some(file.model_now()?) != model
        {
            replacement.take_after(file)?;
        }
        Ok(true)
    }

    /// Whether a file that was closed after the look is still as it was: makes it quiet and hashes it once more. False also if its metadata
    /// have changed.
    pub(super) fn verify_again(&mut self, spot: &Spot, model: Option<Model>) -> Result<bool> {
        let Found::File(mut file) = spot.open_itself()? else { return Ok(false) };
        self.quiet = file.quiet();
        file.refresh()?;
        Ok(self.quiet != Quiet::Busy
            && model.is_none_or(|model| file.as_model() == model)
            && FileState::Present(file.hash()?) == self.state
            && file.undisturbed())
    }
}

fn settled(file: &mut Target, digest: Digest) -> Result<bool> {
    std::thread::sleep(SETTLE);
    if file.quiet() == Quiet::Busy {
        return Ok(false);
    }
    file.refresh()?;
    Ok(file.hash()? == digest)
}
