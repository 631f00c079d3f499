//! Merges of refused writes.

use tollgate::merge::{Merge, NoMerge};
use tollgate::path::FilePath;
use tollgate::visible::plain;

use super::text::{Viewpoint, ago, quoted, shown};

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
