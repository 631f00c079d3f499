//! Tools for tasks: what an agent may do. Approving and rejecting are for people, and no tool does them.

use std::thread::sleep;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tollgate::vault::block::Verdict;
use tollgate::vault::claim::ClaimId;
use tollgate::vault::retry::with_retry;
use tollgate::vault::shown::{MOST_SHOWN, noted_json};
use tollgate::vault::state::State;
use tollgate::vault::store::TaskAfterStep;
use tollgate::vault::{
    Claim, ClaimQueue, ClaimRequest, Claimed, DenialReason, NotOwner, Owned, Release, TaskName,
};

use super::call::ToolCall;
use super::schema::Input;
use super::task_output::{CLAIM, LANDED, NOTED, RENEWED, TASK, TASKS, states};
use super::tool::{Hints, Tool};
use crate::mcp::answer::ToolAnswer;
use crate::mcp::tasks::ServedVault;

/// The default number of listed tasks: a model reads all of them.
const LISTED: usize = 100;

fn named(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn name_properties() -> Value {
    json!({"task": named("The name of the task file, with or without .md")})
}

fn list_properties() -> Value {
    json!({
        "state": states(),
        "limit": {"type": "integer", "minimum": 1, "default": LISTED, "description": "Maximum number of tasks"},
    })
}

fn claim_properties() -> Value {
    json!({"task": named("The task to claim. Default: the next one by priority, then due date, then age")})
}

fn owner_properties() -> Value {
    let mut properties = name_properties();
    properties["claim_id"] = named("The claim_id from claim_task");
    properties
}

fn progress_properties() -> Value {
    let mut properties = owner_properties();
    properties["text"] = named("The progress note");
    properties
}

fn release_properties() -> Value {
    let mut properties = owner_properties();
    properties["to"] =
        json!({"type": "string", "enum": [State::Done, State::PendingApproval, State::Rejected]});
    properties["result"] = json!({"type": "string", "enum": [Verdict::Success, Verdict::Failure]});
    properties["note"] = named("One sentence for the task file and the ledger");
    properties
}

impl ToolCall<'_> {
    fn tasks(&self) -> Result<&ServedVault, ToolAnswer> {
        self.tasks.as_deref().ok_or_else(|| {
            ToolAnswer::failure(
                "this workspace has no vault, so it has no tasks\nhint: ask a person to run `tollgate init --vault` and to restart \
                 this server",
            )
        })
    }

    /// The tasks, after reclaiming those of dead owners.
    fn tasks_now(&self) -> Result<&ServedVault, ToolAnswer> {
        let tasks = self.tasks()?;
        with_retry(|| tasks.vault.reclaim(Timestamp::now()), &sleep)?;
        Ok(tasks)
    }
}

/// A refusal: the payload for programs, and the same with a hint for the model.
fn refused(payload: Value, hint: &str) -> ToolAnswer {
    let mut shown = payload.clone();
    shown["recovery_hint"] = hint.into();
    ToolAnswer { failed: true, content: ToolAnswer::value(shown).content, ..ToolAnswer::value(payload) }
}

pub(super) static LIST_TASKS: Tool = Tool {
    name: "list_tasks",
    title: "List Tasks",
    description: "List the tasks that are not finished, in the order in which they are claimed. With \
        `state`, list the tasks in that state. Only your own tasks have a `claim_id`.",
    hints: Hints::Reads,
    input: Input(list_properties, &[]),
    output: TASKS,
    run: list,
};

#[derive(Deserialize)]
struct ListArguments {
    state: Option<State>,
    limit: Option<usize>,
}

fn list(call: &ToolCall<'_>, value: Value) -> Result<ToolAnswer, ToolAnswer> {
    let given: ListArguments = call.arguments(value)?;
    let tasks = call.tasks_now()?;
    let wanted = |state: &State| given.state.map_or(!state.is_final(), |wanted| wanted == *state);
    let (most, mut rows, mut total) = (given.limit.unwrap_or(LISTED), Vec::new(), 0);
    for state in State::ALL.into_iter().filter(wanted) {
        let found = tasks.vault.first_rows(state, most - rows.len(), Timestamp::now())?;
        total += found.total;
        rows.extend(found.rows);
    }
    let shown = rows.iter().map(|row| {
        let mut json = row.json();
        hide_claim(call, row.record.claim.as_ref(), &mut json);
        json
    });
    Ok(ToolAnswer::value(json!({"tasks": shown.collect::<Vec<_>>(), "total": total})))
}

/// The id of a claim is for its owner only.
fn hide_claim(call: &ToolCall<'_>, claim: Option<&Claim>, json: &mut Value) {
    if !claim.is_some_and(|claim| call.connection.owns(claim))
        && let Some(json) = json.as_object_mut()
    {
        json.shift_remove("claim_id");
    }
}

