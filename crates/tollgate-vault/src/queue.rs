//! The queue of claimable tasks: by priority, then due time, then age.
//!
//! A queue is built from one scan and then used up, so that draining ten thousand tasks costs ten thousand claims and not
//! ten thousand scans. If the store has an index of the queue, it is read page by page, as far as it is needed. A task that
//! arrives later is pushed, or found by the next queue.
//!
//! Invariants: the queue only proposes; whether a task may be claimed is judged on what is there at the claim. What a later
//! page brings comes after everything that is in memory.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::mem::replace;
use std::time::Duration;

use jiff::Timestamp;

use crate::brief::Rank;
use crate::denial::{Denial, DenialReason};
use crate::owner::{ClaimRequest, Claimed};
use crate::reclaim::Skipped;
use crate::rules;
use crate::state::{Slot, State};
use crate::store::{NotATask, QueuePage, Ready, TaskSummary};
use crate::vault::Vault;
use tollgate_base::error::{Fault, Result};
use tollgate_base::name::Agent;
use tollgate_base::task::TaskName;

/// The number of tasks in the first page of a queue: one claim rarely needs more, and the texts of all are read.
const FIRST_PAGE: usize = 16;

/// The number of tasks in later pages: if the first tasks could not be claimed, many others may not be claimable either.
const LATER_PAGE: usize = 512;

/// After a lost race, the next task is any of this many, if they are equally urgent. Workers that use up queues of the same
/// order would otherwise meet at every task, and all but one of them would have worked for nothing.
const NEAR: usize = 32;

/// The tasks that an agent might claim, in order.
#[derive(Debug, Default)]
pub struct ClaimQueue {
    waiting: WaitingTasks,
    /// What was not read yet.
    rest: Option<RestOfQueue>,
    /// Why the rest could not be read. The next try reads it again.
    pub unread: Option<Fault>,
    /// If tasks were skipped because they were written a moment ago: the first is complete after this time.
    pub soonest: Option<Duration>,
    /// The number of tasks that pause after a failed attempt.
    pub pausing: usize,
    /// When the first of these pauses is over.
    pub pause_ends: Option<Timestamp>,
    /// What cannot be a task, or cannot be read.
    pub unfit: Vec<NotATask>,
    /// Tasks that were skipped because of a fault.
    pub faults: Vec<Skipped>,
    /// The number of tasks that wait for other tasks.
    pub blocked: usize,
    /// The number of tasks that only other agents may claim.
    pub foreign: usize,
    /// The number of tasks that another agent claimed first.
    pub lost: usize,
    /// Tasks that the caller does not want to claim before this time.
    pub avoided: BTreeMap<TaskName, Timestamp>,
    /// The tasks that were gone when their turn came.
    gone: Vec<(TaskName, State)>,
}

type RankedTask = (Rank, TaskName, State);

/// The part of a queue that was not read yet.
#[derive(Debug, Default)]
struct RestOfQueue {
    /// The cursor of the next page.
    cursor: String,
    /// The last task that a page has brought.
    last: Option<(Rank, TaskName)>,
    /// The tasks that pages have brought. None of them is brought twice.
    seen: HashSet<(TaskName, State)>,
}

impl RestOfQueue {
    fn page_size(&self) -> usize {
        if self.cursor.is_empty() { FIRST_PAGE } else { LATER_PAGE }
    }

    /// Whether a page will bring this task.
    fn brings(&mut self, (rank, task, state): &RankedTask) -> bool {
        let comes_later = self.last.as_ref().is_none_or(|(last, name)| (last, name) < (rank, task));
        if comes_later {
            self.seen.remove(&(task.clone(), *state));
        }
        comes_later
    }
}

/// Tasks in order. They are sorted when a second one is taken, so that claiming one of a hundred thousand tasks does not sort
/// all of them.
#[derive(Debug, Default)]
struct WaitingTasks {
    /// The first task, until the others are sorted.
    first: Option<RankedTask>,
    /// If sorted, the last comes first.
    rest: Vec<RankedTask>,
    is_sorted: bool,
    random: RandomState,
    /// How often a task was taken by chance.
    taken: u64,
}

impl WaitingTasks {
    fn of(mut rest: Vec<RankedTask>) -> Self {
        let at = (0..rest.len()).min_by(|one, other| rest[*one].cmp(&rest[*other]));
        Self { first: at.map(|at| rest.swap_remove(at)), rest, ..Self::default() }
    }

    fn is_empty(&self) -> bool {
        self.first.is_none() && self.rest.is_empty()
    }

    fn pop(&mut self) -> Option<RankedTask> {
        self.first.take().or_else(|| {
            self.sort();
            self.rest.pop()
        })
    }

    /// One of the first tasks, none of which is more urgent than the others.
    fn pop_near(&mut self) -> Option<RankedTask> {
        self.sort();
        let urgency = |((priority, due_first, due, _), ..): &RankedTask| (*priority, *due_first, *due);
        let first = urgency(self.rest.last()?);
        let near = self.rest.iter().rev().take(NEAR).take_while(|task| urgency(task) == first).count();
        self.taken += 1;
        let nth = self.random.hash_one(self.taken) % near as u64;
        Some(self.rest.remove(self.rest.len() - 1 - nth as usize))
    }

