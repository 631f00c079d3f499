//! What the campaign found: a table for people, a document for programs, and the progress until then.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_base::sys;

use crate::engine::Engines;
use crate::open_files::{GENTLE, OpenTally};
use crate::tally::{COUNTS, Count};

/// Rules of the audit that mean a lost change, a second owner, or a false alarm. All other flaws are broken promises, too.
const LOSSES: [&str; 4] = ["lost_update", "broken_chain", "missing_line", "repeated_change"];

/// How many messages about broken promises are kept.
const LISTED: usize = 20;

pub(crate) struct Report {
    seed: u64,
    pub(crate) seconds: u64,
    pub(crate) rounds: u64,
    participants: BTreeMap<String, ([u64; COUNTS], u64)>,
    outsiders: BTreeMap<String, OpenTally>,
    controls: BTreeMap<String, (u64, u64)>,
    audits: u64,
    lines: u64,
    changes: u64,
    claims: u64,
    lost: u64,
    duplicate_owners: u64,
    false_alarms: u64,
    broken: Vec<String>,
    broken_count: u64,
    skipped: Vec<String>,
}

impl Report {
    pub(crate) fn new(seed: u64, engines: &Engines) -> Self {
        Self {
            seed,
            seconds: 0,
            rounds: 0,
            participants: BTreeMap::new(),
            outsiders: BTreeMap::new(),
            controls: BTreeMap::new(),
            audits: 0,
            lines: 0,
            changes: 0,
            claims: 0,
            lost: 0,
            duplicate_owners: 0,
            false_alarms: 0,
            broken: Vec::new(),
            broken_count: 0,
            skipped: engines.skipped.clone(),
        }
    }

    /// Whether every promise was kept.
    pub(crate) fn is_kept(&self) -> bool {
        self.broken_count == 0
    }

    pub(crate) fn broken(&mut self, what: String) {
        self.broken_count += 1;
        if self.broken.len() < LISTED {
            self.broken.push(what);
        }
    }

    pub(crate) fn killed(&mut self, kind: &str) {
        self.participants.entry(kind.to_owned()).or_default().1 += 1;
    }

    pub(crate) fn participant(&mut self, kind: &str, counts: [u64; COUNTS]) {
        let (sums, _) = self.participants.entry(kind.to_owned()).or_default();
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }

    pub(crate) fn open(&mut self, kind: &str, tally: OpenTally) {
        if tally.lost > 0 {
            self.lost += tally.lost;
            self.broken(format!("{} saves by `{kind}` are lost", tally.lost));
        }
        if tally.false_alarms > 0 {
            self.false_alarms += tally.false_alarms;
            self.broken(format!(
                "{} writes were refused although `{kind}` changed nothing",
                tally.false_alarms
            ));
        }
        for what in &tally.broken {
            self.broken(format!("`{kind}`: {what}"));
        }
        let sums = self.outsiders.entry(kind.to_owned()).or_default();
        sums.saves += tally.saves;
        sums.aside += tally.aside;
        sums.lost += tally.lost;
        sums.writes += tally.writes;
        sums.refused += tally.refused;
        sums.false_alarms += tally.false_alarms;
    }

    pub(crate) fn control(&mut self, name: &str, attempts: u64, lost: u64) {
        let sums = self.controls.entry(name.to_owned()).or_default();
        *sums = (sums.0 + attempts, sums.1 + lost);
    }

    /// The document of `tollgate ledger audit`.
    pub(crate) fn audited(&mut self, found: &Value) {
        let number = |key: &str| found[key].as_u64().unwrap_or(0);
        self.audits += 1;
        self.lines += number("lines");
        self.changes += number("changes");
        self.claims += number("claims");
        for flaw in found["flaws"].as_array().into_iter().flatten() {
            match flaw["rule"].as_str().unwrap_or_default() {
                rule if LOSSES.contains(&rule) => self.lost += 1,
                "two_owners" => self.duplicate_owners += 1,
                "false_alarm" => self.false_alarms += 1,
                _ => {}
            }
            self.broken(format!("the audit found {flaw}"));
        }
        for doubt in found["doubts"].as_array().into_iter().flatten() {
            self.broken(format!("the audit doubts {doubt}"));
        }
    }

    fn operations(&self) -> u64 {
        let agents: u64 =
            self.participants.values().map(|(counts, _)| counts[Count::Operations as usize]).sum();
        // A read and a write of an agent, and a save that changes the file.
        let open = self.outsiders.iter().map(|(kind, tally)| {
            let saves = if GENTLE.contains(&kind.as_str()) { 0 } else { tally.saves };
            saves + 2 * tally.writes + tally.refused
        });
        agents + open.sum::<u64>()
    }

    fn gentle_controls(&self) -> Vec<&str> {
        self.controls.iter().filter(|(_, (_, lost))| *lost == 0).map(|(name, _)| name.as_str()).collect()
    }

