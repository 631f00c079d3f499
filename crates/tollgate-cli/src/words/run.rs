//! Runs of commands: what was refused, and what the agent should know.

use std::ffi::OsStr;

use tollgate::guard::Refused;
use tollgate::visible::plain;
use tollgate_run::{RunEnd, RunOutcome};

use super::refusal::refused;
use super::text::Viewpoint;
use crate::answer::json_line;

/// The supervisor has died.
pub(crate) const RUN_KILLED: &str = "the process that runs the command was killed; its changes were made together or not \
                                     at all, and `tollgate ledger tail` shows which";

/// One payload for each line, then text for people.
pub(crate) fn run_refused(view: &Viewpoint, refusal: &Refused, notes: &str) -> String {
    let mut lines: Vec<String> = refusal.payloads().iter().map(json_line).collect();
    lines.push(refused(view, refusal));
    if !notes.is_empty() {
        lines.push(notes.to_owned());
    }
    lines.push("note: the command ran, and none of its changes to the workspace was made".to_owned());
    lines.join("\n")
}

/// One line for each note.
pub(crate) fn run_notes(outcome: &RunOutcome) -> String {
    let note = |note| plain(&format!("note: {note}"));
    outcome.notes.iter().map(note).collect::<Vec<_>>().join("\n")
}

pub(crate) fn did_not_start(program: &OsStr, end: RunEnd) -> String {
    let program = plain(&program.to_string_lossy());
    match end {
        RunEnd::NotFound => format!("`{program}` was not found"),
        _ => format!("`{program}` cannot be executed"),
    }
}
