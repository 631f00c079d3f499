//! Ledger lines, and what is wrong with a ledger that is not valid.

use std::path::Path;

use tollgate::audit::{AuditReport, AuditScope, AuditSubject, Flaw};
use tollgate::ledger::{Line, LineDefect, Problem, Verification};
use tollgate::visible::plain;

use super::text::{Viewpoint, count, moment, quoted, short, shown};

/// One line on one line: number, time, agent, type, file or task, result.
pub(crate) fn ledger_line(line: &Line) -> String {
    let agent = line.agent.as_ref().map_or("-", |agent| agent.as_str());
    let kind = plain(line.event.action_type());
    let mut words = format!("{:>6}  {}  {agent}  {kind}", line.seq, moment(line.time));
    for (target, arrow) in line.event.described().targets().zip(["  ", " -> "]) {
        words += &format!("{arrow}{}", short(&plain(target)));
    }
    for (_, word) in line.event.result_words() {
        words += &format!("  {}", plain(word));
    }
    words
}

pub(crate) const EMPTY_LEDGER: &str = "note: the ledger has no lines yet";

pub(crate) const NO_LINE_MATCHES: &str =
    "note: no line matches\nhint: leave out `--type` and `--agent` to see all lines";

pub(crate) fn damaged_lines(damaged: usize) -> String {
    match damaged {
        0 => String::new(),
        damaged => format!(
            "warning: skipped {}\nhint: run `tollgate ledger verify` to see the first",
            count(damaged, "unreadable line")
        ),
    }
}

pub(crate) fn verdict(view: &Viewpoint, verdict: &Verification, head_file: Option<&Path>) -> String {
    match (&verdict.problem, verdict.head, verdict.remembered) {
        (Some(found), ..) => {
            let (fact, hint) = ledger_fault(view, found, head_file);
            format!("not valid: {fact}\nhint: {hint}")
        }
        (None, None, _) => "valid: the ledger is empty".into(),
        (None, Some(head), Some(_)) => {
            let lines = whole_lines(verdict);
            format!("valid: {lines}, last line {} ({})", head.seq, head.hash.short())
        }
        (None, Some(head), None) => {
            let lines = whole_lines(verdict);
            format!(
                "valid: {lines}, last line {} ({})\nnote: a truncated end cannot be detected this time, because you \
                 have not seen this ledger before",
                head.seq,
                head.hash.short()
            )
        }
    }
}

/// What an audit found: the verdict, the figures, then each finding.
pub(crate) fn audited(report: &AuditReport, scope: &AuditScope) -> String {
    let number = |number: u64, thing: &str| count(usize::try_from(number).unwrap_or(usize::MAX), thing);
    let verdict = match (report.flaws.len(), report.doubts.len()) {
        (0, 0) => "valid: no line contradicts the promises".to_owned(),
        (0, doubts) => format!("valid: no line contradicts the promises; {}", count(doubts, "doubt")),
        (1, _) => "not valid: a finding contradicts the promises".to_owned(),
        (flaws, _) => format!("not valid: {flaws} findings contradict the promises"),
    };
    let changes = number(report.changes, "change");
    let mut words = format!(
        "{verdict}\n  lines    {}\n  files    {}, {changes}, {}\n  tasks    {}, {}",
        report.lines,
        report.files,
        number(report.outside_changes, "outside change"),
        report.tasks,
        number(report.claims, "claim"),
    );
    if !scope.records.is_empty() {
        words += &format!("\n  records  {}", report.records);
    }
    report.flaws.iter().for_each(|flaw| words += &format!("\n{}", found("flaw", flaw)));
    report.doubts.iter().for_each(|doubt| words += &format!("\n{}", found("doubt", doubt)));
    if report.left_off > 0 {
        words += &format!("\n{} more are not listed", report.left_off);
    }
    if scope.shared {
        words += "\nnote: other machines or workspaces share the tasks; the steps that they took are in their own ledgers";
    } else if report.flaws.iter().any(|flaw| matches!(flaw.about, AuditSubject::Task(_))) {
        words += "\nhint: if other workspaces use this vault, give `--shared`";
    }
    if !report.doubts.is_empty() {
        words += "\nhint: only a record of who changed the file outside tollgate can decide a doubt: see `--records`";
    }
    words
}

fn found(kind: &str, flaw: &Flaw) -> String {
    let (AuditSubject::File(about) | AuditSubject::Task(about) | AuditSubject::Ledger(about)) = &flaw.about;
    let place = match (flaw.seq, &flaw.record) {
        (Some(seq), _) => format!("line {seq}"),
        (None, Some(record)) => {
            format!("line {} of `{}`", record.line, plain(&record.file.to_string_lossy()))
        }
        (None, None) => "the ledger".to_owned(),
    };
    format!("{kind}: {place}, `{}`: {} ({})", short(&plain(about)), plain(&flaw.reason), flaw.rule)
}

fn whole_lines(verdict: &Verification) -> String {
    count(usize::try_from(verdict.lines).unwrap_or(usize::MAX), "line")
}

/// What is wrong, and what to do.
pub(crate) fn ledger_fault(
    view: &Viewpoint,
    problem: &Problem,
    head_file: Option<&Path>,
) -> (String, String) {
    let (file, line, seq) = (shown(view, &problem.file), problem.line, problem.seq);
    // The missing lines, with the verb in the right number.
    let gone = |one: &str, many: &str| match problem.missing {
        0 | 1 => format!("line {seq} {one}"),
        missing => format!("lines {seq} to {} {many}", seq + missing - 1),
    };
    let accept = match head_file {
        Some(head) => format!(
            "if you know why, accept the ledger as it is by deleting its remembered end: `rm {}`; otherwise look for a \
             copy of the ledger",
            quoted(head)
        ),
        None => "look for a copy of the ledger".into(),
    };
    let look = || {
        let start_new = start_new_ledger(&problem.file);
        format!(
            "compare with a copy of the ledger, if you have one; to set this one aside and start a new one: `{start_new}`"
        )
    };
    match problem.wrong {
        LineDefect::Edited => (format!("line {seq} was edited (`{file}`, line {line})"), look()),
        LineDefect::Removed => {
            (format!("{} removed (`{file}`, before line {line})", gone("was", "were")), look())
        }
        LineDefect::Reordered => (format!("line {seq} is not in its place (`{file}`, line {line})"), look()),
        LineDefect::NotALine => (format!("line {seq} is not a ledger line (`{file}`, line {line})"), look()),
        LineDefect::Torn => (
            format!("line {seq} is incomplete (`{file}`, line {line})"),
            "the next guarded write moves it to `ledger.torn-...` and records that in the ledger".into(),
        ),
        LineDefect::CutTail => {
            (format!("the end was cut off: {} missing (`{file}`)", gone("is", "are")), accept)
        }
        LineDefect::Rewritten => (
            format!(
                "line {seq} differs from the remembered line: it or an earlier line was rewritten (`{file}`)"
            ),
            accept,
        ),
    }
}

/// A command that moves all files of the ledger of which this file is a part. It overwrites nothing.
pub(crate) fn start_new_ledger(file: &Path) -> String {
    let state = file.parent().unwrap_or(Path::new("."));
    let (aside, state) = (quoted(&state.join("ledger.old")), quoted(state));
    format!("mkdir -p {aside} && mv -n {state}/ledger*.jsonl {aside}")
}
