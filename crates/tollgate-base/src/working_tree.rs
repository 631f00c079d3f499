//! The working tree of git that a path is in, and questions about it that the user's own git answers.
//!
//! The repository may be a stranger's, so our questions run nothing that its configuration names, take no lock and write nothing.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use bstr::ByteSlice;

use crate::digest::Digest;
use crate::error::{At, Fault, Result};
use crate::program::{ProgramEnd, run_with_input};

/// The longest time for an answer of git. If it takes longer, the disk is broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// The number of paths that a call of git names.
const NAMED: usize = 200;

/// Variables of an outer git, or of a careless shell. Each of them would lead our git to another repository.
pub const OUTER_GIT: [&str; 15] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_CEILING_DIRECTORIES",
    "GIT_CONFIG",
    "GIT_CONFIG_PARAMETERS",
    "GIT_CONFIG_COUNT",
    "GIT_QUARANTINE_PATH",
    "GIT_PUSH_OPTION_COUNT",
    "GIT_EDITOR",
];

/// A working tree of git: the main one of a repository, a linked one, or that of a submodule.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WorkingTree {
    /// Its root.
    pub top: PathBuf,
    /// Where git keeps its index and its HEAD.
    pub git_dir: PathBuf,
}

impl WorkingTree {
    /// The nearest working tree around this path, which need not exist.
    pub fn around(path: &Path) -> Option<Self> {
        path.ancestors().find_map(Self::at)
    }

    /// The working tree whose root this folder is. git skips a `.git` that is not a repository.
    pub fn at(top: &Path) -> Option<Self> {
        let git = top.join(".git");
        let git_dir = match fs::metadata(&git).ok()?.is_dir() {
            true => git,
            false => {
                let text = fs::read(&git).ok()?;
                top.join(OsStr::from_bytes(text.strip_prefix(b"gitdir:")?.trim_ascii()))
            }
        };
        git_dir.join("HEAD").symlink_metadata().is_ok().then(|| Self { top: top.to_owned(), git_dir })
    }

    /// The working tree whose git directory this is: a folder `.git`, that of a linked working tree, which says where it is, or that of a submodule, whose configuration names the tree.
    pub fn of(git_dir: &Path) -> Option<Self> {
        if let Ok(text) = fs::read(git_dir.join("gitdir")) {
            return Self::at(git_dir.join(OsStr::from_bytes(text.trim_ascii())).parent()?);
        }
        if git_dir.ends_with(".git") {
            return Self::at(git_dir.parent()?).filter(|tree| tree.git_dir == git_dir);
        }
        let mut command = Command::new("git");
        command.arg("--git-dir").arg(git_dir).args(["config", "core.worktree"]);
        for name in OUTER_GIT {
            command.env_remove(name);
        }
        let tree = Self { top: git_dir.to_owned(), git_dir: git_dir.to_owned() };
        let named = tree.answer(&mut command, b"").ok()?;
        let top = git_dir.join(OsStr::from_bytes(named.trim_ascii())).canonicalize().ok()?;
        Self::at(&top).map(|found| Self { git_dir: git_dir.to_owned(), ..found })
    }

