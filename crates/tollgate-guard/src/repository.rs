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
use crate::turn_notes::Head;
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_base::working_tree::WorkingTree;

/// The number of new commits that are looked at. A command that makes more has got them from elsewhere.
const COMMITS: &str = "--max-count=1000";

/// The log of the stash, in the git directory.
pub(crate) const STASH_LOG: &str = "logs/refs/stash";

/// A repository that a command has changed.
pub(crate) struct ChangedRepository {
    pub(crate) tree: WorkingTree,
    /// The changed files, relative to the git directory, with those in the layer. `None`: the command deleted it.
    files: BTreeMap<PathBuf, Option<PathBuf>>,
}

/// A branch that a program has just made or moved, and on which HEAD was not. `git switch -c` makes the branch before it moves HEAD.
pub struct MovedBranch {
    tree: WorkingTree,
    name: String,
    /// Its commit before. `None`: there was no such branch.
    before: Option<String>,
    after: String,
}

impl MovedBranch {
    /// The branch that gets this new file, if it is one.
    pub(crate) fn of(root: &Root, file: &Path, new: &Path) -> Option<Self> {
        let repository = ChangedRepository::of_file(root, file, Some(new))?;
        let name = file.strip_prefix(&repository.tree.git_dir).ok()?;
        let name = name.to_str().filter(|name| name.starts_with("refs/heads/"))?.to_owned();
        if repository.head(Moment::Before).branch.as_ref() == Some(&name) {
            return None;
        }
        let before = repository.reference(&name, Moment::Before);
        let after = repository.reference(&name, Moment::After)?;
        Some(Self { tree: repository.tree, name, before, after })
    }

