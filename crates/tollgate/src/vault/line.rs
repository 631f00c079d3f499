//! The line of tasks that wait: priority, then due time, then age.
//!
//! A line is built from one look at the folder and then used up, so that draining ten thousand tasks costs ten
//! thousand claims and not ten thousand looks. What arrives later is put in, or found by the next look.
//!
//! Invariant: the line only proposes. Whether a task may be taken is judged on what is there when it is taken.

use std::time::Duration;

use jiff::Timestamp;

use super::claiming::{Asked, Claimed, Claiming, Tried};
use super::deciding::Passed;
use super::state::State;
use super::store::{Listed, Ready, Unfit};
use super::task::Rank;
use super::{Not, Reason, TaskName, Vault};
use crate::error::Result;

type Place = (Rank, TaskName, State);

/// So many are put in order at once: one is cheap to get, and so are all.
const BATCH: usize = 1024;

/// Those who wait. Only the first of them are in order, so that taking one task of a hundred thousand does not sort all.
#[derive(Debug, Default)]
struct Waiting {
    /// The first ones, the very first last.
    first: Vec<Place>,
    /// All others, none of them before one of the first.
    rest: Vec<Place>,
}

impl Waiting {
    fn len(&self) -> usize {
        self.first.len() + self.rest.len()
    }

    fn pop(&mut self) -> Option<Place> {
        if self.first.is_empty() {
            if self.rest.len() > BATCH {
                self.rest.select_nth_unstable(BATCH);
            }
            let batch = self.rest.len().min(BATCH);
            self.first.extend(self.rest.drain(..batch));
            self.first.sort_unstable_by(|a, b| b.cmp(a));
        }
        self.first.pop()
    }

    fn push(&mut self, place: Place) {
        let before = self.first.partition_point(|other| *other > place);
        if before == 0 && !self.rest.is_empty() {
            // After all of the first, and perhaps after some of the rest.
            self.rest.push(place);
        } else {
            self.first.insert(before, place);
        }
    }
}

/// The tasks that an agent might take, in order.
#[derive(Debug, Default)]
pub struct Line {
    waiting: Waiting,
    /// Where somebody was busy: looked at again when nothing else is left.
    busy: Vec<Place>,
    /// Young tasks are complete after this time.
    soonest: Option<Duration>,
    /// What cannot be a task, or cannot be read.
    pub unfit: Vec<Unfit>,
    /// Tasks that were passed over because of a fault.
    pub faults: Vec<Passed>,
    /// Tasks that wait for others: they are looked at again when something is done.
    pub blocked: usize,
    /// Tasks that other agents may take.
    pub foreign: usize,
}

/// What came of asking for the next task.
#[derive(Debug)]
pub enum Next {
    /// This one.
    Claimed(Box<Claimed>),
    /// None. Some may be complete after this time.
    Nothing(Option<Duration>),
}

impl Line {
    /// How many are left.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.busy.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn young(&mut self, wait: Duration) {
        self.soonest = Some(self.soonest.map_or(wait, |soonest| soonest.min(wait)));
    }
}

impl Vault {
    /// One look at all tasks that wait, for this agent. Also settles what was left half made.
    pub fn line(&self, asked: &Asked, now: Timestamp) -> Result<Line> {
        self.heal()?;
        let mut line = Line::default();
        let mut places = Vec::new();
        for state in [State::Approved, State::NeedsAction] {
            let scan = self.store.scan(state, now)?;
            line.unfit.extend(scan.unfit);
            places.reserve(scan.tasks.len());
            for listed in scan.tasks {
                places.extend(self.place(&mut line, asked, listed));
            }
        }
        line.waiting.rest = places;
        Ok(line)
    }

