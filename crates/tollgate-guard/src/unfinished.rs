//! Unfinished work: bytes that are in no commit, so nobody can get them back once they are gone.
//!
//! git itself says which bytes these are: a file is unfinished if it differs from the version in HEAD, or if git neither tracks nor
//! ignores it. Outside of a working tree, it is what another agent has written in a turn that is still open. An agent may destroy
//! unfinished work that it has seen: all of it, or its diff. This file changes and records nothing.
//!
//! Limits: a file that git was told to assume unchanged counts as finished. Who made the work is looked up in the last lines of
//! the ledger only.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use jiff::SignedDuration;

use crate::authors::Authors;
use crate::change::{Action, Change, CommandLook, Expected};
use crate::disk::{changed_at, modified};
use crate::explain::observe;
use crate::look::Look;
use crate::other_tree;
use crate::path::FilePath;
use crate::premise::ChangedPremise;
use crate::premises;
use crate::protected::is_of_git;
use crate::refusal::{ChangedBy, Harm, Reason, Stale};
use crate::repository::{ChangedRepository, Moment};
use crate::request::Request;
use crate::turn::{Extent, FileState};
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_base::event::{Event, Mutation, UnfinishedWork};
use tollgate_base::settings::{Premises, Unfinished};
use tollgate_base::working_tree::WorkingTree;

/// A turn in which nothing was changed for this long has probably ended without a word.
const GOES_ON: SignedDuration = SignedDuration::from_hours(1);

/// The number of paths about which git is asked one by one. Beyond it, it is asked about the whole tree.
const NAMED: usize = 200;

/// Which files in a folder are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Files {
    /// All of them.
    All,
    /// Those that git tracks.
    Tracked,
    /// Those that git neither tracks nor ignores.
    Untracked,
    /// Those that the stash with this number brings back.
    OfStash(usize),
}

/// What an agent's changes would destroy, as far as one request has asked.
#[derive(Default)]
pub(crate) struct UnfinishedFiles {
    trees: HashMap<PathBuf, TreeStatus>,
    ledger: Option<Authors>,
    noted: Vec<(FilePath, Reason)>,
    /// The other working tree that a folder is in.
    others: HashMap<PathBuf, Option<PathBuf>>,
    /// The files that the agent has read, and that were changed since.
    premises: Option<Vec<ChangedPremise>>,
}

/// What git has said about a working tree.
struct TreeStatus {
    tree: WorkingTree,
    /// `None`: about all files.
    asked: Option<HashSet<PathBuf>>,
    /// The unfinished files, relative to the root of the tree, with the object of the version in HEAD.
    unfinished: HashMap<PathBuf, Option<String>>,
}

/// Unfinished work in a file: what the file holds, the version in HEAD, and whose work it is.
#[derive(Debug, Clone)]
pub(crate) struct UnfinishedFile {
    pub(crate) state: FileState,
    pub(crate) committed: Option<Digest>,
    pub(crate) work: UnfinishedWork,
    /// When it got these bytes, or was deleted, by the clock of the file system, in nanoseconds since 1970.
    changed: i128,
}

/// How a change treats the bytes that are there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// They stay, or their author knows them.
    Kept,
    /// A program has read them, and makes something new of them. They are lost only if git has the new version already.
    Replaced,
    /// They are gone afterwards.
    Gone,
}

impl Fate {
    fn of(change: &Change) -> Self {
        match (&change.action, change.expected) {
            (Action::SetMode(_) | Action::Create(_) | Action::CreateProgram(_), _)
            | (_, Expected::Hash(_) | Expected::Absent) => Self::Kept,
            (action, _) if action.extent() == Extent::Part => Self::Kept,
            (Action::CopyOf { .. }, Expected::AtStart(_, CommandLook::ForAgent | CommandLook::ForItself)) => {
                Self::Replaced
            }
            _ => Self::Gone,
        }
    }
}

impl UnfinishedFiles {
    /// Asks git about all these files at once, instead of one by one.
    pub(crate) fn ask_about(&mut self, request: &Request<'_>, changes: &[Change]) -> Result<()> {
        if request.root.settings().guard.unfinished == Unfinished::Allow {
            return Ok(());
        }
        let mut wanted: HashMap<PathBuf, Vec<PathBuf>> = HashMap::new();
        for change in changes.iter().filter(|change| Fate::of(change) != Fate::Kept) {
            let path = request.root.follow(&change.path)?.path;
            if may_be_unseen(request, &path)?
                && let Some(status) = self.tree(&path)
            {
                let top = status.tree.top.clone();
                wanted.entry(top.clone()).or_default().extend(below(&top, &path));
            }
        }
        for (top, paths) in wanted {
            if let Some(status) = self.trees.get_mut(&top) {
                status.ask(&paths)?;
            }
        }
        Ok(())
    }

