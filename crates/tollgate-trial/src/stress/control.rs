//! The control for tasks over git: the loop that claims by a move in its own clone and pushes after the work. Two clones do the
//! same task, because git detects the conflict only when the work is done.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tollgate::error::{Fault, Result};

use crate::arena::{Arena, make, put};

#[derive(clap::Args)]
pub(crate) struct ControlArgs {
    #[arg(long)]
    name: String,
    /// The clone
    #[arg(long)]
    root: PathBuf,
    /// The log of the work
    #[arg(long)]
    log: PathBuf,
    #[arg(long)]
    until: PathBuf,
}

impl ControlArgs {
    pub(crate) fn run(self) -> Result<()> {
        let own = self.root.join("In_Progress").join(&self.name);
        let done = self.root.join("Done");
        make(&own)?;
        make(&done)?;
        while !self.until.exists() {
            if !git(&self.root, &["pull", "--quiet", "--no-edit", "origin", "main"]) {
                // A conflict: the work of this clone is thrown away.
                git(&self.root, &["merge", "--abort"]);
                git(&self.root, &["fetch", "--quiet", "origin"]);
                git(&self.root, &["reset", "--quiet", "--hard", "origin/main"]);
            }
            for entry in fs::read_dir(self.root.join("Needs_Action")).into_iter().flatten().flatten() {
                let name = entry.file_name();
                if fs::rename(entry.path(), own.join(&name)).is_err() {
                    continue;
                }
                let fault = |source| Fault::Io { doing: "write", path: self.log.clone(), source };
                let mut log = OpenOptions::new().append(true).create(true).open(&self.log).map_err(fault)?;
                writeln!(log, "{}", name.display()).map_err(fault)?;
                let _ = fs::rename(own.join(&name), done.join(&name));
            }
            git(&self.root, &["add", "-A"]);
            git(&self.root, &["commit", "--quiet", "-m", "updates"]);
            git(&self.root, &["push", "--quiet", "origin", "main"]);
        }
        Ok(())
    }
}

pub(crate) fn git(folder: &Path, arguments: &[&str]) -> bool {
    let mut git = Command::new("git");
    git.arg("-C").arg(folder).args(["-c", "user.name=stress", "-c", "user.email=stress@example.org"]);
    git.args(arguments).env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    git.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    git.status().is_ok_and(|status| status.success())
}

/// A bare remote with this number of tasks below `tasks`, and clones of it.
pub(crate) fn remote(arena: &Arena, name: &str, tasks: &str, count: usize, clones: &[&str]) -> Result<()> {
    let top = arena.folder();
    let (bare, seed) = (format!("{name}.git"), arena.beside(&format!("{name}-seed")));
    make(&seed)?;
    git(top, &["init", "--quiet", "--bare", "-b", "main", &bare]);
    git(&seed, &["init", "--quiet", "-b", "main", "."]);
    put(&seed.join(".gitignore"), ".tollgate/\n")?;
    for number in 0..count {
        put(&seed.join(tasks).join(format!("t{number}.md")), "# Task\n")?;
    }
    git(&seed, &["add", "-A"]);
    git(&seed, &["commit", "--quiet", "-m", "first"]);
    git(&seed, &["push", "--quiet", &format!("../{bare}"), "main"]);
    let url = format!("file://{}", arena.beside(&bare).display());
    for clone in clones {
        git(top, &["clone", "--quiet", &url, clone]);
    }
    Ok(())
}
