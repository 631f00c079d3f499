//! A place in the ledger of the engine, and what the lines up to there add up to. Pure.

use std::collections::BTreeMap;

use tollgate_base::error::{Fault, Result};
use tollgate_base::name::Agent;
use tollgate_vault::figures::Tally;

/// A place in the ledger of the engine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
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

impl LinePlace {
    /// The place that a reader has left in the engine. One of an earlier version left only the revision: it may have read
    /// nothing of that line. What cannot be read is before everything.
    pub(crate) fn of_reader(value: &[u8]) -> Self {
        let text = str::from_utf8(value).unwrap_or_default();
        let only_revision = || text.parse().ok().map(|revision| Self { revision, events: 0 });
        Self::parse(text).ok().or_else(only_revision).unwrap_or_default()
    }
}

impl std::fmt::Display for LinePlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.revision, self.events)
    }
}

/// The place of a reader that began with the first event: in the archive at first, then in the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventPlace {
    /// After this line of this piece of the archive.
    Archive { piece: usize, seq: u64 },
    /// After this place in the engine.
    Engine(LinePlace),
}

impl EventPlace {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let in_archive = |place: &str| {
            let (piece, seq) = place.split_once('.')?;
            Some(Self::Archive { piece: piece.parse().ok()?, seq: seq.parse().ok()? })
        };
        match text.strip_prefix("archive.").and_then(in_archive) {
            Some(place) => Ok(place),
            None if text.is_empty() => Ok(Self::Archive { piece: 0, seq: 0 }),
            None => LinePlace::parse(text).map(Self::Engine),
        }
    }
}

impl std::fmt::Display for EventPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Archive { piece, seq } => write!(f, "archive.{piece}.{seq}"),
            Self::Engine(place) => place.fmt(f),
        }
    }
}

/// What all events up to a place add up to.
#[derive(Debug, Default)]
pub(crate) struct LineSums {
    pub(crate) place: LinePlace,
    pub(crate) tallies: BTreeMap<Agent, Tally>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back() {
        assert_eq!(LinePlace::parse("").unwrap(), LinePlace::default());
        let place = LinePlace { revision: 17, events: 2 };
        assert_eq!(LinePlace::parse(&place.to_string()).unwrap(), place);
        for place in [EventPlace::Engine(place), EventPlace::Archive { piece: 1, seq: 4 }] {
            assert_eq!(EventPlace::parse(&place.to_string()).unwrap(), place);
        }
        for bad in ["17", "x.y", "17.", "-", "archive", "archive.1", "archive.1.x"] {
            assert!(LinePlace::parse(bad).is_err() && EventPlace::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_place_of_a_reader_is_never_later_than_it_was() {
        let places = [&b"17.2"[..], b"17", b"", b"?", b"\xff"].map(LinePlace::of_reader);
        let expected = [(17, 2), (17, 0), (0, 0), (0, 0), (0, 0)];
        assert_eq!(places, expected.map(|(revision, events)| LinePlace { revision, events }));
    }
}