pub(super) static GET_TASK: Tool = Tool {
    name: "get_task",
    title: "Get Task",
    description: "Get one task: its state, its owner and its text.",
    hints: Hints::Reads,
    input: Input(name_properties, &["task"]),
    output: TASK,
    run: get,
};

#[derive(Deserialize)]
struct GetArguments {
    task: String,
}

fn get(call: &ToolCall<'_>, value: Value) -> Result<ToolAnswer, ToolAnswer> {
    let given: GetArguments = call.arguments(value)?;
    let tasks = call.tasks()?;
    tasks.vault.store().heal()?;
    let (task, bytes) = tasks.vault.get_with_text(&given.task.parse()?, MOST_SHOWN, Timestamp::now())?;
    let mut json = tasks.vault.details(&task, Timestamp::now())?;
    hide_claim(call, task.record.claim.as_ref(), &mut json);
    match String::from_utf8(bytes) {
        Ok(text) => json["content"] = text.into(),
        Err(error) => {
            json["content"] = Value::Null;
            json["content_base64"] = STANDARD.encode(error.as_bytes()).into();
        }
    }
    Ok(ToolAnswer::value(json))
}

pub(super) static CLAIM_TASK: Tool = Tool {
    name: "claim_task",
    title: "Claim Task",
    description: "Claim a task, so that nobody else works on it: the given task, or without `task` the next \
        one that you may do. Returns the `claim_id` that the other task tools need, the `path` of the task file, \
        and the `mode`. Mode `execute`: do what the task asks. Mode `draft`: do not do it; write what you would \
        do into the file under `## Draft`, then release the task, and a person decides. Do not work on a task \
        that you have not claimed.",
    hints: Hints::STEPS,
    input: Input(claim_properties, &[]),
    output: CLAIM,
    run: claim,
};

#[derive(Deserialize)]
struct ClaimArguments {
    task: Option<String>,
}

fn claim(call: &ToolCall<'_>, value: Value) -> Result<ToolAnswer, ToolAnswer> {
    let given: ClaimArguments = call.arguments(value)?;
    let task = given.task.map(|task| task.parse::<TaskName>()).transpose()?;
    let tasks = call.tasks_now()?;
    let agent = call.connection.server().agent().clone();
    let request = ClaimRequest { agent, kind: call.connection.tenure(), renamed_in: false };
    let Some(task) = &task else {
        return match next(tasks, &request)? {
            (Some(claimed), _) => Ok(taken(call, claimed)),
            (None, queue) => {
                let (agent, reason) = (&request.agent, DenialReason::None);
                let message = "there is no task to claim";
                let mut payload = json!({
                    "claimed": false, "task": null, "agent": agent, "reason": reason, "message": message,
                });
                if let Some(until) = queue.pause_ends {
                    payload["until"] = json!(until);
                }
                Err(refused(payload, hint(reason)))
            }
        };
    };
    match tasks.vault.claim_when_complete(task, &request, tasks.settle, &Timestamp::now, &sleep)? {
        Ok(claimed) => Ok(taken(call, claimed)),
        Err(denied) => Err(refused(denied.json(task, &request.agent), hint(denied.reason()))),
    }
}

/// Claims the next task. If a file was written a moment ago, waits until it counts as complete, as for a named task.
fn next(tasks: &ServedVault, request: &ClaimRequest) -> Result<(Option<Claimed>, ClaimQueue), ToolAnswer> {
    let look = || with_retry(|| tasks.vault.claim_next(request, Timestamp::now()), &sleep);
    match look()? {
        (None, ClaimQueue { soonest: Some(wait), .. }) => {
            sleep(wait.min(tasks.settle));
            Ok(look()?)
        }
        found => Ok(found),
    }
}

fn taken(call: &ToolCall<'_>, claimed: Claimed) -> ToolAnswer {
    let answer = ToolAnswer::value(claimed.json());
    call.connection.keep(claimed.claim.id, claimed.task, claimed.lock);
    answer
}

fn hint(reason: DenialReason) -> &'static str {
    match reason {
        DenialReason::Lost => {
            "Another agent is working on it. Call claim_task without `task` to get the next one."
        }
        DenialReason::NotEligible => {
            "You may not do this task now. Call claim_task without `task` to get one that you may do."
        }
        DenialReason::Blocked => {
            "Another task must be done first. Call claim_task without `task` to get the next one."
        }
        DenialReason::Incomplete => "The task file is not complete. Ask its author, or claim another task.",
        DenialReason::None => "There is no task for you now. Stop, or try again later.",
    }
}

#[derive(Deserialize)]
struct OwnerArguments {
    task: String,
    claim_id: String,
}

