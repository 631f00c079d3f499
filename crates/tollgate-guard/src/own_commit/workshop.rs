//! The private folder of one commit, in `.tollgate/commits/`: its index, its hooks, and notes for the process that heals.
//!
//! git makes the commit, with the hooks of the repository. A hook of ours stands before them at one place (`branch_hook`): when git
//! has prepared the change of the branch, and holds its lock, it goes on only if it replaces the commit that everything was made from,
//! on the same branch. So nobody's commit in between is reverted, and no commit gets onto another branch. Then we lock the
//! index of the working tree, until that index follows the commit: otherwise a `git commit` of somebody else would revert it.
//!
//! | killed | left | healing |
//! |---|---|---|
//! | before the new commit is noted | this folder; perhaps the lock of the index | removes both |
//! | after it, and the branch has the commit | the same | lets the index follow, adds the ledger line, removes both |
//! | after it, and the branch does not have the commit | the same | removes both |
//!
//! A lock beside the folder says that its process lives. git inherits it, so nobody heals while git may still make the commit.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, accessat};
use serde::{Deserialize, Serialize};

use super::answer::RepositoryHooks;
use super::branch_hook::BranchHook;
use super::index;
use crate::disk::gone_is_none;
use crate::path::EscapedPath;
use crate::root::Root;
use crate::turn::TurnState;
use tollgate_base::error::{At, Fault, Result};
use tollgate_base::lock::{Lock, has_name};
use tollgate_base::name::{Agent, TurnId, is_random_id, random_id};
use tollgate_base::private;
use tollgate_base::working_tree::WorkingTree;

const COMMITS: &str = "commits";

const LOCK: &str = ".lock";

/// The folder with the hooks of one commit.
const HOOKS: &str = "hooks";

/// The hook that git calls before it moves a branch.
const BRANCH_HOOK: &str = "reference-transaction";

/// How long the lock of another git is waited for, and how often it is looked at. git needs it for less than a second.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);

/// What the commit is about, for the process that heals. Written before anything else.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Note {
    top: EscapedPath,
    git_dir: EscapedPath,
    /// The commit that everything was made from; `None` before the first.
    pub(super) head: Option<String>,
    pub(super) branch: Option<String>,
    pub(super) agent: Agent,
    pub(super) turn: Option<TurnId>,
    pub(super) whole: bool,
}

impl Note {
    pub(super) fn new(
        tree: &WorkingTree,
        head: Option<String>,
        branch: Option<String>,
        turn: &dyn TurnState,
        whole: bool,
    ) -> Self {
        let [top, git_dir] = [&tree.top, &tree.git_dir].map(|path| EscapedPath(path.clone()));
        let (agent, turn) = (turn.agent().clone(), Some(turn.id().clone()));
        Self { top, git_dir, head, branch, agent, turn, whole }
    }

    pub(super) fn tree(&self) -> WorkingTree {
        WorkingTree { top: self.top.0.clone(), git_dir: self.git_dir.0.clone() }
    }
}

/// The folder of a commit that is being made.
#[derive(Debug)]
pub(super) struct Workshop {
    path: PathBuf,
    /// The file in git's folder that is the lock of the index while this commit holds it.
    mark: PathBuf,
    index: PathBuf,
    lock: Lock,
}

/// Who may make a commit in the place of one that was prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// The branch has another commit now, HEAD another branch, or a file other bytes.
    Moved,
    /// Another git holds the lock of the index.
    IndexLocked,
}

/// The hooks of a commit.
pub(super) struct Hooks {
    pub(super) folder: PathBuf,
    /// Ours.
    pub(super) branch: BranchHook,
    /// Whether the repository has any.
    pub(super) has_some: bool,
    /// Whether it has a hook [`BRANCH_HOOK`].
    pub(super) has_branch_hook: bool,
}

impl Workshop {
    /// Makes the folder. Heals what dead processes left first.
    pub(super) fn open(root: &Root, tree: &WorkingTree) -> Result<Self> {
        let commits = root.state_path().join(COMMITS);
        private::create_folder(&commits, 0o700).at("make the folder", &commits)?;
        loop {
            let id = random_id()?;
            let lock_file = commits.join(format!("{id}{LOCK}"));
            // Before the folder: a folder without a living lock is removed.
            let Some(lock) = Lock::acquire(&lock_file, Duration::ZERO)? else { continue };
            if !has_name(lock.file()) {
                continue;
            }
            let path = commits.join(&id);
            private::create_folder(&path, 0o700).at("make the folder", &path)?;
            return Ok(Self { mark: mark(tree, &id), index: tree.git_dir.join("index"), path, lock });
        }
    }

