//! One line of the ledger, written and read, and the place after it.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::de::Error as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::digest::Digest;
use crate::error::{Fault, Result};
use crate::event::Event;
use crate::name::{Agent, TurnId};

/// A place in a ledger, after one of its lines: the number and the SHA-256 of that line. The next line is chained to it,
/// so a cursor does not fit another ledger, or this one after the line was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// The line's number.
    pub seq: u64,
    /// The SHA-256 of the line without its newline.
    pub hash: Digest,
}

impl Cursor {
    /// Before the first line of any ledger.
    pub const START: Self = Self { seq: 0, hash: Digest::from_bytes([0; 32]) };
}

impl fmt::Display for Cursor {
    /// As one word, such as `17-3f2a...`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.seq, self.hash)
    }
}

impl FromStr for Cursor {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self> {
        let read = || {
            let (seq, hash) = text.split_once('-')?;
            Some(Self { seq: seq.parse().ok()?, hash: hash.parse().ok()? })
        };
        read().ok_or_else(|| {
            let shown: String = text.chars().take(120).collect();
            Fault::invalid(format!("`{}` is not a place in a ledger", shown.escape_debug()))
        })
    }
}

/// What happened, before it has its place in the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// When.
    pub time: Timestamp,
    /// The agent that did it, if one did.
    pub agent: Option<Agent>,
    /// The turn in which it happened, if it was one.
    pub turn: Option<TurnId>,
    /// What.
    #[serde(flatten)]
    pub event: Event,
}

impl Entry {
    /// The end of its line: everything but its place.
    pub(super) fn without_place(&self) -> Result<UnplacedLine> {
        let json = serde_json::to_vec(self)
            .map_err(|error| Fault::invalid(format!("a ledger line cannot be written as JSON: {error}")))?;
        Ok(UnplacedLine(json))
    }
}

/// A line without its number and the hash of the line before it. Made before the ledger is locked.
pub(super) struct UnplacedLine(Vec<u8>);

impl UnplacedLine {
    /// Adds the line to `text` and returns the place after it.
    pub(super) fn write(&self, text: &mut Vec<u8>, after: Cursor) -> Result<Cursor> {
        let seq =
            after.seq.checked_add(1).ok_or_else(|| Fault::invalid("the ledger's numbers have run out"))?;
        let start = text.len();
        text.extend_from_slice(format!("{{\"seq\":{seq},\"prev\":\"{}\",", after.hash).as_bytes());
        // Without its opening brace.
        text.extend_from_slice(&self.0[1..]);
        let hash = Digest::of(&text[start..]);
        text.push(b'\n');
        Ok(Cursor { seq, hash })
    }
}

/// One line of the ledger, as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Its number.
    pub seq: u64,
    /// The SHA-256 of the line before it; zeros for the first.
    pub prev: Digest,
    /// When it happened.
    pub time: Timestamp,
    /// The agent that did it, if one did.
    pub agent: Option<Agent>,
    /// The turn in which it happened, if it was one.
    pub turn: Option<TurnId>,
    /// What happened.
    pub event: Event,
    /// Exactly as it stands in the file, without its newline.
    pub(super) text: Box<str>,
}

impl Line {
    /// From the bytes of a line without its newline.
    pub(super) fn parse(bytes: &[u8]) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct RawLine<'a> {
            seq: u64,
            prev: Digest,
            time: Timestamp,
            agent: Option<Agent>,
            turn: Option<TurnId>,
            action_type: String,
            #[serde(borrow)]
            payload: &'a RawValue,
            #[serde(borrow)]
            result: &'a RawValue,
        }
        let text = str::from_utf8(bytes).map_err(serde_json::Error::custom)?;
        let RawLine { seq, prev, time, agent, turn, action_type, payload, result } =
            serde_json::from_str(text)?;
        let value = |raw: &RawValue| serde_json::from_str(raw.get()).unwrap_or_default();
        let event = Event::read(&action_type, payload, result).unwrap_or_else(|| Event::Other {
            action_type,
            payload: value(payload),
            result: value(result),
        });
        Ok(Self { seq, prev, time, agent, turn, event, text: text.into() })
    }

    /// The place after this line.
    pub fn cursor(&self) -> Cursor {
        Cursor { seq: self.seq, hash: Digest::of(self.text.as_bytes()) }
    }

    /// The line exactly as it stands in the file, without its newline.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The line as JSON, with everything that a later version may have added to it.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }
}

/// What ties a line to the one before.
#[derive(Deserialize)]
pub(super) struct Link {
    pub(super) seq: u64,
    pub(super) prev: Digest,
}

/// Only the number. Whether the rest is right, `verify` says.
pub(super) fn seq_of(line: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct OnlySeq {
        seq: u64,
    }
    serde_json::from_slice::<OnlySeq>(line).ok().map(|line| line.seq)
}
