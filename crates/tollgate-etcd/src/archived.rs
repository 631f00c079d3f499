//! How far the ledger is archived, and where. Pure.
//!
//! Lines are archived in the order of their revisions, so the archive is always the beginning of the ledger.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tollgate_base::name::Agent;
use tollgate_vault::figures::Tally;

use crate::line_place::LinePlace;

/// How far the ledger is archived. What an earlier version of tollgate has stated lacks the fields with a default.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Archived {
    /// All lines up to this revision are in the archive.
    pub(crate) revision: i64,
    /// How many events the line of that revision has.
    #[serde(default)]
    pub(crate) events: usize,
    /// No archived event is later than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) time: Option<Timestamp>,
    /// The machine that archives.
    pub(crate) machine: String,
    /// What these lines add up to.
    pub(crate) tallies: BTreeMap<Agent, Tally>,
    /// Where the events of these lines are, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) pieces: Vec<ArchivePiece>,
}

/// Some lines in a row in the files of one machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ArchivePiece {
    pub(crate) machine: String,
    /// The number of its first line in these files. They may have lines of another vault before it.
    pub(crate) first: u64,
    /// The number of its last line; smaller than `first` if it has none yet.
    pub(crate) last: u64,
}

impl Archived {
    /// What a statement says. One that another version has made may have a time after all times, which says nothing.
    pub(crate) fn known(stated: Self) -> Self {
        Self { time: stated.time.filter(|time| *time < Timestamp::MAX), ..stated }
    }

    /// Whether there are archived events after this place. The line of a cursor may be read only in part.
    pub(crate) fn is_ahead_of(&self, place: LinePlace) -> bool {
        place < LinePlace { revision: self.revision, events: self.events }
    }

    /// The pieces that have lines. The last one may have none yet.
    pub(crate) fn filled(&self) -> &[ArchivePiece] {
        match self.pieces.split_last() {
            Some((last, others)) if last.last < last.first => others,
            _ => &self.pieces,
        }
    }

    /// The place after everything that is archived.
    pub(crate) fn place(&self) -> LinePlace {
        LinePlace { revision: self.revision, events: if self.revision == 0 { 0 } else { usize::MAX } }
    }

    /// From now on this machine archives, after this number of lines in its files.
    pub(crate) fn begin_after(&mut self, machine: &str, end: u64, now: Timestamp) {
        if self.pieces.is_empty() && self.revision > 0 {
            // An earlier version of tollgate did not say how many lines it has archived, and from which time. It has done
            // nothing for some minutes, so they are older than this moment, by any clock that is not far ahead.
            let machine = std::mem::take(&mut self.machine);
            self.pieces.push(ArchivePiece { machine, first: 1, last: u64::MAX });
            self.time = Some(now);
        }
        machine.clone_into(&mut self.machine);
        self.pieces.retain(|piece| piece.first <= piece.last);
        self.pieces.push(ArchivePiece { machine: machine.to_owned(), first: end + 1, last: end });
    }
}
