//! A commit of exactly one agent's own changes, in a working tree that others work in, too.
//!
//! The ledger says which changes are the agent's (`history`), and what it may commit of each file (`fold`). The commit is made by
//! the user's own git from HEAD, in a private index (`workshop`), with the repository's hooks and signing. The working tree stays as
//! it is, and so does what others have staged (`index`).
//!
//! Invariants: the commit's parent is the commit from which everything was made, on the branch that was looked at; nobody's commit in
//! between is reverted. A process that dies leaves the repository as before, or the commit, and nothing that blocks git for longer than
//! until the next process of tollgate.

mod answer;
mod branch_hook;
mod fold;
mod head;
mod head_files;
mod history;
mod index;
mod making;
mod plan;
mod texts;
mod workshop;

use std::path::Path;

pub use answer::{
    CannotCommit, CommitAnswer, CommitRequest, HookOutput, OwnCommit, RepositoryHooks, TRAILER,
};
pub use fold::WhyLeft;
pub use plan::Left;

use crate::explain::refuse;
use crate::refusal::Outcome;
use crate::request::Request;
use crate::root::Root;
use head::remember_head;
use head_files::{Names, is_ancestor};
use making::{Attempt, Maker};
use tollgate_base::error::{Fault, Result};
use tollgate_base::event::{Event, OwnChangesCommitted};
use tollgate_base::working_tree::WorkingTree;
use workshop::DeadCommit;

/// The tool of a refused commit, in the ledger.
const TOOL: &str = "commit";

/// How often everything is made again because somebody else has committed in between, or has saved one of the files. Each try takes
/// some tens of milliseconds, and the repository's own hooks.
const TRIES: usize = 5;

/// The number of ledger lines in which to look for a commit whose process died: few were written since.
const RECENT: usize = 1_000;

/// Commits this agent's own changes.
pub(crate) fn commit(root: &Root, request: &CommitRequest<'_>) -> Result<Outcome<CommitAnswer>> {
    heal(root)?;
    let tree = working_tree(root, request)?;
    if let Some(what) = in_progress(&tree) {
        return Ok(Outcome::Done(CommitAnswer::Cannot(CannotCommit::InProgress(what))));
    }
    let names = Names { workspace: root.path().to_owned(), top: tree.top.clone() };
    let asked = Request { root, turn: request.turn, tool: TOOL, level: None, fences: &[], removed: &[] };
    let maker = Maker { root, tree: &tree, names: &names, request, asked: &asked };
    for _ in 0..TRIES {
        match maker.attempt()? {
            Attempt::Ended(answer) => {
                remember_head(&tree, request.turn, &answer)?;
                return Ok(Outcome::Done(answer));
            }
            Attempt::Again => {}
            Attempt::Refused(refusal) => return refuse(&asked, vec![refusal]),
        }
    }
    Ok(Outcome::Done(CommitAnswer::Cannot(CannotCommit::Moved)))
}

/// The working tree around the folder. All paths must be in it.
fn working_tree(root: &Root, request: &CommitRequest<'_>) -> Result<WorkingTree> {
    let around = |path: &Path| {
        WorkingTree::around(root.canonical_link(path)?.as_path()).ok_or_else(|| {
            Fault::invalid_with_hint(
                format!("`{}` is not in a working tree of git", path.display()),
                "go to a folder in the repository, or make one with `git init`",
            )
        })
    };
    let Some(first) = request.paths.first() else { return around(request.folder) };
    let tree = around(first)?;
    for path in &request.paths[1..] {
        if around(path)? != tree {
            return Err(Fault::invalid_with_hint(
                "the paths are in different working trees",
                "make one commit in each",
            ));
        }
    }
    Ok(tree)
}

/// What git has begun and not ended. A commit would become a part of it.
fn in_progress(tree: &WorkingTree) -> Option<&'static str> {
    let signs = [
        ("MERGE_HEAD", "merge"),
        ("rebase-merge", "rebase"),
        ("rebase-apply", "rebase"),
        ("CHERRY_PICK_HEAD", "cherry-pick"),
        ("REVERT_HEAD", "revert"),
        ("BISECT_LOG", "bisect"),
    ];
    let found = signs.into_iter().find(|(file, _)| tree.git_dir.join(file).symlink_metadata().is_ok());
    found.map(|(_, what)| what)
}

/// Completes commits whose processes died, or removes what they left.
pub(crate) fn heal(root: &Root) -> Result<()> {
    workshop::dead(root)?.into_iter().try_for_each(|dead| heal_one(root, dead))
}

fn heal_one(root: &Root, dead: DeadCommit) -> Result<()> {
    let (note, tree) = (dead.note.clone(), dead.note.tree());
    // In another branch it is as good as here: the index follows its own HEAD.
    if let Some(commit) = dead.made().filter(|commit| is_ancestor(&tree, commit, "HEAD")) {
        if !dead.lock_index()? {
            return Ok(());
        }
        let delta = index::Delta::between(&tree, note.head.as_deref(), &commit)?;
        if delta.follow(&tree, note.head.as_deref(), dead.index(), &dead.new_index())? {
            dead.replace_index(&dead.new_index())?;
        }
        let names = Names { workspace: root.path().to_owned(), top: tree.top.clone() };
        let mut recent = root.ledger().newest_first()?.take(RECENT).flatten();
        if !recent.any(|line| matches!(&line.event, Event::Commit(made) if made.commit == commit)) {
            let line = OwnChangesCommitted {
                commit,
                branch: note.branch,
                tree: names.tree(),
                paths: delta.names().map(|name| names.in_ledger(&name)).collect(),
                whole: note.whole,
                recovered: true,
            };
            root.record(Some(&note.agent), note.turn.as_ref(), Event::Commit(line))?;
        }
    }
    dead.remove()
}

#[cfg(test)]
mod tests;
