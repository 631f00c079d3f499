//! `tollgate task claim`: takes a task, for as long as its lease.

use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};
use tollgate::name::Agent;
use tollgate::vault::claim::Tenure;
use tollgate::vault::retry::patiently;
use tollgate::vault::store::Ready;
use tollgate::vault::{Asked, Claimed, Claiming, Next, Not, Reason, TaskName, Wish as Lasting};

use crate::answer::{Answer, Said, Stop};
use crate::door::Door;
use crate::tasks::Tasks;
use crate::words;

/// How often a file that somebody is writing is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Claim a task: from now on it is this agent's, and nobody else's
///
/// The claim is a lease (`[vault] lease`, 30 minutes unless set): renew it, report progress or verify it while you work;
/// when it has run out, the task may be taken back. `tollgate work` needs none of this. Exit code 1: it was not claimed,
/// and the answer says why (`lost`, `not_eligible`, `blocked`, `incomplete`, `none`).
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate task claim --next --agent blue
  export TOLLGATE_CLAIM_ID=$(tollgate task claim pay-the-rent --agent blue --json | jq -r .claim_id)")]
#[group(required = true, multiple = false)]
pub(crate) struct Wish {
    /// This task, with or without `.md`; if it was written a moment ago, waits until it is complete
    task: Option<TaskName>,
    /// The first that can be claimed: by priority, then due, then age
    #[arg(long)]
    next: bool,
}

pub(crate) fn run(door: &Door, wish: &Wish) -> Result<Answer, Stop> {
    let (tasks, agent) = (door.fresh_tasks()?, door.agent()?);
    let asked = Asked { agent: agent.clone(), wish: Lasting::Leased, renamed_in: false };
    match &wish.task {
        Some(task) => match claim_when_complete(door, &tasks, task, &asked)? {
            Claiming::Claimed(claimed) => Ok(said_claimed(door, &claimed)),
            Claiming::Not(not) => Ok(said_not_claimed(&agent, Some(task), &not)),
        },
        None => {
            let (next, line) = patiently(|| tasks.vault.claim_next(&asked, door.now()), &sleep)?;
            let notes = words::passed_over(door, &line);
            match next {
                Next::Claimed(claimed) => Ok(with_notes(said_claimed(door, &claimed), notes)),
                Next::Nothing(_) => {
                    let not =
                        Not { reason: Reason::None, sentence: words::nothing_to_claim(&line), wait: None };
                    Ok(with_notes(said_not_claimed(&agent, None, &not), notes))
                }
            }
        }
    }
}

/// Waits for a file that is being written, as long as a complete one would need to settle.
fn claim_when_complete(door: &Door, tasks: &Tasks, task: &TaskName, asked: &Asked) -> Result<Claiming, Stop> {
    let patience = Instant::now() + 2 * tasks.settle + Duration::from_secs(1);
    loop {
        let claiming = patiently(|| tasks.vault.claim(task, asked, door.now()), &sleep)?;
        let Claiming::Not(not) = &claiming else { return Ok(claiming) };
        if not.reason != Reason::Incomplete || Instant::now() > patience {
            return Ok(claiming);
        }
        let being_written = || {
            let stored = tasks.vault.get(task, door.now());
            stored.is_ok_and(|stored| matches!(stored.ready, Ready::Empty | Ready::Open))
        };
        match not.wait {
            Some(wait) => sleep(wait),
            None if being_written() => sleep(LOOK_AGAIN),
            None => return Ok(claiming),
        }
    }
}

fn claimed_json(claimed: &Claimed) -> Value {
    let claim = &claimed.claim;
    let mut json = json!({
        "claimed": true,
        "task": claimed.task,
        "agent": claim.agent,
        "claim_id": claim.id,
        "path": claimed.path.as_deref().map(|path| path.to_string_lossy().into_owned()),
        "mode": claim.mode,
        "epoch": claim.epoch,
    });
    if let Tenure::Leased(until) = claim.tenure {
        json["lease_until"] = json!(until);
    }
    if let Some(action) = &claim.action {
        json["action"] = json!(action);
    }
    json
}

pub(crate) fn said_claimed(door: &Door, claimed: &Claimed) -> Answer {
    Answer::Done(Said {
        words: words::claimed(door, claimed),
        json: claimed_json(claimed),
        ..Said::default()
    })
}

pub(crate) fn said_not_claimed(agent: &Agent, task: Option<&TaskName>, not: &Not) -> Answer {
    Answer::NotValid(Said {
        notes: words::not_claimed(not),
        json: json!({
            "claimed": false, "task": task, "agent": agent, "reason": not.reason, "message": not.sentence,
        }),
        ..Said::default()
    })
}

fn with_notes(answer: Answer, more: String) -> Answer {
    let add = |said: Said| {
        let notes = words::together(&[said.notes.clone(), more]);
        Said { notes, ..said }
    };
    match answer {
        Answer::Done(said) => Answer::Done(add(said)),
        Answer::NotValid(said) => Answer::NotValid(add(said)),
        answer => answer,
    }
}
