//! The figures of `/health`. Pure.
//!
//! They are computed from the recorded events and from nothing else, so they agree with the ledger.

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use tollgate_base::event::BreakerTurned;

pub use tollgate_base::ledger::Tally;

/// What `/health` says of one agent, or of all.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// The agent, or `all`.
    pub agent_name: String,
    /// Tasks it owns now.
    pub active_claims: u64,
    /// Claims made, ever.
    pub total_claims: u64,
    /// Races lost to another agent: work that was not done twice.
    pub claim_conflicts_avoided: u64,
    /// Claims divided by claims and errors. A lost race is not an error.
    pub claim_success_rate: f64,
    /// Attempts that have ended.
    pub attempts: u64,
    /// Those that ended with success.
    pub attempts_succeeded: u64,
    /// How the breaker of its worker opened, if it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breaker: Option<BreakerTurned>,
}

/// An open breaker is shown until this time after the worker's next try. A worker that lives has reported again by then,
/// and one that is gone is not shown forever.
const BREAKER_SHOWN: SignedDuration = SignedDuration::from_hours(1);

impl Figures {
    /// The figures of one agent.
    pub fn new(agent_name: &str, active_claims: u64, tally: &Tally) -> Self {
        let tried = tally.claims + tally.failed;
        Self {
            agent_name: agent_name.to_owned(),
            active_claims,
            total_claims: tally.claims,
            claim_conflicts_avoided: tally.lost,
            #[expect(clippy::cast_precision_loss, reason = "nobody makes 2^53 claims")]
            claim_success_rate: if tried == 0 { 1.0 } else { tally.claims as f64 / tried as f64 },
            attempts: tally.attempts,
            attempts_succeeded: tally.succeeded,
            breaker: None,
        }
    }

    /// These figures, with the breaker if it is open.
    pub(crate) fn with_breaker(self, tally: &Tally, now: Timestamp) -> Self {
        let is_open = |turned: &BreakerTurned| {
            turned.until.is_some_and(|until| now.duration_since(until) < BREAKER_SHOWN)
        };
        Self { breaker: tally.breaker.clone().filter(is_open), ..self }
    }

    /// That its worker has stopped claiming tasks, and why.
    pub fn stopped(&self) -> Option<String> {
        let BreakerTurned { failures, reason, until } = self.breaker.as_ref()?;
        let (agent, until) = (&self.agent_name, (*until)?);
        Some(format!(
            "`{agent}` has stopped claiming tasks, because its command failed {failures} times in a row ({reason}); next \
             try not before {until:.0}"
        ))
    }

    /// The figures of all agents together.
    pub fn sum<'a>(parts: impl IntoIterator<Item = &'a (u64, Tally)>) -> Self {
        let (mut active, mut all) = (0, Tally::default());
        for (claims, tally) in parts {
            active += claims;
            all.claims += tally.claims;
            all.lost += tally.lost;
            all.failed += tally.failed;
            all.attempts += tally.attempts;
            all.succeeded += tally.succeeded;
        }
        Self::new("all", active, &all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_race_is_not_a_failure() {
        assert!((Figures::new("a", 0, &Tally::default()).claim_success_rate - 1.0).abs() < f64::EPSILON);
        let tally = Tally { claims: 1, lost: 2, failed: 3, attempts: 5, succeeded: 4, breaker: None };
        let figures = Figures::sum(&[(1, tally)]);
        assert_eq!((figures.attempts, figures.attempts_succeeded), (5, 4));
        assert_eq!((figures.total_claims, figures.claim_conflicts_avoided, figures.active_claims), (1, 2, 1));
        assert!((figures.claim_success_rate - 0.25).abs() < f64::EPSILON);
    }

    #[test]
    fn the_breaker_of_a_worker_that_is_gone_is_not_shown_forever() {
        let until: Timestamp = "2026-11-15T10:00:10Z".parse().unwrap();
        let turned = BreakerTurned { failures: 5, reason: "exit status 1".into(), until: Some(until) };
        let tally = Tally { breaker: Some(turned), ..Tally::default() };
        let shown =
            |now: &str| Figures::new("a", 0, &tally).with_breaker(&tally, now.parse().unwrap()).stopped();
        let sentence = "`a` has stopped claiming tasks, because its command failed 5 times in a row (exit status 1); \
                        next try not before 2026-11-15T10:00:10Z";
        for now in ["2026-11-15T10:00:00Z", "2026-11-15T11:00:09Z"] {
            assert_eq!(shown(now).as_deref(), Some(sentence));
        }
        assert_eq!(shown("2026-11-15T11:00:10Z"), None);
    }
}
