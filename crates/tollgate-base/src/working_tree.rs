//! The working tree of git that a path is in, and questions about it that the user's own git answers.
//!
//! The repository may be a stranger's, so our questions run nothing that its configuration names, take no lock and write nothing.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use bstr::ByteSlice;

use crate::digest::Digest;
use crate::error::{Fault, Result};
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
    fn at(top: &Path) -> Option<Self> {
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

    /// Where git keeps what all working trees of the repository share: branches, objects, the stash.
    pub fn common_dir(&self) -> PathBuf {
        match fs::read(self.git_dir.join("commondir")) {
            Ok(text) => self.git_dir.join(OsStr::from_bytes(text.trim_ascii())),
            Err(_) => self.git_dir.clone(),
        }
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
        let mut command = self.git();
        for scope in ["--local", "--worktree"] {
            let mut asked = self.git();
            asked.args(["config", scope, "--includes", "--name-only", "-z", "--get-regexp", FILTERS]);
            // It fails if there are none.
            for key in
                self.end_of(&mut asked, b"")?.output.split(|byte| *byte == 0).filter(|key| !key.is_empty())
            {
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

    /// The lines that a file adds to its version in HEAD, and those that it removes, each behind its sign.
    pub fn changed_lines(&self, path: &Path) -> Result<String> {
        let mut command = self.git_for_content()?;
        command.args(["diff", "--no-ext-diff", "--no-textconv", "--no-color", "-U0", "HEAD", "--"]).arg(path);
        let diff = self.answer(&mut command, b"")?;
        let hunks = diff.to_str_lossy();
        let lines = hunks
            .lines()
            .skip_while(|line| !line.starts_with("@@"))
            .filter(|line| line.starts_with(['+', '-']));
        Ok(lines.map(|line| line.to_owned() + "\n").collect())
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
