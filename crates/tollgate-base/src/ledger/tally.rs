//! What the ledger's lines add up to for each agent: claims made, lost and failed, and whether its breaker is open.
//!
//! Only the ledger is counted. So that an answer costs the same after a year as after a minute, the sums up to a cursor
//! are kept in `figures.json`. Anyone who asks and had to read many lines after that cursor replaces the file. It holds
//! nothing that is not in the ledger, with one exception: the sums of lines in older files that were deleted since.
//!
//! Invariant: a checkpoint is used only if the ledger still has the line of its cursor, or if older files were deleted,
//! which leaves nothing to compare with. Otherwise everything is counted again.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::error::{Fault, Result};
use crate::event::{BreakerTurned, Event, TaskReclaimed, TaskReleased};
use crate::file::{replace_file, version_in};
use crate::name::Agent;
use crate::settings::Durability;
use crate::task::Verdict;

use super::files::{Ledger, open_to_read};
use super::follow::{Followed, Lost};
use super::line::Cursor;

/// The version of the file. A later one is neither read nor replaced.
const VERSION: u32 = 1;

/// After this many lines the next checkpoint is written. To read them takes some milliseconds, as does to write it.
const FAR: usize = 1000;

/// The file is not larger than this, or it is not ours: room for some hundred thousand agents.
const LARGEST: u64 = 32 << 20;

/// The sums of one agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Claims made. One that was rolled back counts too.
    pub claims: u64,
    /// Claims that another agent was faster to make.
    pub lost: u64,
    /// Claims that ended in an error.
    pub failed: u64,
    /// Attempts that have ended: the claim was released, or taken from an owner who was gone.
    pub attempts: u64,
    /// Those that ended with success.
    pub succeeded: u64,
    /// How its breaker opened, if that was not followed by a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breaker: Option<BreakerTurned>,
}

impl Tally {
    /// Counts one event for its agent, who is listed from the first event that counts.
    pub fn add_to(tallies: &mut BTreeMap<Agent, Self>, agent: Option<&Agent>, event: &Event) {
        let Some(agent) = agent else { return };
        let tally = tallies.entry(agent.clone());
        match event {
            Event::Claim(_) => tally.or_default().claims += 1,
            Event::ClaimLost(_) => tally.or_default().lost += 1,
            Event::ClaimFailed(_) => tally.or_default().failed += 1,
            Event::Breaker(turned) => {
                tally.or_default().breaker = turned.until.map(|_| turned.clone());
            }
            Event::Release(TaskReleased { attempt, .. }, _)
            | Event::Reclaim(TaskReclaimed { attempt: Some(attempt), .. }, _) => {
                let tally = tally.or_default();
                tally.attempts += 1;
                if attempt.result == Verdict::Success {
                    tally.succeeded += 1;
                    tally.breaker = None;
                }
            }
            _ => {}
        }
    }
}

/// The sums of all lines up to a cursor.
#[derive(Serialize, Deserialize)]
struct Checkpoint {
    version: u32,
    cursor: Cursor,
    agents: BTreeMap<Agent, Tally>,
}

impl Ledger {
    /// The sums of each agent that has tried to claim something.
    pub fn tallies(&self) -> Result<BTreeMap<Agent, Tally>> {
        let mut bytes = Vec::new();
        // What cannot be read says nothing: the answer is in the ledger.
        if let Ok(Some(file)) = open_to_read(&self.kept_path()) {
            let _ = file.take(LARGEST).read_to_end(&mut bytes);
        }
        let is_newer = version_in(&bytes).is_some_and(|version| version > VERSION);
        let kept = if is_newer { None } else { serde_json::from_slice::<Checkpoint>(&bytes).ok() };
        let (start, mut agents) = kept.map_or_else(Default::default, |kept| (Some(kept.cursor), kept.agents));
        let mut follower = self.follow_from(start.unwrap_or(Cursor::START));
        let mut read = 0;
        loop {
            let followed = follower.advance(FAR, |line| {
                read += 1;
                Tally::add_to(&mut agents, line.agent.as_ref(), &line.event);
            })?;
            match followed {
                Followed::Further => {}
                // Whether every line is as it was written is for `verify` to say.
                Followed::ToTheEnd | Followed::Doubtful => break,
                // It was cut or replaced while it was read: the caller gets what was there, and nothing is kept.
                Followed::Lost(_) if read > 0 || start.is_none() => return Ok(agents),
                Followed::Lost(lost) => {
                    // A ledger that begins in the middle is not a new one. What was counted before stays counted.
                    if !matches!(lost, Lost::Deleted) {
                        agents.clear();
                    }
                    follower = self.follow();
                }
            }
        }
        if read > FAR && !is_newer {
            // The answer is right without it, also for those who may not write here.
            let _ = self.keep(&Checkpoint {
                version: VERSION,
                cursor: follower.cursor(),
                agents: agents.clone(),
            });
        }
        Ok(agents)
    }

    fn kept_path(&self) -> PathBuf {
        self.folder.join("figures.json")
    }

    fn keep(&self, checkpoint: &Checkpoint) -> Result<()> {
        // The lines first: were a power cut to take lines that are counted here, the checkpoint would not fit the ledger,
        // and the sums of files that were deleted would be lost with it.
        self.sync()?;
        let bytes = serde_json::to_vec(checkpoint).map_err(|error| Fault::invalid(error.to_string()))?;
        replace_file(&self.kept_path(), &bytes, Durability::Durable)
    }
}