/// A task, and the claim id that the caller presents.
struct PresentedClaim {
    task: TaskName,
    id: ClaimId,
}

impl PresentedClaim {
    fn new(task: &str, claim_id: &str) -> Result<Self, ToolAnswer> {
        Ok(Self { task: task.parse()?, id: claim_id.parse()? })
    }

    /// Runs one step that only the owner may take.
    fn act<T>(
        &self,
        call: &ToolCall<'_>,
        verb: impl Fn(&ServedVault, Timestamp) -> tollgate::error::Result<Owned<T>>,
    ) -> Result<T, ToolAnswer> {
        let tasks = call.tasks()?;
        let stored = tasks.vault.get(&self.task, Timestamp::now());
        let claim = stored.ok().and_then(|task| task.record.claim).filter(|claim| claim.id == self.id);
        if let Some(claim) = claim
            && !call.connection.owns(&claim)
        {
            let message = format!(
                "`{}` is claimed by `{}`, and this connection does not hold that claim",
                self.task, claim.agent
            );
            let (task, claim, owner) = (self.task.clone(), claim.id, Some(claim.agent));
            let mut payload = NotOwner { task, claim, owner }.json();
            payload["message"] = message.into();
            return Err(refused(payload, NOT_OWNER));
        }
        match with_retry(|| verb(tasks, Timestamp::now()), &sleep)? {
            Ok(done) => Ok(done),
            Err(not_owner) => {
                call.connection.let_go(&self.id);
                Err(refused(not_owner.json(), NOT_OWNER))
            }
        }
    }
}

const NOT_OWNER: &str =
    "Stop working on this task: you are not its owner. Call claim_task before you continue.";

pub(super) static RENEW_TASK: Tool = Tool {
    name: "renew_task",
    title: "Renew Task",
    description: "Extend the lease of a task that you have claimed, to show that you are still working on \
        it. If this is refused, the task is no longer yours: stop working on it.",
    hints: Hints::ADDS,
    input: Input(owner_properties, &["task", "claim_id"]),
    output: RENEWED,
    run: renew,
};

fn renew(call: &ToolCall<'_>, value: Value) -> Result<ToolAnswer, ToolAnswer> {
    let given: OwnerArguments = call.arguments(value)?;
    let own = PresentedClaim::new(&given.task, &given.claim_id)?;
    let claim = own.act(call, |tasks, now| tasks.vault.renew(&own.task, &own.id, now))?;
    Ok(ToolAnswer::value(claim.renewed_json(&own.task)))
}

pub(super) static REPORT_PROGRESS: Tool = Tool {
    name: "report_progress",
    title: "Report Progress",
    description: "Write a progress note into a task that you have claimed. This also extends its lease.",
    hints: Hints::STEPS,
    input: Input(progress_properties, &["task", "claim_id", "text"]),
    output: NOTED,
    run: progress,
};

#[derive(Deserialize)]
struct ProgressArguments {
    task: String,
    claim_id: String,
    text: String,
}

fn progress(call: &ToolCall<'_>, value: Value) -> Result<ToolAnswer, ToolAnswer> {
    let given: ProgressArguments = call.arguments(value)?;
    let own = PresentedClaim::new(&given.task, &given.claim_id)?;
    own.act(call, |tasks, now| tasks.vault.progress(&own.task, &own.id, &given.text, now))?;
    Ok(ToolAnswer::value(noted_json(&own.task, &own.id)))
}

pub(super) static RELEASE_TASK: Tool = Tool {
    name: "release_task",
    title: "Release Task",
    description: "Release a task that you have claimed. `result` is success or failure. Without `to`, \
        success moves the task to Done (a draft to Pending_Approval), and failure allows another attempt. `to` \
        may be Done, Pending_Approval or Rejected. `note` describes the outcome in one sentence.",
    hints: Hints::STEPS,
    input: Input(release_properties, &["task", "claim_id", "result"]),
    output: LANDED,
    run: release,
};

#[derive(Deserialize)]
struct ReleaseArguments {
    task: String,
    claim_id: String,
    to: Option<State>,
    result: Verdict,
    note: Option<String>,
}

fn release(call: &ToolCall<'_>, value: Value) -> Result<ToolAnswer, ToolAnswer> {
    let given: ReleaseArguments = call.arguments(value)?;
    let own = PresentedClaim::new(&given.task, &given.claim_id)?;
    let how = Release { verdict: given.result, to: given.to, note: given.note, output: None, counts: true };
    let landed: TaskAfterStep =
        own.act(call, |tasks, now| tasks.vault.release(&own.task, &own.id, &how, now))?;
    call.connection.let_go(&own.id);
    Ok(ToolAnswer::value(landed.json()))
}
