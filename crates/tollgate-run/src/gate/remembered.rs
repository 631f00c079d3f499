//! What a command has seen and changed, file by file. This file makes no decisions.
//!
//! The kernel makes a call after the answer, and nobody reports how it ended. So a file may afterwards be in the state before
//! the call or in the one after it, and both are the command's own.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::closed::ClosedFiles;
use super::tracee::OwnView;
use crate::sys::seccomp::Interruptible;
use crate::transaction::ignored::IgnoreRules;
use tollgate_base::digest::Digest;
use tollgate_guard::change::Action;
use tollgate_guard::refusal::Refusal;
use tollgate_guard::supervised::{MadeChange, MovedBranch};
use tollgate_guard::turn::{Extent, FileState};
use tollgate_guard::workspace::STATE_FOLDER;

/// The number of bytes that are kept to show what changed, for all files together.
const TEXTS: usize = 32 << 20;

/// A change by the command: of the whole file, or of some part of it.
pub(super) fn by_command(whole: bool) -> Action {
    Action::by_program(if whole { Extent::Whole } else { Extent::Part })
}

/// What the command knows of one file.
#[derive(Debug, Default)]
pub(super) struct KnownFile {
    /// The states in which it may be. Empty: the command has seen nothing.
    pub(super) states: Vec<FileState>,
    /// The command has just changed it, and nobody knows into what: it may be in any state.
    pub(super) anything: bool,
    /// What it was before the command first changed it.
    pub(super) before: Option<FileState>,
    /// The number of times that the command has opened it for writing and not closed it yet.
    pub(super) open: usize,
    /// What the command last read in it.
    pub(super) read: Option<FileState>,
}

/// What is known about the files that a command has used.
pub(super) struct CommandMemory {
    pub(super) view: OwnView,
    /// Folders in the workspace that are not guarded.
    pub(super) pass: Vec<PathBuf>,
    /// Which other folders are not guarded either.
    pub(super) rules: IgnoreRules,
    /// The git directory of the workspace, or the file that names it, if there was one at the start.
    git: Option<PathBuf>,
    pub(super) known: HashMap<PathBuf, KnownFile>,
    pub(super) closed: ClosedFiles,
    pub(super) texts: HashMap<Digest, Vec<u8>>,
    pub(super) text_bytes: usize,
    /// Refusals that the command has not overcome yet, by path.
    pub(super) refused: BTreeMap<PathBuf, Refusal>,
    /// Changes that are recorded already.
    pub(super) made: Vec<MadeChange>,
    /// The branch of git that was made or moved last, and by which thread.
    pub(super) moved_branch: Option<(PathBuf, MovedBranch)>,
    /// Folders that are in no other working tree.
    pub(super) in_own_tree: HashSet<PathBuf>,
    /// Whether the supervisor may make calls for processes with its own rights. Not if a process of the command may have
    /// restricted itself in a way that nobody can see, or may make an interrupted call again.
    pub(super) may_act: bool,
}

impl CommandMemory {
    /// Nothing yet.
    pub(super) fn new(root: &Path, pass: &[PathBuf]) -> io::Result<Self> {
        Ok(Self {
            view: OwnView::new(root)?,
            pass: pass.iter().map(|folder| root.join(folder)).collect(),
            rules: IgnoreRules::of(root),
            git: Some(root.join(".git")).filter(|git| git.symlink_metadata().is_ok()),
            known: HashMap::new(),
            closed: ClosedFiles::new()?,
            texts: HashMap::new(),
            text_bytes: 0,
            refused: BTreeMap::new(),
            made: Vec::new(),
            moved_branch: None,
            in_own_tree: HashSet::new(),
            may_act: false,
        })
    }

    /// The calls of the command wait in this way.
    pub(super) fn calls_are(&mut self, interruptible: Interruptible) {
        self.may_act = interruptible == Interruptible::No;
    }

    /// Whether no rule but protection applies. git's own locks protect a git directory.
    pub(super) fn passes(&self, path: &Path) -> bool {
        let Ok(below) = path.strip_prefix(self.view.workspace()) else { return true };
        let mut parts = below.iter();
        let is_own = below.iter().any(|part| part == ".git" || part == STATE_FOLDER);
        let (first, is_deeper) = (parts.next(), parts.next().is_some());
        is_own
            || self.pass.iter().any(|folder| path.starts_with(folder))
            || is_deeper && first.is_some_and(|first| self.rules.ignore(first.as_bytes()))
    }

    /// Whether a path is closed because the workspace was a repository at the start, even if the command has taken that apart.
    pub(super) fn is_closed(&self, path: &Path) -> bool {
        self.git.as_ref().is_some_and(|git| path == git || path.starts_with(git.join("hooks")))
    }

    /// Keeps the text of a file for diffs, as long as there is room.
    pub(super) fn keep_text(&mut self, digest: Digest, text: Vec<u8>) {
        if self.text_bytes + text.len() <= TEXTS && !self.texts.contains_key(&digest) {
            self.text_bytes += text.len();
            self.texts.insert(digest, text);
        }
    }

    /// The command saw a file in this state.
    pub(super) fn saw(&mut self, path: &Path, state: FileState) {
        let known = self.known.entry(path.to_owned()).or_default();
        if known.open == 0 && state != FileState::Unreadable {
            known.states = vec![state];
            known.anything = false;
            known.read = Some(state);
        }
    }

    /// The command opens a file for writing, which was in this state.
    pub(super) fn opened(&mut self, path: &Path, state: FileState) {
        self.closed.watch(path);
        let known = self.known.entry(path.to_owned()).or_default();
        known.before.get_or_insert(state);
        known.open += 1;
        if known.states.is_empty() && state != FileState::Unreadable {
            known.states = vec![state];
        }
    }

    /// A call, if it succeeds, brings a file from one state to another. `Unreadable`: nobody knows to which.
    pub(super) fn becomes(&mut self, path: &Path, before: FileState, after: FileState) {
        let known = self.known.entry(path.to_owned()).or_default();
        known.before.get_or_insert(before);
        known.states = [after, before].into_iter().filter(|state| *state != FileState::Unreadable).collect();
        known.anything = after == FileState::Unreadable;
        known.open = 0;
    }

    /// The files that the command knows in a folder are known under their new names.
    pub(super) fn moved_folder(&mut self, from: &Path, to: &Path) {
        self.closed.moved(from, to);
        let inside: Vec<PathBuf> = self.known.keys().filter(|path| path.starts_with(from)).cloned().collect();
        for path in inside {
            let (Some(known), Ok(rest)) = (self.known.remove(&path), path.strip_prefix(from)) else {
                continue;
            };
            let state = known.states.first().copied().unwrap_or(FileState::Unreadable);
            self.becomes(&path, known.before.unwrap_or(state), FileState::Absent);
            self.becomes(&to.join(rest), FileState::Absent, state);
        }
    }
}
