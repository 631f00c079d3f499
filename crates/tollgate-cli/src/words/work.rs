//! What `tollgate work` prints while it works.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::time::Duration;

use tollgate::error::Fault;
use tollgate::name::Agent;
use tollgate::vault::claim::Mode;
use tollgate::vault::store::TaskAfterStep;
use tollgate::vault::{Claimed, State, TaskName};
use tollgate::visible::plain;

use super::claim::verification_failed;
use super::error::{fault_words, hint};
use super::text::{Viewpoint, count, seconds, shown};
use crate::report::work::WorkSummary;

pub(crate) fn cannot_run(program: &OsStr, error: &io::Error) -> String {
    format!("error: cannot run `{}`: {error}", plain(&program.to_string_lossy()))
}

pub(crate) fn not_watching(error: &str, interval: Duration) -> String {
    format!(
        "note: cannot watch the folders ({}); checking them every {} s instead",
        plain(error),
        interval.as_secs()
    )
}

pub(crate) fn asked_to_stop() -> String {
    "asked to stop".into()
}

pub(crate) fn breaker_is_open() -> String {
    "the command keeps failing, so the worker claims no more tasks".into()
}

/// The worker has stopped claiming tasks. `next_try` is `None` if it ends.
pub(crate) fn breaker_opened(
    agent: &Agent,
    failures: u32,
    reason: &str,
    next_try: Option<Duration>,
) -> String {
    let (then, hint) = match next_try {
        Some(pause) => (format!("; next try in {}", seconds(pause)), "fix the command"),
        None => (String::new(), "fix the command, then start `tollgate work` again"),
    };
    format!(
        "`{agent}` stops claiming tasks: its command failed {failures} times in a row ({}){then}\n\
         hint: look at the output above, then {hint}",
        plain(reason),
    )
}

pub(crate) fn breaker_closed(agent: &Agent) -> String {
    format!("`{agent}` claims tasks again: its command succeeded")
}

/// Why an attempt counts as failed although the command succeeded.
pub(crate) fn undone() -> String {
    "its task was moved back or deleted".into()
}

pub(crate) fn success() -> String {
    "a command succeeded".into()
}

/// Why a command was ended, for the file and the ledger.
pub(crate) fn timed_out(limit: Duration) -> String {
    format!("took longer than {}", seconds(limit))
}

pub(crate) fn work_fault(view: &Viewpoint, fault: &Fault) -> String {
    format!("error: {}\nhint: {}", fault_words(view, fault), plain(&hint(fault)))
}

pub(crate) fn work_starts(view: &Viewpoint, agent: &Agent, vault: &Path) -> String {
    format!("`{agent}` is working on the tasks in `{}`", shown(view, vault))
}

pub(crate) fn work_stops(grace: Duration) -> String {
    format!("stopping: no new tasks; running commands have {} s to finish", grace.as_secs())
}

pub(crate) fn work_begins(claimed: &Claimed) -> String {
    let mode = match claimed.claim.mode {
        Mode::Execute => "",
        Mode::Draft => " to draft it",
    };
    format!("claimed `{}`{mode}", plain(claimed.task.as_str()))
}

pub(crate) fn claim_is_gone(task: &TaskName) -> String {
    verification_failed(task, &"the claim was lost before the work began")
}

pub(crate) fn claim_was_lost(task: &TaskName) -> String {
    format!("the claim on `{}` was lost while its command ran", plain(task.as_str()))
}

pub(crate) fn task_was_moved(claimed: &Claimed, state: State) -> String {
    format!("{} was moved to `{state}` while its command ran, so the claim has ended", file_of(claimed))
}

pub(crate) fn task_is_gone(claimed: &Claimed) -> String {
    format!("{} is gone; its task is lost", file_of(claimed))
}

/// The file of a task, or the task itself if its store has no files.
fn file_of(claimed: &Claimed) -> String {
    let file = if claimed.path.is_some() { "the file of " } else { "" };
    format!("{file}`{}`", plain(claimed.task.as_str()))
}

/// The command failed, and a process that it started still runs.
pub(crate) fn something_still_runs(task: &TaskName) -> String {
    let task = plain(task.as_str());
    format!(
        "`{task}` failed, but a process that its command started still runs; the task is free when that process ends"
    )
}

pub(crate) fn cannot_start(error: &io::Error) -> String {
    format!("error: cannot start the command: {error}")
}

/// How a command ended, for the file and the ledger.
pub(crate) fn exit_status(code: Option<i32>, signal: Option<i32>) -> String {
    match (code, signal) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended in an unknown way".into(),
    }
}

pub(crate) fn work_ended(
    task: &TaskName,
    landed: &TaskAfterStep,
    succeeded: bool,
    note: Option<&str>,
    took: Duration,
) -> String {
    let (task, took) = (plain(task.as_str()), took.as_secs_f64());
    match (succeeded, note) {
        (true, _) => format!("finished `{task}` in {took:.1} s, now in `{}`", landed.slot),
        (false, note) => {
            format!(
                "failed `{task}` after {took:.1} s ({}), now in `{}`",
                plain(note.unwrap_or("failed")),
                landed.slot
            )
        }
    }
}

pub(crate) fn given_back(task: &TaskName, landed: &TaskAfterStep, why: &str) -> String {
    format!("returned `{}` to `{}`: {}", plain(task.as_str()), landed.slot, plain(why))
}

pub(crate) fn work_done(tally: &WorkSummary) -> String {
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let mut parts = vec![format!("{} done", count(number(tally.done), "task"))];
    if tally.drafted > 0 {
        parts.push(format!("{} drafted", tally.drafted));
    }
    if tally.failed > 0 {
        parts.push(format!("{} failed", count(number(tally.failed), "attempt")));
    }
    if tally.given_back > 0 {
        parts.push(format!("{} returned", tally.given_back));
    }
    if tally.lost > 0 {
        parts.push(format!("{} lost", tally.lost));
    }
    if tally.faulted > 0 {
        parts.push(format!("{} could not be claimed", tally.faulted));
    }
    parts.join(", ")
}

/// `work --once` did nothing.
pub(crate) fn no_work() -> String {
    "no task can be claimed now".into()
}

/// Without a command, `work` waits for one task.
pub(crate) fn waits_for_one(view: &Viewpoint, agent: &Agent, vault: &Path) -> String {
    format!(
        "no command given: waiting for one task in `{}` to claim it for `{agent}` and print it",
        shown(view, vault)
    )
}

pub(crate) fn released_by_command(task: &TaskName, landed: &TaskAfterStep) -> String {
    format!("the command released `{}` itself, now in `{}`", plain(task.as_str()), landed.slot)
}
