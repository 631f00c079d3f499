//! Words for the worker: what it says while it works.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use tollgate::error::Fault;
use tollgate::name::Agent;
use tollgate::vault::claim::Mode;
use tollgate::vault::store::Landed;
use tollgate::vault::{Claimed, TaskName};

use super::{count, fault_words, plain, shown};
use crate::answer::Stop;
use crate::command::work::Tally;
use crate::door::Door;

/// Said at once, because the work goes on.
pub(crate) fn tell(text: &str) {
    // If nobody reads stderr there is nobody to tell.
    let _ = writeln!(io::stderr(), "{text}");
}

pub(crate) fn no_such_program(program: &OsStr) -> Stop {
    Stop::usage(
        format!("`{}` is no program that can be run", plain(&program.to_string_lossy())),
        "check its name and `PATH`; a shell's own words need `sh -c '...'`",
    )
}

pub(crate) fn tell_that_it_cannot_run(program: &OsStr, error: &io::Error) {
    tell(&format!("error: cannot run `{}`: {error}", plain(&program.to_string_lossy())));
}

pub(crate) fn not_watching(error: &str, interval: Duration) -> String {
    format!(
        "note: the folders cannot be watched ({}), so they are looked at every {} s",
        plain(error),
        interval.as_secs()
    )
}

pub(crate) fn asked_to_stop() -> String {
    "asked to stop".into()
}

pub(crate) fn work_fault(door: &Door, fault: &Fault) -> String {
    format!("error: {}\nhint: {}", fault_words(door, fault), plain(&super::hint(fault)))
}

pub(crate) fn work_starts(door: &Door, agent: &Agent, vault: &Path) -> String {
    format!("`{agent}` works on the tasks in `{}`", shown(door, vault))
}

pub(crate) fn work_stops(grace: Duration) -> String {
    format!("stopping: no more tasks, {} s for what is under way", grace.as_secs())
}

pub(crate) fn work_begins(claimed: &Claimed) -> String {
    let mode = match claimed.claim.mode {
        Mode::Execute => "",
        Mode::Draft => ", to draft it",
    };
    format!("claimed `{}`{mode}", plain(claimed.task.as_str()))
}

pub(crate) fn claim_is_gone(task: &TaskName) -> String {
    format!("`{}` was taken away before the work began", plain(task.as_str()))
}

/// The command failed and left somebody behind.
pub(crate) fn something_still_runs(task: &TaskName) -> String {
    let task = plain(task.as_str());
    format!(
        "`{task}` failed, but something that its command has started still runs: the task is free when that ends"
    )
}

pub(crate) fn cannot_start(error: &io::Error) -> String {
    format!("error: the command cannot be started: {error}")
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
    landed: &Landed,
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

pub(crate) fn given_back(task: &TaskName, landed: &Landed, why: &str) -> String {
    format!("gave back `{}` to `{}`: {}", plain(task.as_str()), landed.slot, plain(why))
}

pub(crate) fn work_done(tally: &Tally) -> String {
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let mut parts = vec![format!("{} done", count(number(tally.done), "task"))];
    if tally.drafted > 0 {
        parts.push(format!("{} drafted", tally.drafted));
    }
    if tally.failed > 0 {
        parts.push(format!("{} failed", count(number(tally.failed), "attempt")));
    }
    if tally.given_back > 0 {
        parts.push(format!("{} given back", tally.given_back));
    }
    parts.join(", ")
}
