//! A claim on a task.
//!
//! Invariants: a held claim lasts as long as its handle, and no longer than the process. Once the claim has ended, by a
//! release or because the agent has heard that it was lost, the handle does nothing more and fences no turn. A claim whose
//! handle is dropped is lost, and its turns write nothing more.

use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, sleep};

use jiff::Timestamp;
use serde_json::{Value, json};
use tollgate::State;
use tollgate::error::{At, Fault, Result};
use tollgate::fence::ClaimFence;
use tollgate::name::{Agent, ClaimId};
use tollgate::tasks::Tasks;
use tollgate::vault::retry::with_retry;
use tollgate::vault::{Claim, ClaimKind, ClaimLock, Claimed, Owned, Release, TaskName, Vault, Verdict};
use tollgate_base::boot_clock::{comes, millis, millis_since_boot};

use crate::failure::{Answered, CallFailure};
use crate::open_claim::OpenClaim;
use crate::own_process::OwnProcess;
use crate::turn_handle::TurnHandle;
use crate::workspace_handle::WorkspaceHandle;

/// A claim. Clones share it.
#[derive(Clone)]
pub struct ClaimHandle(Arc<HandledClaim>);

struct HandledClaim {
    workspace: WorkspaceHandle,
    process: OwnProcess,
    vault: Vault,
    open: OpenClaim,
    task: TaskName,
    id: ClaimId,
    agent: Agent,
    shown: Value,
    /// What keeps the claim alive. `None` once the claim has ended.
    kept: Mutex<Option<ClaimKeeper>>,
}

/// What keeps a claim alive.
struct ClaimKeeper {
    _lock: Option<ClaimLock>,
    /// The heartbeat stops when this is dropped.
    _heartbeat: Option<Sender<()>>,
}

/// How the work on a task ended.
#[derive(Debug, Clone)]
pub enum ClaimEnd {
    /// The work is done. The state is `Done`, `Pending_Approval` or `Rejected`, or follows from the claim.
    Success(Option<String>),
    /// The attempt failed. Without a state, the task is tried again.
    Failure(Option<String>),
    /// Nobody has worked on the task, so this is not an attempt.
    GiveBack,
}

impl ClaimHandle {
    /// The handle of a claim that was asked for in this way.
    pub(crate) fn new(
        workspace: WorkspaceHandle,
        tasks: &Tasks,
        kind: ClaimKind,
        claimed: Claimed,
    ) -> Result<Self> {
        let (vault, fence) = (tasks.vault.clone(), ClaimFence::of(&tasks.home, &tasks.vault));
        let shown = claimed.json();
        let Claimed { task, claim, lock, .. } = claimed;
        let heartbeat = match kind {
            ClaimKind::Held => heartbeat(&vault, &task, &claim)?,
            // A lease is the owner's own to renew.
            ClaimKind::Leased => None,
        };
        let kept = Mutex::new(Some(ClaimKeeper { _lock: lock, _heartbeat: heartbeat }));
        let open = OpenClaim::new(fence, task.clone(), claim.id.clone());
        let (id, agent) = (claim.id, claim.agent);
        let process = OwnProcess::now();
        Ok(Self(Arc::new(HandledClaim { workspace, process, vault, open, task, id, agent, shown, kept })))
    }

    /// Begins a turn of the owner that works under this claim.
    pub fn turn(&self) -> Answered<TurnHandle> {
        let turn = self.0.workspace.turn(Some(self.0.agent.as_str()))?;
        self.fence(&turn);
        Ok(turn)
    }

    /// From now on, this turn works under the claim: once the claim is lost, the turn's changes are refused.
    pub fn fence(&self, turn: &TurnHandle) {
        turn.work_under(self.0.open.clone());
    }

    /// What programs see of the claim: `task`, `agent`, `claim_id`, `path`, `mode`, `epoch`, `lease_until`, `action`.
    pub fn shown(&self) -> &Value {
        &self.0.shown
    }

    /// The text of the task's file.
    pub fn text(&self) -> Answered<String> {
        self.0.process.check()?;
        let (_, bytes) = self.0.vault.get_with_text(&self.0.task, u64::MAX, Timestamp::now())?;
        String::from_utf8(bytes).map_err(|_| CallFailure::invalid(format!("`{}` is not UTF-8", self.0.task)))
    }

