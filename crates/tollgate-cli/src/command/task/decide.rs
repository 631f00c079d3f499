//! The decisions of people, `approve`, `reject`, `retry` and `return`; and `reclaim`, which needs no decision because the owner is dead.

use std::thread::sleep;

use clap::Args;
use serde_json::{Value, json};
use tollgate::digest::Digest;
use tollgate::error::Fault;
use tollgate::name::Agent;
use tollgate::vault::retry::with_retry;
use tollgate::vault::shown::MOST_SHOWN;
use tollgate::vault::state::State;
use tollgate::vault::store::Task;
use tollgate::vault::{Allowed, Denial, ReclaimedTask, TaskAfterStep, TaskName};

use super::prose::prose;
use crate::answer::{Answer, Reply};
use crate::error::{CliError, NoPerson};
use crate::invocation::Invocation;
use crate::person::Person;
use crate::tasks::LoggedVault;
use crate::words;

/// How often a task that changes while it is read is read again.
const READ_TRIES: usize = 10;

/// Approve a task in `Pending_Approval`; an agent that is allowed may then execute it once
///
/// Only people approve, and only what they have seen: the command shows the whole text of the task, with marks for invisible
/// characters, and asks. It needs a terminal, and is refused in a pipe, with --agent, and inside an agent. The approval holds
/// for the bytes that were shown. If they change before the task is executed, a person must approve it again.
#[derive(Debug, Args)]
#[command(after_help = "Example\n  tollgate task approve pay-the-rent --by ada")]
pub(crate) struct TaskApproveArgs {
    /// Task name, with or without `.md`
    task: TaskName,
    /// Name of the person who decides [default: your user name]
    #[arg(long, value_name = "WHO")]
    by: Option<String>,
    /// SHA-256 that the file must have, from `task show --json`
    #[arg(long, value_name = "HASH")]
    expect: Option<Digest>,
}

/// Reject a task that nobody is working on
///
/// Shows the task and asks. Like `approve`, it needs a terminal.
#[derive(Debug, Args)]
#[command(after_help = "Example\n  tollgate task reject pay-the-rent --reason 'it was paid in March'")]
pub(crate) struct TaskRejectArgs {
    /// Task name, with or without `.md`
    task: TaskName,
    /// Name of the person who decides [default: your user name]
    #[arg(long, value_name = "WHO")]
    by: Option<String>,
    /// The reason, for the author of the task
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, value_parser = prose)]
    reason: String,
}

/// Retry a task that was rejected, that is paused after a failed attempt, or whose draft should be different
///
/// The task goes back to `Needs_Action`, its attempts are counted from zero, and it can be claimed at once. A draft that waits
/// for approval goes back to an agent with `--reason`, which says what should be different. Shows the task and asks. Like
/// `approve`, it needs a terminal: an agent cannot undo a rejection.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples\n  tollgate task retry pay-the-rent\n  tollgate task retry pay-the-rent --reason 'pay half of it now'"
)]
pub(crate) struct TaskRetryArgs {
    /// Task name, with or without `.md`
    task: TaskName,
    /// Name of the person who decides [default: your user name]
    #[arg(long, value_name = "WHO")]
    by: Option<String>,
    /// What should be different this time, for the agent; a draft needs it
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, value_parser = prose)]
    reason: Option<String>,
}

/// Return a task that an agent has claimed
///
/// The claim ends at once, the attempt does not count, and other agents may claim the task. The agent cannot finish it any
/// more: stop it if it still works. A sensitive task that may have been executed goes to `Pending_Approval`. Shows the task
/// and asks. Like `approve`, it needs a terminal. An agent gives up its own task with `task release --result failure`, which
/// counts as a failed attempt.
#[derive(Debug, Args)]
#[command(after_help = "Example\n  tollgate task return pay-the-rent")]
pub(crate) struct TaskReturnArgs {
    /// Task name, with or without `.md`
    task: TaskName,
    /// Name of the person who decides [default: your user name]
    #[arg(long, value_name = "WHO")]
    by: Option<String>,
}

/// Reclaim the tasks of dead owners: their lock is free, or their lease has expired
///
/// The interrupted attempt counts. A sensitive action may have been executed, so that task goes to a person.
#[derive(Debug, Args)]
#[command(after_help = "Example\n  tollgate task reclaim --dry-run")]
pub(crate) struct TaskReclaimArgs {
    /// Only print what would be reclaimed
    #[arg(long)]
    dry_run: bool,
}