    /// The git directories of the submodules, and of those in them.
    pub fn submodules(&self) -> Vec<PathBuf> {
        let (mut found, mut folders) = (Vec::new(), vec![self.git_dir.join("modules")]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.join("HEAD").is_file() && path.join("objects").is_dir() {
                    folders.push(path.join("modules"));
                    found.push(path);
                } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    // The name of a submodule may have several parts.
                    folders.push(path);
                }
            }
        }
        found
    }

    /// Where git keeps what all working trees of the repository share: branches, objects, the stash.
    pub fn common_dir(&self) -> PathBuf {
        match fs::read(self.git_dir.join("commondir")) {
            Ok(text) => self.git_dir.join(OsStr::from_bytes(text.trim_ascii())),
            Err(_) => self.git_dir.clone(),
        }
    }

    /// Whether it is that of a submodule.
    pub fn is_submodule(&self) -> bool {
        self.git_dir != self.top.join(".git") && !self.git_dir.join("commondir").exists()
    }

    /// The roots of the other working trees of the repository. None if this is no working tree but the folder of a bare repository.
    pub fn others(&self) -> Result<Vec<PathBuf>> {
        if !self.common_dir().join("worktrees").exists() {
            return Ok(Vec::new());
        }
        let output = self.answer(self.git().args(["worktree", "list", "--porcelain"]), b"")?;
        // The first line of an entry has the path, the other lines say what is there.
        let trees = output.split_str("\n\n").filter(|entry| !entry.lines().any(|line| line == b"bare"));
        let path = |entry: &[u8]| {
            Some(PathBuf::from(OsStr::from_bytes(entry.lines().next()?.strip_prefix(b"worktree ")?)))
        };
        let mut trees: Vec<PathBuf> =
            trees.filter_map(path).filter_map(|tree| tree.canonicalize().ok()).collect();
        match trees.iter().position(|tree| *tree == self.top) {
            Some(at) => drop(trees.remove(at)),
            None => trees.clear(),
        }
        Ok(trees)
    }

    /// The roots of the other working trees, read from git's files without asking git: quick enough for every call. A tree that is not
    /// where these files say is left out, and so is the main tree of a repository whose git directory is not in it.
    pub fn beside(&self) -> Vec<PathBuf> {
        let Ok(common) = self.common_dir().canonicalize() else { return Vec::new() };
        let linked = fs::read_dir(common.join("worktrees")).into_iter().flatten().flatten();
        let main = common.parent().filter(|_| common.ends_with(".git")).and_then(Self::at);
        let trees = linked.filter_map(|entry| Self::of(&entry.path())).chain(main);
        let tops = trees.filter_map(|tree| tree.top.canonicalize().ok());
        tops.filter(|top| *top != self.top).collect()
    }

    /// Those of these absolute paths that git ignores. A folder ends with `/`.
    pub fn ignored(&self, paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
        let input = paths.iter().flat_map(|path| [path.as_os_str().as_bytes(), b"\0"].concat());
        let input: Vec<u8> = input.collect();
        // It takes paths literally, and does not know the option for that. Its exit status says whether there are any.
        let mut command = self.git();
        command.args(["--no-literal-pathspecs", "check-ignore", "-z", "--stdin"]);
        let ignored = self.end_of(&mut command, &input)?.output;
        let ignored = ignored.split(|byte| *byte == 0).filter(|path| !path.is_empty());
        Ok(ignored.map(|path| PathBuf::from(OsStr::from_bytes(path))).collect())
    }

    /// The folders in the root that git ignores.
    pub fn ignored_folders(&self) -> Result<Vec<PathBuf>> {
        let entries = fs::read_dir(&self.top).at("list the folder", &self.top)?.flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        // With a slash at the end.
        let folders: Vec<PathBuf> = folders.map(|entry| entry.path().join("")).collect();
        let ignored = self.ignored(&folders)?;
        Ok(ignored.into_iter().map(|folder| folder.components().collect()).collect())
    }

    /// Whether a commit of any branch has these bytes at this path, relative to the root.
    pub fn has_committed(&self, path: &Path) -> Result<bool> {
        let mut as_path = OsString::from("--path=");
        as_path.push(path);
        let mut hash = self.git_for_content()?;
        hash.arg("hash-object").arg(as_path).arg("--").arg(self.top.join(path));
        let object = self.answer(&mut hash, b"")?;
        let object = object.trim_ascii().to_str_lossy().into_owned();
        let mut find = self.git();
        find.args(["log", "--all", "--format=%H", "-1"])
            .arg(format!("--find-object={object}"))
            .arg("--")
            .arg(path);
        Ok(!self.answer(&mut find, b"")?.is_empty())
    }

    /// A call of git in this working tree, to which arguments are added.
    pub fn git(&self) -> Command {
        let mut command = Command::new("git");
        command
            .arg("-C")
            .arg(&self.top)
            .arg("--git-dir")
            .arg(&self.git_dir)
            .arg("--work-tree")
            .arg(&self.top);
        command.args(["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "--no-optional-locks"]);
        command.args(["--no-replace-objects", "--literal-pathspecs"]);
        command.env("GIT_NO_LAZY_FETCH", "1").env("LC_ALL", "C");
        for name in OUTER_GIT {
            command.env_remove(name);
        }
        command
    }

    /// A call of git as the user would make it here, with everything that the configuration names: hooks, signing, an editor.
    pub fn users_git(&self) -> Command {
        let mut command = Command::new("git");
        command.arg("-C").arg(&self.top);
        for name in OUTER_GIT.into_iter().filter(|name| *name != "GIT_EDITOR") {
            command.env_remove(name);
        }
        command
    }

    /// What a call of [`Self::git`] prints. A fault if it fails.
    pub fn answer(&self, command: &mut Command, input: &[u8]) -> Result<Vec<u8>> {
        let ended = self.end_of(command, input)?;
        match ended.status.success() {
            true => Ok(ended.output),
            false => Err(self.silent(&ended.status)),
        }
    }

    /// Whether a call of [`Self::git`] that only answers by its exit status says yes.
    pub fn agrees(&self, command: &mut Command) -> Result<bool> {
        Ok(self.end_of(command, b"")?.status.success())
    }

    fn end_of(&self, command: &mut Command, input: &[u8]) -> Result<ProgramEnd> {
        match run_with_input(command.stdout(Stdio::piped()).stderr(Stdio::null()), input, PATIENCE) {
            Ok(Some(ended)) => Ok(ended),
            Ok(None) => Err(self.silent(&"it took too long")),
            Err(error) => Err(self.silent(&error)),
        }
    }

    fn silent(&self, why: &dyn std::fmt::Display) -> Fault {
        Fault::invalid(format!("git says nothing about `{}`: {why}", self.top.display()))
    }

    /// The same call, for questions about the content of files: without the filters of the repository's own configuration, which are
    /// commands. Those of the user, such as git-lfs, work.
    fn git_for_content(&self) -> Result<Command> {
        const FILTERS: &str = r"^filter\..*\.(clean|smudge|process|required)$";
        let mut asked = self.git();
        asked.args(["config", "--show-scope", "--name-only", "-z", "--get-regexp", FILTERS]);
        let found = self.end_of(&mut asked, b"")?;
        // 1: there are none.
        if !matches!(found.status.code(), Some(0 | 1)) {
            return Err(self.silent(&found.status));
        }
        let mut command = self.git();
        let mut words = found.output.split(|byte| *byte == 0);
        while let (Some(scope), Some(key)) = (words.next(), words.next()) {
            if matches!(scope, b"local" | b"worktree") {
                let mut setting = OsString::from_vec(key.to_vec());
                setting.push("=");
                command.arg("-c").arg(setting);
            }
        }
        Ok(command)
    }

    /// The files with bytes that are not those of HEAD, and those that git neither tracks nor ignores, with the object of the version
    /// in HEAD. Only these, if some are given. Paths are relative to the root of the tree.
    pub fn unfinished(&self, only: &[&PathBuf]) -> Result<HashMap<PathBuf, Option<String>>> {
        let mut command = self.git_for_content()?;
        command.args(["status", "--porcelain=v2", "-z", "--no-renames", "--untracked-files=all"]);
        command.args(["--ignore-submodules=all", "--"]).args(only);
        let output = self.answer(&mut command, b"")?;
        Ok(output.split(|byte| *byte == 0).filter_map(unfinished_file).collect())
    }

    /// The numbers of lines that these files add to their versions in HEAD, and that they remove; `None` for a binary file. A file
    /// that is as in HEAD is left out.
    pub fn line_counts(&self, only: &[PathBuf]) -> Result<HashMap<PathBuf, Option<[u64; 2]>>> {
        if only.is_empty() {
            return Ok(HashMap::new());
        }
        let mut command = self.git_for_content()?;
        command.args(["diff", "--no-ext-diff", "--no-textconv", "--no-renames", "--numstat", "-z", "HEAD"]);
        // A longer list may be too long for a call. Then git is asked about the whole tree.
        if only.len() <= NAMED {
            command.arg("--").args(only);
        }
        let output = self.answer(&mut command, b"")?;
        let mut counts = HashMap::new();
        for record in output.split(|byte| *byte == 0).filter(|record| !record.is_empty()) {
            let [added, removed, path] = record.splitn_str(3, "\t").collect::<Vec<_>>()[..] else { continue };
            let number = |word: &[u8]| word.to_str().ok()?.parse::<u64>().ok();
            let counted = number(added).zip(number(removed)).map(|(added, removed)| [added, removed]);
            let path = PathBuf::from(OsStr::from_bytes(path));
            // A conflict has a second record, without lines.
            if counts.get(&path).is_none_or(|known| *known == Some([0, 0])) {
                counts.insert(path, counted);
            }
        }
        Ok(counts)
    }

    /// The files that git neither tracks nor ignores, of these files and folders. Paths are relative to the root of the tree.
    pub fn untracked(&self, only: &[&PathBuf]) -> Result<HashSet<PathBuf>> {
        let mut command = self.git();
        command.args(["ls-files", "-z", "--others", "--exclude-standard", "--"]).args(only);
        let output = self.answer(&mut command, b"")?;
        let names = output.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        Ok(names.map(|name| PathBuf::from(OsStr::from_bytes(name))).collect())
    }

    /// The stashes, oldest first.
    pub fn stashes(&self) -> Vec<String> {
        fs::read(self.common_dir().join("logs/refs/stash")).map_or(Vec::new(), |log| stashes_in(&log))
    }

    /// The lines that a file adds to its version in HEAD, and those that it removes, each behind its sign.
    pub fn changed_lines(&self, path: &Path) -> Result<String> {
        self.lines_of(&["diff".as_ref()], &["HEAD".as_ref(), "--".as_ref(), path.as_os_str()])
    }

    /// The lines that a stash adds and removes, each behind its sign. That of its untracked files come last.
    pub fn stash_lines(&self, stash: &str) -> Result<String> {
        let [base, untracked] = ["^1", "^3"].map(|parent| format!("{stash}{parent}"));
        let mut lines = self.lines_of(&["diff".as_ref()], &[base.as_ref(), stash.as_ref()])?;
        if self.agrees(self.git().args(["rev-parse", "-q", "--verify", &untracked]))? {
            lines += &self.lines_of(&["show".as_ref(), "--format=".as_ref()], &[untracked.as_ref()])?;
        }
        Ok(lines)
    }

    /// The changed lines that a call of git prints.
    fn lines_of(&self, command: &[&OsStr], what: &[&OsStr]) -> Result<String> {
        let mut git = self.git_for_content()?;
        git.args(command).args(["--no-ext-diff", "--no-textconv", "--no-color", "-U0"]).args(what);
        let diff = self.answer(&mut git, b"")?;
        let hunks = diff.to_str_lossy();
        let lines = hunks
            .lines()
            .skip_while(|line| !line.starts_with("@@"))
            .filter(|line| line.starts_with(['+', '-']));
        Ok(lines.map(|line| line.to_owned() + "\n").collect())
    }

    /// Which commit each line of a file came with; `None` for lines that are in no commit. Empty if git does not know the file. These are
    /// its bytes now, and the path is relative to the root of the tree.
    pub fn blame(&self, path: &Path, bytes: &[u8]) -> Result<Vec<Option<BlamedCommit>>> {
        let mut git = self.git_for_content()?;
        git.args(["blame", "--no-textconv", "--line-porcelain", "--contents", "-", "--"]).arg(path);
        // It fails if HEAD has no such file.
        let ended = self.end_of(&mut git, bytes)?;
        Ok(if ended.status.success() { blamed(&ended.output) } else { Vec::new() })
    }

    /// The hash of an object of git, as the file at this path would have it.
    pub fn content(&self, path: &Path, object: &str) -> Result<Digest> {
        self.content_by(self.git_for_content()?, path, object)
    }

    /// What this call of git says about it.
    pub fn content_by(&self, mut command: Command, path: &Path, object: &str) -> Result<Digest> {
        let mut as_path = OsString::from("--path=");
        as_path.push(path);
        command.args(["cat-file", "--filters"]).arg(as_path).arg(object);
        self.answer(&mut command, b"").map(|bytes| Digest::of(&bytes))
    }

    /// Whether git has the bytes of this file, as a version of the file at this path or of any other.
    pub fn has(&self, path: &Path, file: &Path) -> Result<bool> {
        let mut as_path = OsString::from("--path=");
        as_path.push(path);
        let object = self.answer(self.git_for_content()?.arg("hash-object").arg(as_path).arg(file), b"")?;
        let object = OsStr::from_bytes(object.trim_ascii());
        self.agrees(self.git().args(["cat-file", "-e"]).arg(object))
    }
}

/// A commit with which a line came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlamedCommit {
    /// Its name in git.
    pub commit: String,
    /// Its author.
    pub author: String,
    /// When it was written, in seconds since 1970.
    pub time: i64,
}

