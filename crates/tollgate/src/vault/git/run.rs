//! The user's own `git` program: started without prompts, ended in time, its answer kept.
//!
//! Credentials, ssh, proxies and certificates are whatever the user has set up for git. Nothing is asked at a terminal,
//! nothing of an outer git's environment is inherited, and messages are in English so that they can be told apart.
//!
//! Invariants: no argument that comes from outside stands where git would take it for an option; a program that does not
//! end in time is killed with its whole group; a program that talks to the remote has the lock of the conversation as its
//! standard input, so the lock is not free before the last one of them has ended, also if tollgate is killed.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};

use super::seen::clock;
use crate::error::{Fault, Result};
use crate::vault::hold::without_locks;

/// The oldest git that is known to do all that is asked of it: `--porcelain`, `--atomic` and leases are older, but
/// `--no-write-fetch-head` came with 2.29.
const OLDEST: (u32, u32) = (2, 29);

/// What git only does on the disk is done in this time, or the disk is broken.
const LOCAL: Duration = Duration::from_secs(60);

/// What an outer git, or a careless shell, may have left: each of them would lead ours to another repository.
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

/// Settings that would make git do more than it is asked, or ask somebody.
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
    /// Where it is written down who talks to the remote.
    talking: Option<PathBuf>,
    patience: Duration,
    batch_ssh: bool,
}

/// What git answered.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) ok: bool,
    pub(super) out: Vec<u8>,
    /// Its complaints, whole lines, without control characters.
    pub(super) err: String,
    /// It did not end in time and was killed.
    pub(super) hung: bool,
}

/// What a program gets as its standard input.
pub(super) enum Given<'a> {
    Nothing,
    Bytes(&'a [u8]),
    /// The lock of the conversation, kept for as long as the program lives.
    Lock(&'a File),
}

impl Ran {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).trim_end().to_owned()
    }
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

    /// From here on, this repository and no other; who talks to its remote is written down there.
    pub(super) fn within(mut self, top: PathBuf, repository: PathBuf, talking: PathBuf) -> Self {
        self.folder = top;
        self.repository = Some(repository);
        self.talking = Some(talking);
        self
    }

    /// Ends a program that talks to the remote and should have ended: whoever started it was killed. It is known by its
    /// number and by when it was started, so nobody else is ended who has got the number since.
    pub(super) fn end_orphan(&self) {
        let Some(text) = self.talking.as_ref().and_then(|path| fs::read_to_string(path).ok()) else { return };
        let mut numbers = text.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
        let (Some(pid), Some(started), Some(until)) = (numbers.next(), numbers.next(), numbers.next()) else {
            return;
        };
        if clock() > until && started_at(pid) == Some(started) {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
            let _ = pid.map(|pid| kill_process_group(pid, Signal::KILL));
        }
    }

    /// For whoever comes after us, if we are killed. Without it, they wait until the program ends by itself.
    fn write_down(&self, child: &Child, patience: Duration) {
        let pid = u64::from(child.id());
        if let (Some(path), Some(started)) = (&self.talking, started_at(pid)) {
            let until = clock() + 2 * u64::try_from(patience.as_millis()).unwrap_or(u64::MAX / 4);
            let _ = fs::write(path, format!("{pid} {started} {until}\n"));
        }
    }

    /// The user has not said how ssh is to be run, so it can be told not to ask.
    pub(super) fn with_batch_ssh(mut self) -> Self {
        self.batch_ssh = true;
        self
    }

    /// Makes sure that there is a git, and that it is young enough.
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
        // A transfer that stands still ends by itself, also if nobody is left to end it.
        let still = self.patience.as_secs().max(1);
        command.arg("-c").arg("http.lowSpeedLimit=1").arg("-c").arg(format!("http.lowSpeedTime={still}"));
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
            let ssh = format!("ssh -oBatchMode=yes -oConnectTimeout={still} -oServerAliveInterval={still}");
            command.env("GIT_SSH_COMMAND", ssh);
        }
        // A group of its own, so that everything it starts can be ended with it.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Something that must succeed and only touches the disk. Its output, as text.
    pub(super) fn must<const N: usize>(&self, arguments: [&str; N]) -> Result<String> {
        let ran = self.local(&arguments, &Given::Nothing)?;
        if ran.ok {
            Ok(ran.text())
        } else {
            Err(failed(arguments.first().copied().unwrap_or_default(), &ran))
        }
    }

    /// Something that only touches the disk.
    pub(super) fn local(&self, arguments: &[&str], given: &Given<'_>) -> Result<Ran> {
        self.run(self.command(arguments.iter().copied()), given, LOCAL)
    }

    /// Something that talks to the remote.
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
        let answered = answer(&mut child, given, patience);
        if !matches!(answered, Ok(Ran { hung: false, .. })) {
            // That there is none left is fine.
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            let _ = child.wait();
        }
        answered.map_err(|source| self.fault("talk to", source))
    }

    fn fault(&self, doing: &'static str, source: io::Error) -> Fault {
        Fault::Io { doing, path: self.program.clone(), source }
    }
}

