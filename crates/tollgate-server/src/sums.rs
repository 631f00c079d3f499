//! What the ledger's lines add up to: counters and histograms. Pure.
//!
//! Everything that happened in the workspace is a line of its ledger, whichever process did it, so the sums of all lines are
//! the figures of the workspace, before and after a restart of the server.

use std::collections::BTreeMap;

use tollgate::ledger::Line;

/// Agents are named by whoever starts them. Past this many names the rest are counted together, so that nobody fills the
/// memory of the server, or of whoever keeps the figures, with names.
const MOST_AGENTS: usize = 200;

/// How the rest are called.
const OTHERS: &str = "(others)";

/// Seconds from the locks to the ledger line. A durable write takes some milliseconds; one that waits for an editor to
/// close the file, up to a second.
pub(crate) const COMMIT_BUCKETS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Seconds from waiting to claimed: at once where a worker watches, days where one waits for a person.
pub(crate) const PICK_UP_BUCKETS: &[f64] =
    &[0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0, 604_800.0];

/// How often, and how long, in buckets.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Histogram {
    pub(crate) bounds: &'static [f64],
    /// In each bucket alone; the last is what was longer than all bounds.
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

    /// How many were not longer than each bound, and how many there were.
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

/// Counters with one agent, or an agent and a word.
pub(crate) type ByAgent = BTreeMap<String, u64>;
/// By agent and by word.
pub(crate) type ByAgentAnd = BTreeMap<(String, String), u64>;

/// All sums.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sums {
    /// Lines of each kind.
    pub(crate) lines: BTreeMap<String, u64>,
    /// Files that were changed.
    pub(crate) mutations: ByAgent,
    /// Refused writes, by `error_type`.
    pub(crate) refusals: ByAgentAnd,
    /// Saves of others that were found in what was replaced.
    pub(crate) late_writes: u64,
    pub(crate) claims: ByAgent,
    pub(crate) claims_lost: ByAgent,
    /// Where tasks went when they were let go.
    pub(crate) releases: ByAgentAnd,
    /// What people decided.
    pub(crate) decisions: BTreeMap<String, u64>,
    /// Tasks taken from owners who were gone.
    pub(crate) reclaims: u64,
    pub(crate) turns: ByAgent,
    pub(crate) commit: Histogram,
    pub(crate) pick_up: Histogram,
    names: BTreeMap<String, ()>,
}

impl Default for Sums {
    fn default() -> Self {
        Self {
            lines: BTreeMap::new(),
            mutations: ByAgent::new(),
            refusals: ByAgentAnd::new(),
            late_writes: 0,
            claims: ByAgent::new(),
            claims_lost: ByAgent::new(),
            releases: ByAgentAnd::new(),
            decisions: BTreeMap::new(),
            reclaims: 0,
            turns: ByAgent::new(),
            commit: Histogram::new(COMMIT_BUCKETS),
            pick_up: Histogram::new(PICK_UP_BUCKETS),
            names: BTreeMap::new(),
        }
    }
}

impl Sums {
    /// Counts one line.
    pub(crate) fn add(&mut self, line: &Line) {
        // Kinds come from a fixed list, but a stranger may have written the file.
        let kind = if self.lines.len() < 64 { line.action_type.as_str() } else { OTHERS };
        *self.lines.entry(kind.to_owned()).or_default() += 1;
        let agent = self.name(line.agent.as_ref().map_or("", |agent| agent.as_str()));
        let word = |value: &serde_json::Value| {
            value.as_str().unwrap_or("unknown").chars().take(64).collect::<String>()
        };
        match line.action_type.as_str() {
            "MUTATION" if line.result["status"] == "APPLIED" => {
                *self.mutations.entry(agent).or_default() += 1;
                if let Some(took) = line.payload["took_us"].as_f64() {
                    self.commit.observe(took / 1e6);
                }
            }
            "MUTATION_CONFLICT" | "MUTATION_REFUSED" if line.result["status"] == "DENIED" => {
                let kind = word(&line.result["error_type"]);
                *self.refusals.entry((agent, kind)).or_default() += 1;
            }
            "LATE_EXTERNAL_WRITE" => self.late_writes += 1,
            "CLAIM" => {
                *self.claims.entry(agent).or_default() += 1;
                if let Some(waited) = line.payload["waited_ms"].as_f64() {
                    self.pick_up.observe(waited / 1e3);
                }
            }
            "CLAIM_LOST" => *self.claims_lost.entry(agent).or_default() += 1,
            "RELEASE" => {
                let state = word(&line.result["status"]);
                *self.releases.entry((agent, state)).or_default() += 1;
            }
            "APPROVAL" => {
                *self.decisions.entry(word(&line.payload["decision"])).or_default() += 1;
            }
            "RECLAIM" => self.reclaims += 1,
            "TURN_STARTED" => *self.turns.entry(agent).or_default() += 1,
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
