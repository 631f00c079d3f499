//! The vault of a workspace: listing, adding and claiming tasks.
//!
//! What only people may do, such as approving a task, is not here.

use std::thread::sleep;

use jiff::Timestamp;
use serde_json::{Value, json};
use tollgate::State;
use tollgate::tasks::{self, Tasks, VaultHome};
use tollgate::vault::retry::with_retry;
use tollgate::vault::shown::{MOST_SHOWN, Row};
use tollgate::vault::{ClaimKind, ClaimQueue, ClaimRequest, Claimed, DenialReason, TaskName};

use crate::claim_handle::{ClaimHandle, read_state};
use crate::environment;
use crate::failure::{Answered, CallFailure};
use crate::own_process::OwnProcess;
use crate::workspace_handle::WorkspaceHandle;

/// What happens if a workspace has no vault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Its folders are created.
    Create,
    /// That is a fault.
    Fails,
}

/// An open vault. Clones share it.
#[derive(Clone)]
pub struct VaultHandle {
    workspace: WorkspaceHandle,
    process: OwnProcess,
    tasks: Tasks,
}

impl VaultHandle {
    /// Opens the vault of a workspace, and finishes or rolls back the steps of dead processes.
    pub fn open(handle: &WorkspaceHandle, missing: Missing) -> Answered<Self> {
        let workspace = handle.workspace(None)?;
        let options = environment::task_options(&VaultHome::of(workspace.path(), workspace.settings())?)?;
        let tasks = match missing {
            Missing::Create => Some(tasks::create(&workspace, options)?),
            Missing::Fails => tasks::open(&workspace, options)?,
        };
        let Some(tasks) = tasks else {
            let path = workspace.path().display();
            return Err(CallFailure::invalid(format!(
                "`{path}` has no vault: run `tollgate init --vault` there"
            )));
        };
        tasks.vault.store().heal()?;
        Ok(Self { workspace: handle.clone(), process: OwnProcess::now(), tasks })
    }

    /// Adds a task with this text. Its file appears complete.
    pub fn add(&self, task: &str, text: &str) -> Answered<Value> {
        self.process.check()?;
        let landed = self.tasks.vault.add(&task.parse()?, text.as_bytes(), Timestamp::now())?;
        Ok(landed.json())
    }

    /// The tasks in one state, or all that are not final, as in `tollgate task list`.
    pub fn list(&self, state: Option<&str>) -> Answered<Value> {
        let wanted = state.map(read_state).transpose()?;
        self.look()?;
        let mut rows = Vec::new();
        for state in
            State::ALL.into_iter().filter(|state| wanted.map_or(!state.is_final(), |one| one == *state))
        {
            rows.extend(self.tasks.vault.rows(state, Timestamp::now())?.0.iter().map(Row::json));
        }
        Ok(rows.into())
    }

    /// One task with its text, as in `tollgate task show`.
    pub fn get(&self, task: &str) -> Answered<Value> {
        self.look()?;
        let (task, bytes) = self.tasks.vault.get_with_text(&task.parse()?, MOST_SHOWN, Timestamp::now())?;
        let mut json = self.tasks.vault.details(&task, Timestamp::now())?;
        json["content"] = String::from_utf8_lossy(&bytes).into();
        Ok(json)
    }

    /// Claims this task for this agent, or for the one that the environment names. Waits for a file that is being written.
    pub fn claim(&self, task: &str, agent: Option<&str>, kind: ClaimKind) -> Answered<ClaimHandle> {
        let task: TaskName = task.parse()?;
        let request = self.request(agent, kind)?;
        let claimed = self.tasks.vault.claim_when_complete(
            &task,
            &request,
            self.tasks.settle,
            &Timestamp::now,
            &sleep,
        )?;
        match claimed {
            Ok(claimed) => self.handle(kind, claimed),
            Err(denied) => Err(CallFailure::Denied(denied.json(&task, &request.agent))),
        }
    }

    /// Claims the next task: by priority, then due date, then age. Waits for a file that was written a moment ago.
    pub fn claim_next(&self, agent: Option<&str>, kind: ClaimKind) -> Answered<ClaimHandle> {
        let request = self.request(agent, kind)?;
        let look = || with_retry(|| self.tasks.vault.claim_next(&request, Timestamp::now()), &sleep);
        let found = match look()? {
            (None, ClaimQueue { soonest: Some(wait), .. }) => {
                sleep(wait.min(self.tasks.settle));
                look()?
            }
            found => found,
        };
        match found {
            (Some(claimed), _) => self.handle(kind, claimed),
            (None, queue) => {
                let mut payload = json!({
                    "claimed": false, "task": null, "agent": request.agent, "reason": DenialReason::None,
                    "message": "there is no task to claim",
                });
                if let Some(until) = queue.pause_ends {
                    payload["until"] = json!(until);
                }
                Err(CallFailure::Denied(payload))
            }
        }
    }

    /// What a claim needs: the tasks as they are now, without those of dead owners.
    fn request(&self, agent: Option<&str>, kind: ClaimKind) -> Answered<ClaimRequest> {
        self.process.check()?;
        let agent = environment::agent(agent)?;
        self.tasks.vault.store().sync()?;
        with_retry(|| self.tasks.vault.reclaim(Timestamp::now()), &sleep)?;
        Ok(ClaimRequest { agent, kind, renamed_in: false })
    }

    fn handle(&self, kind: ClaimKind, claimed: Claimed) -> Answered<ClaimHandle> {
        Ok(ClaimHandle::new(self.workspace.clone(), &self.tasks, kind, claimed)?)
    }

    /// Synchronises with the remote, if there is one and it can be reached: a look shows the last known state otherwise.
    fn look(&self) -> Answered<()> {
        self.process.check()?;
        self.tasks.vault.store().heal()?;
        let _ = self.tasks.vault.store().sync();
        Ok(())
    }
}