    pub(crate) fn json(&self) -> Value {
        let participants = self.participants.iter().map(|(kind, (counts, kills))| {
            let [operations, done, refused, faults] = *counts;
            let row = json!({
                "operations": operations, "done": done, "refused": refused, "faults": faults, "kills": kills,
            });
            (kind.clone(), row)
        });
        let outsiders = self.outsiders.iter().map(|(kind, tally)| {
            let row = json!({
                "saves": tally.saves, "aside": tally.aside, "lost": tally.lost, "writes": tally.writes,
                "refused": tally.refused, "false_alarms": tally.false_alarms,
            });
            (kind.clone(), row)
        });
        let controls = self
            .controls
            .iter()
            .map(|(name, (attempts, lost))| (name.clone(), json!({"attempts": attempts, "lost": lost})));
        json!({
            "kept": self.is_kept(),
            "level": level(),
            "seed": self.seed,
            "seconds": self.seconds,
            "rounds": self.rounds,
            "operations": self.operations(),
            "lost": self.lost,
            "duplicate_owners": self.duplicate_owners,
            "false_alarms": self.false_alarms,
            "participants": participants.collect::<serde_json::Map<_, _>>(),
            "outsiders": outsiders.collect::<serde_json::Map<_, _>>(),
            "controls": controls.collect::<serde_json::Map<_, _>>(),
            "audit": {"ledgers": self.audits, "lines": self.lines, "changes": self.changes, "claims": self.claims},
            "broken": self.broken,
            "broken_count": self.broken_count,
            "skipped": self.skipped,
        })
    }

    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write_table(&mut text);
        text
    }

    fn write_table(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "{:<24}{:>11}{:>10}{:>10}{:>8}{:>7}",
            "participant", "operations", "done", "refused", "faults", "kills"
        )?;
        for (kind, (counts, kills)) in &self.participants {
            let [operations, done, refused, faults] = counts;
            writeln!(text, "{kind:<24}{operations:>11}{done:>10}{refused:>10}{faults:>8}{kills:>7}")?;
        }
        writeln!(
            text,
            "\n{:<24}{:>11}{:>10}{:>10}{:>8}{:>7}",
            "outside program", "saves", "writes", "refused", "aside", "lost"
        )?;
        for (kind, tally) in &self.outsiders {
            let OpenTally { saves, writes, refused, aside, lost, .. } = tally;
            writeln!(text, "{kind:<24}{saves:>11}{writes:>10}{refused:>10}{aside:>8}{lost:>7}")?;
        }
        writeln!(text, "\n{:<24}{:>11}{:>45}", "control", "attempts", "lost, or done twice")?;
        for (name, (attempts, lost)) in &self.controls {
            writeln!(text, "{name:<24}{attempts:>11}{lost:>45}")?;
        }
        for name in self.gentle_controls() {
            writeln!(text, "note: the control `{name}` lost nothing this time, so this run proves less")?;
        }
        for what in &self.skipped {
            writeln!(text, "skipped: {what}")?;
        }
        writeln!(
            text,
            "\nledger audit: {} ledgers, {} lines, {} changes, {} claims",
            self.audits, self.lines, self.changes, self.claims
        )?;
        for what in &self.broken {
            writeln!(text, "broken: {what}")?;
        }
        write!(
            text,
            "{}: {} operations in {} s ({} rounds, seed {}, level {}): {} lost, {} duplicate owners, {} false alarms",
            if self.is_kept() { "kept" } else { "BROKEN" },
            self.operations(),
            self.seconds,
            self.rounds,
            self.seed,
            level(),
            self.lost,
            self.duplicate_owners,
            self.false_alarms
        )
    }
}

/// The strongest guarantee of a write that the system allows, with the word of the ledger.
fn level() -> &'static str {
    if sys::HAS_LEASES { "full" } else { "no_quiet" }
}

/// A bar on the terminal, if there is one.
pub(crate) struct Progress {
    shown: bool,
}

impl Progress {
    pub(crate) fn new(json: bool) -> Self {
        Self { shown: !json && io::stderr().is_terminal() }
    }

    pub(crate) fn show(&self, elapsed: Duration, whole: Duration) {
        if !self.shown {
            return;
        }
        const WIDTH: usize = 40;
        let part = (elapsed.as_secs_f64() / whole.as_secs_f64()).min(1.0);
        // Between 0 and the width.
        let filled = ((part * WIDTH as f64) as usize).min(WIDTH);
        let (bar, rest) = ("#".repeat(filled), ".".repeat(WIDTH - filled));
        let (now, all) = (elapsed.as_secs(), whole.as_secs());
        let _ = write!(io::stderr(), "\r\x1b[K[{bar}{rest}] {now} of {all} s");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