    /// Why an agent must not make this change, if it destroys unfinished work that the agent has not seen. Also the state of the
    /// file that was looked at, if it was.
    pub(crate) fn judge(
        &mut self,
        request: &Request<'_>,
        path: &FilePath,
        change: &Change,
    ) -> Result<(Option<FileState>, Option<Reason>)> {
        let fate = Fate::of(change);
        let setting = request.root.settings().guard.unfinished;
        if fate == Fate::Kept || setting == Unfinished::Allow || !is_file_of_people(path) {
            return Ok((None, None));
        }
        let look = Look::at(request.root, path)?;
        let FileState::Present(digest) = look.state else { return Ok((None, None)) };
        let state = Some(look.state);
        if request.turn.has_seen(path, look.state)? {
            return Ok((state, None));
        }
        let Some((committed, work)) = self.of(request, path, digest)? else { return Ok((state, None)) };
        if is_own(request, &work, look.changed)?
            || fate == Fate::Replaced && !self.has_version(path, &change.action)?
        {
            return Ok((state, None));
        }
        let reason = destroyed(look.state, committed, work);
        if setting == Unfinished::Note {
            self.noted.push((path.clone(), reason));
            return Ok((state, None));
        }
        Ok((state, Some(reason)))
    }

    /// Whether a file is in another working tree than the one in which the agent began.
    pub(crate) fn is_in_other_tree(&mut self, request: &Request<'_>, path: &FilePath) -> Result<bool> {
        let Some(folder) = path.as_path().parent() else { return Ok(false) };
        if !request.root.settings().git.stay {
            return Ok(false);
        }
        if other_tree::is_head_of_other(request, path.as_path())? {
            return Ok(true);
        }
        if !self.others.contains_key(folder) {
            self.others.insert(folder.to_owned(), other_tree::tree_around(request, folder)?);
        }
        self.others[folder].as_ref().map_or(Ok(false), |tree| other_tree::is_file_of(tree, path))
    }

    /// The files that the agent must read again before it changes this one, because somebody has changed them since it read them. The file
    /// itself is compared anyway.
    pub(crate) fn changed_premises(
        &mut self,
        request: &Request<'_>,
        path: &FilePath,
    ) -> Result<Vec<ChangedPremise>> {
        if request.root.settings().guard.premises != Premises::Refuse || is_of_git(path.as_path()) {
            return Ok(Vec::new());
        }
        let changed = match &self.premises {
            Some(changed) => changed,
            None => self.premises.insert(premises::changed(request.root, request.turn)?),
        };
        Ok(changed.iter().filter(|premise| premise.path != *path).cloned().collect())
    }