/// A decision that a person is about to make about a task.
pub(super) struct PersonDecision<'i> {
    invocation: &'i Invocation,
    person: Person,
    pub(super) tasks: LoggedVault,
    pub(super) by: String,
}

impl<'i> PersonDecision<'i> {
    /// The person at this terminal and their name; or the refusal, if nobody can decide here.
    pub(super) fn begin(
        invocation: &'i Invocation,
        task: &TaskName,
        by: Option<&String>,
    ) -> Result<Result<Self, Answer>, CliError> {
        let refuse = |why: &NoPerson| Ok(Err(refused(task, why.word(), &words::nobody_decides(why))));
        let person = match Person::here(invocation) {
            Ok(person) => person,
            Err(why) => return refuse(&why),
        };
        let by = match by {
            Some(by) if by.trim().is_empty() => {
                return Err(CliError::usage(
                    "`--by` is empty",
                    "give the name of the person who decides, or omit `--by` to use your user name",
                ));
            }
            Some(by) => by.clone(),
            None => invocation.person(),
        };
        let tasks = invocation.fresh_tasks()?;
        match by.parse::<Agent>() {
            Ok(agent) if tasks.vault.terms().roles.knows(&agent) => refuse(&NoPerson::Agent(by)),
            _ => Ok(Ok(Self { invocation, person, tasks, by })),
        }
    }

    /// The task in this state, or in any, with its text up to the limit.
    pub(super) fn found(
        &self,
        task: &TaskName,
        state: Option<State>,
    ) -> Result<Option<(Task, Vec<u8>)>, CliError> {
        let store = self.tasks.vault.store();
        for _ in 0..READ_TRIES {
            let Some(found) = store.get(task, state, self.invocation.now())? else { return Ok(None) };
            if let Some(text) = store.read(&found, MOST_SHOWN)? {
                return Ok(Some((found, text)));
            }
        }
        Ok(None)
    }

    /// Shows the whole task, unrendered, and asks. Returns the digest of what was shown if the person agreed.
    fn agreed(&self, found: &Task, bytes: &[u8], verb: &str) -> Result<Result<Digest, Answer>, CliError> {
        let task = &found.name;
        if found.len > bytes.len() as u64 {
            return Ok(Err(refused(task, "too_long", &words::too_long_to_decide(task, found.len))));
        }
        let text = words::task_for_decision(&self.invocation.viewpoint(), found, bytes);
        if self.person.agrees(&text, &words::decide(task, verb))? {
            return Ok(Ok(Digest::of(bytes)));
        }
        Ok(Err(refused(task, "not_confirmed", &words::not_confirmed(task))))
    }
}

pub(super) fn refused(task: &TaskName, reason: &str, message: &str) -> Answer {
    refused_with(task, reason, message, words::decision_refused(reason, message))
}

fn refused_with(task: &TaskName, reason: &str, message: &str, notes: String) -> Answer {
    Answer::NotValid(Reply::noted(
        notes,
        json!({"task": task, "refused": true, "reason": reason, "message": message}),
    ))
}

pub(crate) fn approve(invocation: &Invocation, args: &TaskApproveArgs) -> Result<Answer, CliError> {
    let task = &args.task;
    let deciding = match PersonDecision::begin(invocation, task, args.by.as_ref())? {
        Ok(deciding) => deciding,
        Err(answer) => return Ok(answer),
    };
    deciding.tasks.vault.reopen_unapproved(task, invocation.now())?;
    let seen = match deciding.found(task, Some(State::PendingApproval))? {
        Some((found, bytes)) => match deciding.agreed(&found, &bytes, "approve")? {
            Ok(seen) => seen,
            Err(answer) => return Ok(answer),
        },
        // The vault says why not. If the task appears at this moment, its text is not this one, so it is not approved.
        None => Digest::of(b"nobody has seen this task"),
    };
    if args.expect.is_some_and(|expected| expected != seen) {
        return Ok(refused(task, "not_possible", &words::not_as_expected(task)));
    }
    let PersonDecision { tasks, by, .. } = &deciding;
    let decided = with_retry(|| tasks.vault.approve(task, by, Some(seen), invocation.now()), &sleep)?;
    said(task, decided, ("approve", "approved"), by)
}

