//! The user's own `git` program: started without prompts, heard within limits, ended in time.
//!
//! Credentials, ssh, proxies and certificates are those that the user has set up for git. git asks nothing at a terminal,
//! inherits nothing from the environment of an outer git, and writes its messages in English, so that they can be parsed.
//!
//! Invariants: no argument from outside is in a place where git would read it as an option. A program that does not end in
//! time, or writes without end, is killed with its whole process group. A program that talks to the remote has the lock of
//! the conversation as its standard input, so the lock is not free before the last such program has ended, even if tollgate
//! is killed.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::claim_lock::without_locks;
use tollgate_base::boot_clock::millis_since_boot;
use tollgate_base::error::{Fault, Result};
use tollgate_base::private;
use tollgate_base::sys;
use tollgate_base::working_tree::OUTER_GIT;

/// The oldest git that can do everything that is asked of it: `--porcelain`, `--atomic` and leases are older, but
/// `--no-write-fetch-head` came with 2.29.
const OLDEST: (u32, u32) = (2, 29);

/// The longest time for commands that only touch the disk. If one takes longer, the disk is broken.
const LOCAL: Duration = Duration::from_secs(60);

/// The most bytes of error messages, and of what a program that talks to the remote prints: a server may send anything.
const MESSAGES: usize = 1 << 20;

/// The most bytes that a command that only touches the disk prints: the texts of all tasks that have changed, at once.
const TEXTS: usize = 1 << 30;

/// Turns off settings of the user that would make git do more than it is asked, or ask a person. Settings of the repository
/// are not read at all (`repository`).
const QUIET: [&str; 9] = [
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.quotePath=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    "push.followTags=false",
    "fetch.writeCommitGraph=false",
    "protocol.ext.allow=never",
];

/// What a program answered.
#[derive(Debug)]
pub(super) struct ProgramOutput {
    pub(super) ok: bool,
    pub(super) out: Vec<u8>,
    /// Its error messages, whole lines, without control characters.
    pub(super) err: String,
    /// Why it was killed, if it was.
    pub(super) killed: Option<&'static str>,
}

impl ProgramOutput {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).trim_end().to_owned()
    }
}

/// How git is run, and in which repository.
#[derive(Debug, Clone)]
pub(super) struct Git {
    pub(super) program: PathBuf,
    /// The folder in which it runs.
    pub(super) folder: PathBuf,
    /// The repository and its index; `None` for the repository that the folder is in.
    pub(super) repository: Option<(PathBuf, PathBuf)>,
    /// The file that names the program that talks to the remote.
    pub(super) talking: PathBuf,
    pub(super) patience: Duration,
    /// Runs ssh in batch mode. Only if the user has not configured how ssh is run.
    pub(super) batch_ssh: bool,
}

