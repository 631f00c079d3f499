//! The card of a task: what the remote knows of it from its first claim until it is final. The authority.
//!
//! A card is a commit without parents and without files; its message is one line of JSON. A ref of the remote points to
//! it, one for each task. Whoever changes the ref from what it was, under a lease, has taken the next step of the task;
//! all others are refused by the remote. Being a commit, a card may also live under `refs/heads/`, on hosts that allow
//! nothing else.
//!
//! Invariants: no two cards are alike, because each has a number that nobody else has drawn, so "it is there already" is
//! never mistaken for "I have won". The name of the ref is a hash, so nothing that a task is called can lead elsewhere.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::{Fault, Result};
use crate::name::random_id;
use crate::vault::claim::Note;
use crate::vault::name::TaskName;

/// The version of the JSON in a card.
const FORMAT: u32 = 1;

/// What the remote knows of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Card {
    tollgate: u32,
    pub(super) task: TaskName,
    /// The clone that wrote it. Only there can be told whether an owner is alive.
    pub(super) clone: String,
    /// How long the owner may be silent, by the clock of whoever listens.
    pub(super) lease_ms: u64,
    pub(super) note: Note,
    /// Drawn anew each time. That it changes is the heartbeat.
    beat: String,
}

impl Card {
    pub(super) fn new(task: &TaskName, clone: &str, lease_ms: u64, note: Note) -> Result<Self> {
        let (task, clone) = (task.clone(), clone.to_owned());
        Ok(Self { tollgate: FORMAT, task, clone, lease_ms, note, beat: random_id()? })
    }

    /// The same, a heartbeat later.
    pub(super) fn again(&self, note: Note) -> Result<Self> {
        Self::new(&self.task, &self.clone, self.lease_ms, note)
    }

    pub(super) fn to_line(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|error| Fault::invalid(error.to_string()))
    }

    /// `None` for what cannot be understood: damaged, or written by a later tollgate. Then nobody may take the task.
    pub(super) fn from_line(line: &str) -> Option<Self> {
        serde_json::from_str::<Self>(line.trim()).ok().filter(|card| card.tollgate == FORMAT)
    }
}

/// The last part of the name of the task's ref.
pub(super) fn ref_of(task: &TaskName) -> String {
    Digest::of(task.as_str().as_bytes()).to_string()[..40].to_owned()
}

/// Whether this is the name of an object: nothing else is ever handed to git as one.
pub(super) fn is_oid(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vault::state::Slot;

    #[test]
    fn a_card_is_one_line_and_no_two_are_alike() {
        let task: TaskName = "x".parse().unwrap();
        let note = Note { reason: Some("two\nlines".into()), ..Note::new(Slot::NEEDS_ACTION) };
        let card = Card::new(&task, "here", 5, note.clone()).unwrap();
        let line = card.to_line().unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(Card::from_line(&line), Some(card.clone()));
        assert_ne!(card.again(note).unwrap(), card);
        for bad in ["", "{}", "[]", &line.replace("\"tollgate\":1", "\"tollgate\":2"), &line[1..]] {
            assert_eq!(Card::from_line(bad), None, "{bad}");
        }
        assert!(Card::from_line(&line.replace("x.md", "../x.md")).is_none());
    }

    #[test]
    fn whatever_a_task_is_called_its_ref_is_plain() {
        for name in ["-d", "a b", "x..y~^:?*[\\", "@{0}", "日本", "a.lock"] {
            let name = ref_of(&name.parse().unwrap());
            assert!(is_oid(&name), "{name}");
        }
        assert_ne!(ref_of(&"a".parse().unwrap()), ref_of(&"A".parse().unwrap()));
    }
}