/// When a process was started, in the kernel's own count. Only Linux tells.
fn started_at(pid: u64) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program may hold anything, also brackets and spaces.
    text.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Gives a program its input and takes its output until it ends, or until the time is up.
fn answer(child: &mut Child, given: &Given<'_>, patience: Duration) -> io::Result<Ran> {
    let deadline = Instant::now() + patience;
    let mut input = child.stdin.take();
    let mut rest: &[u8] = match given {
        Given::Bytes(bytes) => bytes,
        _ => &[],
    };
    if let Some(pipe) = &input {
        rustix::io::ioctl_fionbio(pipe, true)?;
    }
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let (mut told, mut complained) = (Vec::new(), Vec::new());
    let status = loop {
        if rest.is_empty() {
            // Closed: the program sees the end of its input.
            input = None;
        }
        let ready = wait_for(input.as_ref(), out.as_ref(), err.as_ref())?;
        if ready[0]
            && let Some(pipe) = &mut input
        {
            match pipe.write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // It has read enough, or has died; its status tells.
                Err(_) => rest = &[],
            }
        }
        if ready[1] {
            take_some(&mut out, &mut told)?;
        }
        if ready[2] {
            take_some(&mut err, &mut complained)?;
        }
        // What it has started may live on and keep the pipes open (an ssh that is shared does), so its own end counts.
        if let Some(status) = child.try_wait()?
            && (!(ready[1] || ready[2]) || (out.is_none() && err.is_none()))
        {
            break Some(status);
        }
        if Instant::now() > deadline {
            break None;
        }
    };
    Ok(Ran {
        ok: status.is_some_and(|status| status.success()),
        out: told,
        err: plain(&complained),
        hung: status.is_none(),
    })
}

/// Which of the three can be written to or read from now, after a moment at most.
fn wait_for(
    input: Option<&std::process::ChildStdin>,
    out: Option<&std::process::ChildStdout>,
    err: Option<&std::process::ChildStderr>,
) -> io::Result<[bool; 3]> {
    let mut fds = Vec::with_capacity(3);
    let mut places = Vec::with_capacity(3);
    if let Some(pipe) = input {
        fds.push(PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::OUT));
        places.push(0);
    }
    if let Some(pipe) = out {
        fds.push(PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN));
        places.push(1);
    }
    if let Some(pipe) = err {
        fds.push(PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN));
        places.push(2);
    }
    // With nothing left to hear, its end is looked for often; it comes at once.
    let millis = if out.is_none() && err.is_none() { 1 } else { 20 };
    let moment = Timespec { tv_sec: 0, tv_nsec: millis * 1_000_000 };
    match poll(&mut fds, Some(&moment)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let mut ready = [false; 3];
    for (fd, place) in fds.iter().zip(places) {
        ready[place] = !fd.revents().is_empty();
    }
    Ok(ready)
}

fn take_some(pipe: &mut Option<impl Read>, into: &mut Vec<u8>) -> io::Result<()> {
    let Some(from) = pipe else { return Ok(()) };
    let mut bytes = vec![0; 64 << 10];
    match from.read(&mut bytes) {
        Ok(0) => *pipe = None,
        Ok(read) => into.extend_from_slice(&bytes[..read]),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// What a program, or a server behind it, says, fit for a message: a server may send anything.
fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines =
        text.split(['\n', '\r']).map(|line| line.chars().filter(|c| !c.is_control()).collect::<String>());
    let lines: Vec<_> = lines.map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect();
    lines.join("\n")
}

/// Git could not do what it must.
pub(super) fn failed(what: &str, ran: &Ran) -> Fault {
    let why =
        if ran.hung { "it did not end" } else { ran.err.lines().last().unwrap_or("it did not say why") };
    Fault::invalid(format!("`git {what}` failed: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program in git's place. Written by a process of its own: a file that some thread's child still has open for
    /// writing cannot be run.
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
    fn a_program_that_hangs_is_ended_with_all_it_has_started() {
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
        let mut pauses = crate::lock::Pauses::lasting(Duration::from_secs(10));
        while !gone() {
            assert!(pauses.pause(), "the sleeper lives on");
        }
    }

    #[test]
    fn the_lock_is_not_free_before_the_program_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let git = script(folder.path(), "echo begun; exec sleep 1000");
        let held = lock(folder.path());
        let mut command = git.command(["push"]);
        command.stdin(Stdio::from(held.try_clone().unwrap()));
        let mut child = command.spawn().unwrap();
        // As if tollgate had been killed.
        drop((held, command));
        let again = File::open(folder.path().join("lock")).unwrap();
        assert!(again.try_lock().is_err(), "somebody could talk at the same time");
        child.kill().unwrap();
        child.wait().unwrap();
        let mut pauses = crate::lock::Pauses::lasting(Duration::from_secs(10));
        while again.try_lock().is_err() {
            assert!(pauses.pause(), "nobody holds it any more");
        }
    }

    #[test]
    fn much_is_said_both_ways_and_control_characters_are_not_shown() {
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
