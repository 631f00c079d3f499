//! Tools for tasks: the verbs of an agent. What people decide is not among them.

use std::thread::sleep;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tollgate::vault::block::Verdict;
use tollgate::vault::claim::ClaimId;
use tollgate::vault::retry::patiently;
use tollgate::vault::shown::{MOST_SHOWN, not_owner_json, noted_json};
use tollgate::vault::state::State;
use tollgate::vault::store::Landed;
use tollgate::vault::{Asked, Claimed, Claiming, Next, Not, Owned, Reason, Release, TaskName};

use super::Call;
use super::schema::states;
use crate::mcp::Tasks;
use crate::mcp::answer::Answer;

/// So many tasks are listed unless more are asked for: a model reads all of them.
const LISTED: usize = 100;

fn named(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

pub(super) fn name_properties() -> Value {
    json!({"task": named("The name of its file, with or without .md")})
}

pub(super) fn list_properties() -> Value {
    json!({
        "state": states(),
        "limit": {"type": "integer", "minimum": 1, "default": LISTED, "description": "At most so many"},
    })
}

pub(super) fn claim_properties() -> Value {
    json!({"task": named("The task to take. Without it: the next one, by priority, then due, then age")})
}

pub(super) fn owner_properties() -> Value {
    let mut properties = name_properties();
    properties["claim_id"] = named("As claim_task answered");
    properties
}

pub(super) fn progress_properties() -> Value {
    let mut properties = owner_properties();
    properties["text"] = named("What there is to say");
    properties
}

pub(super) fn release_properties() -> Value {
    let mut properties = owner_properties();
    properties["to"] =
        json!({"type": "string", "enum": [State::Done, State::PendingApproval, State::Rejected]});
    properties["result"] = json!({"type": "string", "enum": [Verdict::Success, Verdict::Failure]});
    properties["note"] = named("A sentence for the file and the ledger");
    properties
}

impl Call<'_> {
    fn tasks(&self) -> Result<&Tasks, Answer> {
        self.connection.server.0.tasks.get().ok_or_else(|| {
            Answer::failure(
                "this workspace has no vault, so there are no tasks\nhint: a person makes one with `tollgate init --vault`, \
                 then starts this server again",
            )
        })
    }

    /// The tasks, after those of owners who are gone have been taken back.
    fn tasks_now(&self) -> Result<&Tasks, Answer> {
        let tasks = self.tasks()?;
        patiently(|| tasks.vault.reclaim(Timestamp::now()), &sleep)?;
        Ok(tasks)
    }
}

/// A refusal: for programs as it is, for the model with what to do.
fn refused(payload: Value, hint: &str) -> Answer {
    let mut shown = payload.clone();
    shown["recovery_hint"] = hint.into();
    Answer { failed: true, content: Answer::value(shown).content, ..Answer::value(payload) }
}

#[derive(Deserialize)]
struct ListArguments {
    state: Option<State>,
    limit: Option<usize>,
}

pub(super) fn list(call: &Call<'_>, value: Value) -> Result<Answer, Answer> {
    let given: ListArguments = call.arguments(value)?;
    let tasks = call.tasks_now()?;
    let wanted = |state: &State| given.state.map_or(!state.is_final(), |wanted| wanted == *state);
    let mut rows = Vec::new();
    for state in State::ALL.into_iter().filter(wanted) {
        rows.extend(tasks.vault.rows(state, Timestamp::now())?.0);
    }
    let total = rows.len();
    rows.truncate(given.limit.unwrap_or(LISTED));
    let shown = rows.iter().map(|row| {
        let mut json = row.json();
        if !row.note.claim.as_ref().is_some_and(|claim| tasks.is_own(claim, call.connection)) {
            json.shift_remove("claim_id");
        }
        Value::Object(json)
    });
    Ok(Answer::value(json!({"tasks": shown.collect::<Vec<_>>(), "total": total})))
}

#[derive(Deserialize)]
struct GetArguments {
    task: String,
}

pub(super) fn get(call: &Call<'_>, value: Value) -> Result<Answer, Answer> {
    let given: GetArguments = call.arguments(value)?;
    let tasks = call.tasks()?;
    tasks.vault.heal()?;
    let stored = tasks.vault.get(&given.task.parse()?, Timestamp::now())?;
    let bytes = tasks.vault.read(&stored, MOST_SHOWN)?;
    let mut json = tasks.vault.details(&stored, Timestamp::now())?;
    if let Some(claim) = &stored.note.claim
        && !tasks.is_own(claim, call.connection)
        && let Some(json) = json.as_object_mut()
    {
        json.shift_remove("claim_id");
    }
    match String::from_utf8(bytes) {
        Ok(text) => json["content"] = text.into(),
        Err(error) => {
            json["content"] = Value::Null;
            json["content_base64"] = STANDARD.encode(error.as_bytes()).into();
        }
    }
    Ok(Answer::value(json))
}

#[derive(Deserialize)]
struct ClaimArguments {
    task: Option<String>,
}

