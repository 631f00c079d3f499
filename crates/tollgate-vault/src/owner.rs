//! The owner's verbs: claim, verify, renew, report progress, draft, release, and its heartbeat.
//!
//! Invariants: eligibility is checked before the claim, never after it; a lost race is an answer, not an error, and is not
//! retried, and is recorded once; every verb after the claim presents the claim's id, and an old id is refused.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;

use crate::block;
use crate::claim::{Claim, ClaimId, Tenure};
use crate::claim_lock::ClaimLock;
use crate::denial::{Allowed, Denial, NotOwner, Owned};
use crate::rules::{self, Release, lease_until};
use crate::state::State;
use crate::step::{Step, StepOutcome, TextEdit};
use crate::store::{Task, TaskAfterStep};
use crate::vault::{TRIES, Vault, restless};
use tollgate_base::boot_clock::millis_since_boot;
use tollgate_base::error::{Fault, Result};
use tollgate_base::name::Agent;
use tollgate_base::task::TaskName;

/// The number of heartbeats in a lease of a held claim: two may get lost.
pub const BEATS: u32 = 3;

/// The longest note of an owner, in bytes. One sentence is meant; it goes to the task's text and to the ledger, which
/// everybody reads.
const LONGEST_NOTE: usize = 64 << 10;

fn check_note(text: &str) -> Result<()> {
    match text.len() {
        ..=LONGEST_NOTE => Ok(()),
        length => Err(Fault::invalid(format!("the note has {length} bytes, the most is {LONGEST_NOTE}"))),
    }
}

/// How long a claim lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimKind {
    /// As long as the [`ClaimLock`] that comes with it. A store without locks gives a lease instead.
    Held,
    /// For the configured lease, and longer if it is renewed.
    Leased,
}

/// Who asks for a task, and how.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    /// The agent.
    pub agent: Agent,
    /// How long the claim lasts.
    pub kind: ClaimKind,
    /// The file is known to have been renamed into place, so it is complete however recent it is.
    pub renamed_in: bool,
}

/// A task that the agent owns now.
#[derive(Debug)]
pub struct Claimed {
    /// Its name.
    pub task: TaskName,
    /// Its file, if it has one.
    pub path: Option<PathBuf>,
    /// The claim.
    pub claim: Claim,
    /// The lock of a held claim. When it is dropped and no command has inherited it, the claim is over.
    pub lock: Option<ClaimLock>,
}

impl Vault {
    /// Claims this task.
    pub fn claim(&self, task: &TaskName, request: &ClaimRequest, now: Timestamp) -> Result<Allowed<Claimed>> {
        self.store().heal()?;
        let claimed = self.claim_in(None, task, request, now)?;
        Ok(claimed.unwrap_or_else(|| Err(Denial::Missing(task.clone()))))
    }

    /// Claims this task, if it is in this state; `None` if it is not there.
    pub(crate) fn claim_in(
        &self,
        state: Option<State>,
        task: &TaskName,
        request: &ClaimRequest,
        now: Timestamp,
    ) -> Result<Option<Allowed<Claimed>>> {
        let claimed = self.try_claim(state, task, request, now);
        let agent = &request.agent;
        match &claimed {
            // The caller must hear of this fault, not of one that keeps it from being recorded.
            Err(fault) => {
                let _ = rules::claim_failed(task, agent, fault, now)
                    .and_then(|event| self.store().record(&[event]));
            }
            Ok(Some(Err(denial))) if denial.is_lost_by(agent) => {
                let from = state.unwrap_or(State::InProgress);
                self.store().record(&[rules::lost(task, from, agent, now)?])?;
            }
            Ok(_) => {}
        }
        claimed
    }

