//! The threads that run the jobs, and how they stop after a signal.
//!
//! Invariant: a thread lives at least as long as the command that it started, because the kernel sends the parent-death
//! signal when that thread ends.

use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use tollgate::error::{At, Fault, Result};
use tollgate::event::{BreakerTurned, Event};
use tollgate::vault::event::Entry;

use super::job::{JobResult, PendingRelease};
use super::queue::{Queue, QueueAnswer};
use super::shift::Shift;
use crate::report::work::WorkSummary;
use crate::words;

/// The longest time between SIGTERM and SIGKILL for a command. With a short grace period it is shorter, down to a second:
/// who asks for a quick end does not want to wait for a command that ignores SIGTERM.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(5);

/// The threads of one worker.
pub(super) struct Pool<'a> {
    shift: &'a Shift<'a>,
    queue: &'a Queue<'a>,
}

impl<'a> Pool<'a> {
    pub(super) fn new(shift: &'a Shift<'a>, queue: &'a Queue<'a>) -> Self {
        Self { shift, queue }
    }

    /// Works until no task is left, or until a signal or a fault.
    pub(super) fn work(&self, jobs: u16, grace: Duration) -> Result<(WorkSummary, Option<Fault>)> {
        self.shift.tell(&words::work_starts(
            &self.shift.invocation.viewpoint(),
            self.shift.agent,
            &self.shift.tasks.folder,
        ));
        self.shift.state().threads = usize::from(jobs);
        thread::scope(|scope| {
            let _signals = on_signal(scope, || {
                self.queue.close();
                self.shift.state().asked += 1;
                self.shift.notify();
            })?;
            for missing in (1..=jobs).rev() {
                let started = thread::Builder::new().spawn_scoped(scope, || self.one_after_the_other());
                if let Err(fault) = started.at("start", "a thread of the worker") {
                    // The threads that run finish their tasks. Then the fault ends the worker.
                    self.queue.close();
                    let mut shift = self.shift.state();
                    shift.threads -= usize::from(missing);
                    shift.fault.get_or_insert(fault);
                    break;
                }
            }
            self.see_to_the_end(grace);
            Ok::<_, Fault>(())
        })?;
        let mut shift = self.shift.state();
        let faulted = self.queue.faulted();
        Ok((WorkSummary { faulted, ..shift.tally.clone() }, shift.fault.take()))
    }

    fn one_after_the_other(&self) {
        let _thread = RunningThread(self.shift);
        let fault = loop {
            match self.queue.take() {
                Ok(QueueAnswer::Task(claimed)) => self.finish(self.shift.job(*claimed)),
                Ok(QueueAnswer::NoMore(_)) => break None,
                Err(fault) => break Some(fault),
            }
        };
        let mut shift = self.shift.state();
        shift.fault = shift.fault.take().or(fault);
    }

    fn finish(&self, rest: PendingRelease) {
        let ((took, failure), task) = (rest.outcome(), rest.task().clone());
        let ended = self.shift.let_go(rest);
        let mut shift = self.shift.state();
        match ended {
            JobResult::Done => shift.tally.done += 1,
            JobResult::Drafted => shift.tally.drafted += 1,
            JobResult::Failed => shift.tally.failed += 1,
            JobResult::GivenBack => shift.tally.given_back += 1,
            JobResult::Lost => shift.tally.lost += 1,
            JobResult::Undone => {
                shift.tally.lost += 1;
                shift.tally.undone += 1;
            }
        }
        drop(shift);
        if ended == JobResult::Undone {
            self.queue.avoid(task);
        }
        self.queue.finished(ended == JobResult::Failed);
        let turned = self.queue.learn(|breaker| match (ended, failure) {
            (JobResult::Done | JobResult::Drafted, _) => {
                breaker.succeeded().then(|| (0, words::success(), None))
            }
            (JobResult::Failed | JobResult::GivenBack | JobResult::Undone, failure @ Some(_))
            | (JobResult::Undone, failure) => {
                let reason = failure.unwrap_or_else(words::undone);
                let pause = breaker.failed(took, Instant::now())?;
                Some((breaker.failures(), reason, Some(pause)))
            }
            (JobResult::Failed | JobResult::GivenBack | JobResult::Lost, _) => {
                breaker.learned_nothing(Instant::now());
                None
            }
        });
        if let Some((failures, reason, pause)) = turned {
            self.tell_breaker(failures, reason, pause);
        }
    }

    /// Says that the breaker has opened for this time, or closed.
    fn tell_breaker(&self, failures: u32, reason: String, pause: Option<Duration>) {
        let &Shift { invocation, tasks, agent, .. } = self.shift;
        self.shift.tell(&match pause {
            Some(pause) => {
                let next_try = (!self.queue.is_once()).then_some(pause);
                words::breaker_opened(agent, failures, &reason, next_try)
            }
            None => words::breaker_closed(agent),
        });
        let now = invocation.now();
        let until = pause.map(|pause| now.checked_add(pause).unwrap_or(Timestamp::MAX));
        let event = Event::Breaker(BreakerTurned { failures, reason, until });
        let entry = Entry { time: now, agent: Some(agent.clone()), turn: None, event };
        if let Err(fault) = tasks.vault.store().record(&[entry]) {
            self.shift.tell(&words::work_fault(&invocation.viewpoint(), &fault));
        }
    }

    /// Waits for the threads. After a signal, running commands have the grace period to finish.
    fn see_to_the_end(&self, grace: Duration) {
        let mut shift =
            self.shift.wait(self.shift.state(), None, |shift| shift.threads > 0 && shift.asked == 0);
        if shift.threads == 0 {
            return;
        }
        drop(shift);
        self.shift.tell(&words::work_stops(grace));
        let deadline = Instant::now() + grace;
        shift = self
            .shift
            .wait(self.shift.state(), Some(deadline), |shift| shift.threads > 0 && shift.asked == 1);
        shift.over = true;
        for (group, told) in &mut shift.running {
            *told = true;
            signal(*group, Signal::TERM);
        }
        let deadline = Instant::now() + LAST_WORDS.min(grace.max(Duration::from_secs(1)));
        shift = self.shift.wait(shift, Some(deadline), |shift| shift.threads > 0 && shift.asked < 3);
        for group in shift.running.keys() {
            signal(*group, Signal::KILL);
        }
    }
}

/// Counts a thread until it ends, even by a panic: otherwise the pool would wait for it for ever.
struct RunningThread<'a>(&'a Shift<'a>);

impl Drop for RunningThread<'_> {
    fn drop(&mut self) {
        self.0.state().threads -= 1;
        self.0.notify();
    }
}

fn signal(group: i32, signal: Signal) {
    if let Some(group) = Pid::from_raw(group) {
        let _ = kill_process_group(group, signal);
    }
}

/// Stops listening for signals when it is dropped.
struct SignalListener(Handle);

impl Drop for SignalListener {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn on_signal<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    act: impl Fn() + Send + 'scope,
) -> Result<SignalListener> {
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(|source| Fault::Io {
        doing: "listen to",
        path: "signals".into(),
        source,
    })?;
    let handle = signals.handle();
    let listen = move || signals.forever().for_each(|_| act());
    thread::Builder::new().spawn_scoped(scope, listen).at("start", "the thread that waits for signals")?;
    Ok(SignalListener(handle))
}
