//! `tollgate warden`: a process beside `tollgate work` that kills the worker's commands when the worker no longer can.
//!
//! Other machines share the store, so one of them starts a task again when the lease of a silent worker is over. The kernel
//! kills the command of a worker that was killed (see `launch`), but not the processes that the command has started. And a worker that was
//! stopped, with Ctrl-Z for example, neither sends heartbeats nor kills anything. So a separate process does it.
//! The worker writes lines into a pipe:
//!
//! - `GROUP TIME`: kill this process group at this time, unless there is another line about it by then. Times are in
//!   milliseconds since the machine was started, by a clock that goes on while the machine sleeps;
//! - `GROUP`: nothing is to be killed any more.
//!
//! The pipe ends when the worker does. Then the warden kills the groups that are left, and ends as well.
//!
//! Like `launch`, the call is not in the command line that people see.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, PipeWriter, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tollgate::vault::claim_lock::without_locks;
use tollgate_base::boot_clock::millis_since_boot;

/// The name of the call.
const WARDEN: &str = "warden";

/// How often the warden looks at the clock while commands run. Its timer stands still while the machine sleeps; the clock goes on.
const LOOK: Duration = Duration::from_secs(1);

/// A line is shorter than this.
const LONGEST_LINE: usize = 64;

/// Whether the call is exactly `tollgate warden`.
pub(crate) fn is_called(mut words: impl Iterator<Item = OsString>) -> bool {
    words.next();
    words.next().is_some_and(|word| word == WARDEN) && words.next().is_none()
}

/// Sees to the commands of the worker at the other end of the standard input.
pub(crate) fn run() -> ExitCode {
    // A signal to everything that runs here must not leave the commands without their warden. It ends with its worker.
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        let _ = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
    }
    let mut groups = WatchedGroups::default();
    let (pipe, mut unread) = (rustix::stdio::stdin(), Vec::new());
    loop {
        let now = millis_since_boot();
        let look = (!groups.0.is_empty()).then(|| Timespec::try_from(LOOK.min(groups.left(now))));
        match poll(&mut [PollFd::new(&pipe, PollFlags::IN)], look.and_then(Result::ok).as_ref()) {
            Err(Errno::INTR) => continue,
            Err(_) => break,
            // All lines are read. One that is still in the pipe may save a group, or say that its id is free for others.
            Ok(0) => {
                groups.kill_overdue(now);
                continue;
            }
            Ok(_) => {}
        }
        let mut read = [0; 4096];
        match rustix::io::read(pipe, &mut read) {
            Err(Errno::INTR) => {}
            Err(_) | Ok(0) => break,
            Ok(length) => unread.extend_from_slice(&read[..length]),
        }
        while let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = unread.drain(..=end).collect();
            groups.hear(&line);
        }
        unread.truncate(LONGEST_LINE);
    }
    groups.kill_overdue(u64::MAX);
    ExitCode::SUCCESS
}

/// The process groups that the warden knows, and when it kills each.
#[derive(Debug, Default, PartialEq, Eq)]
struct WatchedGroups(BTreeMap<i32, u64>);

impl WatchedGroups {
    /// A line of the worker. One that is not understood changes nothing.
    fn hear(&mut self, line: &[u8]) {
        let mut words = str::from_utf8(line).unwrap_or_default().split_whitespace();
        let Some(group) = words.next().and_then(|word| word.parse().ok()) else { return };
        match words.next().map(str::parse::<u64>) {
            Some(Ok(at)) => drop(self.0.insert(group, at)),
            Some(Err(_)) => {}
            None => drop(self.0.remove(&group)),
        }
    }

    /// How long until the next group is killed.
    fn left(&self, now: u64) -> Duration {
        let next = self.0.values().min().copied().unwrap_or(u64::MAX);
        Duration::from_millis(next.saturating_sub(now))
    }

    fn kill_overdue(&mut self, now: u64) {
        self.0.retain(|group, at| {
            let is_overdue = *at <= now;
            if let Some(group) = Pid::from_raw(*group).filter(|_| is_overdue) {
                // An error means that no process of the group is left.
                let _ = kill_process_group(group, Signal::KILL);
            }
            !is_overdue
        });
    }
}

