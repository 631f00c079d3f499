//! `tollgate task claim`: claims a task with a lease.

use std::thread::sleep;

use clap::Args;
use serde_json::json;
use tollgate::error::Fault;
use tollgate::name::Agent;
use tollgate::vault::retry::with_retry;
use tollgate::vault::{ClaimKind, ClaimRequest, Claimed, Denial, DenialReason, TaskName};

use crate::answer::{Answer, Reply};
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::tasks::LoggedVault;
use crate::words;

/// Claim a task, so that no other agent works on it
///
/// The claim is a lease (`[vault] lease`, 30 minutes by default). While you work, extend it with `renew`, `progress`, `draft` or
/// `verify`; after it has expired, the next claim of any agent reclaims the task. `tollgate work` needs none of this. With exit
/// code 1 the task was not claimed, and the answer says why (`lost`, `not_eligible`, `blocked`, `incomplete`, `none`).
///
/// Set TOLLGATE_TASK_ID and TOLLGATE_CLAIM_ID for the processes that work on the task: once the claim is lost, tollgate refuses
/// their writes.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate task claim --next --agent blue
  export TOLLGATE_TASK_ID=pay-the-rent
  claim=$(tollgate task claim $TOLLGATE_TASK_ID --agent blue --json)
  export TOLLGATE_CLAIM_ID=$(echo $claim | jq -r .claim_id)")]
#[group(required = true, multiple = false)]
pub(crate) struct TaskClaimArgs {
    /// Task name, with or without `.md`; if it was written a moment ago, waits until it is complete
    task: Option<TaskName>,
    /// Claim the first claimable task: by priority, then due date, then age
    #[arg(long)]
    next: bool,
}

pub(crate) fn run(invocation: &Invocation, args: &TaskClaimArgs) -> Result<Answer, CliError> {
    let (tasks, agent) = (invocation.fresh_tasks()?, invocation.agent()?);
    let answer = claim(invocation, &tasks, &agent, args.task.as_ref());
    if let Err(error) = &answer {
        tasks.logs.line(&agent, invocation.now(), &words::error(&invocation.viewpoint(), error));
    }
    answer
}

fn claim(
    invocation: &Invocation,
    tasks: &LoggedVault,
    agent: &Agent,
    task: Option<&TaskName>,
) -> Result<Answer, CliError> {
    let request = ClaimRequest { agent: agent.clone(), kind: ClaimKind::Leased, renamed_in: false };
    let (reclaimed, skipped) = with_retry(|| tasks.vault.reclaim(invocation.now()), &sleep)?;
    let mut notes = vec![words::skipped_faults(&invocation.viewpoint(), &skipped)];
    notes.extend(reclaimed.iter().map(|one| words::reclaimed(std::slice::from_ref(one), false)));
    match task {
        Some(task) => {
            match tasks.vault.claim_when_complete(
                task,
                &request,
                tasks.settle,
                &|| invocation.now(),
                &sleep,
            )? {
                Ok(claimed) => Ok(with_notes(said_claimed(invocation, &claimed), notes)),
                Err(Denial::Missing(task)) => Err(Fault::no_task(&task).into()),
                Err(denied) => {
                    // The log has the event of a claim that was lost.
                    if !denied.is_lost_by(agent) {
                        tasks.logs.line(agent, invocation.now(), &denied.to_string());
                    }
                    Ok(with_notes(said_not_claimed(task, agent, &denied), notes))
                }
            }
        }
        None => {
            let (next, queue) = with_retry(|| tasks.vault.claim_next(&request, invocation.now()), &sleep)?;
            notes.push(words::skipped(&invocation.viewpoint(), &queue));
            match next {
                Some(claimed) => Ok(with_notes(said_claimed(invocation, &claimed), notes)),
                None => {
                    let sentence = words::nothing_to_claim(&queue, queue.soonest);
                    tasks.logs.line(agent, invocation.now(), &sentence);
                    Ok(with_notes(said_nothing_to_claim(agent, &sentence), notes))
                }
            }
        }
    }
}

pub(crate) fn said_claimed(invocation: &Invocation, claimed: &Claimed) -> Answer {
    Answer::Done(Reply::new(words::claimed(&invocation.viewpoint(), claimed), claimed.json()))
}

fn said_not_claimed(task: &TaskName, agent: &Agent, denied: &Denial) -> Answer {
    let notes = match denied {
        Denial::Pausing(task, _) => words::pausing(task, &denied.to_string()),
        _ => words::not_claimed(denied.reason(), &denied.to_string()),
    };
    Answer::NotValid(Reply::noted(notes, denied.json(task, agent)))
}

pub(crate) fn said_nothing_to_claim(agent: &Agent, sentence: &str) -> Answer {
    let reason = DenialReason::None;
    let json = json!({"claimed": false, "task": null, "agent": agent, "reason": reason, "message": sentence});
    Answer::NotValid(Reply::noted(words::not_claimed(reason, sentence), json))
}

fn with_notes(answer: Answer, more: Vec<String>) -> Answer {
    let add = |said: Reply| {
        let notes = words::together(&[vec![said.notes.clone()], more].concat());
        Reply { notes, ..said }
    };
    match answer {
        Answer::Done(said) => Answer::Done(add(said)),
        Answer::NotValid(said) => Answer::NotValid(add(said)),
        answer => answer,
    }
}