    /// Deletes the branch, or moves it back. Fails if it has been moved since.
    pub fn roll_back(&self) -> Result<()> {
        let nothing = "0".repeat(self.after.len());
        let before = self.before.as_ref().unwrap_or(&nothing);
        let mut command = self.tree.git();
        command.args(["update-ref", "--no-deref", &self.name, before, &self.after]);
        self.tree.answer(&mut command, b"").map(drop)
    }
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
        // By git directory: the working tree, and the changed files.
        let mut found: BTreeMap<PathBuf, Self> = BTreeMap::new();
        for change in changes {
            let path = root.path().join(&change.path);
            let Some(git_dir) = git_dir_of(&path, root.path()) else { continue };
            let Ok(name) = path.strip_prefix(&git_dir) else { continue };
            let file = match &change.action {
                Action::CopyOf { file, .. } => Some(file.clone()),
                Action::Delete => None,
                _ => continue,
            };
            if let Some(known) = found.get_mut(&git_dir) {
                known.files.insert(name.to_owned(), file);
            } else if let Some(tree) = WorkingTree::of(&git_dir) {
                let files = BTreeMap::from([(name.to_owned(), file)]);
                found.insert(git_dir, Self { tree, files });
            }
        }
        found.into_values().collect()
    }

    /// A repository of which nothing has changed yet: after is as before.
    pub(crate) fn unchanged(tree: WorkingTree) -> Self {
        Self { tree, files: BTreeMap::new() }
    }

    /// The commit with this name.
    pub(crate) fn commit(&self, name: &str) -> Option<String> {
        let mut command = self.tree.git();
        command
            .args(["rev-parse", "--verify", "--quiet", "--end-of-options"])
            .arg(format!("{name}^{{commit}}"));
        let answer = self.tree.answer(&mut command, b"").ok()?;
        Some(answer.trim_ascii().to_str().ok()?.to_owned())
    }

    /// The repository of which a program changes only this file.
    pub(crate) fn of_file(root: &Root, file: &Path, new: Option<&Path>) -> Option<Self> {
        let git_dir = git_dir_of(file, root.path())?;
        let name = file.strip_prefix(&git_dir).ok()?.to_owned();
        let files = BTreeMap::from([(name, new.map(Path::to_owned))]);
        Some(Self { tree: WorkingTree::of(&git_dir)?, files })
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
    pub(crate) fn reference(&self, name: &str, moment: Moment) -> Option<String> {
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
        let is_there = self.tree.agrees(self.tree.git().args(["cat-file", "-e", other]))?;
        // At the gate, new objects are there already.
        let mut branches = self.tree.git();
        branches.args(["for-each-ref", "--count=1", "--contains", other]);
        let is_old = is_there && !self.tree.answer(&mut branches, b"")?.is_empty();
        Ok(!is_old && parents(one)? == parents(other)?)
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

    /// The stashes, as far as the log of the stash knows them, the newest last.
    pub(crate) fn stashes(&self, moment: Moment) -> Vec<String> {
        if moment == Moment::After && self.files.get(Path::new("refs/stash")) == Some(&None) {
            return Vec::new();
        }
        self.stash_log(moment).into_iter().map(|(stash, _)| stash).collect()
    }

    /// The stashes that were made in this second or later.
    pub(crate) fn stashes_since(&self, second: i64) -> Vec<String> {
        let new = |(stash, made): (String, i64)| (made >= second).then_some(stash);
        self.stash_log(Moment::Before).into_iter().filter_map(new).collect()
    }

    /// The stashes, and when they were made, in seconds since 1970.
    fn stash_log(&self, moment: Moment) -> Vec<(String, i64)> {
        let Some(log) = self.file(STASH_LOG, moment) else { return Vec::new() };
        let stash = |line: &[u8]| {
            // OLD NEW NAME <ADDRESS> SECONDS ZONE, then a tab and the message
            let line = line.split(|byte| *byte == b'\t').next()?.to_str().ok()?;
            Some((line.split(' ').nth(1)?.to_owned(), line.rsplit(' ').nth(1)?.parse().ok()?))
        };
        log.lines().filter_map(stash).collect()
    }

    /// The stash that a program is about to make, if it changes only the file that names the newest one. git has written the log before.
    pub(crate) fn pushed_stash(&self) -> Option<String> {
        let (before, after) =
            (self.text("refs/stash", Moment::Before), self.text("refs/stash", Moment::After)?);
        let log = self.text("logs/refs/stash", Moment::Before)?;
        let mut words = log.lines().next_back()?.split(' ');
        let (old, new) = (words.next()?, words.next()?);
        let is_first = before.is_none() && old.bytes().all(|digit| digit == b'0');
        (self.has_changed("refs/stash") && new == after && (is_first || before.as_deref() == Some(old)))
            .then_some(after)
    }

    /// The files of a stash, with their objects.
    pub(crate) fn stash_files(&self, stash: &str) -> Result<Vec<(PathBuf, String)>> {
        let mut command = self.tree.git();
        command.args(["diff-tree", "-r", "--raw", "--no-abbrev", "--no-renames", "-z"]);
        let [first_parent, untracked] = ["^1", "^3"].map(|parent| format!("{stash}{parent}"));
        let mut files = raw_changes(&self.tree.answer(command.args([&first_parent, stash]), b"")?);
        if self.tree.agrees(self.tree.git().args(["rev-parse", "-q", "--verify", &untracked]))? {
            let mut command = self.tree.git();
            command.args([
                "diff-tree",
                "-r",
                "--root",
                "--no-commit-id",
                "--raw",
                "--no-abbrev",
                "-z",
                &untracked,
            ]);
            files.extend(raw_changes(&self.tree.answer(&mut command, b"")?));
        }
        Ok(files)
    }
}

/// The git directory that a file is in, if it is in one in this folder: `.git`, or that of a submodule in it.
fn git_dir_of(path: &Path, root: &Path) -> Option<PathBuf> {
    let inside = || path.ancestors().skip(1).take_while(|folder| folder.starts_with(root));
    let is_submodule = |folder: &&Path| {
        folder.iter().any(|part| part == "modules")
            && folder.join("HEAD").is_file()
            && folder.join("objects").is_dir()
    };
    let git = inside().find(|folder| folder.ends_with(".git"))?;
    let below = inside().take_while(|folder| *folder != git);
    Some(below.into_iter().find(is_submodule).unwrap_or(git).to_owned())
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