    fn place(&self, line: &mut Line, asked: &Asked, listed: Listed) -> Option<Place> {
        let state = listed.slot.state();
        let brief = match listed.brief {
            Ok(brief) => brief,
            Err(broken) => {
                line.unfit.push(Unfit { name: listed.task.to_string(), state, why: broken.to_string() });
                return None;
            }
        };
        if self.terms.roles.mode(&asked.agent, brief.action.as_deref(), state).is_err() {
            line.foreign += 1;
            return None;
        }
        if let Ready::After(wait) = listed.ready
            && !asked.renamed_in
        {
            line.young(wait);
            return None;
        }
        Some((brief.rank(listed.modified), listed.task, state))
    }

    /// Puts a task that has just arrived into the line.
    pub fn arrived(&self, line: &mut Line, task: &TaskName, asked: &Asked, now: Timestamp) -> Result<()> {
        if let Some(stored) = self.store.get(task, None, now)?
            && matches!(stored.slot.state(), State::NeedsAction | State::Approved)
        {
            let listed = Listed {
                task: stored.placed.task,
                slot: stored.placed.slot,
                brief: stored.brief,
                ready: stored.ready,
                modified: stored.modified,
            };
            if let Some(place) = self.place(line, asked, listed) {
                line.waiting.push(place);
            }
        }
        Ok(())
    }

    /// Takes the first of the line that can be taken. A fault of one task does not stop the others.
    pub fn next(&self, line: &mut Line, asked: &Asked, now: Timestamp) -> Result<Next> {
        loop {
            // Those who go for the same task at the same time need not wait for each other: there are others.
            let (place, hurry) = match line.waiting.pop() {
                Some(place) => (place, true),
                None => match line.busy.pop() {
                    Some(place) => (place, false),
                    None => return Ok(Next::Nothing(line.soonest)),
                },
            };
            let (task, state) = (place.1.clone(), place.2);
            match self.claim_in(Some(state), &task, asked, now, hurry) {
                // Somebody took it before we looked: no race, the line is only old.
                Ok(Tried::Gone) => {}
                Ok(Tried::Busy) => line.busy.push(place),
                Ok(Tried::Answer(Claiming::Claimed(claimed))) => return Ok(Next::Claimed(claimed)),
                Ok(Tried::Answer(Claiming::Not(Not { wait: Some(wait), .. }))) => line.young(wait),
                Ok(Tried::Answer(Claiming::Not(not))) => match not.reason {
                    Reason::Blocked => line.blocked += 1,
                    Reason::Incomplete => {
                        line.unfit.push(Unfit { name: task.to_string(), state, why: not.sentence });
                    }
                    _ => {}
                },
                Err(fault) => line.faults.push((task, fault)),
            }
        }
    }

    /// Takes the next task, by one look.
    pub fn claim_next(&self, asked: &Asked, now: Timestamp) -> Result<(Next, Line)> {
        let mut line = self.line(asked, now)?;
        let next = self.next(&mut line, asked, now)?;
        Ok((next, line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vault::task::Brief;

    fn place(number: u64) -> Place {
        // Spread, so that they come in no order.
        let second = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 1000;
        let since = Timestamp::from_second(i64::try_from(second).unwrap()).unwrap();
        (Brief::default().rank(since), format!("task {number}").parse().unwrap(), State::NeedsAction)
    }

    #[test]
    fn the_first_comes_first_however_many_wait_and_whenever_it_came() {
        for many in [0, 1, BATCH - 1, BATCH, BATCH + 1, 5 * BATCH] {
            let mut waiting = Waiting { rest: (0..many as u64).map(place).collect(), ..Waiting::default() };
            let mut expected: Vec<Place> = (0..many as u64).map(place).collect();
            for late in 0..many as u64 / 2 + 3 {
                let popped = waiting.pop();
                expected.sort();
                assert_eq!(popped, (!expected.is_empty()).then(|| expected.remove(0)));
                let new = place(1_000_000 + late);
                waiting.push(new.clone());
                expected.push(new);
                if many > BATCH && late > 40 {
                    break;
                }
            }
            expected.sort();
            assert_eq!(waiting.len(), expected.len());
            assert!(
                expected.into_iter().all(|place| waiting.pop() == Some(place)) && waiting.pop().is_none()
            );
        }
    }
}