/// The worker's side: the warden that sees to its commands.
pub(crate) struct Warden {
    program: PathBuf,
    state: Mutex<WardenState>,
}

#[derive(Default)]
struct WardenState {
    process: Option<WardenProcess>,
    /// What the warden was told: when each group is to be killed.
    told: BTreeMap<i32, u64>,
}

struct WardenProcess {
    child: Child,
    pipe: PipeWriter,
}

impl Warden {
    /// The warden that this program, tollgate, will be.
    pub(crate) fn new(program: PathBuf) -> Self {
        Self { program, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, WardenState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts it, unless it runs: before a command starts that needs it.
    pub(crate) fn ready(&self) -> io::Result<()> {
        let mut state = self.state();
        if state.process.is_none() {
            self.start(&mut state)?;
        }
        Ok(())
    }

    /// Kill this group at this time, in milliseconds since the machine was started, even if this process cannot.
    pub(crate) fn kill_at(&self, group: Pid, at: u64) -> io::Result<()> {
        let mut state = self.state();
        state.told.insert(group.as_raw_pid(), at);
        self.tell(&mut state, &line(group.as_raw_pid(), at))
    }

    /// Kill nothing: the group was killed, or its command has ended.
    pub(crate) fn spare(&self, group: Pid) {
        let mut state = self.state();
        if state.told.remove(&group.as_raw_pid()).is_some() {
            // If the warden is dead, it kills nothing.
            let _ = self.tell(&mut state, &format!("{}\n", group.as_raw_pid()));
        }
    }

    /// Writes a line. If somebody has killed the warden, starts another one that knows the same groups.
    fn tell(&self, state: &mut WardenState, line_of_one: &str) -> io::Result<()> {
        if let Some(process) = &mut state.process
            && process.pipe.write_all(line_of_one.as_bytes()).is_ok()
        {
            return Ok(());
        }
        state.end();
        self.start(state)
    }

    /// Starts a warden that finds everything that it must know in its pipe: this process may be killed as soon as the warden
    /// runs. The pipe holds more than the lines about the commands of one worker.
    fn start(&self, state: &mut WardenState) -> io::Result<()> {
        let (read, mut pipe) = io::pipe()?;
        let lines: String = state.told.iter().map(|(group, at)| line(*group, *at)).collect();
        pipe.write_all(lines.as_bytes())?;
        let mut command = Command::new(&self.program);
        // A group of its own: Ctrl-C and Ctrl-Z do not reach it.
        command.arg(WARDEN).current_dir("/").process_group(0);
        command.stdin(read).stdout(Stdio::null()).stderr(Stdio::null());
        let child = without_locks(|| command.spawn())?;
        state.process = Some(WardenProcess { child, pipe });
        Ok(())
    }
}

impl WardenState {
    /// The pipe ends, and so does the warden.
    fn end(&mut self) {
        if let Some(WardenProcess { mut child, pipe }) = self.process.take() {
            drop(pipe);
            let _ = child.wait();
        }
    }
}

impl Drop for WardenState {
    fn drop(&mut self) {
        self.end();
    }
}

fn line(group: i32, at: u64) -> String {
    format!("{group} {at}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_call_of_the_worker_is_recognised() {
        let is_warden = |call: &str| is_called(call.split(' ').map(OsString::from));
        assert!(is_warden("tollgate warden"));
        for call in ["tollgate", "tollgate work", "tollgate warden --help", "tollgate task warden"] {
            assert!(!is_warden(call), "{call}");
        }
    }

    #[test]
    fn the_last_line_about_a_group_counts() {
        let mut groups = WatchedGroups::default();
        for line in ["17 1500\n", "18 1700\n", "17 1900\n", "19 1\n", "19\n", "word 5\n", "18 soon\n", "\n"] {
            groups.hear(line.as_bytes());
        }
        assert_eq!(groups, WatchedGroups(BTreeMap::from([(17, 1900), (18, 1700)])));
        assert_eq!(groups.left(1600), Duration::from_millis(100));
        assert_eq!(groups.left(2000), Duration::ZERO);
    }
}
