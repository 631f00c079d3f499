//! Merges of refused writes.

use std::path::Path;

use tollgate::history::refused::RunMerge;
use tollgate::history::undo::UndoResult;
use tollgate::merge::{Merge, NoMerge};
use tollgate::path::FilePath;
use tollgate::visible::plain;

use super::recovery::indented;
use super::text::{Viewpoint, ago, counted, quoted, shown};

/// What a merge is, on stderr. The merged text goes to stdout.
pub(crate) fn merge_notes(view: &Viewpoint, merge: &Merge) -> String {
    let path = shown(view, merge.path.as_path());
    let (agent, refused) = (&merge.agent, ago(view.now, merge.refused));
    let of = format!("of what `{agent}` wanted to write to `{path}` {refused}");
    if !merge.clean {
        let conflicts = merge.content.lines().filter(|line| line.starts_with("<<<<<<< ")).count();
        let conflicts = super::text::count(conflicts, "conflict");
        return format!(
            "merge {of}: {conflicts}\nhint: resolve what is between the markers, then write the whole of `{path}`"
        );
    }
    let command = format!("tollgate merge {} --write", quoted(merge.path.as_path()));
    format!("clean merge {of}; nothing was written{}\nhint: run `{command}` to write it", merge_diff(merge))
}

/// A refused run, merged with what is on disk.
pub(crate) fn merged_run(view: &Viewpoint, workspace: &Path, merge: &RunMerge) -> String {
    let mut words =
        format!("what a run of `{}` wanted to change {}", merge.agent, ago(view.now, merge.refused));
    for file in &merge.plan.files {
        let name = shown(view, &workspace.join(&file.path));
        words += &match &file.result {
            UndoResult::Already => format!("\n`{name}` has it already"),
            UndoResult::Conflict(why) => format!("\n`{name}` cannot be merged: {why}"),
            UndoResult::Becomes { bytes: None, .. } => format!("\n`{name}` is deleted"),
            UndoResult::Becomes { merged: true, .. } => {
                format!("\n`{name}` was changed by somebody else, and is merged")
            }
            UndoResult::Becomes { .. } if file.disk.is_none() => format!("\n`{name}` is created"),
            UndoResult::Becomes { .. } | UndoResult::MovesBack { .. } => format!("\n`{name}`"),
        };
        match (&file.result, file.diff("merged")) {
            (UndoResult::Becomes { .. }, Some(diff)) => words += &indented(&diff),
            (UndoResult::Becomes { .. }, None) => words += "\n    not shown: not text, or too large",
            _ => {}
        }
    }
    words
}

/// That the merge of a run was not written yet.
pub(crate) fn run_merge_notes(merge: &RunMerge) -> String {
    let left_out = match merge.left_out {
        0 => String::new(),
        some => format!(
            "\nnote: {} not kept (links, modes, large files): to have these, too, run `tollgate run --retry {}` instead",
            counted(some, "change was", "changes were"),
            merge.line
        ),
    };
    format!(
        "clean; nothing was written{left_out}\nhint: run `tollgate merge --run {} --write` to write it",
        merge.line
    )
}

pub(crate) const RUN_CONFLICTS: &str = "refused: some of these files cannot be merged, so nothing was\nhint: run the command again, on the files as they are now: `tollgate run --retry`";

pub(crate) const NO_REFUSED_RUN: &str = "refused: no refused run is kept whose changes could be merged\nhint: run the command again, on the files as they are now";

pub(crate) const RUN_IS_WRITTEN: &str = "refused: the files already have what the run wanted to write\nhint: nothing is left to do; `tollgate history` shows who wrote it";

/// What writing the merge changes on disk, each line on a line of its own.
pub(crate) fn merge_diff(merge: &Merge) -> String {
    merge.diff.lines().map(|line| format!("\n    {}", plain(line)).trim_end().to_owned()).collect()
}

pub(crate) fn no_merge(view: &Viewpoint, path: &FilePath, why: NoMerge) -> String {
    let path = shown(view, path.as_path());
    let hint = match why {
        NoMerge::NothingRefused => {
            format!("a merge needs a refused write; to change the file, read `{path}`, then write")
        }
        _ => format!("read `{path}` again, redo the change on what you find, then write"),
    };
    format!("cannot merge `{path}`: {why}\nhint: {hint}")
}
