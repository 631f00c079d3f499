//! One line of the ledger: before it has its place, and as it is read.

use jiff::Timestamp;
use serde::de::Error as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::digest::Digest;
use crate::event::Event;
use crate::name::{Agent, TurnId};

use super::cursor::Cursor;

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
    text: Box<str>,
}

impl Line {
    /// From the bytes of a line without its newline.
    pub(super) fn parse(bytes: &[u8]) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Parts<'a> {
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
        let Parts { seq, prev, time, agent, turn, action_type, payload, result } =
            serde_json::from_str(text)?;
        let value = |raw: &RawValue| serde_json::from_str(raw.get()).unwrap_or_default();
        let event = Event::from_parts(&action_type, (payload, result), || (value(payload), value(result)));
        Ok(Self { seq, prev, time, agent, turn, event, text: text.into() })
    }

    /// The line exactly as it stands in the file, without its newline. Its SHA-256 is the next line's `prev`.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The place after this line.
    pub fn cursor(&self) -> Cursor {
        Cursor { seq: self.seq, hash: Digest::of(self.text.as_bytes()) }
    }

    /// The line as JSON, with everything that a later version may have added to it.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }
}

/// An entry in its place. The order of the fields is the order of the keys in the file.
#[derive(Serialize)]
pub(super) struct Placed<'a> {
    pub(super) seq: u64,
    pub(super) prev: Digest,
    pub(super) time: Timestamp,
    pub(super) agent: Option<&'a Agent>,
    pub(super) turn: Option<&'a TurnId>,
    #[serde(flatten)]
    pub(super) event: &'a Event,
}
