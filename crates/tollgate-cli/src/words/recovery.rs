//! The recovery list: which bytes are kept, and why.

use std::path::Path;

use tollgate::history::step::Step;
use tollgate::history::undo::{Plan, UndoResult};
use tollgate::recovery::{RecoveryEntry, RecoveryKind};

use tollgate::visible::plain;

use super::text::{Viewpoint, ago, count, moment, shown, size, word};
use crate::error::NoPerson;

/// What an undo asks.
pub(crate) const UNDO_QUESTION: &str = "type `yes` to undo it:";

pub(crate) const NOT_UNDONE: &str = "nothing was undone: the answer was not `yes`";

pub(crate) const ALREADY_UNDONE: &str =
    "nothing to undo: the files are as they were before\nhint: run `tollgate history` to see all changes";

pub(crate) const DRY_UNDO: &str = "note: nothing was changed";

/// The most lines of a diff that are shown before a question.
const DIFF_LINES: usize = 200;

/// The entry of recovery that is to be restored.
pub(crate) fn to_restore(view: &Viewpoint, entry: &RecoveryEntry, diff: Option<&str>) -> String {
    let path = shown(view, entry.path.as_path());
    let (by, when) = (&entry.replaced_by, ago(view.now, entry.time));
    let words = format!("`{path}`, as it was before `{by}` wrote it {when}");
    match diff {
        Some(diff) => words + &indented(diff),
        None => words + &format!("\n    {}, not shown: not text, or too large", size(entry.size)),
    }
}

/// What is undone, and what that does to each file.
pub(crate) fn to_undo<'s>(
    view: &Viewpoint,
    workspace: &Path,
    steps: impl DoubleEndedIterator<Item = &'s Step>,
    plan: &Plan,
) -> String {
    let steps: Vec<&Step> = steps.collect();
    let mut agents: Vec<&str> =
        steps.iter().map(|step| step.agent.as_ref().map_or("-", |agent| agent.as_str())).collect();
    agents.sort_unstable();
    agents.dedup();
    let mut changes: Vec<u64> = steps.iter().map(|step| step.change).collect();
    changes.dedup();
    let by = agents.iter().map(|agent| format!("`{agent}`")).collect::<Vec<_>>().join(", ");
    let when = steps.last().map_or(String::new(), |last| ago(view.now, last.time));
    let mut words = match &changes[..] {
        [change] => format!("undo change {change} by {by}, {when}"),
        _ => format!("undo {} by {by}, the last {when}", count(changes.len(), "change")),
    };
    let path = |name: &str| shown(view, &workspace.join(name));
    for file in &plan.files {
        let name = path(&file.path);
        words += &match &file.result {
            UndoResult::Already => format!("\n`{name}` is as it was before"),
            UndoResult::MovesBack { to } => format!("\n`{name}` is moved back to `{}`", path(to)),
            UndoResult::Conflict(why) => format!("\n`{name}` cannot be undone: {why}"),
            UndoResult::Becomes { bytes: None, .. } => format!("\n`{name}` is deleted"),
            UndoResult::Becomes { merged: true, .. } => {
                format!("\n`{name}` was changed since, and keeps what is newer")
            }
            UndoResult::Becomes { .. } if file.disk.is_none() => format!("\n`{name}` comes back"),
            UndoResult::Becomes { .. } => format!("\n`{name}`"),
        };
        match (&file.result, file.diff("undone")) {
            (UndoResult::Becomes { .. }, Some(diff)) => words += &indented(&diff),
            (UndoResult::Becomes { .. }, None) => words += "\n    not shown: not text, or too large",
            _ => {}
        }
    }
    words
}

/// A diff that a terminal paints.
pub(super) fn indented(diff: &str) -> String {
    let mut words = String::new();
    let mut lines = diff.lines();
    for line in lines.by_ref().take(DIFF_LINES) {
        words.push('\n');
        words += format!("    {}", plain(line)).trim_end();
    }
    match lines.count() {
        0 => words,
        more => words + &format!("\n    ... ({more} more lines)"),
    }
}

/// Why nothing was undone.
pub(crate) fn undo_conflicts(plan: &Plan) -> String {
    let count = count(plan.conflicts().count(), "file");
    format!(
        "refused: {count} cannot be undone, so nothing was\nhint: see the change with `tollgate show` and edit the files by hand, or \
         restore an entry of `tollgate recovery list` with `tollgate undo --to ID`"
    )
}

pub(crate) fn undo_of_another(agent: &str) -> String {
    format!(
        "refused: `{agent}` made some of these changes, and an agent undoes only its own\nhint: ask a person to run this"
    )
}

/// An agent program runs the command, which names no agent.
pub(crate) fn undo_without_name(program: &str) -> String {
    format!(
        "refused: `{}` is an agent, and only people undo without a name\nhint: give your name, `--agent NAME`, to undo your own \
         changes, or ask a person to run this",
        plain(program)
    )
}

pub(crate) fn folder_is_not_moved_back(from: &str, to: &str) -> String {
    format!(
        "refused: the folder `{}` was moved to `{}`, and `undo` moves no folder back\nhint: move it back by hand: `mv {} {}`",
        plain(from),
        plain(to),
        word(to),
        word(from)
    )
}

/// For this file, or for all files.
pub(crate) fn nothing_to_undo(path: Option<&Path>) -> String {
    let what = match path {
        Some(path) => {
            format!("the ledger has no change of `{}`", plain(&path.display().to_string()))
        }
        None => "the ledger has no change".to_owned(),
    };
    format!("nothing to undo: {what}\nhint: run `tollgate recovery list` to see all that is kept")
}

pub(crate) fn nobody_undoes(why: &NoPerson) -> String {
    let why = match why {
        NoPerson::Agent(agent) => format!("`{agent}` is an agent, and only people are asked"),
        NoPerson::InRun => "nobody can be asked in a run".to_owned(),
        NoPerson::NoTerminal => "there is no terminal on which to ask".to_owned(),
    };
    format!(
        "refused: {why}\nhint: give `--yes` to go ahead without a question, or `--dry-run` to see what it would do"
    )
}

pub(crate) fn kept(view: &Viewpoint, kept: &[RecoveryEntry]) -> String {
    if kept.is_empty() {
        return "recovery is empty".into();
    }
    let line = |kept: &RecoveryEntry| {
        let why = match kept.kind {
            RecoveryKind::Replaced => "replaced by",
            RecoveryKind::Late => "saved by another program during a write by",
            RecoveryKind::TakenBack => "rolled back, written by",
        };
        let (id, time, size) = (&kept.id, moment(kept.time), size(kept.size));
        let path = shown(view, kept.path.as_path());
        format!("{id}  {time}  {size:>9}  {path}  {why} `{}`", kept.replaced_by)
    };
    kept.iter().map(line).collect::<Vec<_>>().join("\n")
}