pub(super) fn claim(call: &Call<'_>, value: Value) -> Result<Answer, Answer> {
    let given: ClaimArguments = call.arguments(value)?;
    let task = given.task.map(|task| task.parse::<TaskName>()).transpose()?;
    let tasks = call.tasks_now()?;
    let agent = call.connection.server.0.agent.clone();
    let asked = Asked { agent, wish: call.connection.tenure(), renamed_in: false };
    let claiming = match &task {
        Some(task) => tasks.vault.claim_when_complete(task, &asked, tasks.settle, &Timestamp::now, &sleep)?,
        None => next(tasks, &asked)?,
    };
    match claiming {
        Claiming::Claimed(claimed) => Ok(taken(call, *claimed)),
        Claiming::Not(not) => Err(refused(not.json(&asked.agent, task.as_ref()), hint(not.reason))),
    }
}

/// The next task. Like a named one, one that was written a moment ago is waited for.
fn next(tasks: &Tasks, asked: &Asked) -> Result<Claiming, Answer> {
    let look = || patiently(|| tasks.vault.claim_next(asked, Timestamp::now()), &sleep);
    let (mut found, _) = look()?;
    if let Next::Nothing(Some(wait)) = found {
        sleep(wait.min(tasks.settle));
        (found, _) = look()?;
    }
    Ok(match found {
        Next::Claimed(claimed) => Claiming::Claimed(claimed),
        Next::Nothing(_) => Claiming::Not(Not {
            reason: Reason::None,
            sentence: "there is nothing to claim".to_owned(),
            wait: None,
        }),
    })
}

fn taken(call: &Call<'_>, claimed: Claimed) -> Answer {
    let answer = Answer::value(claimed.json());
    if let Some(hold) = claimed.hold {
        call.connection.hold(claimed.claim.id, hold);
    }
    answer
}

fn hint(reason: Reason) -> &'static str {
    match reason {
        Reason::Lost => "Somebody else works on it. Call claim_task without `task` for the next one.",
        Reason::NotEligible => "It is not for you. Call claim_task without `task` for one that is.",
        Reason::Blocked => {
            "Something else must be done first. Call claim_task without `task` for the next one."
        }
        Reason::Incomplete => "It is not complete. Ask its author, or take another.",
        Reason::None => "There is no such task for you now. Stop, or ask again later.",
    }
}

#[derive(Deserialize)]
struct OwnerArguments {
    task: String,
    claim_id: String,
}

/// A task, and the claim that its owner shows.
struct Own {
    task: TaskName,
    id: ClaimId,
}

impl Own {
    fn new(task: &str, claim_id: &str) -> Result<Self, Answer> {
        Ok(Self { task: task.parse()?, id: claim_id.parse()? })
    }

    /// One verb of the owner's.
    fn act<T>(
        &self,
        call: &Call<'_>,
        verb: impl Fn(&Tasks, Timestamp) -> tollgate::error::Result<Owned<T>>,
    ) -> Result<T, Answer> {
        let tasks = call.tasks()?;
        let stored = tasks.vault.get(&self.task, Timestamp::now());
        let claim =
            stored.ok().and_then(|stored| stored.placed.note.claim).filter(|claim| claim.id == self.id);
        if let Some(claim) = claim
            && !tasks.is_own(&claim, call.connection)
        {
            let why =
                format!("`{}` is in the hands of `{}`, who has not given it to you", self.task, claim.agent);
            return Err(self.refused(&why));
        }
        match patiently(|| verb(tasks, Timestamp::now()), &sleep)? {
            Owned::Yes(done) => Ok(done),
            Owned::No(why) => {
                call.connection.let_go(&self.id);
                Err(self.refused(&why))
            }
        }
    }

    fn refused(&self, why: &str) -> Answer {
        let hint = "Stop working on this task: it is not yours. Call claim_task before you go on.";
        refused(not_owner_json(&self.task, why), hint)
    }
}

pub(super) fn renew(call: &Call<'_>, value: Value) -> Result<Answer, Answer> {
    let given: OwnerArguments = call.arguments(value)?;
    let own = Own::new(&given.task, &given.claim_id)?;
    let claim = own.act(call, |tasks, now| tasks.vault.renew(&own.task, &own.id, now))?;
    Ok(Answer::value(claim.renewed_json(&own.task)))
}

#[derive(Deserialize)]
struct ProgressArguments {
    task: String,
    claim_id: String,
    text: String,
}

pub(super) fn progress(call: &Call<'_>, value: Value) -> Result<Answer, Answer> {
    let given: ProgressArguments = call.arguments(value)?;
    let own = Own::new(&given.task, &given.claim_id)?;
    own.act(call, |tasks, now| tasks.vault.progress(&own.task, &own.id, &given.text, now))?;
    Ok(Answer::value(noted_json(&own.task, &own.id)))
}

#[derive(Deserialize)]
struct ReleaseArguments {
    task: String,
    claim_id: String,
    to: Option<State>,
    result: Verdict,
    note: Option<String>,
}

pub(super) fn release(call: &Call<'_>, value: Value) -> Result<Answer, Answer> {
    let given: ReleaseArguments = call.arguments(value)?;
    let own = Own::new(&given.task, &given.claim_id)?;
    let how = Release { verdict: given.result, to: given.to, note: given.note };
    let landed: Landed = own.act(call, |tasks, now| tasks.vault.release(&own.task, &own.id, &how, now))?;
    call.connection.let_go(&own.id);
    Ok(Answer::value(landed.json()))
}