    fn try_claim(
        &self,
        state: Option<State>,
        name: &TaskName,
        request: &ClaimRequest,
        now: Timestamp,
    ) -> Result<Option<Allowed<Claimed>>> {
        let agent = &request.agent;
        let Some(task) = self.store().get(name, state, now)? else { return Ok(None) };
        let mode = match self.judge(&task, agent, request.renamed_in, now)? {
            Ok(mode) => mode,
            Err(denial) => {
                // If somebody changes the task at this moment, the next claim comes here again.
                match &denial {
                    Denial::InDoubt(_, doubt) => drop(self.apply(&rules::ask(&task, doubt, now)?)?.landed()?),
                    Denial::NeverApproved(_) => {
                        drop(self.apply(&rules::reopen(&task, self.terms(), now)?)?.landed()?);
                    }
                    _ => {}
                }
                return Ok(Some(Err(denial)));
            }
        };
        let id = ClaimId::new()?;
        let asked = millis_since_boot();
        let mut lock = match request.kind {
            ClaimKind::Held => self.store().hold(&id)?,
            ClaimKind::Leased => None,
        };
        let (step, claim) = rules::claim(&task, id, agent, mode, lock.as_ref(), self.terms(), now)?;
        // Before the claim: nobody knows its id yet, and afterwards its owner may write at once.
        if let Some(deadlines) = self.deadlines() {
            deadlines.begin(&claim.id, self.heard(&claim.id, asked), self.lasts(&claim.tenure))?;
        }
        let outcome = self.apply(&step);
        if let Some(deadlines) = self.deadlines() {
            match (&outcome, &mut lock) {
                (Ok(StepOutcome::Done(_)), Some(lock)) => lock.ends(deadlines, &claim.id),
                (Ok(StepOutcome::Done(_)), None) => {}
                // If this fails, it stays until it is old. Nobody has this claim.
                _ => drop(deadlines.forget(&claim.id)),
            }
        }
        match outcome? {
            StepOutcome::Done(TaskAfterStep { task, path, .. }) => {
                Ok(Some(Ok(Claimed { task, path, claim, lock })))
            }
            StepOutcome::Unknown(fault) => Err(fault),
            // It has an owner now; or somebody has only changed its text.
            StepOutcome::Conflict => match self.store().get(name, Some(task.slot.state()), now)? {
                Some(_) => Ok(Some(Err(Denial::Changed(name.clone())))),
                None => Ok(Some(Err(Denial::RaceLost(name.clone())))),
            },
            StepOutcome::Changed => self.reopen(name, now).map(Some),
        }
    }

    /// The text in `Approved` is not what was approved: a person decides again.
    fn reopen<T>(&self, name: &TaskName, now: Timestamp) -> Result<Allowed<T>> {
        if let Some(task) = self.store().get(name, Some(State::Approved), now)? {
            // If somebody changes it at this moment, the next claim comes here again.
            self.apply(&rules::reopen(&task, self.terms(), now)?)?.landed()?;
        }
        Ok(Err(Denial::NotAsApproved(name.clone())))
    }

    /// Whether this claim still owns the task. Also extends its lease when half of it is over.
    pub fn verify(&self, task: &TaskName, id: &ClaimId, now: Timestamp) -> Result<bool> {
        let lease = self.terms().lease;
        let claim = self.store().claim_of(task, now)?.filter(|claim| claim.id == *id);
        let Some(claim) = claim else { return Ok(false) };
        if claim.lease_until().is_none_or(|until| until >= lease_until(now, lease / 2)) {
            return Ok(true);
        }
        Ok(self.as_owner(task, id, now, |task, _| rules::extend(task, TextEdit::Keep, lease, now))?.is_ok())
    }

    /// Asks the store whether this claim still owns the task, and notes the answer on this machine. It extends no lease.
    pub fn confirm(&self, task: &TaskName, id: &ClaimId, now: Timestamp) -> Result<bool> {
        let asked = millis_since_boot();
        let owns = self.store().claim_of(task, now)?.is_some_and(|claim| claim.id == *id);
        if let Some(deadlines) = self.deadlines() {
            match owns {
                true => deadlines.confirm(id, asked)?,
                false => deadlines.end(id)?,
            }
        }
        Ok(owns)
    }

