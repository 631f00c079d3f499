//! The tasks that can be claimed now, and waiting for more.
//!
//! The store announces changes, so a new task is claimed within milliseconds. An announcement is only a hint: the claim looks
//! at the task itself. Every interval the worker scans all tasks again, for stores that announce nothing and for lost
//! announcements. It reclaims the tasks of dead owners at every interval, and when the lock of a claim was released.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::mem::take;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tollgate::error::Result;
use tollgate::vault::retry::{is_transient, with_retry};
use tollgate::vault::state::State;
use tollgate::vault::store::{Hint, NoticedChange, Watch};
use tollgate::vault::{ClaimQueue, ClaimRequest, Claimed, TaskName};

use super::breaker::{Breaker, ClaimPermission, PAUSE};
use crate::answer::Form;
use crate::invocation::Invocation;
use crate::output;
use crate::tasks::LoggedVault;
use crate::words;

/// The shortest time between two searches for dead owners, however many locks are released. Each search reads a folder.
const RECLAIM_PAUSE: Duration = Duration::from_millis(100);

/// The number of notes that are remembered, so that each is told once. It bounds the memory of a worker that runs for months.
const NOTES: usize = 10_000;

/// The answer to a worker that asks for a task.
pub(super) enum QueueAnswer {
    /// A claimed task.
    Task(Box<Claimed>),
    /// No more tasks, and the reason in a sentence.
    NoMore(String),
}

/// The claimable tasks, shared by the threads of one worker and the watcher.
pub(super) struct Queue<'a> {
    invocation: &'a Invocation,
    tasks: &'a LoggedVault,
    request: ClaimRequest,
    once: bool,
    interval: Duration,
    news: QueueNews,
    waiting: Mutex<WaitingQueue>,
}

/// The changes since the last look. The watcher's thread only writes here, so it never waits for a scan.
#[derive(Clone)]
struct QueueNews(std::sync::Arc<(Mutex<QueueEvents>, Condvar)>);

struct QueueEvents {
    /// Tasks that were moved in. They are complete.
    moved_in: BTreeSet<TaskName>,
    /// Tasks that were written in place. They are complete after some time without a write.
    written: BTreeSet<TaskName>,
    /// Anything may have changed: scan everything.
    look: bool,
    /// A task was done, and others may have waited for it.
    done: bool,
    /// The lock of a claim was released.
    let_go: bool,
    /// The worker is stopping and takes no more tasks.
    closed: bool,
    /// The number of running jobs.
    busy: usize,
    /// The tasks that the command put back into the queue, and until when each of them pauses for this worker.
    avoided: BTreeMap<TaskName, Timestamp>,
    breaker: Breaker,
}

struct WaitingQueue {
    line: ClaimQueue,
    /// Tasks that were moved in, so that they are complete, but too recently for `line`.
    fresh: ClaimQueue,
    looked: Option<Instant>,
    reclaimed: Option<Instant>,
    /// A lock was released, so an owner may be dead.
    let_go: bool,
    /// When recently written tasks are complete.
    ripe: Option<Instant>,
    /// When the first pause after a failed attempt is over.
    resumes: Option<Instant>,
    /// The notes about unclaimable files that were already printed.
    told: PrintedNotes,
    /// The tasks that could not be claimed because of a fault.
    faulted: BTreeSet<TaskName>,
}

impl<'a> Queue<'a> {
    pub(super) fn new(
        invocation: &'a Invocation,
        tasks: &'a LoggedVault,
        request: ClaimRequest,
        once: bool,
        interval: Duration,
    ) -> Self {
        let waiting = WaitingQueue {
            line: ClaimQueue::default(),
            fresh: ClaimQueue::default(),
            looked: None,
            reclaimed: None,
            let_go: false,
            ripe: None,
            resumes: None,
            told: PrintedNotes::default(),
            faulted: BTreeSet::new(),
        };
        Self {
            invocation,
            tasks,
            request,
            once,
            interval,
            news: QueueNews::new(tasks),
            waiting: Mutex::new(waiting),
        }
    }

