//! What an agent may do with git in a tree that it shares with others, judged by what its command has done in its own view.
//!
//! A commit contains only what its author has seen. HEAD stays where it is while another agent works in the tree, and a commit goes to
//! the branch that its author knows. A stash belongs to the agent that made it.
//!
//! The turn remembers three things of git, under paths below the git directory: where HEAD was (`HEAD`), which versions the agent has
//! staged knowingly (`index/FILE`), and which stashes it has made (`stash/COMMIT`). The last two are no files.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::change::Change;
use crate::explain::object;
use crate::look::Look;
use crate::path::FilePath;
use crate::refusal::{Harm, Reason, Refusal, Stale};
use crate::repository::{ChangedRepository, Moment};
use crate::request::Request;
use crate::root::Root;
use crate::turn::{Extent, FileState, TurnState};
use crate::unfinished::UnfinishedFiles;
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_base::settings::{CommitRule, Unfinished};
use tollgate_base::working_tree::WorkingTree;

/// The folders of an operation that git has begun and not ended: an agent goes on with its own.
const UNDER_WAY: [&str; 2] = ["rebase-merge/orig-head", "rebase-apply/orig-head"];

/// The turn learns where HEAD is.
pub(crate) fn note_head(root: &Root, turn: &dyn TurnState) -> Result<()> {
    if root.settings().git.commit == CommitRule::Any {
        return Ok(());
    }
    let Some(tree) = WorkingTree::around(root.path()) else { return Ok(()) };
    let head = of_git(&tree, "HEAD");
    turn.observe(&head, now(&head), Extent::Whole)
}

/// Why a command must not do what it did to repositories.
pub(crate) fn judge(
    request: &Request<'_>,
    changes: &[Change],
    unfinished: &mut UnfinishedFiles,
) -> Result<Vec<Refusal>> {
    let mut refusals = Vec::new();
    for repository in ChangedRepository::all(request.root, changes) {
        let mut found = commits(request, &repository, unfinished)?;
        found.extend(moved_head(request, &repository, unfinished)?);
        found.extend(stashes(request, &repository, unfinished)?);
        for (path, reason) in found {
            refusals.extend(object(request, &path, reason)?);
        }
    }
    Ok(refusals)
}

/// After the changes were made: the turn learns what the command has staged and stashed.
pub(crate) fn learned(request: &Request<'_>, changes: &[Change]) -> Result<Vec<(FilePath, FileState)>> {
    let mut learned = Vec::new();
    if request.root.settings().git.commit == CommitRule::Any {
        return Ok(learned);
    }
    let written: HashSet<PathBuf> =
        changes.iter().map(|change| request.root.path().join(&change.path)).collect();
    for repository in ChangedRepository::all(request.root, changes) {
        let mut add = |name: PathBuf, object: &str| {
            learned.push((of_git(&repository.tree, name), object_state(object)));
        };
        if repository.has_changed("index") {
            let before: HashSet<_> = repository.staged(Moment::Before)?.into_iter().collect();
            for (path, object) in repository.staged(Moment::After)? {
                // `git add -A` also stages what the agent has not seen.
                let file = FilePath::trusted(repository.tree.top.join(&path));
                let is_known = || Ok(written.contains(file.as_path()) || has_seen_now(request, &file)?);
                if !before.contains(&(path.clone(), object.clone())) && is_known()? {
                    add(Path::new("index").join(path), &object);
                }
            }
        }
        if repository.has_changed("logs/refs/stash") {
            let before = repository.stashes(Moment::Before);
            for stash in repository.stashes(Moment::After).iter().filter(|stash| !before.contains(stash)) {
                add(Path::new("stash").join(stash), stash);
            }
        }
    }
    Ok(learned)
}

type Objections = Vec<(FilePath, Reason)>;

