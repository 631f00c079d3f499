//! Several clones and a remote, as whole programs.

mod commands;
mod control;
mod crowd;
mod http;
mod stories;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::world::{Run, World};

/// A bare repository that all clones push to.
pub(crate) struct Remote {
    _keep: tempfile::TempDir,
    path: PathBuf,
}

/// Runs git as a person does.
pub(crate) fn git(folder: &Path, arguments: &[&str]) -> String {
    let out = Command::new("git")
        .current_dir(folder)
        .args(["-c", "user.name=ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false"])
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).trim_end().to_owned();
    assert!(out.status.success(), "git {arguments:?} in {}: {text}", folder.display());
    text
}

impl Remote {
    /// A remote with this number of tasks on its branch.
    pub(crate) fn with_tasks(tasks: usize) -> Self {
        let keep = tempfile::tempdir().unwrap();
        let top = keep.path().canonicalize().unwrap();
        git(&top, &["init", "--quiet", "--bare", "-b", "main", "r.git"]);
        let remote = Self { _keep: keep, path: top.join("r.git") };
        for (key, value) in [("receive.autogc", "false"), ("http.receivepack", "true")] {
            git(&remote.path, &["config", key, value]);
        }
        git(&top, &["init", "--quiet", "-b", "main", "seed"]);
        let seed = top.join("seed");
        fs::write(seed.join("notes.md"), "# Notes\n").unwrap();
        fs::write(seed.join(".gitignore"), ".tollgate/\nlog/\n").unwrap();
        fs::create_dir_all(seed.join("vault/Needs_Action")).unwrap();
        for n in 0..tasks {
            fs::write(seed.join(format!("vault/Needs_Action/t{n}.md")), "# Test Task\n").unwrap();
        }
        git(&seed, &["add", "-A"]);
        git(&seed, &["commit", "--quiet", "-m", "first"]);
        git(&seed, &["push", "--quiet", remote.path.to_str().unwrap(), "main"]);
        remote
    }

    /// Nobody finds it any more.
    pub(crate) fn vanishes(&self) {
        fs::rename(&self.path, self.path.with_extension("gone")).unwrap();
    }

    pub(crate) fn url(&self) -> String {
        format!("file://{}", self.path.display())
    }

    /// A workspace that is a clone, with these settings of the vault.
    pub(crate) fn clone(&self, settings: &str) -> World {
        self.clone_from(&self.url(), settings)
    }

    pub(crate) fn clone_from(&self, url: &str, settings: &str) -> World {
        let world = World::bare();
        git(&world.root(), &["clone", "--quiet", url, "."]);
        git(&world.root(), &["config", "user.name", "worker"]);
        git(&world.root(), &["config", "user.email", "worker@example.org"]);
        let common = "[vault]\nsync = \"git\"\ndurability = \"fast\"\nmax_attempts = 1000\nretry = []\nsettle = \"10ms\"\n";
        world.puts(
            ".tollgate/config.toml",
            format!("{common}{settings}[work]\nbreaker = 0\n[log]\ndir = \"log\"\n"),
        );
        world
    }

    /// All files on the branch, below the vault.
    pub(crate) fn on_branch(&self) -> Vec<String> {
        let listed = git(&self.path, &["ls-tree", "-r", "--name-only", "main", "vault/"]);
        listed.lines().map(|line| line.trim_start_matches("vault/").to_owned()).collect()
    }

    pub(crate) fn done(&self) -> usize {
        self.on_branch().iter().filter(|path| path.starts_with("Done/")).count()
    }

    pub(crate) fn cards(&self) -> usize {
        git(&self.path, &["for-each-ref", "refs/tollgate/claims"]).lines().count()
    }

    /// The number of commits on the branch whose subject contains these words.
    pub(crate) fn count_of(&self, words: &str) -> usize {
        git(&self.path, &["log", "--format=%s", "main"]).lines().filter(|line| line.contains(words)).count()
    }

    pub(crate) fn merges(&self) -> usize {
        git(&self.path, &["rev-list", "--min-parents=2", "main"]).lines().count()
    }
}

/// With the `PATH` of the test process, because git may be anywhere.
pub(crate) fn with_path(run: Run<'_>) -> Run<'_> {
    let bin = Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::env::join_paths([bin.to_owned()].into_iter().chain(std::env::split_paths(&path))).unwrap();
    run.env("PATH", all)
}

/// `tollgate` with these arguments, in a clone.
pub(crate) fn tollgate<'w>(world: &'w World, line: &str) -> Run<'w> {
    with_path(world.tollgate(line.split_whitespace().collect::<Vec<_>>()))
}