    /// The private index.
    pub(super) fn private_index(&self) -> PathBuf {
        self.path.join("index")
    }

    /// The lock, for git to inherit.
    pub(super) fn lock_for_git(&self) -> Result<File> {
        self.lock.file().try_clone().at("share the lock of", &self.path)
    }

    /// Copies the index of the working tree. `None` if there is none.
    pub(super) fn copy_index(&self) -> Result<Option<IndexStamp>> {
        let stamp = IndexStamp::of(&self.index)?;
        if stamp.is_some() {
            index::copy(&self.index, &self.private_index())?;
        }
        Ok(stamp)
    }

    /// Whether the index of the working tree is still the one that was copied.
    pub(super) fn index_is(&self, stamp: IndexStamp) -> Result<bool> {
        Ok(IndexStamp::of(&self.index)? == Some(stamp))
    }

    /// A file for what git prints.
    pub(super) fn output(&self) -> Result<File> {
        let path = self.path.join("output");
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL;
        private::open_with_mode(&path, flags, Mode::RUSR | Mode::WUSR).map(File::from).at("create", &path)
    }

    /// Writes the hooks: ours, and the repository's own, if they are to run.
    pub(super) fn prepare_hooks(&self, tree: &WorkingTree, hooks: RepositoryHooks) -> Result<Hooks> {
        let folder = self.path.join(HOOKS);
        private::create_folder(&folder, 0o700).at("make the folder", &folder)?;
        let branch = BranchHook::open()?;
        let mut has_some = false;
        let mut next = None;
        if let Some(hooks) = hooks_folder(tree, hooks)? {
            let absolute = tree.top.join(&hooks);
            let names = gone_is_none(private::names(&absolute).at("list the folder", &absolute))?;
            for name in names.unwrap_or_default() {
                let is_hook = name.as_bytes().iter().all(|byte| byte.is_ascii_lowercase() || *byte == b'-');
                if is_hook && may_execute(&absolute.join(&name)) {
                    write_hook(&folder.join(&name), &pass_on(&hooks.join(&name)))?;
                    has_some = true;
                }
            }
            next = may_execute(&absolute.join(BRANCH_HOOK))
                .then(|| quoted(hooks.join(BRANCH_HOOK).as_os_str().as_bytes()));
        }
        write_hook(&folder.join(BRANCH_HOOK), &branch.script(next.as_deref()))?;
        Ok(Hooks { folder, branch, has_some, has_branch_hook: next.is_some() })
    }

    /// The names of files for git to commit.
    pub(super) fn names(&self) -> PathBuf {
        self.path.join("names")
    }