pub(crate) fn reject(invocation: &Invocation, args: &TaskRejectArgs) -> Result<Answer, CliError> {
    let deciding = match PersonDecision::begin(invocation, &args.task, args.by.as_ref())? {
        Ok(deciding) => deciding,
        Err(answer) => return Ok(answer),
    };
    // A task that is being worked on, or that is finished, cannot be rejected: the vault says so.
    if let Some((found, bytes)) = deciding.found(&args.task, None)?
        && !found.slot.state().is_final()
        && found.slot.state() != State::InProgress
        && let Err(answer) = deciding.agreed(&found, &bytes, "reject")?
    {
        return Ok(answer);
    }
    let PersonDecision { tasks, by, .. } = &deciding;
    let decided = with_retry(|| tasks.vault.reject(&args.task, by, &args.reason, invocation.now()), &sleep)?;
    said(&args.task, decided, ("reject", "rejected"), by)
}

pub(crate) fn retry(invocation: &Invocation, args: &TaskRetryArgs) -> Result<Answer, CliError> {
    let deciding = match PersonDecision::begin(invocation, &args.task, args.by.as_ref())? {
        Ok(deciding) => deciding,
        Err(answer) => return Ok(answer),
    };
    // If there is nothing to retry, nobody is asked: the vault says why.
    let retryable = deciding.tasks.vault.retryable(&args.task, invocation.now())?;
    let state = retryable.map(|task| task.slot.state());
    if state == Some(State::PendingApproval) && args.reason.is_none() {
        return Err(CliError::usage(
            format!("`{}` has a draft, and an agent needs to know what should be different", args.task),
            "give `--reason TEXT`, or run `tollgate task approve` or `tollgate task reject`",
        ));
    }
    if let Some(state) = state
        && let Some((found, bytes)) = deciding.found(&args.task, Some(state))?
        && let Err(answer) = deciding.agreed(&found, &bytes, "retry")?
    {
        return Ok(answer);
    }
    let PersonDecision { tasks, by, .. } = &deciding;
    let decided =
        with_retry(|| tasks.vault.retry(&args.task, by, args.reason.as_deref(), invocation.now()), &sleep)?;
    said(&args.task, decided, ("retry", "retried"), by)
}

pub(crate) fn give_back(invocation: &Invocation, args: &TaskReturnArgs) -> Result<Answer, CliError> {
    let deciding = match PersonDecision::begin(invocation, &args.task, args.by.as_ref())? {
        Ok(deciding) => deciding,
        Err(answer) => return Ok(answer),
    };
    // A task that nobody has claimed cannot be returned: the vault says so.
    let found = deciding.found(&args.task, Some(State::InProgress))?;
    if let Some((found, bytes)) = &found
        && let Err(answer) = deciding.agreed(found, bytes, "return")?
    {
        return Ok(answer);
    }
    let PersonDecision { tasks, by, .. } = &deciding;
    let seen = found.and_then(|(found, _)| found.record.claim).map(|claim| claim.id);
    let decided =
        with_retry(|| tasks.vault.give_back(&args.task, by, seen.as_ref(), invocation.now()), &sleep)?;
    said(&args.task, decided, ("return", "returned"), by)
}

/// The answer to a verb of a person, such as `approve`. `done` is its past participle.
pub(super) fn said(
    task: &TaskName,
    decided: Allowed<TaskAfterStep>,
    (verb, done): (&str, &str),
    by: &str,
) -> Result<Answer, CliError> {
    match decided {
        Err(Denial::Missing(task)) => Err(Fault::no_task(&task).into()),
        Err(why) => {
            let notes = words::decision_denied(&why, verb);
            Ok(refused_with(task, "not_possible", &why.to_string(), notes))
        }
        Ok(landed) => {
            let mut json = landed.json();
            json["by"] = json!(by);
            Ok(Answer::Done(Reply::new(words::decided(&landed, done, by), json)))
        }
    }
}

pub(crate) fn reclaim(invocation: &Invocation, args: &TaskReclaimArgs) -> Result<Answer, CliError> {
    let tasks = invocation.fresh_tasks()?;
    let (done, passed) = if args.dry_run {
        (tasks.vault.reclaimable(invocation.now())?, Vec::new())
    } else {
        with_retry(|| tasks.vault.reclaim(invocation.now()), &sleep)?
    };
    let row = |reclaimed: &ReclaimedTask| {
        let ReclaimedTask { task, agent, to, reason } = reclaimed;
        json!({"task": task, "agent": agent, "state": to, "reason": reason})
    };
    let json: Vec<Value> = done.iter().map(row).collect();
    Ok(Answer::Done(Reply {
        words: words::reclaimed(&done, args.dry_run),
        notes: words::skipped_faults(&invocation.viewpoint(), &passed),
        json: json.into(),
    }))
}
