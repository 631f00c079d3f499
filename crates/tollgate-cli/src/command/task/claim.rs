//! `tollgate task claim`: takes a task, for as long as its lease.

use std::thread::sleep;

use clap::Args;
use tollgate::name::Agent;
use tollgate::vault::retry::patiently;
use tollgate::vault::{Asked, Claimed, Claiming, Next, Not, Reason, TaskName, Wish as Lasting};

use crate::answer::{Answer, Said, Stop};
use crate::door::Door;
use crate::words;

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
        Some(task) => {
            match tasks.vault.claim_when_complete(task, &asked, tasks.settle, &|| door.now(), &sleep)? {
                Claiming::Claimed(claimed) => Ok(said_claimed(door, &claimed)),
                Claiming::Not(not) => Ok(said_not_claimed(&agent, Some(task), &not)),
            }
        }
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

pub(crate) fn said_claimed(door: &Door, claimed: &Claimed) -> Answer {
    Answer::Done(Said { words: words::claimed(door, claimed), json: claimed.json(), ..Said::default() })
}

pub(crate) fn said_not_claimed(agent: &Agent, task: Option<&TaskName>, not: &Not) -> Answer {
    Answer::NotValid(Said { notes: words::not_claimed(not), json: not.json(agent, task), ..Said::default() })
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
