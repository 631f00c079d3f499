//! Runs of commands: what was refused, and what the agent should know.

use std::ffi::OsStr;

use tollgate::error::Fault;
use tollgate::guard::Refused;
use tollgate::history::refused::RunMerge;
use tollgate::visible::plain;
use tollgate_run::{RunEnd, RunLevel, RunNote, RunOutcome};

use super::refusal::refused;
use super::text::Viewpoint;
use crate::answer::json_line;

/// The supervisor has died.
pub(crate) fn run_killed() -> Fault {
    Fault::invalid_with_hint(
        "the process that guards the command was killed; `tollgate ledger tail` shows which changes were made",
        "look at what the command has done so far, then run it again",
    )
}

/// No refused command can be run again.
pub(crate) fn no_refused_command(line: Option<u64>) -> Fault {
    let which = line.map_or(String::new(), |line| format!(" under line {line}"));
    Fault::invalid_with_hint(
        format!("no refused command of yours is kept{which}"),
        "give the command itself: `tollgate run -- COMMAND`",
    )
}

/// The file that says how to guard a command is gone.
pub(crate) fn no_prologue() -> &'static str {
    "error: tollgate cannot guard this command, because its hook has not prepared it; the command did not run\n\
     hint: run the command again"
}

/// One payload for each line, then text for people. `merge`: of all that the command wanted to change, if it is clean. `again`: the line
/// under which the command is kept.
pub(crate) fn run_refused(
    view: &Viewpoint,
    level: RunLevel,
    refusal: &Refused,
    merge: Option<&RunMerge>,
    again: Option<u64>,
    notes: &str,
) -> String {
    let mut lines: Vec<String> = refusal.payloads().iter().map(json_line).collect();
    lines.push(refused(view, refusal));
    if !notes.is_empty() {
        lines.push(notes.to_owned());
    }
    let made = match level {
        RunLevel::Transaction => "the command ran, and none of its changes to the workspace was made",
        RunLevel::Gate | RunLevel::Observe => {
            "the command ran, and each call that would have made one of these changes failed; its other changes stand"
        }
    };
    lines.push(format!("note: {made}"));
    match (merge, again) {
        (Some(merge), _) => lines.push(format!(
            "hint: run `tollgate merge --run {}` to see what the command wanted to change, merged with what is on disk now; \
             nothing of it is in conflict, so the command need not run again",
            merge.line
        )),
        (None, Some(line)) => lines.push(format!(
            "hint: run `tollgate run --retry {line}` to run the same command again, on the files as they are now"
        )),
        (None, None) => {}
    }
    lines.join("\n")
}

/// One line for each note. That the gate guards a command, and not a transaction, is said to people only: programs would get
/// it with every command.
pub(crate) fn run_notes(outcome: &RunOutcome, reader: NoteReader) -> String {
    let is_said = |note: &&RunNote| {
        !matches!(note, RunNote::Weaker(_))
            || reader == NoteReader::Person
            || outcome.level == RunLevel::Observe
    };
    let note = |note| plain(&format!("note: {note}"));
    outcome.notes.iter().filter(is_said).map(note).collect::<Vec<_>>().join("\n")
}

/// Who reads what a command prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoteReader {
    /// Somebody at a terminal.
    Person,
    /// The program that has started the command.
    Program,
}

pub(crate) fn did_not_start(program: &OsStr, end: RunEnd) -> String {
    let program = plain(&program.to_string_lossy());
    match end {
        RunEnd::NotFound => {
            format!("error: `{program}` was not found\nhint: check the name, or give the path of the program")
        }
        _ => format!(
            "error: `{program}` cannot be executed\nhint: make it executable, or name the program that runs it"
        ),
    }
}