    /// Whether the claim still owns the task.
    pub fn verify(&self) -> Answered<bool> {
        self.0.process.check()?;
        let valid = self.0.open.is_open()
            && with_retry(|| self.0.vault.verify(&self.0.task, &self.0.id, Timestamp::now()), &sleep)?;
        if !valid {
            self.0.end();
        }
        Ok(valid)
    }

    /// Extends a lease.
    pub fn renew(&self) -> Answered<Value> {
        let claim = self.act(Vault::renew)?;
        Ok(claim.renewed_json(&self.0.task))
    }

    /// Adds a progress note to the task's text.
    pub fn progress(&self, text: &str) -> Answered<()> {
        self.act(|vault, task, id, now| vault.progress(task, id, text, now))
    }

    /// Adds a draft to the task's text, for a person to approve.
    pub fn draft(&self, text: &str) -> Answered<()> {
        self.act(|vault, task, id, now| vault.draft(task, id, text, now))
    }

    /// Releases the task.
    pub fn release(&self, end: &ClaimEnd, note: Option<&str>) -> Answered<Value> {
        let how = how(end, note)?;
        let landed = self.act(|vault, task, id, now| vault.release(task, id, &how, now))?;
        self.0.end();
        Ok(landed.json())
    }

    /// Whether the claim has ended.
    pub fn is_ended(&self) -> bool {
        !self.0.open.is_open()
    }

    fn act<T>(
        &self,
        verb: impl Fn(&Vault, &TaskName, &ClaimId, Timestamp) -> Result<Owned<T>>,
    ) -> Answered<T> {
        self.0.process.check()?;
        let HandledClaim { vault, task, id, .. } = &*self.0;
        if !self.0.open.is_open() {
            return Err(CallFailure::Denied(json!({
                "task": task, "refused": true, "reason": "not_owner",
                "message": format!("the claim on `{task}` has ended"),
            })));
        }
        match with_retry(|| verb(vault, task, id, Timestamp::now()), &sleep)? {
            Ok(done) => Ok(done),
            Err(not_owner) => {
                // From now on the agent knows, so its other work goes on.
                self.0.end();
                Err(not_owner.into())
            }
        }
    }
}

impl HandledClaim {
    fn end(&self) {
        self.open.close();
        drop(self.kept.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

fn how(end: &ClaimEnd, note: Option<&str>) -> Answered<Release> {
    let note = note.map(str::to_owned);
    let (verdict, to, counts) = match end {
        ClaimEnd::Success(to) => (Verdict::Success, to, true),
        ClaimEnd::Failure(to) => (Verdict::Failure, to, true),
        ClaimEnd::GiveBack => (Verdict::Failure, &None, false),
    };
    let to = to.as_deref().map(read_state).transpose()?;
    if verdict == Verdict::Failure && to == Some(State::Done) {
        return Err(CallFailure::invalid("failed work is not done: leave the state out, or name another"));
    }
    Ok(Release { verdict, to, note, output: None, counts })
}

pub(crate) fn read_state(text: &str) -> Result<State> {
    let found = State::ALL.into_iter().find(|state| state.as_str() == text);
    found.ok_or_else(|| Fault::invalid(format!("there is no state `{text}`")))
}

/// A thread that tells the store that the owner is alive, until the answer is dropped. `None` if the store needs none.
fn heartbeat(vault: &Vault, task: &TaskName, claim: &Claim) -> Result<Option<Sender<()>>> {
    let Some(interval) = vault.heartbeat_interval(claim) else { return Ok(None) };
    let (keep, over) = mpsc::channel();
    let (owner, name, owned) = (vault.clone(), task.clone(), claim.clone());
    let beat = move || {
        let mut since = millis_since_boot();
        while comes(|| since.saturating_add(millis(interval)), millis_since_boot, &over) {
            since = millis_since_boot();
            // If the store cannot be reached, the next beat may reach it; the deadline of the claim ends its writes.
            if owner.beat(&name, &owned, Timestamp::now()).is_ok_and(|owns| !owns) {
                return;
            }
        }
    };
    if let Err(error) = thread::Builder::new().spawn(beat) {
        // Nobody has worked on the task. If it cannot be returned now, it comes back when the claim expires.
        let returned = Release::give_back("the heartbeat of the claim could not be started");
        let _ = vault.release(task, &claim.id, &returned, Timestamp::now());
        return Err(error).at("start", "the thread that sends heartbeats");
    }
    Ok(Some(keep))
}
