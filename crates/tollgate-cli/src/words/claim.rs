//! Claims and decisions: what was claimed, released, approved, rejected or reclaimed, and why not.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use tollgate::error::Fault;
use tollgate::vault::claim::{ClaimId, Mode, Tenure};
use tollgate::vault::store::TaskAfterStep;
use tollgate::vault::{ClaimQueue, Claimed, Denial, DenialReason, NotOwner, ReclaimedTask, TaskName};
use tollgate::visible::plain;

use super::error::fault_words;
use super::task::unfit;
use super::text::{Viewpoint, counted, moment, seconds, short, shown, size, word};
use crate::error::NoPerson;

pub(crate) fn claimed(view: &Viewpoint, claimed: &Claimed) -> String {
    let claim = &claimed.claim;
    let mut words = format!("claimed `{}` for `{}`", plain(claimed.task.as_str()), claim.agent);
    if let Some(path) = &claimed.path {
        words += &format!("\n  file      {}", shown(view, path));
    }
    words += &format!("\n  claim id  {}", claim.id);
    if let Some(action) = &claim.action {
        words += &format!("\n  action    {}", plain(action));
    }
    if claim.mode == Mode::Draft {
        words +=
            "\n  mode      draft: describe what you would do with `tollgate task draft`, but do not do it";
    }
    if let Tenure::Leased(until) = claim.tenure {
        words += &format!("\n  lease     until {}", moment(until));
        words += &format!(
            "\nhint: when it is done, run `tollgate task release {} --claim-id {}`",
            word(claimed.task.stem()),
            claim.id
        );
    }
    words
}

/// A task that pauses after a failed attempt.
pub(crate) fn pausing(task: &TaskName, why: &str) -> String {
    let task = plain(task.stem());
    format!(
        "refused: {}\nhint: claim another task: `tollgate task claim --next`; a person can end the pause with `tollgate \
         task retry {task}`",
        plain(why)
    )
}

pub(crate) fn not_claimed(reason: DenialReason, why: &str) -> String {
    let hint = match reason {
        DenialReason::Lost => "claim another task: `tollgate task claim --next`",
        DenialReason::NotEligible => {
            "claim another task: `tollgate task claim --next`; `tollgate task why` explains it for each agent"
        }
        DenialReason::Blocked => "do the other task first, or claim another: `tollgate task claim --next`",
        DenialReason::Incomplete => "wait for its author to finish, or fix the file, then claim it again",
        DenialReason::None => "run `tollgate task list` to see all tasks, or `tollgate task add` to add one",
    };
    format!("refused: {}\nhint: {hint}", plain(why))
}

/// Why nothing can be claimed now. Some tasks may be complete after `wait`.
pub(crate) fn nothing_to_claim(queue: &ClaimQueue, wait: Option<Duration>) -> String {
    let mut why = Vec::new();
    if let Some(wait) = wait {
        why.push(format!("tasks written a moment ago will be complete in {}", seconds(wait)));
    }
    if queue.lost > 0 {
        why.push(format!("{} already claimed by another agent", counted(queue.lost, "is", "are")));
    }
    if let Some(until) = queue.pause_ends {
        let pausing = counted(queue.pausing, "task is paused", "tasks are paused");
        why.push(format!("{pausing} after a failed attempt, until {} or later", moment(until)));
    }
    if queue.blocked > 0 {
        why.push(format!("{} for other tasks", counted(queue.blocked, "waits", "wait")));
    }
    if queue.foreign > 0 {
        why.push(format!("{} for other agents only", counted(queue.foreign, "is", "are")));
    }
    let unreadable = queue.unfit.len() + queue.faults.len();
    if unreadable > 0 {
        why.push(format!("{} skipped", counted(unreadable, "was", "were")));
    }
    if why.is_empty() {
        "no task can be claimed now".into()
    } else {
        format!("no task can be claimed now: {}", why.join(", "))
    }
}

/// The tasks that were skipped while looking for one to claim.
pub(crate) fn skipped(view: &Viewpoint, queue: &ClaimQueue) -> String {
    let parts = [unfit(&queue.unfit), skipped_faults(view, &queue.faults)];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
}

pub(crate) fn skipped_faults(view: &Viewpoint, faults: &[(TaskName, Fault)]) -> String {
    let line = |(task, fault): &(TaskName, Fault)| {
        format!("note: skipped `{}`: {}", plain(task.as_str()), fault_words(view, fault))
    };
    faults.iter().map(line).collect::<Vec<_>>().join("\n")
}

pub(crate) fn verified(task: &TaskName, id: &ClaimId, valid: bool) -> String {
    let task = plain(task.as_str());
    if valid {
        format!("claim `{id}` owns `{task}`")
    } else {
        format!("claim `{id}` does not own `{task}`\nhint: {NOT_VALID}")
    }
}

pub(crate) const NOT_VALID: &str = "stop working on it, because another agent may do the same work";

pub(crate) fn not_the_owner(not_owner: &NotOwner) -> String {
    format!(
        "refused: {}\nhint: check the claim ID; if it is right, the claim has ended: stop working on the task",
        plain(&not_owner.to_string())
    )
}

/// For the agent's log, in the words of the claim-by-move contract.
pub(crate) fn verification_failed(task: &TaskName, why: &dyn std::fmt::Display) -> String {
    format!("Claim verification failed: {}: {}", plain(task.as_str()), plain(&why.to_string()))
}