    /// The unfinished files below a folder that the agent has not seen, and that it would move away with the folder.
    pub(crate) fn judge_folder(
        &mut self,
        request: &Request<'_>,
        folder: &Path,
    ) -> Result<Vec<(FilePath, Reason)>> {
        let setting = request.root.settings().guard.unfinished;
        let Some(tree) = WorkingTree::around(folder).filter(|_| setting != Unfinished::Allow) else {
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        for (relative, file) in self.unseen_in(request, &tree)? {
            let path = FilePath::trusted(tree.top.join(relative));
            if path.as_path().starts_with(folder) && file.state != FileState::Absent {
                found.push((path, destroyed(file.state, file.committed, file.work)));
            }
        }
        if setting == Unfinished::Note {
            self.noted.append(&mut found);
        }
        Ok(found)
    }

    /// Records what would have been refused, if the settings did not only note it.
    pub(crate) fn record_noted(&mut self, request: &Request<'_>) -> Result<()> {
        self.noted.drain(..).try_for_each(|(path, reason)| observe(request, &path, reason))
    }

    /// If the bytes of a file are unfinished: the hash of the version in HEAD, and whose work they are.
    fn of(
        &mut self,
        request: &Request<'_>,
        path: &FilePath,
        digest: Digest,
    ) -> Result<Option<(Option<Digest>, UnfinishedWork)>> {
        let Some(status) = self.tree(path) else {
            let key = request.key(path);
            return Ok(self.ledger(request)?.open_work(&key, digest).map(|work| (None, work)));
        };
        let Some(relative) = below(&status.tree.top, path) else { return Ok(None) };
        status.ask(std::slice::from_ref(&relative))?;
        let Some(object) = status.unfinished.get(&relative) else { return Ok(None) };
        let committed = match object {
            Some(object) => Some(status.tree.content(&relative, object)?),
            None => None,
        };
        // Only its mode has changed, or it is staged and was changed back.
        if committed == Some(digest) {
            return Ok(None);
        }
        // The command has made a commit directly, because the git directory is outside of its view.
        let is_outside = !status.tree.git_dir.starts_with(request.root.path());
        if request.level.is_some() && is_outside && status.tree.has_committed(&relative)? {
            return Ok(None);
        }
        Ok(Some((committed, self.work(request, path, FileState::Present(digest))?)))
    }

    /// Whose work a file is, in this state.
    pub(crate) fn work(
        &mut self,
        request: &Request<'_>,
        path: &FilePath,
        state: FileState,
    ) -> Result<UnfinishedWork> {
        let author = self.ledger(request)?.of(&request.key(path), state.digest());
        let since = author.map(|line| line.time).or_else(|| modified(path.as_path()));
        Ok(UnfinishedWork { agent: author.and_then(|line| line.agent.clone()), since })
    }

    /// The unfinished files of a tree, relative to its root.
    pub(crate) fn all_in(
        &mut self,
        request: &Request<'_>,
        tree: &WorkingTree,
    ) -> Result<HashMap<PathBuf, UnfinishedFile>> {
        let status = self.status(tree.clone());
        status.ask_about_all()?;
        let found = status.unfinished.clone();
        let mut files = HashMap::with_capacity(found.len());
        for (relative, object) in found {
            let path = FilePath::trusted(tree.top.join(&relative));
            let look = Look::at(request.root, &path)?;
            let changed = if look.state == FileState::Absent { folder_changed(&path) } else { look.changed };
            let committed = object.map(|object| tree.content(&relative, &object)).transpose()?;
            let work = self.work(request, &path, look.state)?;
            files.insert(relative, UnfinishedFile { state: look.state, committed, work, changed });
        }
        Ok(files)
    }

    /// The unfinished files of a tree that the agent has neither made nor seen.
    pub(crate) fn unseen_in(
        &mut self,
        request: &Request<'_>,
        tree: &WorkingTree,
    ) -> Result<HashMap<PathBuf, UnfinishedFile>> {
        let mut unseen = self.all_in(request, tree)?;
        let mut seen = Vec::new();
        for (relative, file) in &unseen {
            let path = FilePath::trusted(tree.top.join(relative));
            if is_own(request, &file.work, file.changed)? || request.turn.has_seen(&path, file.state)? {
                seen.push(relative.clone());
            }
        }
        seen.iter().for_each(|relative| drop(unseen.remove(relative)));
        Ok(unseen)
    }

    /// The unfinished files below a folder that a change of the folder would change.
    pub(crate) fn below(
        &mut self,
        request: &Request<'_>,
        folder: &Path,
        wanted: Files,
    ) -> Result<Vec<PathBuf>> {
        let Some(tree) = WorkingTree::around(folder) else {
            let below = request.key(&FilePath::trusted(folder.to_owned()));
            let lines = self.ledger(request)?.lines.iter();
            let named = lines.filter_map(|line| match &line.event {
                Event::Mutation(Mutation::File(change), _) => Some(Path::new(&change.target_file)),
                _ => None,
            });
            let found: HashSet<&Path> = named.filter(|path| path.starts_with(&below)).collect();
            return Ok(found.into_iter().map(|path| request.root.path().join(path)).collect());
        };
        let Ok(relative) = folder.strip_prefix(&tree.top).map(Path::to_owned) else { return Ok(Vec::new()) };
        let only: Vec<&PathBuf> =
            Some(&relative).filter(|path| !path.as_os_str().is_empty()).into_iter().collect();
        if let Files::OfStash(number) = wanted {
            let repository = ChangedRepository::unchanged(tree);
            let Some(stash) = repository.stashes(Moment::Before).into_iter().rev().nth(number) else {
                return Ok(Vec::new());
            };
            let files = repository.stash_files(&stash)?.into_iter();
            return Ok(files.map(|(path, _)| repository.tree.top.join(path)).collect());
        }
        let mut found: HashSet<PathBuf> = tree.unfinished(&only)?.into_keys().collect();
        if wanted != Files::All && !found.is_empty() {
            let untracked = tree.untracked(&only)?;
            found.retain(|path| untracked.contains(path) == (wanted == Files::Untracked));
        }
        Ok(found.into_iter().map(|path| tree.top.join(path)).collect())
    }

    /// Work of another agent in a tree: unfinished files that this agent has not seen, or changes in a turn that goes on.
    pub(crate) fn work_of_others(
        &mut self,
        request: &Request<'_>,
        tree: &WorkingTree,
    ) -> Result<Option<UnfinishedWork>> {
        let unseen = self.unseen_in(request, tree)?;
        if let Some(file) = unseen.into_values().find(|file| file.work.agent.is_some()) {
            return Ok(Some(file.work));
        }
        let below = request.key(&FilePath::trusted(tree.top.clone()));
        let now = request.root.now();
        let ledger = self.ledger(request)?;
        let line =
            ledger.lines.iter().take_while(|line| now.duration_since(line.time) < GOES_ON).find(|line| {
                let Event::Mutation(Mutation::File(change), _) = &line.event else { return false };
                let target = Path::new(&change.target_file);
                line.agent.as_ref().is_some_and(|agent| !agent.is_same_session(request.turn.agent()))
                    && ledger.is_open(line)
                    && target.starts_with(&below)
                    && !is_of_git(target)
            });
        Ok(line.map(|line| UnfinishedWork { agent: line.agent.clone(), since: Some(line.time) }))
    }

    /// Whether git has what the change would make of a file.
    fn has_version(&mut self, path: &FilePath, action: &Action) -> Result<bool> {
        let (Some(status), Action::CopyOf { file, .. }) = (self.tree(path), action) else { return Ok(false) };
        match below(&status.tree.top, path) {
            Some(relative) => status.tree.has(&relative, file),
            None => Ok(false),
        }
    }

    /// What is known of the working tree that a file is in.
    fn tree(&mut self, path: &FilePath) -> Option<&mut TreeStatus> {
        Some(self.status(WorkingTree::around(path.as_path().parent()?)?))
    }

    fn status(&mut self, tree: WorkingTree) -> &mut TreeStatus {
        self.trees.entry(tree.top.clone()).or_insert_with(|| TreeStatus::new(tree))
    }

    fn ledger(&mut self, request: &Request<'_>) -> Result<&Authors> {
        Ok(match self.ledger.take() {
            Some(ledger) => self.ledger.insert(ledger),
            None => self.ledger.insert(Authors::read(request.root.ledger())?),
        })
    }
}

impl TreeStatus {
    fn new(tree: WorkingTree) -> Self {
        Self { tree, asked: Some(HashSet::new()), unfinished: HashMap::new() }
    }

