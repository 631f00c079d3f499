//! The sums of the ledger's lines: counters and histograms. Pure.
//!
//! Every process writes what it does into the ledger, so the sums of all lines are the figures of the workspace. A restart
//! of the server does not change them.

use std::collections::BTreeMap;

use tollgate::event::{Event, FileChanged, Mutation, MutationStatus, RefusalStatus};
use tollgate::ledger::Line;

/// The number of agents that are counted by name. Users choose the names, and without a limit they could fill the memory
/// of the server and of the monitoring system. All further agents are counted together.
const MOST_AGENTS: usize = 200;

/// The name of all further agents.
const OTHERS: &str = "(others)";

/// Seconds from taking the locks to the ledger line. A durable write takes some milliseconds; a write that waits for an
/// editor to close the file takes up to a second.
pub(crate) const COMMIT_BUCKETS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Seconds that a task waited for its claim: almost none if a worker is idle, days if a person has to act first.
pub(crate) const PICK_UP_BUCKETS: &[f64] =
    &[0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0, 604_800.0];

/// Durations, counted in buckets.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Histogram {
    pub(crate) bounds: &'static [f64],
    /// The count of each bucket alone. The last bucket is for values above all bounds.
    counts: Vec<u64>,
    pub(crate) sum: f64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    fn observe(&mut self, value: f64) {
        let at = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        self.counts[at] += 1;
        self.sum += value;
    }

    /// For each bound the number of values up to it, and the number of all values.
    pub(crate) fn cumulative(&self) -> (Vec<u64>, u64) {
        let sums = self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        let mut sums: Vec<u64> = sums.collect();
        let all = sums.pop().unwrap_or(0);
        (sums, all)
    }
}

/// Counters by agent.
pub(crate) type AgentCounters = BTreeMap<String, u64>;
/// Counters by agent and one more label.
pub(crate) type LabelledCounters = BTreeMap<(String, String), u64>;

/// All sums.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sums {
    /// Lines, by action type.
    pub(crate) lines: BTreeMap<String, u64>,
    /// Changed files.
    pub(crate) mutations: AgentCounters,
    /// Refused writes, by `error_type`.
    pub(crate) refusals: LabelledCounters,
    /// Saves by other programs that the late-write check found.
    pub(crate) late_writes: u64,
    pub(crate) claims: AgentCounters,
    pub(crate) claims_lost: AgentCounters,
    /// Released tasks, by new state.
    pub(crate) releases: LabelledCounters,
    /// Decisions by people.
    pub(crate) decisions: BTreeMap<String, u64>,
    /// Tasks reclaimed from dead owners.
    pub(crate) reclaims: u64,
    pub(crate) turns: AgentCounters,
    pub(crate) commit: Histogram,
    pub(crate) pick_up: Histogram,
    names: BTreeMap<String, ()>,
}

impl Default for Sums {
    fn default() -> Self {
        Self {
            lines: BTreeMap::new(),
            mutations: AgentCounters::new(),
            refusals: LabelledCounters::new(),
            late_writes: 0,
            claims: AgentCounters::new(),
            claims_lost: AgentCounters::new(),
            releases: LabelledCounters::new(),
            decisions: BTreeMap::new(),
            reclaims: 0,
            turns: AgentCounters::new(),
            commit: Histogram::new(COMMIT_BUCKETS),
            pick_up: Histogram::new(PICK_UP_BUCKETS),
            names: BTreeMap::new(),
        }
    }
}

impl Sums {
    /// Counts one line.
    pub(crate) fn add(&mut self, line: &Line) {
        // Action types come from a fixed list, but another program may have written the file.
        let kind = if self.lines.len() < 64 { line.event.action_type() } else { OTHERS };
        *self.lines.entry(kind.to_owned()).or_default() += 1;
        let agent = self.name(line.agent.as_ref().map_or("", |agent| agent.as_str()));
        match &line.event {
            Event::Mutation(mutation, MutationStatus::Applied) => {
                *self.mutations.entry(agent).or_default() += 1;
                if let Mutation::File(FileChanged { took_us: Some(took), .. }) = mutation {
                    self.commit.observe(*took as f64 / 1e6);
                }
            }
            Event::MutationConflict(_, RefusalStatus::Denied, error)
            | Event::MutationRefused(_, RefusalStatus::Denied, error) => {
                *self.refusals.entry((agent, error.as_str().to_owned())).or_default() += 1;
            }
            Event::LateExternalWrite(_) => self.late_writes += 1,
            Event::Claim(claimed) => {
                *self.claims.entry(agent).or_default() += 1;
                self.pick_up.observe(claimed.waited_ms as f64 / 1e3);
            }
            Event::ClaimLost(_) => *self.claims_lost.entry(agent).or_default() += 1,
            Event::Release(_, state) => {
                *self.releases.entry((agent, state.to_string())).or_default() += 1;
            }
            Event::Approval(decided) => {
                *self.decisions.entry(decided.decision.as_str().to_owned()).or_default() += 1;
            }
            Event::Reclaim(..) => self.reclaims += 1,
            Event::TurnStarted(_) => *self.turns.entry(agent).or_default() += 1,
            _ => {}
        }
    }

    fn name(&mut self, agent: &str) -> String {
        if !self.names.contains_key(agent) {
            if self.names.len() >= MOST_AGENTS {
                return OTHERS.to_owned();
            }
            self.names.insert(agent.to_owned(), ());
        }
        agent.to_owned()
    }
}