pub(crate) fn renewed(task: &TaskName, until: Option<Timestamp>) -> String {
    let task = plain(task.as_str());
    match until {
        Some(until) => format!("renewed `{task}` until {}", moment(until)),
        None => format!("`{task}` is held by a lock and needs no renewal"),
    }
}

pub(crate) fn progress_noted(task: &TaskName) -> String {
    format!("added the note to `{}`", plain(task.as_str()))
}

pub(crate) fn draft_added(task: &TaskName) -> String {
    format!("added the draft to `{}`", plain(task.as_str()))
}

pub(crate) fn released(task: &TaskName, landed: &TaskAfterStep) -> String {
    let mut words = format!("released `{}` to `{}`", plain(task.as_str()), landed.slot);
    if landed.task != *task {
        words += &format!(
            "\nnote: the name was taken there, so the task is now `{}`",
            plain(landed.task.as_str())
        );
    }
    words
}

pub(crate) fn no_draft(task: &TaskName) -> String {
    format!("`{}` has no `## Draft` section, so a person has nothing to approve", plain(task.as_str()))
}

// Decisions

pub(crate) fn decided(landed: &TaskAfterStep, verb: &str, by: &str) -> String {
    format!("`{}` {verb} by `{}`, now in `{}`", plain(landed.task.as_str()), plain(by), landed.slot)
}

/// Why nobody can decide here.
pub(crate) fn nobody_decides(why: &NoPerson) -> String {
    match why {
        NoPerson::Agent(agent) => {
            format!("`{}` is an agent, and only people approve, reject, retry, return and edit tasks", plain(agent))
        }
        NoPerson::InRun => "only people approve, reject, retry, return and edit tasks, and this is a command of `tollgate run`".into(),
        NoPerson::NoTerminal => {
            "only people approve, reject, retry, return and edit tasks, and no person can read and type here: standard input or standard \
             error is not a terminal"
                .into()
        }
    }
}

/// The question after the text of a task.
pub(crate) fn decide(task: &TaskName, verb: &str) -> String {
    format!("{verb} `{}`, exactly as shown above? type `yes` to {verb} it:", plain(task.as_str()))
}

pub(crate) fn not_confirmed(task: &TaskName) -> String {
    format!("the answer was not `yes`, so `{}` stays as it is", plain(task.as_str()))
}

pub(crate) fn not_edited(task: &TaskName) -> String {
    format!("`{}` stays as it is: you changed nothing", plain(task.as_str()))
}

/// The end of the hint, if the person's text was not stored.
pub(crate) fn edit_is_kept(path: &Path, task: &TaskName) -> String {
    format!(
        "; your text is kept in `{}`: to use it, run `tollgate task edit {}` again and copy it from there",
        plain(&path.to_string_lossy()),
        word(task.stem())
    )
}

pub(crate) fn not_as_expected(task: &TaskName) -> String {
    format!("the text of `{}` is not the text that `--expect` names", plain(task.as_str()))
}

pub(crate) fn too_long_to_decide(task: &TaskName, bytes: u64) -> String {
    format!("`{}` has {}, too much to show it whole", plain(task.as_str()), size(bytes))
}

pub(crate) fn decision_refused(reason: &str, message: &str) -> String {
    let hint = match reason {
        "agent" | "no_terminal" => {
            "ask a person to decide: on the dashboard (`tollgate serve`), or with `tollgate task approve`, `reject`, \
             `retry`, `return` or `edit` in their own terminal"
        }
        "not_confirmed" => "run the command again and type `yes` if that is your decision",
        "too_long" => "shorten the file, then decide",
        _ => "run `tollgate task show TASK` to see the task as it is now",
    };
    format!("refused: {}\nhint: {hint}", plain(message))
}

/// Why the vault did not do what the person wants: approve, reject, retry, return or edit.
pub(crate) fn decision_denied(why: &Denial, verb: &str) -> String {
    let hint = match (why, verb) {
        (Denial::Elsewhere(..), "approve") => {
            "only a task in `Pending_Approval` can be approved; run `tollgate task list --state Pending_Approval` to see them all"
        }
        (Denial::Elsewhere(..), "reject") => {
            "only a task that nobody works on and that is not finished can be rejected; `tollgate task return` ends a claim"
        }
        (Denial::Elsewhere(..), "retry") => {
            "only a rejected task, one that pauses after a failed attempt, or a draft that waits for approval can be retried"
        }
        (Denial::NothingToRetry(_), _) => {
            "agents can claim it now; run `tollgate task why TASK --agent NAME` to see whether one may"
        }
        (Denial::Elsewhere(..), "return") => {
            "only a task that an agent has claimed can be returned; run `tollgate task list --state In_Progress` to see them all"
        }
        (Denial::Elsewhere(..), "edit") => {
            "only a task in `Needs_Action` or `Pending_Approval` can be edited; run `tollgate task list --state Needs_Action` to see them all"
        }
        _ => return decision_refused("not_possible", &why.to_string()),
    };
    format!("refused: {}\nhint: {hint}", plain(&why.to_string()))
}

pub(crate) fn reclaimed(done: &[ReclaimedTask], dry_run: bool) -> String {
    if done.is_empty() {
        return "no dead owners, nothing to reclaim".into();
    }
    let verb = if dry_run { "would reclaim" } else { "reclaimed" };
    let line = |one: &ReclaimedTask| {
        format!(
            "{verb} `{}` from `{}` to `{}`: {}",
            plain(one.task.as_str()),
            one.agent,
            one.to,
            short(&plain(&one.reason))
        )
    };
    done.iter().map(line).collect::<Vec<_>>().join("\n")
}
