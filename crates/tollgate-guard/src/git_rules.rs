//! What an agent may do with git in a tree that it shares with others, judged by what its command has done in its own view.
//!
//! A commit contains only what its author has seen. HEAD stays where it is while another agent works in the tree, and a commit goes to
//! the branch that its author knows. A stash belongs to the agent that made it.
//!
//! The turn remembers three things of git, under paths below the git directory: where HEAD was (`HEAD`), which versions the agent has
//! staged knowingly (`index/FILE`), and which stashes it has made (`stash/COMMIT`). The last two are no files.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::change::Change;
use crate::disk::changed_at;
use crate::explain::object;
use crate::look::Look;
use crate::other_tree;
use crate::path::FilePath;
use crate::refusal::{Harm, Reason, Refusal, Stale};
use crate::repository::{ChangedRepository, Moment, STASH_LOG};
use crate::request::Request;
use crate::root::Root;
use crate::turn::{Extent, FileState, TurnState};
use crate::unfinished::{UnfinishedFile, UnfinishedFiles};
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_base::settings::{CommitRule, Unfinished};
use tollgate_base::working_tree::WorkingTree;

/// The number of stashes that are compared with what an agent was shown, the newest first.
const STASHES: usize = 20;

/// The folders of an operation that git has begun and not ended: an agent goes on with its own.
const UNDER_WAY: [&str; 2] = ["rebase-merge/orig-head", "rebase-apply/orig-head"];

/// What a git command is about to do in the working tree around a folder, as far as its text tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitStep {
    /// The folder, absolute.
    pub folder: PathBuf,
    /// What it does there.
    pub does: GitEffect,
}

/// What a git command does with the repository. What it does with files is a list of changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GitEffect {
    /// It makes a commit.
    Commit(CommitContent),
    /// It switches to this branch, or to one whose name is not known.
    Switch(Option<String>),
    /// It moves the branch to this commit, or to one whose name is not known.
    Reset(Option<String>),
    /// It deletes the stash with this number, or all of them.
    DropStash(Option<usize>),
}

/// What a commit will contain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommitContent {
    /// What is staged.
    pub staged: bool,
    /// All changes of files that git tracks.
    pub tracked: bool,
    /// These files, and those in these folders, absolute.
    pub paths: Vec<PathBuf>,
}

/// The turn learns where HEAD is, and its session which other working trees there are.
pub(crate) fn turn_begins(root: &Root, turn: &dyn TurnState) -> Result<()> {
    other_tree::session_goes_on(root, turn.session())?;
    if root.settings().git.commit == CommitRule::Any {
        return Ok(());
    }
    let Some(tree) = WorkingTree::around(root.path()) else { return Ok(()) };
    for git_dir in [tree.git_dir.clone()].into_iter().chain(tree.submodules()) {
        let head = FilePath::trusted(git_dir.join("HEAD"));
        turn.observe(&head, now(&head), Extent::Whole)?;
    }
    Ok(())
}

/// The stashes whose whole change was shown to the agent, as files that its turn can know.
pub(crate) fn shown_stashes(
    root: &Root,
    is_shown: impl Fn(&str) -> bool,
) -> Result<Vec<(FilePath, FileState)>> {
    let Some(tree) = WorkingTree::around(root.path()) else { return Ok(Vec::new()) };
    let mut shown = Vec::new();
    for stash in tree.stashes().iter().rev().take(STASHES) {
        let lines = tree.stash_lines(stash)?;
        if !lines.is_empty() && is_shown(&lines) {
            shown.push((of_git(&tree, Path::new("stash").join(stash)), object_state(stash)));
        }
    }
    Ok(shown)
}

/// Why a command must not do what it did to repositories.
pub(crate) fn judge(
    request: &Request<'_>,
    changes: &[Change],
    unfinished: &mut UnfinishedFiles,
) -> Result<Vec<Refusal>> {
    judge_all(request, ChangedRepository::all(request.root, changes), unfinished)
}

/// Whether commits, HEAD or stashes depend on this file.
pub(crate) fn judges_file(root: &Root, file: &Path) -> bool {
    // Cheap for all other files.
    let is_known =
        ["HEAD", "stash"].iter().any(|name| file.ends_with(name)) || file.iter().any(|part| part == "heads");
    is_known && file.extension().is_none_or(|end| end != "lock") && file.starts_with(root.path())
}