impl Git {
    /// Kills a program that still talks to the remote although its time is up, because the tollgate that started it was
    /// killed. Its process id and its start time identify it, so a later process with the same id is safe.
    pub(super) fn kill_orphan(&self) {
        let Ok(text) = private::read_to_string(&self.talking) else { return };
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
    fn write_down(&self, child: &Child) {
        let pid = u64::from(child.id());
        if let Some(started) = started_at(pid) {
            let patience = u64::try_from(self.patience.as_millis()).unwrap_or(u64::MAX / 4);
            let text = format!("{pid} {started} {}\n", millis_since_boot() + 2 * patience);
            let _ = private::write(&self.talking, text);
        }
    }

    /// Makes sure that git is installed and recent enough.
    pub(super) fn check_version(&self) -> Result<()> {
        let ran = self.must(&["--version"], &[])?;
        let text = ran.text();
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

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("-C").arg(&self.folder);
        for setting in QUIET {
            command.arg("-c").arg(setting);
        }
        // A stalled transfer ends by itself, even if tollgate is no longer there to end it.
        let stalled = self.patience.as_secs().max(1);
        command.arg("-c").arg("http.lowSpeedLimit=1").arg("-c").arg(format!("http.lowSpeedTime={stalled}"));
        command.args(arguments);
        for name in OUTER_GIT {
            command.env_remove(name);
        }
        if let Some((repository, index)) = &self.repository {
            command.env("GIT_DIR", repository).env("GIT_INDEX_FILE", index);
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

    /// Runs a command that only touches the disk, with this input, and must succeed.
    pub(super) fn must(&self, arguments: &[&str], input: &[u8]) -> Result<ProgramOutput> {
        let ran = self.local(arguments, input)?;
        if ran.ok {
            return Ok(ran);
        }
        let last = ran.err.lines().last().unwrap_or("it gave no reason");
        let why = if ran.killed.is_some() { "it did not end" } else { last };
        Err(Fault::invalid(format!("`git {}` failed: {why}", arguments.first().unwrap_or(&""))))
    }

    /// Runs a command that only touches the disk, with this input.
    pub(super) fn local(&self, arguments: &[&str], input: &[u8]) -> Result<ProgramOutput> {
        let mut command = self.command(arguments);
        if !input.is_empty() {
            command.stdin(Stdio::piped());
        }
        let child = self.start(&mut command)?;
        self.hear(child, input, TEXTS, LOCAL)
    }

    /// Runs a command that talks to the remote.
    pub(super) fn remote(&self, arguments: &[&str], lock: &File) -> Result<ProgramOutput> {
        let lock = lock.try_clone().map_err(|source| self.fault("lend the lock to", source))?;
        let child = self.start(self.command(arguments).stdin(lock))?;
        self.write_down(&child);
        self.hear(child, &[], MESSAGES, self.patience)
    }

    fn start(&self, command: &mut Command) -> Result<Child> {
        without_locks(|| command.spawn()).map_err(|source| self.fault("run", source))
    }

    fn fault(&self, doing: &'static str, source: io::Error) -> Fault {
        Fault::Io { doing, path: self.program.clone(), source }
    }

    /// Gives a program its input and reads its output until it ends, or has to be killed.
    fn hear(&self, mut child: Child, input: &[u8], most: usize, patience: Duration) -> Result<ProgramOutput> {
        let ran = thread::scope(|scope| {
            let fed = child.stdin.take().map_or(Ok(()), |mut stdin| {
                // In its own thread, because a program may print before it has read everything. If it has read enough or
                // has died, the write fails, and its status shows which.
                let feed = move || stdin.write_all(input);
                thread::Builder::new().spawn_scoped(scope, feed).map(drop)
            });
            let ran = fed.and_then(|()| listen(&mut child, most, Instant::now() + patience));
            if !matches!(ran, Ok(ProgramOutput { killed: None, .. })) {
                // It may have ended in the meantime.
                let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
                let _ = child.wait();
            }
            ran
        });
        ran.map_err(|source| self.fault("talk to", source))
    }
}

/// A pipe that a program writes to, until it is closed; what it has written; and the most that it may write.
struct Pipe(Option<File>, Vec<u8>, usize);

impl Pipe {
    fn new(pipe: Option<impl Into<OwnedFd>>, most: usize) -> io::Result<Self> {
        let pipe = pipe.map(|pipe| File::from(pipe.into()));
        pipe.as_ref().map(|pipe| rustix::io::ioctl_fionbio(pipe, true)).transpose()?;
        Ok(Self(pipe, Vec::new(), most))
    }

    /// Whether there was something to read.
    fn read(&mut self) -> io::Result<bool> {
        let Some(pipe) = &mut self.0 else { return Ok(false) };
        let mut bytes = vec![0; 64 << 10];
        match pipe.read(&mut bytes) {
            Ok(0) => self.0 = None,
            Ok(len) => self.1.extend_from_slice(&bytes[..len]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(true)
    }
}

fn listen(child: &mut Child, most: usize, deadline: Instant) -> io::Result<ProgramOutput> {
    let mut streams = [Pipe::new(child.stdout.take(), most)?, Pipe::new(child.stderr.take(), MESSAGES)?];
    let killed = loop {
        // Asked before the read: a program that has ended by now has written everything, so if there is nothing to read,
        // everything was read. A program that it started may go on and keep the pipes open (a shared ssh connection does),
        // so only its own end counts.
        let has_ended = child.try_wait()?.is_some();
        let mut is_silent = true;
        for stream in &mut streams {
            is_silent &= !stream.read()?;
        }
        if has_ended && is_silent {
            break None;
        }
        if streams.iter().any(|Pipe(_, written, most)| written.len() > *most) {
            break Some("it writes without end");
        }
        if Instant::now() > deadline {
            break Some("it does not answer");
        }
        if is_silent {
            wait_for(&streams)?;
        }
    };
    let ok = killed.is_none() && child.wait()?.success();
    let [Pipe(_, out, _), Pipe(_, err, _)] = streams;
    Ok(ProgramOutput { ok, out, err: printable(&err), killed })
}

/// Waits until there is something to read, for a moment at most.
fn wait_for(streams: &[Pipe]) -> io::Result<()> {
    let pipes = streams.iter().filter_map(|stream| stream.0.as_ref());
    let mut fds: Vec<_> = pipes.map(|pipe| PollFd::new(pipe, PollFlags::IN)).collect();
    // A program that has closed both pipes ends at once, so its end is checked often.
    let millis = if fds.is_empty() { 1 } else { 20 };
    match poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: millis * 1_000_000 })) {
        Err(error) if error != rustix::io::Errno::INTR => Err(error.into()),
        _ => Ok(()),
    }
}

/// Without control characters and empty lines, because a server may send anything.
fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let plain = |line: &str| line.chars().filter(|c| !c.is_control()).collect::<String>().trim().to_owned();
    let lines = text.split(['\n', '\r']).map(plain).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("\n")
}

/// When a process was started, in the kernel's own count.
fn started_at(pid: u64) -> Option<u64> {
    Some(sys::process(u32::try_from(pid).ok()?)?.started)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;
    use tollgate_base::lock::Pauses;

    fn git(program: PathBuf, folder: &Path, patience: Duration) -> Git {
        let (folder, talking) = (folder.to_owned(), folder.join("talking"));
        Git { program, folder, repository: None, talking, patience, batch_ssh: false }
    }

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
        git(path, folder, Duration::from_millis(200))
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
        let ran = git.remote(&["push"], &lock(folder.path())).unwrap();
        assert!(ran.killed.is_some() && !ran.ok && ran.text() == "begun", "{ran:?}");
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
        let mut command = git.command(&["push"]);
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
        let ran = git.local(&["cat"], &bytes).unwrap();
        assert!(!ran.ok && ran.killed.is_none());
        assert_eq!(ran.out.len(), bytes.len());
        assert_eq!(ran.err, "remote: [31mred");
        let fault = git.must(&["cat"], &bytes).unwrap_err();
        assert_eq!(fault.to_string(), "`git cat` failed: remote: [31mred");
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
        let none = git("/nowhere/git".into(), folder.path(), LOCAL).check_version();
        assert!(none.unwrap_err().to_string().contains("/nowhere/git"));
    }
}
