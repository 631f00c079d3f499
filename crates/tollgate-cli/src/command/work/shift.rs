//! One run of `tollgate work`: what its jobs share, which commands run, and whether they must stop.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Pid;
use tollgate::error::Fault;
use tollgate::name::Agent;

use crate::command::warden::Warden;
use crate::invocation::Invocation;
use crate::output;
use crate::report::work::WorkSummary;
use crate::tasks::LoggedVault;

/// Whether a command was asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopRequest {
    Yes,
    No,
}

/// What the jobs of one run share.
pub(super) struct Shift<'a> {
    pub(super) invocation: &'a Invocation,
    pub(super) tasks: &'a LoggedVault,
    pub(super) agent: &'a Agent,
    pub(super) command: &'a [OsString],
    /// How long a command may take.
    pub(super) timeout: Option<Duration>,
    /// Print nothing but one JSON document at the end.
    pub(super) quiet: bool,
    pub(super) warden: Warden,
    state: Mutex<ShiftState>,
    changed: Condvar,
}

#[derive(Default)]
pub(super) struct ShiftState {
    /// The number of signals to stop.
    pub(super) asked: u32,
    /// No new command may start.
    pub(super) over: bool,
    /// The process groups of the running commands, and whether each was asked to end.
    pub(super) running: BTreeMap<i32, bool>,
    pub(super) threads: usize,
    pub(super) tally: WorkSummary,
    pub(super) fault: Option<Fault>,
}

impl<'a> Shift<'a> {
    pub(super) fn new(
        invocation: &'a Invocation,
        tasks: &'a LoggedVault,
        agent: &'a Agent,
        command: &'a [OsString],
        timeout: Option<Duration>,
        quiet: bool,
    ) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        let warden = Warden::new(invocation.surroundings().program.clone());
        Self { invocation, tasks, agent, command, timeout, quiet, warden, state, changed }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, ShiftState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes all threads that wait for a change of the state.
    pub(super) fn notify(&self) {
        self.changed.notify_all();
    }

    /// Waits while the condition is true, at most until the deadline.
    pub(super) fn wait<'s>(
        &self,
        mut state: MutexGuard<'s, ShiftState>,
        deadline: Option<Instant>,
        while_true: impl Fn(&ShiftState) -> bool,
    ) -> MutexGuard<'s, ShiftState> {
        while while_true(&state) {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                break;
            }
            let left = left.unwrap_or(Duration::from_secs(3600));
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }

    /// Records that a command has started. Returns `false` if it must not run.
    pub(super) fn started(&self, group: Pid) -> bool {
        let mut state = self.state();
        if !state.over {
            state.running.insert(group.as_raw_pid(), false);
        }
        !state.over
    }

    /// Records that a command has ended. Returns whether it was asked to.
    pub(super) fn ended(&self, group: Pid) -> StopRequest {
        match self.state().running.remove(&group.as_raw_pid()) {
            Some(true) => StopRequest::Yes,
            _ => StopRequest::No,
        }
    }

    /// Whether a signal asked to stop.
    pub(super) fn must_end(&self) -> bool {
        self.state().asked > 0
    }

    /// Writes to the agent's log and to stderr.
    pub(super) fn tell(&self, text: &str) {
        self.tasks.logs.line(self.agent, self.invocation.now(), text);
        self.show(text);
    }

    /// Writes to stderr only. The log has the events of a task already.
    pub(super) fn show(&self, text: &str) {
        if !self.quiet {
            output::tell(text);
        }
    }
}
