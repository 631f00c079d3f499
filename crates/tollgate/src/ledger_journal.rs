//! The ledger of a workspace as the journal of its vault. The vault knows no ledger file and the ledger no vault; here the two
//! meet.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tollgate_base::error::{Fault, Result};
use tollgate_base::ledger::{self, Entry, Followed, Ledger, Line};
use tollgate_base::name::{Agent, StepId};
use tollgate_base::settings::Durability;
use tollgate_vault::event::{EventPage, Journal};
use tollgate_vault::figures::Tally;

/// The clocks of processes on one machine agree; this allows for one that was set while a step was under way.
const CLOCK_SLACK: SignedDuration = SignedDuration::from_hours(1);

/// How many lines are read at once: little enough memory, however long the ledger is.
const AT_ONCE: usize = 1000;

/// Called for every event.
pub type Observer = Arc<dyn Fn(&Entry) + Send + Sync>;

/// A ledger in which the events of a vault are recorded.
#[derive(Clone)]
pub struct LedgerJournal {
    ledger: Ledger,
    id: String,
    durability: Durability,
    observer: Option<Observer>,
}

impl LedgerJournal {
    /// The `id` is the same for all processes that use this ledger, and for none that use another. The observer is
    /// called for every event after it is in the ledger.
    pub fn new(ledger: Ledger, id: String, durability: Durability, observer: Option<Observer>) -> Self {
        Self { ledger, id, durability, observer }
    }
}

impl Journal for LedgerJournal {
    fn id(&self) -> &str {
        &self.id
    }

    fn append(&self, events: &[Entry]) -> Result<()> {
        self.ledger.append(events, self.durability)?;
        if let Some(observer) = &self.observer {
            events.iter().for_each(|event| observer(event));
        }
        Ok(())
    }

    fn has(&self, step: &StepId, since: Timestamp) -> Result<bool> {
        let since = since.checked_sub(CLOCK_SLACK).unwrap_or(Timestamp::MIN);
        for line in self.ledger.newest_first()? {
            match line {
                Ok(line) if line.event.keys().step == Some(step.as_str()) => return Ok(true),
                Ok(line) if line.time < since => return Ok(false),
                Ok(_) | Err(Fault::Damaged { .. }) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(false)
    }

    fn events(&self, after: &str, limit: usize) -> Result<EventPage> {
        let after = match after {
            "" => ledger::Cursor::START,
            text => text.parse()?,
        };
        let mut follower = self.ledger.follow_from(after);
        let mut events = Vec::new();
        while events.len() < limit {
            // The lines of guarded writes are in the same ledger and are skipped.
            let most = (limit - events.len()).min(AT_ONCE);
            let followed = follower.advance(most, |line| {
                let Line { time, agent, turn, event, .. } = line;
                if event.keys().task.is_some() {
                    events.push(Entry { time, agent, turn, event });
                }
            })?;
            match followed {
                Followed::Further => {}
                Followed::ToTheEnd | Followed::Doubtful => break,
                Followed::Lost(_) => {
                    let what = "it does not contain the line of the cursor: read it from the start";
                    return Err(Fault::damaged(self.ledger.path(), what));
                }
            }
        }
        Ok((events, follower.cursor().to_string()))
    }

    fn tallies(&self) -> Result<BTreeMap<Agent, Tally>> {
        self.ledger.tallies()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tollgate_base::event::{Event, TaskReclaimed};
    use tollgate_base::task::State;

    #[test]
    fn a_recorded_step_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::new(folder.path(), &folder.path().join("lock"), 1 << 20, None);
        let journal = LedgerJournal::new(ledger.clone(), "x".into(), Durability::Fast, None);
        let now = Timestamp::now();
        let entry = |time| {
            let step = StepId::new().unwrap();
            let reclaimed =
                TaskReclaimed { task: "x".parse().unwrap(), attempt: None, reason: None, step: step.clone() };
            (step, Entry { time, agent: None, turn: None, event: Event::Reclaim(reclaimed, State::Done) })
        };
        let yesterday = now - SignedDuration::from_hours(24);
        let ((old, first), (_, second), (new, third)) = (entry(yesterday), entry(yesterday), entry(now));
        journal.append(&[first, second, third]).unwrap();
        assert!(journal.has(&new, now).unwrap() && journal.has(&old, yesterday).unwrap());
        assert!(!journal.has(&StepId::new().unwrap(), now).unwrap());
        assert!(!journal.has(&old, now).unwrap(), "nobody reads a year of lines for a step of today");
        let line = ledger.newest_first().unwrap().next().unwrap().unwrap().json();
        assert_eq!(
            (&line["action_type"], &line["payload"]),
            (&json!("RECLAIM"), &json!({"task": "x.md", "step": new}))
        );
        assert_eq!(line["result"], json!({"status": "Done"}));
    }
}
