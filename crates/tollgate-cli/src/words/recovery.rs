//! The recovery list: which bytes are kept, and why.

use std::path::Path;

use tollgate::event::FileChanged;
use tollgate::recovery::{RecoveryEntry, RecoveryKind};

use tollgate::visible::plain;

use super::text::{Viewpoint, ago, moment, shown, size, word};
use crate::error::NoPerson;

/// What an undo asks.
pub(crate) const UNDO_QUESTION: &str = "type `yes` to restore it:";

pub(crate) const NOT_UNDONE: &str = "nothing was restored: the answer was not `yes`";

/// The most lines of a diff that are shown before a question.
const DIFF_LINES: usize = 200;

/// What an undo would restore.
pub(crate) fn to_undo(view: &Viewpoint, entry: &RecoveryEntry, diff: Option<&str>) -> String {
    let path = shown(view, entry.path.as_path());
    let (by, when) = (&entry.replaced_by, ago(view.now, entry.time));
    let mut words = format!("`{path}`, as it was before `{by}` wrote it {when}");
    let Some(diff) = diff else {
        return words + &format!("\n    {}, not shown: not text, or too large", size(entry.size));
    };
    let mut lines = diff.lines();
    for line in lines.by_ref().take(DIFF_LINES) {
        words += format!("\n    {}", plain(line)).trim_end();
    }
    match lines.count() {
        0 => words,
        more => words + &format!("\n    ... ({more} more lines)"),
    }
}

/// For this file, or for all files.
pub(crate) fn nothing_to_undo(path: Option<&Path>) -> String {
    let what = match path {
        Some(path) => {
            format!("recovery has no replaced version of `{}`", plain(&path.display().to_string()))
        }
        None => "recovery has no replaced files".to_owned(),
    };
    format!("nothing to undo: {what}\nhint: run `tollgate recovery list` to see all that is kept")
}

/// Why `undo` without a file does nothing: these files, of which there is one at least, are the last change.
pub(crate) fn not_the_last_change(files: &[FileChanged]) -> String {
    let other = "to restore another file, run `tollgate undo FILE`";
    let (what, hint) = match files {
        [FileChanged { target_file: from, moved_to: Some(to), .. }] => (
            format!("moved `{}` to `{}`, and `undo` moves nothing back", plain(from), plain(to)),
            format!("run `tollgate move {} {}`", word(to), word(from)),
        ),
        [FileChanged { target_file: path, hash_before: None, .. }] => (
            format!("created `{}`, and `undo` deletes nothing", plain(path)),
            format!("run `tollgate delete {}`", word(path)),
        ),
        [FileChanged { target_file: path, .. }] => (
            format!("replaced `{}`, and recovery does not have what it replaced", plain(path)),
            "run `tollgate recovery list` to see all that is kept".to_owned(),
        ),
        files => {
            let names: Vec<_> =
                files.iter().rev().take(3).map(|file| format!("`{}`", plain(&file.target_file))).collect();
            let more = if files.len() > names.len() { ", ..." } else { "" };
            let what = format!(
                "changed {} files ({}{more}), and `undo` restores one at a time",
                files.len(),
                names.join(", ")
            );
            return format!(
                "refused: the last guarded write {what}\nhint: name one of them: `tollgate undo FILE`"
            );
        }
    };
    format!("refused: the last guarded write {what}\nhint: {hint}; {other}")
}

pub(crate) fn nobody_undoes(why: &NoPerson) -> String {
    let why = match why {
        NoPerson::Agent(agent) => format!("`{agent}` is an agent, and `undo` asks only people"),
        NoPerson::InRun => "in a run, `undo` cannot ask".to_owned(),
        NoPerson::NoTerminal => "without a terminal, `undo` cannot ask".to_owned(),
    };
    format!("refused: {why}\nhint: give `--yes` to restore without a question")
}

pub(crate) fn changed_since(view: &Viewpoint, entry: &RecoveryEntry) -> String {
    let (path, id) = (shown(view, entry.path.as_path()), &entry.id);
    format!(
        "refused: `{path}` was changed after the last guarded write to it\nhint: run `tollgate undo --to {id}` to restore what \
         that write replaced; recovery then keeps what is there now"
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