    /// Watches the store until the watch is dropped. If the store announces nothing, the interval must do.
    pub(super) fn watch(&self) -> Option<Watch> {
        let news = self.news.clone();
        let states = [State::NeedsAction, State::Approved, State::Done];
        let watch =
            self.tasks.vault.store().watch(&states, std::sync::Arc::new(move |change| news.hear(change)));
        watch.unwrap_or_else(|fault| {
            self.tell(&words::not_watching(&fault.to_string(), self.interval));
            None
        })
    }

    /// The number of tasks that could not be claimed because of a fault.
    pub(super) fn faulted(&self) -> u64 {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).faulted.len() as u64
    }

    /// Whether the worker ends when no task can be claimed.
    pub(super) fn is_once(&self) -> bool {
        self.once
    }

    /// Stops handing out tasks.
    pub(super) fn close(&self) {
        self.news.change(|heard| heard.closed = true);
    }

    /// A job has ended. The task is done, or it may be claimed again.
    pub(super) fn finished(&self, task_is_back: bool) {
        self.news.change(|heard| {
            heard.busy -= 1;
            heard.done = true;
            heard.look |= task_is_back;
        });
    }

    /// The command put this task back into the queue, where its attempts are not counted. Without a pause, this worker would
    /// claim it again at once, for ever.
    pub(super) fn avoid(&self, task: TaskName) {
        let pause = self.tasks.vault.terms().retry.first().copied().unwrap_or(PAUSE);
        let until = self.invocation.now().checked_add(pause).unwrap_or(Timestamp::MAX);
        self.news.change(|heard| {
            heard.avoided.insert(task, until);
        });
    }

    /// The breaker, which the result of a job may turn.
    pub(super) fn learn<T>(&self, learn: impl FnOnce(&mut Breaker) -> T) -> T {
        let learned = learn(&mut self.news.lock().breaker);
        self.news.0.1.notify_all();
        learned
    }

    /// Waits until the breaker lets the worker claim a task. Returns whether it does: with `--once` nobody waits, and a
    /// worker that is stopping claims nothing.
    fn wait_for_breaker(&self) -> bool {
        let mut heard = self.news.lock();
        loop {
            let now = Instant::now();
            let patience = match heard.breaker.may_claim(now) {
                _ if self.once && !heard.breaker.is_closed() => return false,
                ClaimPermission::Yes => return true,
                ClaimPermission::From(until) => until - now,
                ClaimPermission::AfterTheTry => self.interval,
            };
            if heard.closed {
                return true;
            }
            let woken = self.news.0.1.wait_timeout(heard, patience);
            heard = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for the next task.
    pub(super) fn take(&self) -> Result<QueueAnswer> {
        loop {
            if self.news.lock().closed {
                return Ok(QueueAnswer::NoMore(words::asked_to_stop()));
            }
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            // Under this lock, so that only one thread gets a task for the breaker's try.
            if !self.wait_for_breaker() {
                return Ok(QueueAnswer::NoMore(words::breaker_is_open()));
            }
            if self.news.lock().closed {
                continue;
            }
            match self.try_take(&mut waiting) {
                Ok(Some(claimed)) => {
                    let mut heard = self.news.lock();
                    heard.busy += 1;
                    heard.breaker.claimed();
                    return Ok(QueueAnswer::Task(Box::new(claimed)));
                }
                Ok(None) => {}
                Err(fault) if self.once => return Err(fault),
                // The vault's folder may be missing, or the disk full. Somebody may fix that, so try again.
                Err(fault) => {
                    self.tell_once(&mut waiting, &words::work_fault(&self.invocation.viewpoint(), &fault));
                }
            }
            let look_at = waiting.looked.map_or_else(Instant::now, |looked| looked + self.interval);
            let reclaim_at = waiting.reclaimed.filter(|_| waiting.let_go).map(|last| last + RECLAIM_PAUSE);
            let until =
                [waiting.ripe, waiting.resumes, reclaim_at].into_iter().flatten().fold(look_at, Instant::min);
            let worth_waiting = waiting.ripe.is_some();
            let sentence = words::nothing_to_claim(&waiting.line, None);
            drop(waiting);
            let heard = self.news.lock();
            if self.once && !worth_waiting && heard.busy == 0 && !heard.anything() {
                return Ok(QueueAnswer::NoMore(sentence));
            }
            self.news.wait(heard, until.saturating_duration_since(Instant::now()));
        }
    }

    fn try_take(&self, waiting: &mut WaitingQueue) -> Result<Option<Claimed>> {
        let mut heard = self.news.lock();
        let (moved_in, written) = (take(&mut heard.moved_in), take(&mut heard.written));
        let (look, done, let_go) = (take(&mut heard.look), take(&mut heard.done), take(&mut heard.let_go));
        heard.avoided.retain(|_, until| self.invocation.now() < *until);
        let avoided = heard.avoided.clone();
        drop(heard);
        let vault = &self.tasks.vault;
        let due = |since: Option<Instant>, pause| since.is_none_or(|since| since.elapsed() >= pause);
        let is_over = |time: &mut Instant| *time <= Instant::now();
        let ripe = waiting.ripe.as_mut().is_some_and(is_over) || waiting.resumes.take_if(is_over).is_some();
        let unblocked = done && waiting.line.blocked > 0;
        if look || ripe || unblocked || due(waiting.looked, self.interval) {
            if due(waiting.looked, self.interval) {
                // Before the round, so that an unreachable remote is asked again only after the interval.
                waiting.looked = Some(Instant::now());
                self.round(waiting)?;
            }
            if due(waiting.reclaimed, self.interval) {
                self.reclaim(waiting);
            }
            waiting.looked = Some(Instant::now());
            waiting.line = with_retry(|| vault.queue(&self.request, self.invocation.now()), &sleep)?;
        }
        waiting.line.avoided.clone_from(&avoided);
        waiting.fresh.avoided = avoided;
        let certain = ClaimRequest { renamed_in: true, ..self.request.clone() };
        for task in moved_in.union(&written) {
            let is_in_line = vault.push(&mut waiting.line, task, &self.request, self.invocation.now())?;
            if !is_in_line && moved_in.contains(task) {
                vault.push(&mut waiting.fresh, task, &certain, self.invocation.now())?;
            }
        }
        let next = vault.next(&mut waiting.line, &self.request, self.invocation.now());
        if let Some(claimed) = next.or_else(|| self.sort_out(waiting)) {
            return Ok(Some(claimed));
        }
        if let Some(fault) = waiting.line.unread.take() {
            return Err(fault);
        }
        let next = vault.next(&mut waiting.fresh, &certain, self.invocation.now());
        if next.is_some() {
            return Ok(next);
        }
        // With `--once`, the first look has reclaimed them.
        waiting.let_go |= let_go && !self.once;
        if waiting.let_go && due(waiting.reclaimed, RECLAIM_PAUSE) && self.reclaim(waiting) {
            self.news.lock().look = true;
        }
        Ok(None)
    }

    /// Prints notes about the tasks that were skipped. Returns one that can be claimed after all.
    fn sort_out(&self, waiting: &mut WaitingQueue) -> Option<Claimed> {
        // A little later, because the clocks of file systems are coarse.
        let ripe = |wait| Instant::now() + wait + Duration::from_millis(10);
        waiting.ripe = waiting.line.soonest.map(ripe);
        let now = self.invocation.now();
        let pauses = [waiting.line.pause_ends, waiting.fresh.pause_ends.take()].into_iter().flatten();
        let wait = |until: Timestamp| until.duration_since(now).try_into().unwrap_or(Duration::ZERO);
        let resumes = pauses.map(|until| ripe(wait(until)));
        waiting.resumes = resumes.chain(waiting.resumes).min();
        for unfit in take(&mut waiting.line.unfit) {
            self.tell_once(waiting, &words::unfit(&[unfit]));
        }
        for (task, fault) in take(&mut waiting.line.faults) {
            let again = || self.tasks.vault.claim(&task, &self.request, self.invocation.now());
            let fault = match is_transient(&fault).then(|| with_retry(again, &sleep)) {
                Some(Ok(Ok(claimed))) => return Some(claimed),
                Some(Ok(Err(_))) => continue,
                Some(Err(fault)) => fault,
                None => fault,
            };
            waiting.faulted.insert(task.clone());
            self.tell_once(waiting, &words::skipped_faults(&self.invocation.viewpoint(), &[(task, fault)]));
        }
        None
    }

    /// Synchronises once with the remote, if there is one.
    fn round(&self, waiting: &mut WaitingQueue) -> Result<()> {
        for path in self.tasks.sync()?.map(|round| round.aside).unwrap_or_default() {
            self.tell_once(waiting, &words::put_aside(&self.invocation.viewpoint(), &[path]));
        }
        Ok(())
    }

    /// Reclaims the tasks of dead owners. Returns whether there were any.
    fn reclaim(&self, waiting: &mut WaitingQueue) -> bool {
        waiting.reclaimed = Some(Instant::now());
        waiting.let_go = false;
        match self.tasks.vault.reclaim(self.invocation.now()) {
            Ok((reclaimed, passed)) => {
                for one in &reclaimed {
                    self.tell(&words::reclaimed(std::slice::from_ref(one), false));
                }
                for one in passed {
                    self.tell_once(waiting, &words::skipped_faults(&self.invocation.viewpoint(), &[one]));
                }
                !reclaimed.is_empty()
            }
            Err(fault) => {
                self.tell_once(waiting, &words::work_fault(&self.invocation.viewpoint(), &fault));
                false
            }
        }
    }

    fn tell_once(&self, waiting: &mut WaitingQueue, text: &str) {
        if waiting.told.is_new(text) {
            self.tell(text);
        }
    }

    /// Writes to the agent's log, and to stderr unless the output is JSON.
    fn tell(&self, text: &str) {
        self.tasks.logs.line(&self.request.agent, self.invocation.now(), text);
        if self.invocation.form() == Form::Words {
            output::tell(text);
        }
    }
}

/// The notes that were told.
#[derive(Default)]
struct PrintedNotes(HashSet<String>);

impl PrintedNotes {
    /// Whether this note was not told yet. At the limit all are forgotten: a note that is told twice is better than a new one
    /// that is never told.
    fn is_new(&mut self, text: &str) -> bool {
        if self.0.len() >= NOTES && !self.0.contains(text) {
            self.0.clear();
        }
        self.0.insert(text.to_owned())
    }
}

impl QueueEvents {
    /// Whether anything has changed.
    fn anything(&self) -> bool {
        self.look || self.done || self.let_go || !self.moved_in.is_empty() || !self.written.is_empty()
    }
}

impl QueueNews {
    fn new(tasks: &LoggedVault) -> Self {
        let events = QueueEvents {
            moved_in: BTreeSet::new(),
            written: BTreeSet::new(),
            look: false,
            done: false,
            let_go: false,
            closed: false,
            busy: 0,
            avoided: BTreeMap::new(),
            breaker: Breaker::new(tasks.breaker, tasks.vault.terms().retry.clone()),
        };
        Self(std::sync::Arc::new((Mutex::new(events), Condvar::new())))
    }

    fn lock(&self) -> MutexGuard<'_, QueueEvents> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut QueueEvents)) {
        change(&mut self.lock());
        self.0.1.notify_all();
    }

    /// Waits until something changes, at most for this time.
    fn wait(&self, heard: MutexGuard<'_, QueueEvents>, patience: Duration) {
        let nothing = |heard: &mut QueueEvents| !heard.anything() && !heard.closed;
        let _ = self.0.1.wait_timeout_while(heard, patience, nothing);
    }

    fn hear(&self, change: Hint) {
        self.change(|heard| match change {
            Hint::Everything => heard.look = true,
            Hint::OwnerGone => heard.let_go = true,
            Hint::Task(_, State::Done, _) => heard.done = true,
            Hint::Task(task, _, NoticedChange::MovedIn) => drop(heard.moved_in.insert(task)),
            Hint::Task(task, _, NoticedChange::Written) => drop(heard.written.insert(task)),
            Hint::Task(_, _, NoticedChange::Touched) | Hint::State(_) => {}
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_told_once_and_a_new_one_always() {
        let mut told = PrintedNotes::default();
        for number in 0..2 * NOTES + 5 {
            let note = number.to_string();
            assert!(told.is_new(&note), "{note}");
            assert!(!told.is_new(&note), "{note}");
        }
        assert_eq!(told.0.len(), 5);
    }
}