/// What `git blame --line-porcelain` says of each line. A line's text begins with a tab and ends what is said of it.
fn blamed(porcelain: &[u8]) -> Vec<Option<BlamedCommit>> {
    let (mut lines, mut next) = (Vec::new(), None);
    for line in porcelain.split(|byte| *byte == b'\n') {
        if line.starts_with(b"\t") {
            lines.push(
                next.take().filter(|blamed: &BlamedCommit| !blamed.commit.trim_matches('0').is_empty()),
            );
            continue;
        }
        let line = line.to_str_lossy();
        let (key, value) = line.split_once(' ').unwrap_or((&line, ""));
        match (&mut next, key) {
            (None, commit) => {
                let commit = commit.to_owned();
                next = Some(BlamedCommit { commit, author: String::new(), time: 0 });
            }
            (Some(blamed), "author") => blamed.author = value.to_owned(),
            (Some(blamed), "author-time") => blamed.time = value.parse().unwrap_or_default(),
            (Some(_), _) => {}
        }
    }
    lines
}

/// The stashes that git's log of them has, oldest first.
pub fn stashes_in(log: &[u8]) -> Vec<String> {
    let stash = |line: &[u8]| line.split(|byte| *byte == b' ').nth(1)?.to_str().ok().map(str::to_owned);
    log.lines().filter_map(stash).collect()
}