    /// Extends a lease. The answer is the claim as it is now.
    pub fn renew(&self, task: &TaskName, id: &ClaimId, now: Timestamp) -> Result<Owned<Claim>> {
        let lease = self.terms().lease;
        match self.as_owner(task, id, now, |task, _| rules::renew(task, lease, now))? {
            Err(not_owner) => Ok(Err(not_owner)),
            Ok(_) => Ok(self.owned(task, id, now)?.map(|(_, claim)| claim)),
        }
    }

    /// Adds the owner's progress note to the task's text.
    pub fn progress(&self, task: &TaskName, id: &ClaimId, text: &str, now: Timestamp) -> Result<Owned<()>> {
        check_note(text)?;
        self.write(task, id, TextEdit::Progress(id.clone(), block::progress(now, text)), now)
    }

    /// Adds the owner's draft to the task's text, for a person to approve. Owners of a task with a file may write it there
    /// themselves.
    pub fn draft(&self, task: &TaskName, id: &ClaimId, text: &str, now: Timestamp) -> Result<Owned<()>> {
        if text.trim().is_empty() {
            return Err(Fault::invalid("a draft needs some text"));
        }
        self.write(task, id, TextEdit::Draft(id.clone(), block::draft(text)), now)
    }

    fn write(&self, task: &TaskName, id: &ClaimId, edit: TextEdit, now: Timestamp) -> Result<Owned<()>> {
        let lease = self.terms().lease;
        Ok(self.as_owner(task, id, now, |task, _| rules::extend(task, edit.clone(), lease, now))?.map(drop))
    }

    /// Releases the task: its block is closed, then it moves.
    pub fn release(
        &self,
        task: &TaskName,
        id: &ClaimId,
        how: &Release,
        now: Timestamp,
    ) -> Result<Owned<TaskAfterStep>> {
        check_note(how.note.as_deref().unwrap_or_default())?;
        let how = &Release { note: how.note.as_deref().map(block::owners_note), ..how.clone() };
        let next = |task: &Task, claim: &Claim| rules::release(task, claim, how, self.terms(), now);
        let released = self.as_owner(task, id, now, next)?;
        if let (Ok(_), Some(deadlines)) = (&released, self.deadlines()) {
            // If this fails, the claim's writes end at its deadline. The task is released all the same.
            let _ = deadlines.end(id);
        }
        Ok(released)
    }

    /// Tells the store that the owner of a held claim is alive. Whether the claim still owns the task; if not, its work must
    /// stop.
    pub fn heartbeat(&self, task: &TaskName, id: &ClaimId) -> Result<bool> {
        let asked = millis_since_boot();
        let owns = self.store().heartbeat(task, id)?;
        match (owns, self.deadlines()) {
            (true, _) => _ = self.note_extension(id, asked, &Tenure::Held),
            // If this fails, the claim's writes end at its deadline. That it is lost must be heard now.
            (false, Some(deadlines)) => _ = deadlines.end_soon(id),
            (false, None) => {}
        }
        Ok(owns)
    }

    /// Tells the store that the owners of all held claims of this machine are alive, as far as this process can tell which claims these are.
    pub fn heartbeat_all(&self) -> Result<()> {
        let asked = millis_since_boot();
        let alive = self.store().heartbeat_all()?;
        // Where one cannot be noted, the others would only wait, and the next heartbeats come late.
        let _ = alive.iter().try_for_each(|id| self.note_extension(id, asked, &Tenure::Held));
        Ok(())
    }

    /// Notes on this machine that the store, asked at this moment, has given the claim a whole lease. If that fails, because the
    /// disk is full for example, the store's answer counts all the same: the claim's writes are refused from its earlier
    /// deadline on, until a later note succeeds.
    fn note_extension(&self, id: &ClaimId, asked: u64, tenure: &Tenure) -> Result<()> {
        let Some(deadlines) = self.deadlines() else { return Ok(()) };
        deadlines.extend_soon(id, asked, self.lasts(tenure))
    }