/// Why a program must not put a new file in the place of this one, or delete it. Otherwise the turn learns of it.
pub(crate) fn judge_file(request: &Request<'_>, file: &Path, new: Option<&Path>) -> Result<Vec<Refusal>> {
    let Some(repository) = ChangedRepository::of_file(request.root, file, new) else { return Ok(Vec::new()) };
    let head = of_git(&repository.tree, "HEAD");
    let stash = repository.pushed_stash();
    let refusals = judge_all(request, vec![repository], &mut UnfinishedFiles::default())?;
    if !refusals.is_empty() || request.root.settings().git.commit == CommitRule::Any {
        return Ok(refusals);
    }
    if let Some(new) = new.filter(|_| file == head.as_path()) {
        request.turn.wrote(&head, now(&FilePath::trusted(new.to_owned())))?;
    }
    if let Some(stash) = stash {
        let own = FilePath::trusted(head.as_path().with_file_name("stash").join(&stash));
        request.turn.wrote(&own, object_state(&stash))?;
    }
    Ok(refusals)
}

fn judge_all(
    request: &Request<'_>,
    repositories: Vec<ChangedRepository>,
    unfinished: &mut UnfinishedFiles,
) -> Result<Vec<Refusal>> {
    let mut refusals = Vec::new();
    for repository in repositories {
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
        if repository.has_changed(STASH_LOG) {
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
    let mut found = other_branch(request, repository)?;
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
        // The first commit of a branch without a past may have what other branches have.
        if before.commit.is_none() && repository.has_committed(&committed)? {
            continue;
        }
        let is_staged = staged.contains(&(path.clone(), committed.clone()));
        if !has_seen_version(request, repository, &path, &committed, is_staged)? {
            found.push(committed_unseen(repository, &path, file_now));
        }
    }
    Ok(found)
}

/// The branch is another one than the agent knows.
fn other_branch(request: &Request<'_>, repository: &ChangedRepository) -> Result<Objections> {
    // HEAD of a submodule is mostly on no branch, and moves with every commit.
    if repository.tree.is_submodule() && repository.head(Moment::Before).branch.is_none() {
        return Ok(Vec::new());
    }
    let head = of_git(&repository.tree, "HEAD");
    let state = now(&head);
    let known = request.turn.get(&head)?.map(|sighting| sighting.baseline(Extent::Part));
    let Some(known) = known.filter(|known| *known != state) else { return Ok(Vec::new()) };
    let stale = Stale { harm: Some(Harm::OtherBranch), ..Stale::new(known, state) };
    Ok(vec![(head, Reason::Stale(stale))])
}

/// Whether the agent has seen a version of a file. What it has staged itself it knows, whatever was saved in the file since.
fn has_seen_version(
    request: &Request<'_>,
    repository: &ChangedRepository,
    path: &Path,
    object: &str,
    is_staged: bool,
) -> Result<bool> {
    let entry = of_git(&repository.tree, Path::new("index").join(path));
    if is_staged && request.turn.has_seen(&entry, object_state(object))? {
        return Ok(true);
    }
    if object.bytes().all(|digit| digit == b'0') {
        return Ok(false);
    }
    let content = repository.content(path, object)?;
    request.turn.has_seen(&FilePath::trusted(repository.tree.top.join(path)), FileState::Present(content))
}

fn committed_unseen(
    repository: &ChangedRepository,
    path: &Path,
    file: &UnfinishedFile,
) -> (FilePath, Reason) {
    let stale = Stale {
        unfinished: Some(file.work.clone()),
        harm: Some(Harm::Committed),
        ..Stale::new(file.committed.into(), file.state)
    };
    (FilePath::trusted(repository.tree.top.join(path)), Reason::Stale(stale))
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
    if goes_on { Ok(Vec::new()) } else { head_moved(request, repository, unfinished) }
}

fn head_moved(
    request: &Request<'_>,
    repository: &ChangedRepository,
    unfinished: &mut UnfinishedFiles,
) -> Result<Objections> {
    if began_it(request, repository)? {
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
        || ![STASH_LOG, "refs/stash"].iter().any(|name| repository.has_changed(name))
    {
        return Ok(Vec::new());
    }
    let after = repository.stashes(Moment::After);
    let mut dropped = repository.stashes(Moment::Before);
    dropped.retain(|stash| !after.contains(stash));
    dropped_stashes(request, repository, &dropped, unfinished)
}

fn dropped_stashes(
    request: &Request<'_>,
    repository: &ChangedRepository,
    dropped: &[String],
    unfinished: &mut UnfinishedFiles,
) -> Result<Objections> {
    for stash in dropped {
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

/// Why an agent must not do with git what its command is about to do, as far as its text tells.
pub(crate) fn judge_step(
    request: &Request<'_>,
    GitStep { folder, does }: &GitStep,
    unfinished: &mut UnfinishedFiles,
) -> Result<Objections> {
    let tree = WorkingTree::around(folder).filter(|tree| tree.top.starts_with(request.root.path()));
    let Some(tree) = tree else { return Ok(Vec::new()) };
    let repository = ChangedRepository::unchanged(tree);
    let head = repository.head(Moment::Before);
    let settings = request.root.settings();
    match does {
        GitEffect::Commit(_) if settings.git.commit == CommitRule::Any => Ok(Vec::new()),
        GitEffect::Commit(content) => {
            let mut found = other_branch(request, &repository)?;
            let unseen = unfinished.unseen_in(request, &repository.tree)?;
            let staged = if content.staged && !unseen.is_empty() {
                repository.staged(Moment::Before)?
            } else {
                Vec::new()
            };
            let mut is_unseen: HashSet<&Path> = HashSet::new();
            for (path, object) in &staged {
                if unseen.contains_key(path) && !has_seen_version(request, &repository, path, object, true)? {
                    is_unseen.insert(path);
                }
            }
            for (path, file) in &unseen {
                let named =
                    content.paths.iter().any(|named| repository.tree.top.join(path).starts_with(named));
                if named || content.tracked && file.committed.is_some() || is_unseen.contains(path.as_path())
                {
                    found.push(committed_unseen(&repository, path, file));
                }
            }
            Ok(found)
        }
        _ if settings.guard.unfinished == Unfinished::Allow => Ok(Vec::new()),
        GitEffect::Switch(to) if to.as_deref() == Some("HEAD") => Ok(Vec::new()),
        GitEffect::Switch(Some(to)) if head.branch == Some(format!("refs/heads/{to}")) => Ok(Vec::new()),
        GitEffect::Reset(Some(to)) => match (head.commit, repository.commit(to)) {
            (Some(old), Some(new)) if old != new && !repository.is_ancestor(&old, &new)? => {
                head_moved(request, &repository, unfinished)
            }
            // git itself refuses what names no commit.
            _ => Ok(Vec::new()),
        },
        GitEffect::Switch(_) | GitEffect::Reset(None) => head_moved(request, &repository, unfinished),
        GitEffect::DropStash(which) => {
            let mut dropped = repository.stashes(Moment::Before);
            if let Some(which) = which {
                dropped = dropped.into_iter().rev().skip(*which).take(1).collect();
            }
            dropped_stashes(request, &repository, &dropped, unfinished)
        }
    }
}

/// After a command of which nobody saw what it did: the turn learns what is newer than the start of the command. It is where HEAD is, which
/// rebase is under way, and which stashes there are.
pub(crate) fn look_again(root: &Root, turn: &dyn TurnState, since: Timestamp) -> Result<()> {
    let Some(tree) = WorkingTree::around(root.path()) else { return Ok(()) };
    let is_new = |path: &FilePath| {
        fs::symlink_metadata(path).is_ok_and(|found| changed_at(&found) >= since.as_nanosecond())
    };
    for name in ["HEAD"].into_iter().chain(UNDER_WAY) {
        let path = of_git(&tree, name);
        if is_new(&path) {
            turn.wrote(&path, now(&path))?;
        }
    }
    if is_new(&of_git(&tree, STASH_LOG)) {
        let repository = ChangedRepository::unchanged(tree);
        for stash in repository.stashes_since(since.as_second()) {
            turn.wrote(&of_git(&repository.tree, Path::new("stash").join(&stash)), object_state(&stash))?;
        }
    }
    Ok(())
}

/// A file of git.
fn of_git(tree: &WorkingTree, name: impl AsRef<Path>) -> FilePath {
    FilePath::trusted(tree.git_dir.join(name))
}

/// What a file of git holds now.
fn now(path: &FilePath) -> FileState {
    fs::read(path).ok().map(|bytes| Digest::of(&bytes)).into()
}

/// An object of git, as a state that a turn can remember.
fn object_state(object: &str) -> FileState {
    FileState::Present(Digest::of(object.as_bytes()))
}