/// A file in the status of a tree, and the object of the version in HEAD.
fn unfinished_file(entry: &[u8]) -> Option<(PathBuf, Option<String>)> {
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    let (kind, rest) = entry.split_once_str(" ")?;
    // The number of words before the path, and the place of the object in HEAD: of a conflict, our side.
    let (words, object) = match kind {
        b"?" => return Some((path(rest), None)),
        b"1" => (7, 5),
        b"u" => (9, 7),
        _ => return None,
    };
    let parts: Vec<&[u8]> = rest.splitn_str(words + 1, " ").collect();
    let object = parts.get(object)?.to_str().ok()?;
    let is_there = object.bytes().any(|digit| digit != b'0');
    Some((path(parts.get(words)?), is_there.then(|| object.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A repository may be a stranger's, and a filter is a command.
    #[test]
    fn the_filters_of_a_repository_do_not_run() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        let git = |words: &[&str]| {
            let name = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"];
            assert!(
                Command::new("git").arg("-C").arg(&top).args(name).args(words).status().unwrap().success()
            );
        };
        let ran = top.join(".git/ran");
        let filter = format!("sh -c 'echo >{}; cat'", ran.display());
        git(&["init", "-q"]);
        fs::write(top.join(".gitattributes"), "a filter=a\nb filter=b\nc filter=c\n").unwrap();
        for name in ["a", "b", "c"] {
            fs::write(top.join(name), "1\n").unwrap();
        }
        git(&["add", "-A"]);
        git(&["commit", "-q", "-m", "first"]);
        git(&["config", "filter.a.clean", &filter]);
        git(&["config", "extensions.worktreeConfig", "true"]);
        git(&["config", "--worktree", "filter.b.clean", &filter]);
        git(&["config", "include.path", "more"]);
        git(&["config", "--file", ".git/more", "filter.c.clean", &filter]);
        for name in ["a", "b", "c"] {
            fs::write(top.join(name), "2\n").unwrap();
        }
        let tree = WorkingTree::at(&top).unwrap();
        assert_eq!(tree.unfinished(&[]).unwrap().len(), 3);
        assert!(!ran.exists());
        git(&["status", "-s"]);
        assert!(ran.exists(), "git itself runs them");
    }
}
