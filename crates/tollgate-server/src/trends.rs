//! What happened over time, minute by minute: tasks done, waiting and cycle times, writes and refusals, the oldest
//! approval. Pure.
//!
//! Everything comes from the typed events of the ledger. Each line is added once, so a page costs the same with a hundred
//! lines and with a million. Only the last [`KEPT`] are remembered.
//!
//! Limit: a task that somebody moves to another folder by hand is seen when tollgate next records something about it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::{SignedDuration, Timestamp};
use tollgate::event::{Decision, Event, MutationStatus, RefusalStatus};
use tollgate::vault::TaskName;
use tollgate::vault::state::State;

/// The longest span that a page shows.
pub(crate) const KEPT: SignedDuration = SignedDuration::from_hours(7 * 24);

/// The number of times that are kept of one minute, of each kind: enough for a median.
const TIMES: usize = 60;

/// The number of unfinished tasks that are followed. More than any vault has in work, and a bound for the memory.
const FOLLOWED: usize = 100_000;

/// One minute, or several together.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Period {
    /// Tasks that were done.
    pub(crate) done: u64,
    /// Tasks that were rejected.
    pub(crate) rejected: u64,
    /// Changed files.
    pub(crate) writes: u64,
    /// Writes that were refused because of a conflict.
    pub(crate) refusals: u64,
    /// How long tasks had waited for their claim, in seconds.
    waited: Vec<f64>,
    /// How long tasks that were done had taken since their first claim, in seconds.
    took: Vec<f64>,
}

impl Period {
    /// The median time that tasks had waited for their claim.
    pub(crate) fn waiting(&self) -> Option<f64> {
        median(&self.waited)
    }

    /// The median time from the first claim of a task until it was done.
    pub(crate) fn cycle(&self) -> Option<f64> {
        median(&self.took)
    }

    /// The share of writes that were refused, from 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "nobody writes 2^53 files")]
    pub(crate) fn refusal_rate(&self) -> Option<f64> {
        let tried = self.writes + self.refusals;
        (tried > 0).then(|| self.refusals as f64 / tried as f64)
    }

    /// Several together.
    pub(crate) fn sum<'a>(periods: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut all = Self::default();
        for period in periods {
            all.add(period);
        }
        all
    }

    fn add(&mut self, other: &Self) {
        self.done += other.done;
        self.rejected += other.rejected;
        self.writes += other.writes;
        self.refusals += other.refusals;
        self.waited.extend_from_slice(&other.waited);
        self.took.extend_from_slice(&other.took);
    }
}

fn median(times: &[f64]) -> Option<f64> {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied()
}

/// Everything that is remembered.
#[derive(Debug, Default)]
pub(crate) struct Trends {
    /// By minutes since 1970. Minutes in which nothing happened are missing.
    minutes: BTreeMap<i64, Period>,
    /// When each unfinished task was claimed first.
    begun: HashMap<TaskName, Timestamp>,
    /// Since when tasks have waited for approval.
    pending: HashMap<TaskName, Timestamp>,
    waiting_since: BTreeSet<(Timestamp, TaskName)>,
    /// Since when the oldest approval had waited, from this time on.
    oldest: BTreeMap<Timestamp, Option<Timestamp>>,
    first: Option<Timestamp>,
}

impl Trends {
    /// Adds one event. Events come in the order of the ledger.
    pub(crate) fn add(&mut self, time: Timestamp, event: &Event) {
        let minute = time.as_second().div_euclid(60);
        match event {
            Event::Mutation(_, MutationStatus::Applied) => self.minute(minute).writes += 1,
            Event::MutationConflict(_, RefusalStatus::Denied, error)
            | Event::MutationRefused(_, RefusalStatus::Denied, error) => {
                if error.is_conflict() {
                    self.minute(minute).refusals += 1;
                }
            }
            Event::Claim(claimed) => {
                let period = self.minute(minute);
                if claimed.from == State::NeedsAction && period.waited.len() < TIMES {
                    #[expect(clippy::cast_precision_loss, reason = "a time in milliseconds")]
                    period.waited.push(claimed.waited_ms.max(0) as f64 / 1e3);
                }
                self.decided(&claimed.task, time);
                if self.begun.len() < FOLLOWED {
                    self.begun.entry(claimed.task.clone()).or_insert(time);
                }
            }
            Event::Release(released, state) => self.arrives(&released.task, *state, time),
            Event::Reclaim(reclaimed, state) => self.arrives(&reclaimed.task, *state, time),
            Event::Approval(decided) => match &decided.decision {
                Decision::Approve { .. } => self.decided(&decided.task, time),
                Decision::Reject { .. } => self.arrives(&decided.task, State::Rejected, time),
                Decision::Retry { .. } | Decision::Edit { state: State::NeedsAction, .. } => {
                    self.arrives(&decided.task, State::NeedsAction, time);
                }
                // It has waited for its decision since its owner released it.
                Decision::Edit { .. } => {}
                Decision::Void { .. } | Decision::Ask { .. } => {
                    self.arrives(&decided.task, State::PendingApproval, time);
                }
            },
            _ => return,
        }
        self.first.get_or_insert(time);
        self.forget(time);
    }

