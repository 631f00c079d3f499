//! The five figures of `/health`. Pure.
//!
//! They are computed from the recorded events and from nothing else, so they agree with the ledger.

use serde::Serialize;

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
}

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
        }
    }

    /// The figures of all agents together.
    pub fn sum<'a>(parts: impl IntoIterator<Item = &'a (u64, Tally)>) -> Self {
        let (mut active, mut all) = (0, Tally::default());
        for (claims, tally) in parts {
            active += claims;
            all.claims += tally.claims;
            all.lost += tally.lost;
            all.failed += tally.failed;
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
        let figures = Figures::sum(&[(1, Tally { claims: 1, lost: 2, failed: 3 })]);
        assert_eq!((figures.total_claims, figures.claim_conflicts_avoided, figures.active_claims), (1, 2, 1));
        assert!((figures.claim_success_rate - 0.25).abs() < f64::EPSILON);
    }
}
