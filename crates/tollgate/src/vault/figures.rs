//! The five figures of the contract's `/health`. Pure.
//!
//! Counted when it happens and kept as sums, so that asking costs the same after a year as after a minute.

use std::iter::Sum;

use serde::Serialize;

use super::claim::StepId;

/// So many steps are remembered, so that a claim whose process died right after counting is not counted again. More
/// than there are processes between a crash and the next command, which settles it.
const REMEMBERED: usize = 32;

/// What is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Count {
    /// A claim, by its step: counted once.
    Claim(StepId),
    /// A race that another agent won.
    Lost,
    /// A claim that ended in an error.
    Error,
}

/// The sums of one agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Claims made.
    pub claims: u64,
    /// Races lost.
    pub lost: u64,
    /// Claims that ended in an error.
    pub errors: u64,
    /// The latest claims, the next at `claims % REMEMBERED`; zero for none.
    recent: [u64; REMEMBERED],
}

impl Tally {
    /// Counts one thing.
    pub fn add(&mut self, what: &Count) {
        match what {
            Count::Lost => self.lost += 1,
            Count::Error => self.errors += 1,
            Count::Claim(step) => {
                if !self.has(step) {
                    self.recent[(self.claims % REMEMBERED as u64) as usize] = step.number();
                    self.claims += 1;
                }
            }
        }
    }

    /// Whether this claim is among the latest.
    pub fn has(&self, step: &StepId) -> bool {
        self.recent.contains(&step.number())
    }

    /// How many bytes it is kept in.
    pub const BYTES: usize = 8 * (3 + REMEMBERED);

    /// For a file.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let numbers = [self.claims, self.lost, self.errors].into_iter().chain(self.recent);
        for (part, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            part.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// From a file.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let number = |at: usize| {
            let mut part = [0; 8];
            part.copy_from_slice(&bytes[8 * at..8 * at + 8]);
            u64::from_le_bytes(part)
        };
        let recent = std::array::from_fn(|at| number(3 + at));
        Self { claims: number(0), lost: number(1), errors: number(2), recent }
    }
}

impl<'a> Sum<&'a Tally> for Tally {
    /// Of what nobody asks which claims were the latest.
    fn sum<I: Iterator<Item = &'a Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |all, part| Self {
            claims: all.claims + part.claims,
            lost: all.lost + part.lost,
            errors: all.errors + part.errors,
            ..all
        })
    }
}

/// What `/health` says of one agent, or of all.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// The agent, or `all`.
    pub agent_name: String,
    /// Tasks in its hands now.
    pub active_claims: u64,
    /// Claims made, ever.
    pub total_claims: u64,
    /// Races that another agent won: work that was not done twice.
    pub claim_conflicts_avoided: u64,
    /// Claims, as a share of claims and errors. A lost race is not an error.
    pub claim_success_rate: f64,
}

impl Figures {
    /// Of these sums.
    pub fn new(agent_name: &str, active_claims: u64, tally: &Tally) -> Self {
        let tried = tally.claims + tally.errors;
        Self {
            agent_name: agent_name.to_owned(),
            active_claims,
            total_claims: tally.claims,
            claim_conflicts_avoided: tally.lost,
            #[expect(clippy::cast_precision_loss, reason = "nobody makes 2^53 claims")]
            claim_success_rate: if tried == 0 { 1.0 } else { tally.claims as f64 / tried as f64 },
        }
    }

    /// All agents together.
    pub fn sum<'a>(parts: impl IntoIterator<Item = &'a (u64, Tally)>) -> Self {
        let (active, tallies): (Vec<u64>, Vec<&Tally>) =
            parts.into_iter().map(|(active, tally)| (active, tally)).unzip();
        Self::new("all", active.iter().sum(), &tallies.into_iter().sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_race_is_no_failure_and_a_claim_counts_once() {
        let mut tally = Tally::default();
        assert!((Figures::new("a", 0, &tally).claim_success_rate - 1.0).abs() < f64::EPSILON);
        let step = StepId::new().unwrap();
        for what in [Count::Claim(step.clone()), Count::Claim(step), Count::Lost, Count::Lost] {
            tally.add(&what);
        }
        for _ in 0..3 {
            tally.add(&Count::Error);
        }
        let figures = Figures::new("a", 1, &tally);
        assert_eq!((figures.total_claims, figures.claim_conflicts_avoided, figures.active_claims), (1, 2, 1));
        assert!((figures.claim_success_rate - 0.25).abs() < f64::EPSILON);
        for _ in 0..100 {
            tally.add(&Count::Claim(StepId::new().unwrap()));
        }
        assert_eq!(tally.claims, 101);
        assert_eq!(Tally::from_bytes(&tally.to_bytes()), tally);
    }
}
