//! The ledger as the vault sees it: what happens to tasks becomes lines of the ledger.
//!
//! The vault knows no ledger and the ledger no vault; here the two meet.

use jiff::{SignedDuration, Timestamp};

use crate::error::{Fault, Result};
use crate::ledger::{ActionType, Flush, Ledger, Said};
use crate::settings::Durability;
use crate::vault::claim::StepId;
use crate::vault::event::{Event, Journal, Kind, Payload, Status};

/// The clocks of processes on one machine agree; this is for one that was set while a step was under way.
const CLOCK_SLACK: SignedDuration = SignedDuration::from_hours(1);

/// A ledger that tells what happens to tasks.
#[derive(Debug, Clone)]
pub struct Chronicle {
    ledger: Ledger,
    id: String,
    flush: Flush,
}

impl Chronicle {
    /// The `id` is the same for all processes that use this ledger, and for none that use another.
    pub fn new(ledger: Ledger, id: String, durability: Durability) -> Self {
        let flush = match durability {
            Durability::Durable => Flush::Data,
            Durability::Fast => Flush::No,
        };
        Self { ledger, id, flush }
    }
}

impl Journal for Chronicle {
    fn id(&self) -> &str {
        &self.id
    }

    fn append(&self, events: &[Event]) -> Result<()> {
        let said: Vec<_> = events.iter().map(said).collect();
        self.ledger.append_said(&said, self.flush).map(drop)
    }

    fn has(&self, step: &StepId, since: Timestamp) -> Result<bool> {
        let since = since.checked_sub(CLOCK_SLACK).unwrap_or(Timestamp::MIN);
        for line in self.ledger.newest_first()? {
            match line {
                Ok(line) if line.payload["step"] == step.as_str() => return Ok(true),
                Ok(line) if line.time < since => return Ok(false),
                Ok(_) | Err(Fault::Damaged { .. }) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(false)
    }
}

fn said(event: &Event) -> Said<'_, Payload, Status> {
    Said {
        time: event.time,
        agent: event.agent.as_ref(),
        turn: None,
        action_type: match event.kind {
            Kind::Claim => ActionType::Claim,
            Kind::ClaimLost => ActionType::ClaimLost,
            Kind::Renew => ActionType::Renew,
            Kind::Release => ActionType::Release,
            Kind::Approval => ActionType::Approval,
            Kind::Reclaim => ActionType::Reclaim,
        },
        payload: &event.payload,
        result: &event.result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::LedgerOptions;
    use serde_json::json;

    #[test]
    fn what_was_told_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let options = LedgerOptions { max_size: 1 << 20, head: None };
        let ledger = Ledger::new(folder.path(), &folder.path().join("lock"), options);
        let chronicle = Chronicle::new(ledger.clone(), "x".into(), Durability::Fast);
        let now = Timestamp::now();
        let event = |time| {
            let step = StepId::new().unwrap();
            let payload = Payload::new(&"x".parse().unwrap(), &step);
            Event { time, agent: None, kind: Kind::Reclaim, payload, result: "Done".into() }
        };
        let yesterday = now - SignedDuration::from_hours(24);
        let (old, new, other) = (event(yesterday), event(now), event(now));
        chronicle.append(&[old.clone(), event(yesterday), new.clone()]).unwrap();
        assert!(
            chronicle.has(&new.payload.step, now).unwrap()
                && chronicle.has(&old.payload.step, old.time).unwrap()
        );
        assert!(!chronicle.has(&other.payload.step, now).unwrap());
        assert!(
            !chronicle.has(&old.payload.step, now).unwrap(),
            "nobody reads a year of lines for a step of today"
        );
        let line = ledger.lines_after(2).unwrap().remove(0);
        let payload = json!({"task": "x.md", "step": new.payload.step});
        assert_eq!((line.action_type.as_str(), line.payload), ("RECLAIM", payload));
        assert_eq!(line.result, json!({"status": "Done"}));
    }
}
