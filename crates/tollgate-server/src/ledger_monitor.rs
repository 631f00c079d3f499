//! The ledger monitor: follows the ledger in the background, checks its chain of hashes, and adds up its lines.
//!
//! After a start it reads every line once, in the background; a million lines take some seconds. Until then there are
//! no sums, because partial sums would be wrong. From then on it reads each new line once, no matter how often the
//! figures are requested.
//!
//! Limit: if a line is edited in place at the same instant as another line is added, only the next start or
//! `tollgate ledger verify` finds the edit.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::Notify;
use tollgate::error::Result;
use tollgate::ledger::{Followed, Follower, Ledger, Problem};

use crate::sums::Sums;
use crate::trends::Trends;

/// Lines to read at a time: few enough to stop soon, many enough that the pauses cost nothing.
const BATCH: usize = 20_000;

/// The time between two checks of the whole ledger, while something keeps it doubtful.
const BETWEEN_CHECKS: Duration = Duration::from_secs(5);

/// Whether the ledger is intact.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum LedgerCondition {
    /// The monitor is reading the lines for the first time since the start, or again because something was doubtful.
    #[default]
    Checking,
    /// Every line carries the hash of the line before it.
    Whole,
    /// The ledger was changed after it was written.
    Broken {
        /// What is wrong.
        problem: String,
    },
}

/// What the monitor knows about the ledger.
#[derive(Debug, Clone, Default)]
pub struct LedgerStatus {
    /// Whether it is intact.
    pub condition: LedgerCondition,
    /// The number of the last line that was read.
    pub lines: u64,
    /// The sums of all lines, once all were read.
    pub(crate) sums: Option<Arc<Sums>>,
    /// What happened over time, once all lines were read. Shared with the reader, which adds new lines to it.
    pub(crate) trends: Option<Arc<Mutex<Trends>>>,
}

/// Follows one workspace's ledger.
#[derive(Default)]
pub(crate) struct LedgerMonitor {
    known: Mutex<LedgerStatus>,
    wake: Notify,
}

impl LedgerMonitor {
    pub(crate) fn status(&self) -> LedgerStatus {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The ledger may have new lines.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Follows the ledger for as long as it is polled. `open` returns the ledger, or `None` while there is no workspace.
    /// `condition_changed` is called after each change of the condition.
    pub(crate) async fn run(&self, open: impl Fn() -> Option<Ledger>, condition_changed: impl Fn()) {
        loop {
            let Some(ledger) = open() else {
                self.wake.notified().await;
                continue;
            };
            self.follow(ledger, &condition_changed).await;
            // The ledger has to be read again. The pause prevents a busy loop if something keeps changing it.
            tokio::time::sleep(BETWEEN_CHECKS).await;
        }
    }

    /// Follows this ledger until it has to be read from the start again.
    async fn follow(&self, ledger: Ledger, condition_changed: impl Fn()) {
        let mut reading = (ledger.follow(), Sums::default(), Arc::<Mutex<Trends>>::default());
        loop {
            let going = tokio::task::spawn_blocking(move || advance(reading)).await;
            // After a panic in there, start again.
            let Ok((read, followed)) = going else { return };
            reading = read;
            let learn = |condition| {
                let lines = reading.0.cursor().seq;
                let sums = Some(Arc::new(reading.1.clone()));
                let trends = Some(reading.2.clone());
                if self.learn(LedgerStatus { condition, lines, sums, trends }) {
                    condition_changed();
                }
            };
            match followed {
                Ok(Followed::Further) => continue,
                Ok(Followed::ToTheEnd) => learn(LedgerCondition::Whole),
                Ok(Followed::Doubtful | Followed::Lost(_)) => {
                    self.doubt();
                    let all = ledger.clone();
                    let verdict = tokio::task::spawn_blocking(move || all.verify()).await;
                    let problem = match verdict {
                        Ok(Ok(verdict)) => match verdict.problem {
                            Some(problem) => sentence(&problem),
                            None => return,
                        },
                        Ok(Err(fault)) => fault.to_string(),
                        Err(_) => return,
                    };
                    learn(LedgerCondition::Broken { problem });
                    reading.0.trust();
                    tokio::time::sleep(BETWEEN_CHECKS).await;
                }
                Err(fault) => learn(LedgerCondition::Broken { problem: fault.to_string() }),
            }
            self.wake.notified().await;
        }
    }

    /// Returns whether the condition has changed.
    fn learn(&self, status: LedgerStatus) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = known.condition != status.condition;
        *known = status;
        changed
    }

    fn doubt(&self) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).condition = LedgerCondition::Checking;
    }
}

/// How far the ledger was read, and what was added up on the way.
type MonitorState = (Follower, Sums, Arc<Mutex<Trends>>);

fn advance((mut follower, mut sums, trends): MonitorState) -> (MonitorState, Result<Followed>) {
    let mut adding = trends.lock().unwrap_or_else(PoisonError::into_inner);
    let followed = follower.advance(BATCH, |line| {
        sums.add(&line);
        adding.add(line.time, &line.event);
    });
    drop(adding);
    ((follower, sums, trends), followed)
}

fn sentence(problem: &Problem) -> String {
    let Problem { file, line, seq, missing, wrong } = problem;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let wrong = serde_json::to_value(wrong).ok();
    let wrong = wrong.as_ref().and_then(|wrong| wrong.as_str()).unwrap_or("wrong").replace('_', " ");
    let gone = if *missing > 0 { format!(", {missing} lines are missing") } else { String::new() };
    format!("`{name}` line {line} (seq {seq}): {wrong}{gone}; run `tollgate ledger verify` for details")
}
