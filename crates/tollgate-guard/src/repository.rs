//! What a command did to a git repository in its own view: what it committed, where it moved HEAD, which stashes it dropped.
//!
//! The command has ended, and its changes of git's own files are in its layer, beside the files as they are in the workspace. So git
//! can be asked about the repository before and after, and what the command was called does not matter.
//!
//! Limits: the git directory must be in the workspace (that of a linked working tree is elsewhere), and branches must be files (the
//! format `reftable` is not understood).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use bstr::ByteSlice;

use crate::change::{Action, Change};
use crate::root::Root;
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_base::working_tree::WorkingTree;

/// The number of new commits that are looked at. A command that makes more has got them from elsewhere.
const COMMITS: &str = "--max-count=1000";

/// A repository that a command has changed.
pub(crate) struct ChangedRepository {
    pub(crate) tree: WorkingTree,
    /// The changed files, relative to the git directory, with those in the layer. `None`: the command deleted it.
    files: BTreeMap<PathBuf, Option<PathBuf>>,
}

/// Where HEAD is: on a branch, or on a commit of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    /// The name of the branch as git has it, `refs/heads/main`.
    pub(crate) branch: Option<String>,
    /// The commit. `None`: the branch has none yet.
    pub(crate) commit: Option<String>,
}

/// When to look at a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    Before,
    After,
}

impl ChangedRepository {
    /// The repositories in the workspace that these changes are about.
    pub(crate) fn all(root: &Root, changes: &[Change]) -> Vec<Self> {
        let mut found: BTreeMap<PathBuf, BTreeMap<PathBuf, Option<PathBuf>>> = BTreeMap::new();
        for change in changes {
            let mut parts = change.path.iter();
            let top: PathBuf = parts.by_ref().take_while(|part| *part != ".git").collect();
            let name: PathBuf = parts.collect();
            if name.as_os_str().is_empty() {
                continue;
            }
            let file = match &change.action {
                Action::CopyOf { file, .. } => Some(file.clone()),
                Action::Delete => None,
                _ => continue,
            };
            found.entry(top).or_default().insert(name, file);
        }
        let repository = |(top, files): (PathBuf, _)| {
            let top = root.path().join(top);
            let tree = WorkingTree::around(&top).filter(|tree| tree.top == top)?;
            (tree.git_dir == top.join(".git")).then_some(Self { tree, files })
        };
        found.into_iter().filter_map(repository).collect()
    }

    /// Whether the command changed a file of git with this name, or below it.
    pub(crate) fn has_changed(&self, name: &str) -> bool {
        self.files.keys().any(|file| file.starts_with(name))
    }

    /// A file of git.
    fn file(&self, name: &str, moment: Moment) -> Option<Vec<u8>> {
        let at = match (moment, self.files.get(Path::new(name))) {
            (Moment::After, Some(changed)) => changed.clone()?,
            _ => self.tree.git_dir.join(name),
        };
        fs::read(at).ok()
    }

    fn text(&self, name: &str, moment: Moment) -> Option<String> {
        Some(self.file(name, moment)?.to_str().ok()?.trim_end().to_owned())
    }

    /// Where HEAD is.
    pub(crate) fn head(&self, moment: Moment) -> Head {
        let head = self.text("HEAD", moment).unwrap_or_default();
        match head.strip_prefix("ref: ") {
            Some(branch) => Head { commit: self.reference(branch, moment), branch: Some(branch.to_owned()) },
            None => Head { branch: None, commit: Some(head) },
        }
    }

    /// The commit of a branch.
    fn reference(&self, name: &str, moment: Moment) -> Option<String> {
        if let Some(commit) = self.text(name, moment) {
            return Some(commit);
        }
        let packed = self.text("packed-refs", moment)?;
        packed.lines().find_map(|line| {
            let (commit, found) = line.split_once(' ')?;
            (found == name).then(|| commit.to_owned())
        })
    }

    /// A call of git that sees the repository at this moment: its index, and its objects.
    fn git(&self, moment: Moment) -> Command {
        let mut command = self.tree.git();
        if moment == Moment::Before {
            return command;
        }
        let objects = self.tree.git_dir.join("objects");
        let new = self.files.iter().find_map(|(name, file)| {
            let below = name.strip_prefix("objects").ok()?.iter().count();
            file.as_ref()?.ancestors().nth(below).map(Path::to_owned)
        });
        if let Some(new) = new {
            command.env("GIT_OBJECT_DIRECTORY", new);
            command.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", quoted(&objects));
        }
        if let Some(Some(index)) = self.files.get(Path::new("index")) {
            command.env("GIT_INDEX_FILE", index);
        }
        command
    }

