//! The user's own `git` program: started without prompts, ended in time.
//!
//! Credentials, ssh, proxies and certificates are those that the user has set up for git. git asks nothing at a terminal,
//! inherits nothing from the environment of an outer git, and writes its messages in English, so that they can be parsed.
//!
//! Invariants: no argument from outside is in a place where git would read it as an option. A program that does not end in
//! time is killed with its whole process group. A program that talks to the remote has the lock of the conversation as its
//! standard input, so the lock is not free before the last such program has ended, even if tollgate is killed.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use super::clock::millis_since_boot;
use super::process::{self, Given, Ran};
use crate::claim_lock::without_locks;
use tollgate_base::error::{Fault, Result};

/// The oldest git that can do everything that is asked of it: `--porcelain`, `--atomic` and leases are older, but
/// `--no-write-fetch-head` came with 2.29.
const OLDEST: (u32, u32) = (2, 29);

/// The longest time for commands that only touch the disk. If one takes longer, the disk is broken.
const LOCAL: Duration = Duration::from_secs(60);

/// Variables of an outer git, or of a careless shell. Each of them would lead our git to another repository.
const NOT_INHERITED: [&str; 15] = [
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

/// Turns off settings that would make git do more than it is asked, or ask a person.
const QUIET: [&str; 8] = [
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.quotePath=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    "push.followTags=false",
    "fetch.writeCommitGraph=false",
];

/// A repository, and how git is run in it.
#[derive(Debug, Clone)]
pub(super) struct Git {
    program: PathBuf,
    folder: PathBuf,
    repository: Option<PathBuf>,
    /// The file that names the program that talks to the remote.
    talking: Option<PathBuf>,
    patience: Duration,
    batch_ssh: bool,
}

impl Git {
    /// For the repository that this folder is in.
    pub(super) fn new(program: &Path, folder: &Path, patience: Duration) -> Self {
        Self {
            program: program.to_owned(),
            folder: folder.to_owned(),
            repository: None,
            talking: None,
            patience,
            batch_ssh: false,
        }
    }

    /// For exactly this repository. `talking` is the file that names the program that talks to its remote.
    pub(super) fn within(mut self, top: PathBuf, repository: PathBuf, talking: PathBuf) -> Self {
        self.folder = top;
        self.repository = Some(repository);
        self.talking = Some(talking);
        self
    }

    /// Kills a program that still talks to the remote although its time is up, because the tollgate that started it was
    /// killed. Its process id and its start time identify it, so a later process with the same id is safe.
    pub(super) fn kill_orphan(&self) {
        let Some(text) = self.talking.as_ref().and_then(|path| fs::read_to_string(path).ok()) else { return };
        let mut numbers = text.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
        let (Some(pid), Some(started), Some(until)) = (numbers.next(), numbers.next(), numbers.next()) else {
            return;
        };
        if millis_since_boot() > until && started_at(pid) == Some(started) {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
            let _ = pid.map(|pid| kill_process_group(pid, Signal::KILL));
        }
    }

    /// Writes down which program talks to the remote, for [`Git::kill_orphan`] of the next process. If that fails, the next
    /// process waits until the program ends by itself.
    fn write_down(&self, child: &Child, patience: Duration) {
        let pid = u64::from(child.id());
        if let (Some(path), Some(started)) = (&self.talking, started_at(pid)) {
            let until = millis_since_boot() + 2 * u64::try_from(patience.as_millis()).unwrap_or(u64::MAX / 4);
            let _ = fs::write(path, format!("{pid} {started} {until}\n"));
        }
    }

    /// Runs ssh in batch mode. Only if the user has not configured how ssh is run.
    pub(super) fn with_batch_ssh(mut self) -> Self {
        self.batch_ssh = true;
        self
    }

    /// Makes sure that git is installed and recent enough.
    pub(super) fn check_version(&self) -> Result<()> {
        let text = self.must(["--version"])?;
        let mut numbers = text.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok());
        match (numbers.next(), numbers.next()) {
            (Some(major), Some(minor)) if (major, minor) >= OLDEST => Ok(()),
            _ => Err(Fault::invalid(format!(
                "`{}` is too old for `sync = \"git\"`: install git {}.{} or later",
                text.escape_debug(),
                OLDEST.0,
                OLDEST.1
            ))),
        }
    }

    fn command<I: IntoIterator<Item = S>, S: Into<OsString>>(&self, arguments: I) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("-C").arg(&self.folder);
        if let Some(repository) = &self.repository {
            let mut option = OsString::from("--git-dir=");
            option.push(repository);
            command.arg(option);
        }
        for setting in QUIET {
            command.arg("-c").arg(setting);
        }
        // A stalled transfer ends by itself, even if tollgate is no longer there to end it.
        let stalled = self.patience.as_secs().max(1);
        command.arg("-c").arg("http.lowSpeedLimit=1").arg("-c").arg(format!("http.lowSpeedTime={stalled}"));
        command.args(arguments.into_iter().map(Into::into));
        for name in NOT_INHERITED {
            command.env_remove(name);
        }
        command
            .env("LC_ALL", "C")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_ASKPASS", "")
            .env("GCM_INTERACTIVE", "never")
            .env("GIT_OPTIONAL_LOCKS", "0");
        if self.batch_ssh {
            let ssh =
                format!("ssh -oBatchMode=yes -oConnectTimeout={stalled} -oServerAliveInterval={stalled}");
            command.env("GIT_SSH_COMMAND", ssh);
        }
        // A process group of its own, so that everything it starts can be killed with it.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a command that only touches the disk and must succeed. The answer is its output as text.
    pub(super) fn must<const N: usize>(&self, arguments: [&str; N]) -> Result<String> {
        let ran = self.local(&arguments, &Given::Nothing)?;
        if ran.ok {
            Ok(ran.text())
        } else {
            Err(failed(arguments.first().copied().unwrap_or_default(), &ran))
        }
    }

    /// Runs a command that only touches the disk.
    pub(super) fn local(&self, arguments: &[&str], given: &Given<'_>) -> Result<Ran> {
        self.run(self.command(arguments.iter().copied()), given, LOCAL)
    }

    /// Runs a command that talks to the remote.
    pub(super) fn remote<S: Into<OsString>>(&self, arguments: Vec<S>, lock: &File) -> Result<Ran> {
        self.run(self.command(arguments), &Given::Lock(lock), self.patience)
    }

    fn run(&self, mut command: Command, given: &Given<'_>, patience: Duration) -> Result<Ran> {
        match given {
            Given::Nothing => {}
            Given::Bytes(_) => drop(command.stdin(Stdio::piped())),
            Given::Lock(lock) => {
                let lock = lock.try_clone().map_err(|source| self.fault("lend the lock to", source))?;
                command.stdin(Stdio::from(lock));
            }
        }
        let mut child = without_locks(|| command.spawn()).map_err(|source| self.fault("run", source))?;
        if matches!(given, Given::Lock(_)) {
            self.write_down(&child, patience);
        }
        let ran = process::run(&mut child, given, patience);
        if !matches!(ran, Ok(Ran { hung: false, .. })) {
            // It may have ended in the meantime.
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            let _ = child.wait();
        }
        ran.map_err(|source| self.fault("talk to", source))
    }

    fn fault(&self, doing: &'static str, source: io::Error) -> Fault {
        Fault::Io { doing, path: self.program.clone(), source }
    }
}