    fn minute(&mut self, minute: i64) -> &mut Period {
        self.minutes.entry(minute).or_default()
    }

    /// A task came into this state.
    fn arrives(&mut self, task: &TaskName, state: State, time: Timestamp) {
        let minute = time.as_second().div_euclid(60);
        match state {
            State::Done => {
                let begun = self.begun.remove(task);
                let period = self.minute(minute);
                period.done += 1;
                if let Some(begun) = begun.filter(|_| period.took.len() < TIMES) {
                    period.took.push(time.duration_since(begun).as_secs_f64().max(0.0));
                }
                self.decided(task, time);
            }
            State::Rejected => {
                self.begun.remove(task);
                self.minute(minute).rejected += 1;
                self.decided(task, time);
            }
            State::PendingApproval => {
                if !self.pending.contains_key(task) && self.pending.len() < FOLLOWED {
                    self.pending.insert(task.clone(), time);
                    self.waiting_since.insert((time, task.clone()));
                    self.note_oldest(time);
                }
            }
            State::NeedsAction | State::InProgress | State::Approved => self.decided(task, time),
        }
    }

    /// A task does not wait for approval any more.
    fn decided(&mut self, task: &TaskName, time: Timestamp) {
        if let Some(since) = self.pending.remove(task) {
            self.waiting_since.remove(&(since, task.clone()));
            self.note_oldest(time);
        }
    }

    fn note_oldest(&mut self, time: Timestamp) {
        let oldest = self.waiting_since.first().map(|(since, _)| *since);
        if self.oldest.last_key_value().is_none_or(|(_, last)| *last != oldest) {
            self.oldest.insert(time, oldest);
        }
    }

    /// Drops what is too old to be shown.
    fn forget(&mut self, now: Timestamp) {
        let Ok(since) = now.checked_sub(KEPT) else { return };
        let minute = since.as_second().div_euclid(60);
        while self.minutes.first_key_value().is_some_and(|(first, _)| *first < minute) {
            self.minutes.pop_first();
        }
        // The last point before that time still says what was the oldest then.
        while self.oldest.keys().nth(1).is_some_and(|second| *second < since) {
            self.oldest.pop_first();
        }
    }

    /// The time of the first line that counts.
    pub(crate) fn first(&self) -> Option<Timestamp> {
        self.first
    }

    /// `count` periods of this length, the last of which contains `now`, and the end of each. Periods begin at whole
    /// multiples of their length, so that a bar does not change its meaning from one moment to the next.
    pub(crate) fn periods(&self, minutes: i64, count: usize, now: Timestamp) -> Vec<(Timestamp, Period)> {
        let last = now.as_second().div_euclid(60 * minutes);
        let number = i64::try_from(count).unwrap_or(i64::MAX);
        let end = |index: i64| Timestamp::from_second((index + 1) * 60 * minutes).unwrap_or(now);
        (last - number + 1..=last)
            .map(|index| {
                let within = self.minutes.range(index * minutes..(index + 1) * minutes);
                (end(index), Period::sum(within.map(|(_, minute)| minute)))
            })
            .collect()
    }