    /// Whether one commit is the other, or comes after it.
    pub(crate) fn is_ancestor(&self, one: &str, other: &str) -> Result<bool> {
        let mut command = self.git(Moment::After);
        self.tree.agrees(command.args(["merge-base", "--is-ancestor", one, other]))
    }

    /// Whether a commit takes the place of another one: it has the same parents, and is new.
    pub(crate) fn amends(&self, one: &str, other: &str) -> Result<bool> {
        let parents = |commit: &str| {
            let commit = format!("{commit}^@");
            self.tree.answer(self.git(Moment::After).args(["rev-parse", &commit]), b"")
        };
        let mut is_old = self.tree.git();
        Ok(!self.tree.agrees(is_old.args(["cat-file", "-e", other]))? && parents(one)? == parents(other)?)
    }

    /// What new commits, up to this one, give these files: paths, relative to the root of the tree, and objects.
    pub(crate) fn committed(&self, commit: &str, paths: &[&Path]) -> Result<Vec<(PathBuf, String)>> {
        let mut command = self.git(Moment::After);
        command.args([
            "log",
            "--format=",
            "--raw",
            "--no-abbrev",
            "-m",
            "--root",
            "--no-renames",
            "-z",
            COMMITS,
        ]);
        command.args([commit, "--not", "--all", "--"]).args(paths);
        let output = self.tree.answer(&mut command, b"")?;
        Ok(raw_changes(&output))
    }

    /// What is staged: paths, relative to the root of the tree, and objects.
    pub(crate) fn staged(&self, moment: Moment) -> Result<Vec<(PathBuf, String)>> {
        let Some(head) = self.head(moment).commit else { return Ok(Vec::new()) };
        let mut command = self.git(moment);
        command.args(["diff-index", "--cached", "--raw", "--no-abbrev", "--no-renames", "-z", &head, "--"]);
        Ok(raw_changes(&self.tree.answer(&mut command, b"")?))
    }

    /// Whether a commit of any branch has this object.
    pub(crate) fn has_committed(&self, object: &str) -> Result<bool> {
        let mut command = self.tree.git();
        command.args(["log", "--all", "--format=%H", "-1"]).arg(format!("--find-object={object}"));
        Ok(!self.tree.answer(&mut command, b"")?.is_empty())
    }

    /// The hash of an object, as the file at this path would have it.
    pub(crate) fn content(&self, path: &Path, object: &str) -> Result<Digest> {
        self.tree.content_by(self.git(Moment::After), path, object)
    }

    /// The stashes, as far as the log of the stash knows them.
    pub(crate) fn stashes(&self, moment: Moment) -> Vec<String> {
        let Some(log) = self.file("logs/refs/stash", moment) else { return Vec::new() };
        let stash = |line: &[u8]| line.split(|byte| *byte == b' ').nth(1)?.to_str().ok().map(str::to_owned);
        log.lines().filter_map(stash).collect()
    }

    /// The files of a stash, with their objects.
    pub(crate) fn stash_files(&self, stash: &str) -> Result<Vec<(PathBuf, String)>> {
        let mut command = self.tree.git();
        command.args(["diff-tree", "-r", "--raw", "--no-abbrev", "--no-renames", "-z"]);
        let first_parent = format!("{stash}^1");
        Ok(raw_changes(&self.tree.answer(command.args([&first_parent, stash]), b"")?))
    }
}

/// The paths and new objects of a raw diff of git: `:MODE MODE OLD NEW LETTER`, then the path.
fn raw_changes(output: &[u8]) -> Vec<(PathBuf, String)> {
    let mut changes = Vec::new();
    let mut parts = output.split(|byte| *byte == 0);
    while let Some(part) = parts.next() {
        let Some(at) = part.find_byte(b':') else { continue };
        let (object, path) = (part[at..].split(|byte| *byte == b' ').nth(3), parts.next());
        if let (Some(object), Some(path)) = (object.and_then(|object| object.to_str().ok()), path) {
            changes.push((PathBuf::from(OsStr::from_bytes(path)), object.to_owned()));
        }
    }
    changes
}

/// A folder in git's list of folders, whatever is in its name.
fn quoted(folder: &Path) -> OsString {
    let mut quoted = b"\"".to_vec();
    for byte in folder.as_os_str().as_bytes() {
        if matches!(byte, b'"' | b'\\') {
            quoted.push(b'\\');
        }
        quoted.push(*byte);
    }
    quoted.push(b'"');
    OsStr::from_bytes(&quoted).to_owned()
}