/// When a process was started, in the kernel's own count. Only Linux has this file.
fn started_at(pid: u64) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program may contain anything, even brackets and spaces.
    text.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// The fault for a git command that had to succeed.
pub(super) fn failed(what: &str, ran: &Ran) -> Fault {
    let why = if ran.hung { "it did not end" } else { ran.err.lines().last().unwrap_or("it gave no reason") };
    Fault::invalid(format!("`git {what}` failed: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;
    use tollgate_base::lock::Pauses;

    /// A program in the place of git. Another process writes it, because a file that a child of some thread still has open
    /// for writing cannot be run.
    fn script(folder: &Path, text: &str) -> Git {
        let path = folder.join("git");
        let write = r#"printf '#!/bin/sh\n%s\n' "$1" > "$0" && chmod +x "$0""#;
        let written = Command::new("sh")
            .args(["-c", write])
            .arg(&path)
            .arg(format!("cd \"$2\"\n{text}"))
            .status()
            .unwrap();
        assert!(written.success());
        Git::new(&path, folder, Duration::from_millis(200))
    }

    fn lock(folder: &Path) -> File {
        let file = File::create(folder.join("lock")).unwrap();
        file.lock().unwrap();
        file
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_everything_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let git = script(folder.path(), "sleep 1000 & echo $! > pid; echo begun; wait");
        let began = Instant::now();
        let ran = git.remote(vec!["push"], &lock(folder.path())).unwrap();
        assert!(ran.hung && !ran.ok && ran.text() == "begun", "{ran:?}");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        let pid = fs::read_to_string(folder.path().join("pid")).unwrap();
        let gone = || {
            let state = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
            state.is_empty() || state.contains(") Z ")
        };
        let mut pauses = Pauses::lasting(Duration::from_secs(10));
        while !gone() {
            assert!(pauses.pause(), "the sleeper is still alive");
        }
    }

    #[test]
    fn the_lock_is_not_free_before_the_program_ends() {
        let folder = tempfile::tempdir().unwrap();
        let git = script(folder.path(), "echo begun; exec sleep 1000");
        let held = lock(folder.path());
        let mut command = git.command(["push"]);
        command.stdin(Stdio::from(held.try_clone().unwrap()));
        let mut child = command.spawn().unwrap();
        // As if tollgate had been killed.
        drop((held, command));
        let again = File::open(folder.path().join("lock")).unwrap();
        assert!(again.try_lock().is_err(), "another process could talk at the same time");
        child.kill().unwrap();
        child.wait().unwrap();
        let mut pauses = Pauses::lasting(Duration::from_secs(10));
        while again.try_lock().is_err() {
            assert!(pauses.pause(), "nobody holds it any more");
        }
    }

    #[test]
    fn large_input_and_output_work_and_control_characters_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let git = script(folder.path(), "cat; printf 'remote: \\033[31mred\\r\\n\\n' >&2; exit 3");
        let bytes = vec![b'x'; 1 << 20];
        let ran = git.local(&["cat"], &Given::Bytes(&bytes)).unwrap();
        assert!(!ran.ok && !ran.hung);
        assert_eq!(ran.out.len(), bytes.len());
        assert_eq!(ran.err, "remote: [31mred");
        assert!(failed("cat", &ran).to_string().contains("remote: [31mred"));
    }

    #[test]
    fn an_old_git_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for (version, fine) in [
            ("git version 2.47.3", true),
            ("git version 2.28.1 (x)", false),
            ("git version 3.0.rc1", true),
            ("?", false),
        ] {
            let checked = script(folder.path(), &format!("echo '{version}'")).check_version();
            assert_eq!(checked.is_ok(), fine, "{version}: {checked:?}");
        }
        let none = Git::new(Path::new("/nowhere/git"), folder.path(), LOCAL).check_version();
        assert!(none.unwrap_err().to_string().contains("/nowhere/git"));
    }
}
