//! The threads that do the errands, and what happens when tollgate is asked to stop.
//!
//! Invariant: a thread lives as long as the command it has started, because the kernel's signal at the parent's death
//! is tied to the thread.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use tollgate::error::{Fault, Result};
use tollgate::name::Agent;

use super::errand::{Ended, LetGo};
use super::queue::{Queue, Taken};
use crate::door::Door;
use crate::tasks::Tasks;
use crate::words;

/// Between asking a command to end and ending it.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// A step waits for so long for another to go to the remote with: less than any remote needs to answer, longer than it
/// takes from the end of one task to the claim of the next.
const LINGER: Duration = Duration::from_millis(15);

/// Whether a command was asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopped {
    Yes,
    No,
}

/// What became of the errands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) done: u64,
    pub(crate) drafted: u64,
    pub(crate) failed: u64,
    pub(crate) given_back: u64,
}

impl Tally {
    pub(crate) fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// The threads of one worker.
pub(super) struct Crew<'a> {
    pub(super) door: &'a Door,
    pub(super) tasks: &'a Tasks,
    queue: &'a Queue<'a>,
    agent: &'a Agent,
    pub(super) command: &'a [OsString],
    pub(super) quiet: bool,
    shift: Mutex<Shift>,
    changed: Condvar,
}

#[derive(Default)]
struct Shift {
    /// How often we were asked to stop.
    asked: u32,
    /// No command may run any more.
    over: bool,
    /// The groups of the commands that run, and whether they were asked to end.
    running: BTreeMap<i32, bool>,
    threads: usize,
    tally: Tally,
    fault: Option<Fault>,
}

impl<'a> Crew<'a> {
    pub(super) fn new(
        door: &'a Door,
        tasks: &'a Tasks,
        queue: &'a Queue<'a>,
        agent: &'a Agent,
        command: &'a [OsString],
        quiet: bool,
    ) -> Self {
        let (shift, changed) = (Mutex::default(), Condvar::new());
        Self { door, tasks, queue, agent, command, quiet, shift, changed }
    }

    /// Works until there is nothing more to do, or until asked to stop.
    pub(super) fn work(&self, jobs: u16, grace: Duration) -> Result<Tally> {
        self.tell(&words::work_starts(self.door, self.agent, &self.tasks.folder));
        self.shift().threads = usize::from(jobs);
        if let Some(git) = &self.tasks.git {
            git.linger(LINGER);
        }
        thread::scope(|scope| {
            let _signals = on_signal(scope, || {
                self.queue.close();
                self.shift().asked += 1;
                self.changed.notify_all();
            })?;
            for _ in 0..jobs {
                scope.spawn(|| self.one_after_the_other());
            }
            self.see_to_the_end(grace);
            Ok::<_, Fault>(())
        })?;
        let mut shift = self.shift();
        match shift.fault.take() {
            Some(fault) => Err(fault),
            None => Ok(shift.tally.clone()),
        }
    }

    fn one_after_the_other(&self) {
        let fault = thread::scope(|scope| {
            loop {
                match self.queue.take() {
                    Ok(Taken::Task(claimed)) => {
                        let rest = self.errand(*claimed);
                        if self.tasks.git.is_some() {
                            // Beside the claim of the next one, so that both go to the remote together.
                            scope.spawn(|| self.finish(rest));
                        } else {
                            self.finish(rest);
                        }
                    }
                    Ok(Taken::NoMore(_)) => break None,
                    Err(fault) => break Some(fault),
                }
            }
        });
        let mut shift = self.shift();
        shift.threads -= 1;
        shift.fault = shift.fault.take().or(fault);
        drop(shift);
        self.changed.notify_all();
    }

    fn finish(&self, rest: LetGo) {
        let ended = self.let_go(rest);
        let mut shift = self.shift();
        match ended {
            Ended::Done => shift.tally.done += 1,
            Ended::Drafted => shift.tally.drafted += 1,
            Ended::Failed => shift.tally.failed += 1,
            Ended::GivenBack => shift.tally.given_back += 1,
            Ended::Lost => {}
        }
        drop(shift);
        self.queue.finished(ended == Ended::Failed);
    }

    /// Waits for the threads; once asked to stop, no longer than the grace for what they are at.
    fn see_to_the_end(&self, grace: Duration) {
        let mut shift = self.wait(self.shift(), None, |shift| shift.threads > 0 && shift.asked == 0);
        if shift.threads == 0 {
            return;
        }
        drop(shift);
        self.tell(&words::work_stops(grace));
        let deadline = Instant::now() + grace;
        shift = self.wait(self.shift(), Some(deadline), |shift| shift.threads > 0 && shift.asked == 1);
        shift.over = true;
        for (group, told) in &mut shift.running {
            *told = true;
            signal(*group, Signal::TERM);
        }
        let deadline = Instant::now() + LAST_WORDS;
        shift = self.wait(shift, Some(deadline), |shift| shift.threads > 0 && shift.asked < 3);
        for group in shift.running.keys() {
            signal(*group, Signal::KILL);
        }
    }

    fn wait<'s>(
        &self,
        mut shift: MutexGuard<'s, Shift>,
        deadline: Option<Instant>,
        while_true: impl Fn(&Shift) -> bool,
    ) -> MutexGuard<'s, Shift> {
        while while_true(&shift) {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                break;
            }
            let left = left.unwrap_or(Duration::from_secs(3600));
            shift = self.changed.wait_timeout(shift, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        shift
    }

    /// A command runs, unless none may any more.
    pub(super) fn started(&self, group: Pid) -> bool {
        let mut shift = self.shift();
        if !shift.over {
            shift.running.insert(group.as_raw_pid(), false);
        }
        !shift.over
    }

    /// A command has ended, by itself or because it was asked to.
    pub(super) fn ended(&self, group: Pid) -> Stopped {
        match self.shift().running.remove(&group.as_raw_pid()) {
            Some(true) => Stopped::Yes,
            _ => Stopped::No,
        }
    }

    /// Nothing may take time any more.
    pub(super) fn must_end(&self) -> bool {
        self.shift().asked > 0
    }

    /// To whoever looks, and to the log.
    pub(super) fn tell(&self, text: &str) {
        self.tasks.logs.line(self.agent, self.door.now(), text);
        self.show(text);
    }

    /// To whoever looks. What happens to a task is in the log already.
    pub(super) fn show(&self, text: &str) {
        if !self.quiet {
            words::tell(text);
        }
    }

    fn shift(&self) -> MutexGuard<'_, Shift> {
        self.shift.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn signal(group: i32, signal: Signal) {
    if let Some(group) = Pid::from_raw(group) {
        let _ = kill_process_group(group, signal);
    }
}

/// Stops listening when it is dropped.
struct Listening(Handle);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn on_signal<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    act: impl Fn() + Send + 'scope,
) -> Result<Listening> {
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(|source| Fault::Io {
        doing: "listen to",
        path: "signals".into(),
        source,
    })?;
    let handle = signals.handle();
    scope.spawn(move || signals.forever().for_each(|_| act()));
    Ok(Listening(handle))
}