    fn push(&mut self, task: RankedTask) {
        self.sort();
        // A scan and a hint may both bring a task, and losing it is to be counted once.
        if let Err(at) = self.rest.binary_search_by(|other| task.cmp(other)) {
            self.rest.insert(at, task);
        }
    }

    fn sort(&mut self) {
        self.rest.extend(self.first.take());
        if !replace(&mut self.is_sorted, true) {
            self.rest.sort_unstable_by(|one, other| other.cmp(one));
        }
    }
}

impl ClaimQueue {
    /// Whether no task is left.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.rest.is_none()
    }

    fn young(&mut self, wait: Duration) {
        self.soonest = Some(self.soonest.map_or(wait, |soonest| soonest.min(wait)));
    }

    fn skip(&mut self, task: &TaskName, state: State, denial: &Denial) {
        match (denial, denial.reason()) {
            (Denial::Young(_, wait), _) => self.young(*wait),
            (Denial::Pausing(_, until), _) => {
                self.pausing += 1;
                self.pause_ends = Some(self.pause_ends.map_or(*until, |first| first.min(*until)));
            }
            // The claim that moves the file away is visible before the file is gone.
            (Denial::Twin(_, Slot::InProgress(_)), _) | (_, DenialReason::Lost) => self.lost += 1,
            (_, DenialReason::Blocked) => self.blocked += 1,
            (_, DenialReason::Incomplete) => {
                self.unfit.push(NotATask { name: task.to_string(), state, why: denial.to_string() });
            }
            (_, DenialReason::NotEligible | DenialReason::None) => {}
        }
    }
}

impl Vault {
    /// The queue for this agent, as far as there is a task that it might claim. Also heals what dead processes left.
    pub fn queue(&self, request: &ClaimRequest, now: Timestamp) -> Result<ClaimQueue> {
        self.store().heal()?;
        let mut queue = ClaimQueue { rest: Some(RestOfQueue::default()), ..ClaimQueue::default() };
        self.refill(&mut queue, request, now)?;
        Ok(queue)
    }

    /// Reads on until there is a task that the agent might claim, or nothing is left.
    fn refill(&self, queue: &mut ClaimQueue, request: &ClaimRequest, now: Timestamp) -> Result<()> {
        while queue.waiting.is_empty()
            && let Some(rest) = &queue.rest
        {
            let page = match self.store().queue_page(&rest.cursor, rest.page_size(), now)? {
                Some(page) => page,
                None => self.scan_queue(now)?,
            };
            self.take_page(queue, request, page);
        }
        Ok(())
    }

    fn take_page(&self, queue: &mut ClaimQueue, request: &ClaimRequest, page: QueuePage) {
        let mut rest = queue.rest.take().unwrap_or_default();
        // Without pages before it and after it, nothing can come twice.
        let is_alone = page.next.is_none() && rest.seen.is_empty();
        queue.unfit.extend(page.unfit);
        let mut waiting = Vec::with_capacity(page.tasks.len());
        for task in page.tasks {
            if !is_alone {
                if let Ok(brief) = &task.brief {
                    rest.last = Some((brief.rank(task.modified), task.name.clone()));
                }
                if !rest.seen.insert((task.name.clone(), task.slot.state())) {
                    continue;
                }
            }
            waiting.extend(self.rank(queue, request, task));
        }
        queue.waiting = WaitingTasks::of(waiting);
        queue.rest = page.next.map(|cursor| RestOfQueue { cursor, ..rest });
    }

    /// The whole queue as one page, which is not sorted.
    fn scan_queue(&self, now: Timestamp) -> Result<QueuePage> {
        let mut page = QueuePage::default();
        for state in [State::Approved, State::NeedsAction] {
            let scan = self.store().scan(state, now)?;
            page.unfit.extend(scan.unfit);
            page.tasks.extend(scan.tasks);
        }
        Ok(page)
    }

    fn rank(&self, queue: &mut ClaimQueue, request: &ClaimRequest, task: TaskSummary) -> Option<RankedTask> {
        let state = task.slot.state();
        let brief = match task.brief {
            Ok(brief) => brief,
            Err(broken) => {
                queue.unfit.push(NotATask { name: task.name.to_string(), state, why: broken.to_string() });
                return None;
            }
        };
        if self.terms().roles.mode(&request.agent, brief.action.as_deref(), state).is_err() {
            queue.foreign += 1;
            return None;
        }
        if let Ready::After(wait) = task.ready
            && !request.renamed_in
        {
            queue.young(wait);
            return None;
        }
        Some((brief.rank(task.modified), task.name, state))
    }