    /// From when the lease of a claim counts that the store has confirmed. That is the moment at which the store was asked, because its
    /// answer may have taken long; or an earlier one, if the store can only prove that. In milliseconds since the machine was started.
    pub fn heard(&self, id: &ClaimId, asked: u64) -> u64 {
        self.store().proven_at(id).map_or(asked, |proven| proven.min(asked))
    }

    /// How often the store must hear that the owner of this claim is alive; `None`: never, it sees that by itself.
    pub fn heartbeat_interval(&self, claim: &Claim) -> Option<Duration> {
        self.lasts(&claim.tenure).map(|lasts| lasts / BEATS)
    }

    /// Tells the store that the owner of a claim is alive, and returns whether the claim still owns the task, like
    /// [`Vault::heartbeat`]. A lease lasts for its whole length again. The ledger does not record it, because the owner did
    /// not ask for it.
    pub fn beat(&self, task: &TaskName, claim: &Claim, now: Timestamp) -> Result<bool> {
        match claim.tenure {
            Tenure::Held => self.heartbeat(task, &claim.id),
            Tenure::Leased(_) => Ok(self.write(task, &claim.id, TextEdit::Keep, now)?.is_ok()),
        }
    }

    /// How long a claim lasts after the store has heard of it. `None`: until its lock is gone.
    fn lasts(&self, tenure: &Tenure) -> Option<Duration> {
        match tenure {
            Tenure::Leased(_) => Some(self.terms().lease),
            Tenure::Held => self.store().heartbeat_interval().map(|interval| interval * BEATS),
        }
    }

    /// Where the task is, if this claim has ended by a release: by the worker's own command, for example.
    pub fn ended(&self, task: &TaskName, id: &ClaimId, now: Timestamp) -> Result<Option<TaskAfterStep>> {
        // Its name may have been taken where it went.
        for name in [task.beside(id.as_str()), task.clone()] {
            let Some(found) = self.store().get(&name, None, now)? else { continue };
            let text = self.store().read(&found, u64::MAX)?.unwrap_or_default();
            if found.slot.agent().is_none() && block::is_released(&text, id) {
                return Ok(Some(TaskAfterStep { task: found.name, slot: found.slot, path: found.path }));
            }
        }
        Ok(None)
    }

    /// The task and the claim, if it owns the task.
    fn owned(&self, task: &TaskName, id: &ClaimId, now: Timestamp) -> Result<Owned<(Task, Claim)>> {
        let found = self.store().get(task, Some(State::InProgress), now)?;
        let claim = found.as_ref().and_then(|task| task.record.claim.clone());
        Ok(match (found, claim) {
            (Some(found), Some(claim)) if claim.id == *id => Ok((found, claim)),
            (_, other) => {
                let owner = other.map(|claim| claim.agent);
                Err(NotOwner { task: task.clone(), claim: id.clone(), owner })
            }
        })
    }

    /// One step of the owner. Starts again if the task was changed in the meantime, as long as the claim owns it.
    fn as_owner(
        &self,
        task: &TaskName,
        id: &ClaimId,
        now: Timestamp,
        next: impl Fn(&Task, &Claim) -> Result<Step>,
    ) -> Result<Owned<TaskAfterStep>> {
        for _ in 0..TRIES {
            let (found, claim) = match self.owned(task, id, now)? {
                Ok(owned) => owned,
                Err(not_owner) => return Ok(Err(not_owner)),
            };
            let (asked, step) = (millis_since_boot(), next(&found, &claim)?);
            if let Some(landed) = self.apply(&step)?.landed()? {
                let tenure = step.record.and_then(|record| record.claim).map(|claim| claim.tenure);
                // A held claim lasts by its heartbeats alone.
                if let Some(tenure @ Tenure::Leased(_)) = tenure {
                    let _ = self.note_extension(id, self.heard(id, asked), &tenure);
                }
                return Ok(Ok(landed));
            }
        }
        Err(restless(task))
    }
}