    /// Writes them.
    pub(super) fn write_names<'n>(&self, names: impl Iterator<Item = &'n str>) -> Result<()> {
        let place = self.names();
        let text: Vec<u8> = names.flat_map(|name| name.bytes().chain([0])).collect();
        private::write(&place, text).at("write", &place)
    }

    /// Writes what the commit is about, before git begins.
    pub(super) fn begin(&self, note: &Note, hooks: &Hooks) -> Result<()> {
        if !may_execute(&hooks.folder.join(BRANCH_HOOK)) {
            return Err(Fault::invalid_with_hint(
                format!("hooks in `{}` cannot be executed", hooks.folder.display()),
                "mount the file system of the workspace without `noexec`, or commit with `git`",
            ));
        }
        let json = serde_json::to_vec(note).map_err(|error| Fault::invalid(error.to_string()))?;
        let place = self.path.join("note");
        private::write(&place, json).at("write", &place)?;
        private::write(&self.mark, "").at("write", &self.mark)
    }

    /// Whether git may go on with the change of references that these lines of its hook announce: only if it replaces the commit that
    /// everything was made from. Locks the index, and notes the new commit.
    pub(super) fn allows(&self, note: &Note, lines: &[String]) -> Result<std::result::Result<(), Obstacle>> {
        let branch = note.branch.as_ref().map_or("HEAD".to_owned(), |branch| format!("refs/heads/{branch}"));
        let mut commit = None;
        let mut moves = false;
        for line in lines {
            let Some((old, new, name)) = three_words(line) else { continue };
            moves |= name == "HEAD" || name.starts_with("refs/heads/");
            if name == branch {
                let is_expected = match &note.head {
                    Some(head) => old == head,
                    None => old.bytes().all(|byte| byte == b'0'),
                };
                if !is_expected {
                    return Ok(Err(Obstacle::Moved));
                }
                commit = Some(new);
            } else if name.starts_with("refs/heads/") {
                return Ok(Err(Obstacle::Moved));
            }
        }
        match commit {
            _ if !moves || self.made().is_some() => return Ok(Ok(())),
            None => return Ok(Err(Obstacle::Moved)),
            Some(commit) => {
                if !self.lock_index()? {
                    return Ok(Err(Obstacle::IndexLocked));
                }
                let place = self.path.join("made");
                private::write(&place, format!("{commit}\n")).at("write", &place)?;
            }
        }
        Ok(Ok(()))
    }

    /// Waits until no other git holds the lock of the index, and takes it. `false` if that takes too long.
    fn lock_index(&self) -> Result<bool> {
        let lock = index_lock(&self.index);
        let until = Instant::now() + PATIENCE;
        loop {
            match private::link(&self.mark, &lock) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && Instant::now() < until => {
                    std::thread::sleep(PAUSE);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
                linked => return linked.at("lock", &self.index).map(|()| true),
            }
        }
    }

    /// Deletes the hook of the branch, which has nothing more to ask.
    pub(super) fn remove_branch_hook(&self) -> Result<()> {
        let hook = self.path.join(HOOKS).join(BRANCH_HOOK);
        private::remove_file(&hook).at("remove", &hook)
    }

    /// The commit that the hook has let through.
    pub(super) fn made(&self) -> Option<String> {
        made(&self.path)
    }

    /// Puts a new index in the place of the working tree's, whose lock this commit holds.
    pub(super) fn replace_index(&self, new: &Path) -> Result<()> {
        replace_index(&self.index, &self.mark, new)
    }

    /// A place for a new index.
    pub(super) fn new_index(&self) -> PathBuf {
        self.path.join("new-index")
    }

    /// Copies the private index as it is now.
    pub(super) fn keep_index(&self) -> Result<PathBuf> {
        let (from, to) = (self.private_index(), self.path.join("kept-index"));
        index::copy(&from, &to)?;
        Ok(to)
    }

    /// Unlocks the index and removes the folder.
    pub(super) fn remove(self) -> Result<()> {
        remove(&self.path, Some((&self.mark, &self.index)))
    }
}

/// What an index file is, without its bytes: git replaces the file whenever it changes the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IndexStamp([i64; 5]);

impl IndexStamp {
    fn of(index: &Path) -> Result<Option<Self>> {
        let found = gone_is_none(fs::symlink_metadata(index).at("look at", index))?;
        let signed = |number: u64| i64::from_ne_bytes(number.to_ne_bytes());
        Ok(found.map(|of| {
            Self([signed(of.ino()), signed(of.size()), of.mtime(), of.mtime_nsec(), of.ctime_nsec()])
        }))
    }
}

/// `OLD NEW REF`.
fn three_words(line: &str) -> Option<(&str, &str, &str)> {
    let (old, rest) = line.split_once(' ')?;
    let (new, name) = rest.split_once(' ')?;
    Some((old, new, name))
}

/// The folder of the repository's hooks, relative to the top or absolute. `None` if they are not to run.
fn hooks_folder(tree: &WorkingTree, hooks: RepositoryHooks) -> Result<Option<PathBuf>> {
    if hooks == RepositoryHooks::Skip {
        return Ok(None);
    }
    let mut command = tree.users_git();
    command.args(["rev-parse", "--git-path", "hooks"]);
    let output = tree.answer(&mut command, b"")?;
    let path = output.strip_suffix(b"\n").unwrap_or(&output);
    Ok(Some(OsStr::from_bytes(path).into()))
}

/// A hook that becomes the repository's own. Its variables are those that git would set.
fn pass_on(hook: &Path) -> Vec<u8> {
    let mut script = b"#!/bin/sh\nunset GIT_CONFIG_PARAMETERS\nexec ".to_vec();
    script.extend(quoted(hook.as_os_str().as_bytes()));
    script.extend(b" \"$@\"\n");
    script
}

/// As one word of a shell.
fn quoted(text: &[u8]) -> Vec<u8> {
    let mut word = vec![b'\''];
    for byte in text {
        match byte {
            b'\'' => word.extend(b"'\\''"),
            byte => word.push(*byte),
        }
    }
    word.push(b'\'');
    word
}

fn write_hook(path: &Path, script: &[u8]) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
    let mut file = private::open_with_mode(path, flags, Mode::RWXU).map(File::from).at("create", path)?;
    file.write_all(script).at("write", path)
}