    /// Asks git about these files, unless it was asked before.
    fn ask(&mut self, paths: &[PathBuf]) -> Result<()> {
        let Some(asked) = &mut self.asked else { return Ok(()) };
        let new: Vec<&PathBuf> = paths.iter().filter(|path| !asked.contains(*path)).collect();
        if new.is_empty() {
            return Ok(());
        }
        if new.len() > NAMED {
            return self.ask_about_all();
        }
        let found = self.tree.unfinished(&new)?;
        asked.extend(new.into_iter().cloned());
        self.unfinished.extend(found);
        Ok(())
    }

    fn ask_about_all(&mut self) -> Result<()> {
        if self.asked.is_some() {
            self.unfinished = self.tree.unfinished(&[])?;
            self.asked = None;
        }
        Ok(())
    }
}

/// Why unfinished work must not be destroyed.
fn destroyed(state: FileState, committed: Option<Digest>, work: UnfinishedWork) -> Reason {
    let changed_by = work.agent.clone().zip(work.since).map(|(agent, time)| ChangedBy { agent, time });
    let harm = Some(Harm::Destroyed);
    Reason::Stale(Stale { changed_by, harm, unfinished: Some(work), ..Stale::new(committed.into(), state) })
}

fn below(top: &Path, path: &FilePath) -> Option<PathBuf> {
    path.as_path().strip_prefix(top).ok().map(Path::to_owned)
}

/// Whether there is a file at a path, and not one that git keeps for itself.
fn is_file_of_people(path: &FilePath) -> bool {
    !is_of_git(path.as_path()) && fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
}

/// Whether the agent may not have seen what a file holds now.
fn may_be_unseen(request: &Request<'_>, path: &FilePath) -> Result<bool> {
    Ok(is_file_of_people(path) && !request.turn.has_seen(path, Look::at(request.root, path)?.state)?)
}

/// Whether it is the agent's own work, or that of another agent of its session. What nobody is known to have made is the agent's own if it
/// appeared while only commands of the agent ran.
fn is_own(request: &Request<'_>, work: &UnfinishedWork, changed: i128) -> Result<bool> {
    match &work.agent {
        Some(author) => Ok(author.is_same_session(request.turn.agent())),
        None => request.turn.ran_alone_at(changed),
    }
}

/// When the nearest folder above a deleted file last changed.
fn folder_changed(path: &FilePath) -> i128 {
    let found = path.as_path().ancestors().skip(1).find_map(|folder| fs::symlink_metadata(folder).ok());
    found.map_or(i128::MAX, |found| changed_at(&found))
}