    /// How long the oldest approval had waited at this time. `None` if none waited.
    pub(crate) fn oldest_approval(&self, at: Timestamp) -> Option<SignedDuration> {
        let (_, since) = self.oldest.range(..=at).next_back()?;
        since.map(|since| at.duration_since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What happened, and when.
    type TimedEvent = (Timestamp, Event);

    fn happened(
        second: i64,
        action: &str,
        payload: serde_json::Value,
        result: serde_json::Value,
    ) -> TimedEvent {
        let event = json!({"action_type": action, "payload": payload, "result": result});
        let event: Event = serde_json::from_value(event).unwrap();
        assert!(!matches!(event, Event::Other { .. }), "{event:?}");
        (Timestamp::from_second(second).unwrap(), event)
    }

    fn claim(second: i64, task: &str, waited_ms: i64) -> TimedEvent {
        let payload = json!({"task": task, "claim_id": "c-0123456789abcdef", "epoch": 1, "mode": "execute",
            "from": "Needs_Action", "attempt": 1, "waited_ms": waited_ms, "step": "s-0123456789abcdef"});
        happened(second, "CLAIM", payload, json!({"status": "CLAIMED"}))
    }

    fn release(second: i64, task: &str, state: &str) -> TimedEvent {
        let payload = json!({"task": task, "claim_id": "c-0123456789abcdef", "epoch": 1, "result": "success",
            "duration_s": 1, "step": "s-0123456789abcdef"});
        happened(second, "RELEASE", payload, json!({"status": state}))
    }

    fn decided(second: i64, task: &str, decision: &str, status: &str) -> TimedEvent {
        let hash = "0".repeat(64);
        let payload = json!({"task": task, "decision": decision, "by": "ada", "sha256": hash, "reason": "no",
            "step": "s-0123456789abcdef"});
        happened(second, "APPROVAL", payload, json!({"status": status}))
    }

    fn trends(all: &[TimedEvent]) -> Trends {
        let mut trends = Trends::default();
        for (time, event) in all {
            trends.add(*time, event);
        }
        trends
    }

    #[test]
    fn done_waiting_and_cycle_times_are_counted_in_their_period() {
        let trends = trends(&[
            claim(30, "a.md", 2_000),
            claim(31, "b.md", 4_000),
            claim(32, "c.md", 60_000),
            release(40, "a.md", "Done"),
            release(41, "b.md", "Needs_Action"),
            claim(100, "b.md", 1_000),
            release(131, "b.md", "Done"),
            release(132, "c.md", "Rejected"),
        ]);
        let now = Timestamp::from_second(150).unwrap();
        let periods = trends.periods(1, 3, now);
        let ends: Vec<i64> = periods.iter().map(|(end, _)| end.as_second()).collect();
        assert_eq!(ends, [60, 120, 180]);
        let [first, second, third] = [0, 1, 2].map(|index| &periods[index].1);
        assert_eq!((first.done, first.waiting(), first.cycle()), (1, Some(4.0), Some(10.0)));
        assert_eq!((second.done, second.waiting(), second.cycle()), (0, Some(1.0), None));
        assert_eq!((third.done, third.rejected), (1, 1));
        assert_eq!(third.cycle(), Some(100.0), "from the first claim, with the failed attempt");
        assert_eq!(trends.periods(60, 1, now)[0].1.done, 2);
    }

    #[test]
    fn the_refusal_rate_is_the_share_of_writes_that_were_refused() {
        let hash = format!("sha256:{}", "0".repeat(64));
        let write = |second| {
            let payload = json!({"id": "x", "tool_name": "write_file", "target_file": "a", "hash_before": hash,
                "hash_after": hash});
            happened(second, "MUTATION", payload, json!({"status": "APPLIED"}))
        };
        let refused = |second, status: &str| {
            let payload = json!({"tool_name": "write_file", "target_file": "a", "baseline_hash": hash,
                "current_hash": hash});
            happened(
                second,
                "MUTATION_CONFLICT",
                payload,
                json!({"status": status, "error_type": "STALE_FILE"}),
            )
        };
        let mistake = {
            let payload = json!({"tool_name": "write_file", "target_file": "a", "baseline_hash": hash, "current_hash": hash});
            happened(6, "MUTATION_REFUSED", payload, json!({"status": "DENIED", "error_type": "NOT_A_FILE"}))
        };
        let lines = [write(1), write(2), write(3), refused(4, "DENIED"), refused(5, "OBSERVED"), mistake];
        let now = Timestamp::from_second(9).unwrap();
        assert_eq!(trends(&lines).periods(1, 1, now)[0].1.refusal_rate(), Some(0.25));
        assert_eq!(trends(&[]).periods(1, 1, now)[0].1.refusal_rate(), None, "no writes have no rate");
    }

    #[test]
    fn the_oldest_approval_is_known_at_every_time() {
        let trends = trends(&[
            release(10, "a.md", "Pending_Approval"),
            release(20, "b.md", "Pending_Approval"),
            decided(30, "a.md", "approve", "APPROVED"),
            decided(40, "b.md", "reject", "REJECTED"),
            release(50, "c.md", "Pending_Approval"),
            decided(60, "c.md", "approve", "APPROVED"),
            decided(70, "c.md", "void", "Pending_Approval"),
        ]);
        let age = |second| {
            let at = Timestamp::from_second(second).unwrap();
            trends.oldest_approval(at).map(|age| age.as_secs())
        };
        assert_eq!([9, 10, 25].map(age), [None, Some(0), Some(15)]);
        assert_eq!([30, 39, 40, 49].map(age), [Some(10), Some(19), None, None]);
        assert_eq!([55, 65, 75].map(age), [Some(5), None, Some(5)]);
    }

    #[test]
    fn what_is_too_old_is_forgotten() {
        let week = 7 * 86_400;
        let lines =
            [claim(0, "a.md", 1), release(60, "a.md", "Done"), release(61, "b.md", "Pending_Approval")];
        let mut trends = trends(&lines);
        for day in 1..20 {
            let (time, event) = release(day * 86_400, "x.md", "Done");
            trends.add(time, &event);
        }
        assert!(trends.minutes.len() <= 8, "{}", trends.minutes.len());
        assert!(trends.first().is_some_and(|first| first.as_second() == 0));
        let at = Timestamp::from_second(19 * 86_400).unwrap();
        let age = trends.oldest_approval(at).unwrap();
        assert!(age.as_secs() > week, "an approval that still waits is not forgotten: {age}");
    }
}
