//! The breaker of a worker: after several quick failures in a row the command itself is probably broken, so the worker
//! claims nothing for a while. Then it tries one task. A success closes the breaker, a failure opens it again for longer.
//!
//! This file does no I/O and takes the time as an argument.

use std::time::{Duration, Instant};

/// A command that fails within this time has probably not begun to work on the task.
const QUICK: Duration = Duration::from_secs(5);

/// How long the breaker stays open if the settings have no pauses.
pub(super) const PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    Closed,
    /// No task may be claimed before this time, and then only one.
    Open(Instant),
    /// That one task is being worked on.
    Trying,
}

/// The breaker of one worker.
#[derive(Debug)]
pub(super) struct Breaker {
    /// The number of quick failures in a row that open it. 0: it never opens.
    limit: u32,
    /// The pauses while it is open; the last one is repeated.
    pauses: Vec<Duration>,
    failures: u32,
    /// How often it has opened since it was last closed.
    opened: usize,
    position: Position,
}

/// Whether the worker may claim a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClaimPermission {
    Yes,
    /// Not before this time.
    From(Instant),
    /// Not before the one task has ended.
    AfterTheTry,
}

impl Breaker {
    pub(super) fn new(limit: u32, pauses: Vec<Duration>) -> Self {
        Self { limit, pauses, failures: 0, opened: 0, position: Position::Closed }
    }

    pub(super) fn may_claim(&self, now: Instant) -> ClaimPermission {
        match self.position {
            Position::Closed => ClaimPermission::Yes,
            Position::Open(until) if until <= now => ClaimPermission::Yes,
            Position::Open(until) => ClaimPermission::From(until),
            Position::Trying => ClaimPermission::AfterTheTry,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.position == Position::Closed
    }

    /// The number of failures in a row.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    /// A task was claimed.
    pub(super) fn claimed(&mut self) {
        if !self.is_closed() {
            self.position = Position::Trying;
        }
    }

    /// A command succeeded. Whether that has closed the breaker.
    pub(super) fn succeeded(&mut self) -> bool {
        let was_closed = self.is_closed();
        (self.failures, self.opened, self.position) = (0, 0, Position::Closed);
        !was_closed
    }

    /// A command failed after this time. If that has opened the breaker: for how long.
    pub(super) fn failed(&mut self, took: Duration, now: Instant) -> Option<Duration> {
        match self.position {
            Position::Closed if took > QUICK => {
                self.failures = 0;
                return None;
            }
            // A task that was claimed before the breaker opened.
            Position::Open(_) => return None,
            Position::Closed | Position::Trying => self.failures += 1,
        }
        if self.position == Position::Closed && (self.limit == 0 || self.failures < self.limit) {
            return None;
        }
        let pause = self.pauses.get(self.opened).or(self.pauses.last()).copied().unwrap_or(PAUSE);
        self.opened += 1;
        self.position = Position::Open(now + pause);
        Some(pause)
    }

    /// A task was returned or lost, which says nothing about the command: the next task is the try.
    pub(super) fn learned_nothing(&mut self, now: Instant) {
        if self.position == Position::Trying {
            self.position = Position::Open(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(1);

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn it_opens_after_quick_failures_in_a_row_and_a_success_closes_it() {
        let start = Instant::now();
        let mut breaker = Breaker::new(3, vec![s(10), s(60)]);
        for took in [SOON, SOON, s(6), SOON, SOON] {
            assert_eq!(breaker.failed(took, start), None, "a slow failure is not one in a row");
        }
        assert!(!breaker.succeeded(), "it was closed");
        assert_eq!([breaker.failed(SOON, start), breaker.failed(SOON, start)], [None, None]);
        assert_eq!(breaker.failed(SOON, start), Some(s(10)));
        assert_eq!(breaker.failed(SOON, start), None, "this task was claimed before it opened");
        assert_eq!(breaker.may_claim(start + s(9)), ClaimPermission::From(start + s(10)));
        for (now, pause) in [(10, 60), (70, 60)] {
            let now = start + s(now);
            assert_eq!(breaker.may_claim(now), ClaimPermission::Yes, "one task");
            breaker.claimed();
            assert_eq!(breaker.may_claim(now), ClaimPermission::AfterTheTry, "and no other");
            assert_eq!(breaker.failed(s(100), now), Some(s(pause)), "the try failed, however long it took");
        }
        assert_eq!(breaker.failures(), 5);
        let now = start + s(200);
        breaker.claimed();
        breaker.learned_nothing(now);
        assert_eq!(breaker.may_claim(now), ClaimPermission::Yes, "another try");
        breaker.claimed();
        assert!(breaker.succeeded() && breaker.is_closed());
        assert_eq!((breaker.may_claim(now), breaker.failures()), (ClaimPermission::Yes, 0));
    }

    #[test]
    fn zero_means_never_and_no_pauses_do_not_mean_no_pause() {
        let mut breaker = Breaker::new(0, Vec::new());
        assert!((0..100).all(|_| breaker.failed(SOON, Instant::now()).is_none()));
        assert_eq!(Breaker::new(1, Vec::new()).failed(SOON, Instant::now()), Some(PAUSE));
    }
}
