//! Claims, approvals and what tollgate keeps about a task beside its file. Pure.
//!
//! A claim is known by its id: random, new each time, so that two agents of one name and two attempts of one agent
//! are told apart. Its epoch is the fencing number for the world outside: larger than every earlier one of the task.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};

use super::state::{Slot, State};
use crate::digest::Digest;
use crate::error::{Fault, Result};
use crate::name::{Agent, random_word};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $kind:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// One that nobody else has.
            pub fn new() -> Result<Self> {
                Ok(Self(random_word($prefix)?.into()))
            }

            /// As text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Its digits, as a number.
            pub(crate) fn number(&self) -> u64 {
                u64::from_str_radix(&self.0[$prefix.len()..], 16).unwrap_or(0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = Fault;

            fn from_str(text: &str) -> Result<Self> {
                let hex = text.strip_prefix($prefix).unwrap_or_default();
                if hex.len() == 16 && hex.bytes().all(|b| b.is_ascii_hexdigit()) {
                    return Ok(Self(text.into()));
                }
                let shown: String = text.chars().take(40).collect();
                Err(Fault::invalid(format!(concat!("`{}` is not ", $kind), shown.escape_debug())))
            }
        }

        impl TryFrom<String> for $name {
            type Error = Fault;

            fn try_from(text: String) -> Result<Self> {
                text.parse()
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }
    };
}

id! {
    /// The id of a claim. Whoever shows it is the owner.
    ClaimId, "c-", "the id of a claim"
}

id! {
    /// The id of one step, made by who takes it, so that a step whose answer was lost is not taken twice.
    StepId, "s-", "the id of a step"
}

/// What the owner is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Do it.
    Execute,
    /// Write down what would be done, for a person to decide.
    Draft,
}

impl Mode {
    /// `execute` or `draft`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Execute => "execute",
            Self::Draft => "draft",
        }
    }
}

/// How long a claim lasts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tenure {
    /// As long as a kernel lock is held, see [`super::hold`].
    Held,
    /// Until this time, unless it is renewed.
    Leased(Timestamp),
}

/// That an agent owns a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Its id.
    pub id: ClaimId,
    /// The task's fencing number.
    pub epoch: u64,
    /// Who owns it.
    pub agent: Agent,
    /// Since when.
    pub at: Timestamp,
    /// Until when.
    pub tenure: Tenure,
    /// The file that its lock is in, if it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<u64>,
    /// What the owner is to do.
    pub mode: Mode,
    /// The action the task names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Arc<str>>,
    /// The action is one that somebody must approve: if the owner is gone, it may have happened and is not tried again.
    pub sensitive: bool,
    /// Where it was taken from.
    pub from: State,
    /// How many bytes the file had before the claim's block.
    pub block_at: u64,
}

impl Claim {
    /// A lease that has run out. A held claim never has.
    pub fn lapsed(&self, now: Timestamp) -> bool {
        matches!(self.tenure, Tenure::Leased(until) if until < now)
    }
}

/// That a person said yes to exactly these bytes. Used once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// What was approved.
    pub sha256: Digest,
    /// By whom.
    pub by: String,
    /// When.
    pub at: Timestamp,
}

/// What is kept about a task beside its file, from its first claim until it is final.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Where tollgate last put the task. If it is elsewhere, a person moved it.
    pub slot: Slot,
    /// The highest fencing number given so far.
    pub epoch: u64,
    /// How many attempts were begun.
    pub attempts: u32,
    /// Who owns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// What lies in `Pending_Approval`, so that a person's own move to `Approved` can be understood.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<Digest>,
    /// The yes, until it is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// Why it is where it is, where that is not plain: `interrupted`, `exit status 1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Note {
    /// Nothing happened yet.
    pub fn new(slot: Slot) -> Self {
        Self { slot, epoch: 0, attempts: 0, claim: None, offered: None, approval: None, reason: None }
    }

    /// What is known of a task that was found in `slot`, whoever put it there.
    pub fn seen_in(self, slot: &Slot) -> Self {
        if self.slot == *slot {
            return self;
        }
        // A person moved it. What they did stands; what tollgate thought is void, except for what the move refers to.
        let moved = Self { epoch: self.epoch, ..Self::new(slot.clone()) };
        match slot.state() {
            // To be started afresh, by a person's wish: the attempts begin anew.
            State::NeedsAction => moved,
            State::Approved if self.slot.state() == State::PendingApproval => {
                Self { offered: self.offered, attempts: self.attempts, ..moved }
            }
            _ => Self { attempts: self.attempts, ..moved },
        }
    }

    /// The next fencing number. Counted from the clock, so that it grows even where the note was lost or dropped.
    pub fn next_epoch(&self, now: Timestamp) -> u64 {
        u64::try_from(now.as_millisecond()).unwrap_or(0).max(self.epoch + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_checked() {
        let id = ClaimId::new().unwrap();
        assert_eq!(id.as_str().parse::<ClaimId>().unwrap(), id);
        assert_ne!(id, ClaimId::new().unwrap());
        for bad in
            ["", "c-", "c-xyz", "s-0123456789abcdef", "../../c-0123456789abcdef", "c-0123456789abcdef\n"]
        {
            assert!(bad.parse::<ClaimId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_epoch_grows_with_the_note_and_without_it() {
        let slot = Slot::NEEDS_ACTION;
        let now = Timestamp::from_millisecond(1_000).unwrap();
        let first = Note::new(slot.clone()).next_epoch(now);
        let noted = Note { epoch: first, ..Note::new(slot.clone()) };
        assert!(noted.next_epoch(now) > first, "the same millisecond");
        assert!(noted.next_epoch(Timestamp::from_millisecond(1).unwrap()) > first, "the clock was set back");
        let later = Timestamp::from_millisecond(1_001).unwrap();
        assert!(Note::new(slot).next_epoch(later) > first, "the note was lost");
    }

    #[test]
    fn a_hand_move_voids_what_it_does_not_refer_to() {
        let note = Note {
            attempts: 2,
            epoch: 7,
            offered: Some(Digest::of(b"x")),
            reason: Some("why".into()),
            ..Note::new(Slot::PENDING)
        };
        assert_eq!(note.clone().seen_in(&Slot::PENDING), note);
        let approved = note.clone().seen_in(&Slot::APPROVED);
        assert_eq!((approved.offered, approved.attempts, approved.epoch), (note.offered, 2, 7));
        let again = note.seen_in(&Slot::NEEDS_ACTION);
        assert_eq!((again.offered, again.attempts, again.epoch), (None, 0, 7));
    }
}
