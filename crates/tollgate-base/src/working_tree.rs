//! The working tree of git that a path is in, and questions about it that the user's own git answers.
//!
//! The repository may be a stranger's, so our questions run nothing that its configuration names, take no lock and write nothing.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::error::{Fault, Result};
use crate::program::run_with_input;

/// The longest time for an answer of git. If it takes longer, the disk is broken.
const PATIENCE: Duration = Duration::from_secs(60);

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
        let failed = |what: &dyn std::fmt::Display| {
            Fault::invalid(format!("git says nothing about `{}`: {what}", self.top.display()))
        };
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        match run_with_input(command, input, PATIENCE) {
            Ok(Some(ended)) if ended.status.success() => Ok(ended.output),
            Ok(Some(ended)) => Err(failed(&ended.status)),
            Ok(None) => Err(failed(&"it took too long")),
            Err(error) => Err(failed(&error)),
        }
    }
}