    /// Pushes a task that has just arrived. Whether the agent might claim it now.
    pub fn push(
        &self,
        queue: &mut ClaimQueue,
        task: &TaskName,
        request: &ClaimRequest,
        now: Timestamp,
    ) -> Result<bool> {
        if let Some(task) = self.store().get(task, None, now)?
            && task.slot.state().is_claimable()
            && let Some(ranked) = self.rank(queue, request, task.summary())
        {
            if !queue.rest.as_mut().is_some_and(|rest| rest.brings(&ranked)) {
                queue.waiting.push(ranked);
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// Claims the first task in the queue that can be claimed. A fault of one task does not stop the others.
    pub fn next(&self, queue: &mut ClaimQueue, request: &ClaimRequest, now: Timestamp) -> Option<Claimed> {
        loop {
            if let Err(fault) = self.refill(queue, request, now) {
                queue.unread = Some(fault);
                return None;
            }
            let waiting = &mut queue.waiting;
            let (_, task, state) = if queue.lost > 0 { waiting.pop_near() } else { waiting.pop() }?;
            if let Some(until) = queue.avoided.get(&task).copied().filter(|until| now < *until) {
                queue.skip(&task, state, &Denial::Pausing(task.clone(), until));
                continue;
            }
            match self.claim_in(Some(state), &task, request, now) {
                Ok(Some(Ok(claimed))) => return Some(claimed),
                Ok(Some(Err(denial))) => queue.skip(&task, state, &denial),
                Ok(None) => {
                    queue.lost += 1;
                    queue.gone.push((task, state));
                }
                Err(fault) => queue.faults.push((task, fault)),
            }
        }
    }

    /// Claims the next task, by a queue of its own.
    pub fn claim_next(
        &self,
        request: &ClaimRequest,
        now: Timestamp,
    ) -> Result<(Option<Claimed>, ClaimQueue)> {
        let mut queue = self.queue(request, now)?;
        let claimed = self.next(&mut queue, request, now);
        if let Some(fault) = queue.unread.take() {
            return Err(fault);
        }
        if claimed.is_none() {
            self.record_lost(&queue, &request.agent, now)?;
        }
        Ok((claimed, queue))
    }

    /// Records a lost claim for each task of the queue that another agent owned by the time its turn came. For a claim that
    /// got nothing: a worker with an old queue goes on to the next task and has lost nothing.
    pub fn record_lost(&self, queue: &ClaimQueue, agent: &Agent, now: Timestamp) -> Result<()> {
        for (task, state) in &queue.gone {
            let found = self.store().get(task, Some(State::InProgress), now)?;
            if found.is_some_and(|found| found.slot.agent().is_some_and(|owner| owner != agent)) {
                self.store().record(&[rules::lost(task, *state, agent, now)?])?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(age: i64) -> RankedTask {
        let (name, since) = (age.to_string().parse().unwrap(), Timestamp::from_second(age).unwrap());
        ((Default::default(), std::cmp::Reverse(false), None, since), name, State::NeedsAction)
    }

    #[test]
    fn tasks_come_in_order_and_once_however_they_arrive() {
        for pushed_after in 0..5 {
            let mut waiting = WaitingTasks::of([3, 1, 4, 2, 5].map(task).to_vec());
            let mut taken: Vec<_> = (0..pushed_after).map(|_| waiting.pop().unwrap()).collect();
            // By hints: a new one, and one that the scan has brought.
            for age in [9, 9, 5] {
                waiting.push(task(age));
            }
            taken.extend(std::iter::from_fn(|| waiting.pop()));
            assert!(waiting.is_empty());
            assert_eq!(taken, [1, 2, 3, 4, 5, 9].map(task), "pushed after {pushed_after}");
        }
    }

    #[test]
    fn after_a_lost_race_any_of_the_nearest_comes_but_none_before_a_more_urgent_one() {
        let urgent = |age| {
            let ((priority, _, due, since), name, state) = task(age);
            ((priority, std::cmp::Reverse(true), due.or(Some(since)), since), name, state)
        };
        let all = || (1..=2).map(urgent).chain((3..=200).map(task)).collect();
        let firsts: HashSet<_> = (0..1000)
            .map(|_| {
                let mut waiting = WaitingTasks::of(all());
                for age in 1..=2 {
                    assert_eq!(waiting.pop_near(), Some(urgent(age)), "its time is nearer than all others");
                }
                let first = waiting.pop_near().unwrap();
                let mut taken: Vec<_> = std::iter::from_fn(|| waiting.pop_near()).collect();
                taken.push(first.clone());
                taken.sort();
                assert_eq!(taken, (3..=200).map(task).collect::<Vec<_>>(), "each comes once");
                first
            })
            .collect();
        let nearest: HashSet<_> = (3..).take(NEAR).map(task).collect();
        assert_eq!(firsts, nearest, "all of the nearest come first at times, and no others");
    }

    #[test]
    fn after_lost_races_no_task_waits_for_ever_while_others_come() {
        for _ in 0..100 {
            let mut waiting = WaitingTasks::of(vec![task(1), task(2)]);
            let taken: Vec<_> = (3..)
                .take(200)
                .map(|age| {
                    waiting.push(task(age));
                    waiting.pop_near().unwrap()
                })
                .collect();
            assert!(taken.contains(&task(1)), "{taken:?}");
        }
    }
}