fn may_execute(path: &Path) -> bool {
    path.is_file() && accessat(CWD, path, Access::EXEC_OK, AtFlags::empty()).is_ok()
}

fn mark(tree: &WorkingTree, id: &str) -> PathBuf {
    tree.git_dir.join(format!("tollgate-commit-{id}"))
}

fn index_lock(index: &Path) -> PathBuf {
    index.with_extension("lock")
}

fn made(folder: &Path) -> Option<String> {
    let text = private::read_to_string(&folder.join("made")).ok()?;
    // A line that was not written to its end has no newline.
    let id = text.strip_suffix('\n')?;
    id.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| id.to_owned())
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let inode = |path: &Path| fs::symlink_metadata(path).ok().map(|of| (of.dev(), of.ino()));
    inode(one).is_some_and(|found| inode(other) == Some(found))
}

/// Beside the index first: a rename does not cross file systems.
fn replace_index(index: &Path, mark: &Path, new: &Path) -> Result<()> {
    let beside = mark.with_extension("index");
    index::copy(new, &beside)?;
    if let Ok(before) = fs::metadata(index) {
        fs::set_permissions(&beside, before.permissions()).at("set the mode of", &beside)?;
    }
    private::rename(&beside, index).at("replace", index)
}

/// The lock of the index first, so that git works again. Then the folder, and its lock last: without one it would be removed at once.
fn remove(folder: &Path, of: Option<(&Path, &Path)>) -> Result<()> {
    if let Some((mark, index)) = of {
        let lock = index_lock(index);
        if is_same_file(mark, &lock) {
            private::remove_file(&lock).at("remove", &lock)?;
        }
        for left in [mark.with_extension("index"), mark.to_owned()] {
            gone_is_none(private::remove_file(&left).at("remove", &left))?;
        }
    }
    private::remove_tree(folder).at("remove the folder", folder)?;
    let lock = folder.with_extension("lock");
    private::remove_file(&lock).at("remove", &lock)
}

/// A commit whose process died.
pub(super) struct DeadCommit {
    folder: PathBuf,
    mark: PathBuf,
    index: PathBuf,
    pub(super) note: Note,
    _lock: Lock,
}

impl DeadCommit {
    /// The commit that git has perhaps made.
    pub(super) fn made(&self) -> Option<String> {
        made(&self.folder)
    }

    pub(super) fn new_index(&self) -> PathBuf {
        self.folder.join("new-index")
    }

    /// Takes the lock of the index, unless this commit has it already. `false` if another git has it.
    pub(super) fn lock_index(&self) -> Result<bool> {
        let lock = index_lock(&self.index);
        if !self.mark.exists() {
            private::write(&self.mark, "").at("write", &self.mark)?;
        }
        match private::link(&self.mark, &lock) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(is_same_file(&self.mark, &lock)),
            linked => linked.at("lock", &self.index).map(|()| true),
        }
    }

    pub(super) fn index(&self) -> &Path {
        &self.index
    }

    pub(super) fn replace_index(&self, new: &Path) -> Result<()> {
        replace_index(&self.index, &self.mark, new)
    }

    pub(super) fn remove(self) -> Result<()> {
        remove(&self.folder, Some((&self.mark, &self.index)))
    }
}

/// The commits whose processes died. Removes folders of which nothing but the name is known.
pub(super) fn dead(root: &Root) -> Result<Vec<DeadCommit>> {
    let commits = root.state_path().join(COMMITS);
    let Some(names) = gone_is_none(private::names(&commits).at("list the folder", &commits))? else {
        return Ok(Vec::new());
    };
    let mut dead = Vec::new();
    for id in names.iter().filter_map(id_of) {
        let lock_file = commits.join(format!("{id}{LOCK}"));
        let Some(lock) = Lock::acquire(&lock_file, Duration::ZERO)? else { continue };
        if !has_name(lock.file()) {
            continue;
        }
        let folder = commits.join(&id);
        let note = private::read(&folder.join("note"))
            .ok()
            .and_then(|json| serde_json::from_slice::<Note>(&json).ok());
        match note {
            Some(note) => {
                let tree = note.tree();
                let (mark, index) = (mark(&tree, &id), tree.git_dir.join("index"));
                dead.push(DeadCommit { folder, mark, index, note, _lock: lock });
            }
            None => remove(&folder, None)?,
        }
    }
    Ok(dead)
}

fn id_of(name: &OsString) -> Option<String> {
    let id = name.to_str()?.strip_suffix(LOCK)?;
    is_random_id(id).then(|| id.to_owned())
}