/// New commits: on the branch that the agent knows, and with nothing that it has not seen.
fn commits(
    request: &Request<'_>,
    repository: &ChangedRepository,
    unfinished: &mut UnfinishedFiles,
) -> Result<Objections> {
    let (before, after) = (repository.head(Moment::Before), repository.head(Moment::After));
    let Some(commit) = after.commit.as_ref().filter(|commit| Some(*commit) != before.commit.as_ref()) else {
        return Ok(Vec::new());
    };
    if request.root.settings().git.commit == CommitRule::Any {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    let head = of_git(&repository.tree, "HEAD");
    let state = now(&head);
    if let Some(known) = request.turn.get(&head)?.map(|sighting| sighting.baseline(Extent::Part))
        && known != state
    {
        let stale = Stale { harm: Some(Harm::OtherBranch), ..Stale::new(known, state) };
        found.push((head, Reason::Stale(stale)));
    }
    let unseen = unfinished.unseen_in(request, &repository.tree)?;
    if unseen.is_empty() {
        return Ok(found);
    }
    let staged = repository.staged(Moment::Before)?;
    let paths: Vec<&Path> = unseen.keys().map(PathBuf::as_path).collect();
    for (path, committed) in repository.committed(commit, &paths)? {
        let Some(file_now) = unseen.get(&path) else { continue };
        if found.iter().any(|(found, _)| found.as_path() == repository.tree.top.join(&path)) {
            continue;
        }
        // What the agent has staged itself it knows, whatever was saved in the file since.
        let entry = of_git(&repository.tree, Path::new("index").join(&path));
        let is_staged = staged.contains(&(path.clone(), committed.clone()));
        if is_staged && request.turn.has_seen(&entry, object_state(&committed))? {
            continue;
        }
        // The first commit of a branch without a past may have what other branches have.
        if before.commit.is_none() && repository.has_committed(&committed)? {
            continue;
        }
        let file = FilePath::trusted(repository.tree.top.join(&path));
        if committed.bytes().any(|digit| digit != b'0') {
            let content = repository.content(&path, &committed)?;
            if request.turn.has_seen(&file, FileState::Present(content))? {
                continue;
            }
        }
        let stale = Stale {
            unfinished: Some(file_now.work.clone()),
            harm: Some(Harm::Committed),
            ..Stale::new(file_now.committed.into(), file_now.state)
        };
        found.push((file, Reason::Stale(stale)));
    }
    Ok(found)
}

/// HEAD moves to another branch or back, while another agent works in the tree.
fn moved_head(
    request: &Request<'_>,
    repository: &ChangedRepository,
    unfinished: &mut UnfinishedFiles,
) -> Result<Objections> {
    if request.root.settings().guard.unfinished == Unfinished::Allow {
        return Ok(Vec::new());
    }
    let (before, after) = (repository.head(Moment::Before), repository.head(Moment::After));
    let goes_on = match (&before.commit, &after.commit) {
        _ if before.branch != after.branch => false,
        (None, _) => true,
        (Some(_), None) => false,
        (Some(old), Some(new)) => {
            old == new || repository.is_ancestor(old, new)? || repository.amends(old, new)?
        }
    };
    if goes_on || began_it(request, repository)? {
        return Ok(Vec::new());
    }
    let Some(work) = unfinished.work_of_others(request, &repository.tree)? else { return Ok(Vec::new()) };
    let head = of_git(&repository.tree, "HEAD");
    let state = now(&head);
    let stale = Stale { unfinished: Some(work), harm: Some(Harm::HeadMoved), ..Stale::new(state, state) };
    Ok(vec![(head, Reason::Stale(stale))])
}

/// Whether the agent has begun the rebase that is under way.
fn began_it(request: &Request<'_>, repository: &ChangedRepository) -> Result<bool> {
    for name in UNDER_WAY {
        let path = of_git(&repository.tree, name);
        let state = now(&path);
        if state != FileState::Absent && request.turn.has_seen(&path, state)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Stashes that are gone, and that the agent neither made nor saw.
fn stashes(
    request: &Request<'_>,
    repository: &ChangedRepository,
    unfinished: &mut UnfinishedFiles,
) -> Result<Objections> {
    if request.root.settings().guard.unfinished == Unfinished::Allow
        || !repository.has_changed("logs/refs/stash")
    {
        return Ok(Vec::new());
    }
    let after = repository.stashes(Moment::After);
    for stash in repository.stashes(Moment::Before).iter().filter(|stash| !after.contains(stash)) {
        let own = of_git(&repository.tree, Path::new("stash").join(stash));
        if request.turn.has_seen(&own, object_state(stash))? || has_seen_files(request, repository, stash)? {
            continue;
        }
        let path = of_git(&repository.tree, "refs/stash");
        let state = now(&path);
        let work = unfinished.work(request, &path, state)?;
        let stale =
            Stale { unfinished: Some(work), harm: Some(Harm::StashDropped), ..Stale::new(state, state) };
        return Ok(vec![(path, Reason::Stale(stale))]);
    }
    Ok(Vec::new())
}

/// Whether the agent has seen what a file holds now.
fn has_seen_now(request: &Request<'_>, file: &FilePath) -> Result<bool> {
    request.turn.has_seen(file, Look::at(request.root, file)?.state)
}

/// Whether the agent has seen every file of a stash.
fn has_seen_files(request: &Request<'_>, repository: &ChangedRepository, stash: &str) -> Result<bool> {
    for (path, object) in repository.stash_files(stash)? {
        if object.bytes().all(|digit| digit == b'0') {
            continue;
        }
        let content = FileState::Present(repository.content(&path, &object)?);
        if !request.turn.has_seen(&FilePath::trusted(repository.tree.top.join(path)), content)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A file of git.
fn of_git(tree: &WorkingTree, name: impl AsRef<Path>) -> FilePath {
    FilePath::trusted(tree.git_dir.join(name))
}

/// What a file of git holds now.
fn now(path: &FilePath) -> FileState {
    std::fs::read(path).ok().map(|bytes| Digest::of(&bytes)).into()
}

/// An object of git, as a state that a turn can remember.
fn object_state(object: &str) -> FileState {
    FileState::Present(Digest::of(object.as_bytes()))
}
