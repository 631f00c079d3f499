//! What the agent of a turn had read: from the record of the turn, or from the turn itself while it is open.

use std::collections::HashMap;
use std::path::Path;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::left_turn;
use crate::root::Root;
pub use crate::turn::{Asked, Head, TurnRead, TurnStart};
use crate::turn::{Extent, TurnState as _};
use crate::turn_record::named;
pub use crate::turn_record::{KeptTurn, TurnAbout, TurnRecord};
use tollgate_base::digest::Digest;
use tollgate_base::error::Result;
use tollgate_base::name::TurnId;

/// What the agent of a shared turn that has not ended was shown; `None` if the turn cannot be found.
pub type OpenTurns<'a> = dyn Fn(&TurnId) -> Option<Vec<TurnRead>> + 'a;

/// What agents had read, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownReads {
    /// Each state of a file once, the first that was read first.
    pub reads: Vec<TurnRead>,
    /// Why there may be more.
    pub unknown: Option<UnknownReads>,
}

/// Why it is not known what an agent had read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownReads {
    /// The record of the turn is no longer kept.
    NoLongerKept,
    /// The turn is still open, where its notes cannot be read, or it left no record.
    NoRecord,
}

impl UnknownReads {
    /// As one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::NoLongerKept => "no_longer_kept",
            Self::NoRecord => "no_record",
        }
    }
}

impl KnownReads {
    /// Puts in the reads, as long as there is room for them, and the number of those that are left out.
    pub fn put(&self, json: &mut Value, room: &mut usize) {
        let most = self.reads.len().min(*room);
        *room -= most;
        json["reads"] = self.reads.iter().take(most).map(read_json).collect();
        if self.reads.len() > most {
            json["reads_left_out"] = (self.reads.len() - most).into();
        }
        if let Some(why) = self.unknown {
            json["reads_unknown"] = why.word().into();
        }
    }
}

fn read_json(read: &TurnRead) -> Value {
    let TurnRead { path, hash, shown, time } = read;
    json!({"path": path.display().to_string(), "hash": hash, "whole": *shown == Extent::Whole, "time": time})
}

/// The reads of turns. Looks at each turn once.
pub struct ReadsOfTurns<'a> {
    root: &'a Root,
    open: &'a OpenTurns<'a>,
    looked_at: HashMap<TurnId, Found>,
}

type Found = std::result::Result<Vec<TurnRead>, UnknownReads>;

impl<'a> ReadsOfTurns<'a> {
    /// In this workspace.
    pub fn new(root: &'a Root, open: &'a OpenTurns<'a>) -> Self {
        Self { root, open, looked_at: HashMap::new() }
    }

    /// What was read in these turns, until these times or until their ends.
    pub fn of<'t>(
        &mut self,
        turns: impl IntoIterator<Item = (Option<&'t TurnId>, Option<Timestamp>)>,
    ) -> Result<KnownReads> {
        let mut known = KnownReads::default();
        let mut places: HashMap<(&Path, Digest), usize> = HashMap::new();
        // All are found before the first is used.
        let turns: Vec<_> = turns.into_iter().collect();
        for turn in turns.iter().filter_map(|(turn, _)| *turn) {
            if !self.looked_at.contains_key(turn) {
                let found = look(self.root, self.open, turn)?;
                self.looked_at.insert(turn.clone(), found);
            }
        }
        for (turn, until) in turns {
            match turn.and_then(|turn| self.looked_at.get(turn)) {
                None => known.unknown = Some(UnknownReads::NoRecord),
                Some(Err(why)) => known.unknown = Some(*why),
                Some(Ok(reads)) => {
                    for read in reads.iter().filter(|read| until.is_none_or(|until| read.time <= until)) {
                        let at = *places.entry((&read.path, read.hash)).or_insert(known.reads.len());
                        match known.reads.get_mut(at) {
                            None => known.reads.push(read.clone()),
                            Some(same) if read.shown == Extent::Whole => same.shown = Extent::Whole,
                            Some(_) => {}
                        }
                    }
                }
            }
        }
        Ok(known)
    }
}

fn look(root: &Root, open: &OpenTurns<'_>, turn: &TurnId) -> Result<Found> {
    if let Some(reads) = open(turn) {
        return Ok(Ok(named(root, reads)));
    }
    Ok(match TurnRecord::load(root, turn)? {
        KeptTurn::Kept(record) => Ok(record.reads),
        KeptTurn::NoLongerKept => Err(UnknownReads::NoLongerKept),
        KeptTurn::NeverKept => match left_turn::of_process(root, turn)? {
            Some(turn) => Ok(named(root, turn.reads()?)),
            None => Err(UnknownReads::NoRecord),
        },
    })
}
