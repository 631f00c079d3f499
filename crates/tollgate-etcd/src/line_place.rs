//! A place in the ledger of the engine, and what the lines up to there add up to. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tollgate_base::error::{Fault, Result};
use tollgate_base::name::Agent;
use tollgate_vault::event::Entry;
use tollgate_vault::figures::Tally;

/// A place in the ledger of the engine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct LinePlace {
    pub(crate) revision: i64,
    /// How many events of that revision were read.
    pub(crate) events: usize,
}

impl LinePlace {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let read = || {
            let (revision, events) = text.split_once('.')?;
            Some(Self { revision: revision.parse().ok()?, events: events.parse().ok()? })
        };
        match text {
            "" => Ok(Self::default()),
            _ => read().ok_or_else(|| {
                Fault::invalid(format!("`{}` is not a cursor of this ledger", text.escape_debug()))
            }),
        }
    }
}

impl std::fmt::Display for LinePlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.revision, self.events)
    }
}

/// What all events up to a place add up to.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct LineSums {
    /// The end of the last line with events.
    pub(crate) place: LinePlace,
    /// The time of the latest of these events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) time: Option<Timestamp>,
    pub(crate) tallies: BTreeMap<Agent, Tally>,
}

impl LineSums {
    /// Adds the events that come next, up to this place.
    pub(crate) fn add(&mut self, place: LinePlace, events: &[Entry]) {
        for entry in events {
            self.place = place;
            self.time = self.time.max(Some(entry.time));
            Tally::add_to(&mut self.tallies, entry.agent.as_ref(), &entry.event);
        }
    }

    /// Whether some of these events come after this place. The line of a cursor may be read only in part.
    pub(crate) fn is_ahead_of(&self, place: LinePlace) -> bool {
        place < self.place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back() {
        assert_eq!(LinePlace::parse("").unwrap(), LinePlace::default());
        let place = LinePlace { revision: 17, events: 2 };
        assert_eq!(LinePlace::parse(&place.to_string()).unwrap(), place);
        for bad in ["17", "x.y", "17.", "-"] {
            assert!(LinePlace::parse(bad).is_err(), "{bad}");
        }
    }
}
