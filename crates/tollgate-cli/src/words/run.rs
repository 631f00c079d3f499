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

/// The file that says how to guard a command is gone.
pub(crate) fn no_prologue() -> &'static str {
    "error: tollgate cannot guard this command, because its hook has not prepared it; the command did not run\n\
     hint: run the command again"
}

/// One payload for each line, then text for people.
pub(crate) fn run_refused(
    view: &Viewpoint,
    level: RunLevel,
    refusal: &Refused,
    kept: Option<&RunMerge>,
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
    if let Some(kept) = kept {
        lines.push(format!(
            "hint: run `tollgate merge --run {}` to see what the command wanted to change, merged with what is on disk now, or run the \
             command again",
            kept.line
        ));
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
