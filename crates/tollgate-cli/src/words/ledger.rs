//! Words for the ledger.

use std::path::Path;

use serde_json::Value;
use tollgate::ledger::{Line, Problem, Verdict, Wrong};

use super::{count, moment, plain, quoted, short, shown};
use crate::door::Door;

/// One line on one line: number, time, agent, type, file, result.
pub(crate) fn ledger_line(line: &Line) -> String {
    let text = |value: &Value| value.as_str().map(plain);
    let agent = line.agent.as_ref().map_or("-", |agent| agent.as_str());
    let mut words = format!("{:>6}  {}  {agent}  {}", line.seq, moment(line.time), plain(&line.action_type));
    if let Some(path) = text(&line.payload["target_file"]) {
        words += &format!("  {}", short(&path));
    }
    if let Some(to) = text(&line.payload["moved_to"]) {
        words += &format!(" -> {}", short(&to));
    }
    for value in [&line.result["status"], &line.result["error_type"]] {
        if let Some(word) = text(value) {
            words += &format!("  {word}");
        }
    }
    words
}

pub(crate) fn damaged_lines(damaged: usize) -> String {
    match damaged {
        0 => String::new(),
        damaged => format!(
            "warning: {} could not be read and {} left out\nhint: `tollgate ledger verify` names the first",
            count(damaged, "line"),
            if damaged == 1 { "is" } else { "are" }
        ),
    }
}

pub(crate) fn verdict(door: &Door, verdict: &Verdict, head_file: Option<&Path>) -> String {
    match (&verdict.problem, verdict.head, verdict.remembered) {
        (Some(found), ..) => {
            let (fact, hint) = problem(door, found, head_file);
            format!("not valid: {fact}\nhint: {hint}")
        }
        (None, None, _) => "valid: the ledger is empty".into(),
        (None, Some(head), Some(_)) => {
            let lines = whole_lines(verdict);
            format!("valid: {lines}, the last is {} {}", head.seq, head.hash.short())
        }
        (None, Some(head), None) => {
            let lines = whole_lines(verdict);
            format!(
                "valid: {lines}, the last is {} {}\nnote: no earlier end is remembered for you, so lines cut off at \
                 the end could not be noticed",
                head.seq,
                head.hash.short()
            )
        }
    }
}

fn whole_lines(verdict: &Verdict) -> String {
    count(usize::try_from(verdict.lines).unwrap_or(usize::MAX), "line")
}

/// What is wrong, and what to do.
pub(crate) fn problem(door: &Door, problem: &Problem, head_file: Option<&Path>) -> (String, String) {
    let (file, line, seq) = (shown(door, &problem.file), problem.line, problem.seq);
    // What is gone, with the verb that fits.
    let gone = |one: &str, many: &str| match problem.missing {
        0 | 1 => format!("line {seq} {one}"),
        missing => format!("lines {seq} to {} {many}", seq + missing - 1),
    };
    let accept = match head_file {
        Some(head) => format!(
            "if you know why, accept the ledger as it is by removing what is remembered: `rm {}`; else look for a copy of \
             the ledger",
            quoted(head)
        ),
        None => "look for a copy of the ledger".into(),
    };
    let look = || {
        let anew = begin_anew(&problem.file);
        format!(
            "compare with a copy of the ledger, if you have one; to keep this one aside and begin anew: `{anew}`"
        )
    };
    match problem.wrong {
        Wrong::Edited => (format!("line {seq} was edited (`{file}`, line {line})"), look()),
        Wrong::Removed => (format!("{} removed (`{file}`, before line {line})", gone("was", "were")), look()),
        Wrong::Reordered => (format!("line {seq} is not in its place (`{file}`, line {line})"), look()),
        Wrong::NotALine => {
            (format!("what should be line {seq} is no ledger line (`{file}`, line {line})"), look())
        }
        Wrong::Torn => (
            format!("line {seq} was not written to its end (`{file}`, line {line})"),
            "the next guarded write moves it to `ledger.torn-...` and says so in the ledger".into(),
        ),
        Wrong::CutTail => {
            (format!("the end was cut off: {} known and gone (`{file}`)", gone("is", "are")), accept)
        }
        Wrong::Rewritten => (
            format!(
                "line {seq} is not the one that is remembered: it or one before it was rewritten (`{file}`)"
            ),
            accept,
        ),
    }
}

/// A command that puts all files of a ledger aside, of which this is one. Nothing is overwritten.
pub(crate) fn begin_anew(file: &Path) -> String {
    let state = file.parent().unwrap_or(Path::new("."));
    let (aside, state) = (quoted(&state.join("ledger.old")), quoted(state));
    format!("mkdir -p {aside} && mv -n {state}/ledger*.jsonl {aside}")
}
