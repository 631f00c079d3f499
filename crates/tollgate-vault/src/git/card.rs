//! The card of a task: what the remote knows about it from its first claim until it is final. The authority.
//!
//! A card is a commit without parents and without files; its message is one line of JSON. Each task has its own ref on the
//! remote, which points to its card. To take the next step of a task, a clone changes this ref from the card that it has
//! seen to a new one; the remote refuses everybody else. Because a card is a commit, its ref may also be under
//! `refs/heads/`, for hosts that allow nothing else.
//!
//! Invariants: no two cards are the same, because each contains a random number, so "it is already there" is never mistaken
//! for "I have won". The name of the ref is a hash, so no name of a task can lead git to another ref.

use serde::{Deserialize, Serialize};

use crate::claim::ClaimRecord;
use crate::store::Version;
use tollgate_base::digest::Digest;
use tollgate_base::error::{Fault, Result};
use tollgate_base::name::random_id;
use tollgate_base::task::TaskName;

/// The version of the JSON in a card.
const FORMAT: u32 = 1;

/// What the remote knows about a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Card {
    tollgate: u32,
    pub(super) task: TaskName,
    /// The clone that wrote it. Only that clone can see whether the owner is alive.
    pub(super) clone: String,
    /// How long the owner may be silent, by the clock of the machine that waits.
    pub(super) lease_ms: u64,
    #[serde(rename = "note")]
    pub(super) record: ClaimRecord,
    /// A new random number for each card. A change of it is the heartbeat.
    beat: String,
}

impl Card {
    pub(super) fn new(task: &TaskName, clone: &str, lease_ms: u64, record: ClaimRecord) -> Result<Self> {
        let (task, clone) = (task.clone(), clone.to_owned());
        Ok(Self { tollgate: FORMAT, task, clone, lease_ms, record, beat: random_id()? })
    }

    pub(super) fn to_line(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|error| Fault::invalid(error.to_string()))
    }

    /// `None` if it is damaged or was written by a later version. Then nobody may claim the task.
    pub(super) fn from_line(line: &str) -> Option<Self> {
        serde_json::from_str::<Self>(line.trim()).ok().filter(|card| card.tollgate == FORMAT)
    }
}

/// The last part of the name of the task's ref.
pub(super) fn ref_of(task: &TaskName) -> String {
    Digest::of(task.as_str().as_bytes()).to_string()[..40].to_owned()
}

/// Whether this is the name of an object. Nothing else is ever passed to git as one.
pub(super) fn is_oid(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The version of a task: the object of its card on the remote, then the version of its file in the tree. The first byte is
/// the length of the object's name; 0 if there is no card.
pub(super) fn join_versions(card: Option<&str>, file: &Version) -> Version {
    let card = card.unwrap_or_default();
    let len = u8::try_from(card.len()).unwrap_or(0);
    Version::from([&[len], card.as_bytes(), file].concat())
}

/// Both parts of a version; `None` if this store did not make it.
pub(super) fn split_version(version: &Version) -> Option<(Option<String>, Version)> {
    let (len, rest) = version.split_first()?;
    let (card, file) = rest.split_at_checked(usize::from(*len))?;
    let card = str::from_utf8(card).ok()?;
    Some(((!card.is_empty()).then(|| card.to_owned()), Version::from(file)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Slot;

    #[test]
    fn a_card_is_one_line_and_no_two_are_the_same() {
        let task: TaskName = "x".parse().unwrap();
        let record =
            ClaimRecord { reason: Some("two\nlines".into()), ..ClaimRecord::new(Slot::NEEDS_ACTION) };
        let card = Card::new(&task, "here", 5, record.clone()).unwrap();
        let line = card.to_line().unwrap();
        assert!(!line.contains('\n') && line.contains("\"note\":"), "{line}");
        assert_eq!(Card::from_line(&line), Some(card.clone()));
        assert_ne!(Card::new(&task, "here", 5, record).unwrap(), card);
        for bad in ["", "{}", "[]", &line.replace("\"tollgate\":1", "\"tollgate\":2"), &line[1..]] {
            assert_eq!(Card::from_line(bad), None, "{bad}");
        }
        assert!(Card::from_line(&line.replace("x.md", "../x.md")).is_none());
    }

    #[test]
    fn every_task_name_gives_a_plain_ref() {
        for name in ["-d", "a b", "x..y~^:?*[\\", "@{0}", "日本", "a.lock"] {
            let name = ref_of(&name.parse().unwrap());
            assert!(is_oid(&name), "{name}");
        }
        assert_ne!(ref_of(&"a".parse().unwrap()), ref_of(&"A".parse().unwrap()));
    }

    #[test]
    fn a_version_has_both_parts() {
        let file = Version::from(*b"\x05file");
        for card in [None, Some("1".repeat(40)), Some("2".repeat(64))] {
            let both = join_versions(card.as_deref(), &file);
            assert_eq!(split_version(&both), Some((card, file.clone())));
        }
        for foreign in [&[][..], &[9, 1], &[1, 0xff]] {
            assert_eq!(split_version(&Version::from(foreign)), None);
        }
    }
}
