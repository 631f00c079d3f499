//! What a task asks for: action, priority, due time, what must be done before. Pure.
//!
//! Invariant: only what the author wrote counts, that is, what stands before the first `<!-- tollgate` line. So nothing
//! that an agent writes into its progress notes changes what the task is.

use std::cmp::Reverse;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::civil;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::block::author_len;
use crate::frontmatter::{ACTION, Value, Words};
use tollgate_base::task::TaskName;

pub use crate::frontmatter::Broken;

/// How much of a file is read for the author's words: far more than any frontmatter, little enough to read thousands.
pub const HEAD: usize = 64 << 10;

/// How urgent: 0 is the most urgent, 4 the least, 2 what nobody has said anything about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Priority(pub u8);

impl Default for Priority {
    fn default() -> Self {
        Self(2)
    }
}

/// The words for each priority. Tollgate itself writes the first.
const PRIORITIES: [&[&str]; 5] = [
    &["critical", "0", "p0", "urgent", "highest"],
    &["high", "1", "p1"],
    &["normal", "2", "p2", "medium"],
    &["low", "3", "p3"],
    &["lowest", "4", "p4"],
];

impl Priority {
    /// As people write it; `None` if it is not a priority.
    pub fn read(text: &str) -> Option<Self> {
        let word = text.trim().to_ascii_lowercase();
        (0..).zip(PRIORITIES).find(|(_, words)| words.contains(&&*word)).map(|(level, _)| Self(level))
    }

    /// The word tollgate itself writes.
    pub fn as_str(self) -> &'static str {
        PRIORITIES[usize::from(self.0.min(4))][0]
    }
}

/// What the author of a task asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brief {
    /// What is to be done, as a word that roles know. Without one, everyone may.
    pub action: Option<Arc<str>>,
    /// How urgent.
    pub priority: Priority,
    /// When it should be done.
    pub due: Option<Timestamp>,
    /// What must be in `Done` before.
    pub after: Vec<TaskName>,
}

/// The order in which tasks are taken: priority, then due (those with a time first), then age, then name.
pub type Rank = (Priority, Reverse<bool>, Option<Timestamp>, Timestamp);

impl Brief {
    /// Reads the first [`HEAD`] bytes of a file.
    pub fn read(head: &[u8]) -> Result<Self, Broken> {
        let author = &head[..author_len(head)];
        let text = String::from_utf8_lossy(author);
        let words = Words::read(&text, head.len() >= HEAD)?;
        Ok(Self {
            action: action(&words)?.map(Arc::from),
            priority: one(&words, &["priority", "prio"])?
                .and_then(|text| Priority::read(&text))
                .unwrap_or_default(),
            due: one(&words, &["due", "duedate", "dueat", "deadline"])?.and_then(|text| due(&text)),
            after: after(&words)?,
        })
    }

    /// Where it stands in the line, if it has been there since `since`.
    pub fn rank(&self, since: Timestamp) -> Rank {
        (self.priority, Reverse(self.due.is_some()), self.due, since)
    }
}

fn one(words: &Words, keys: &[&str]) -> Result<Option<String>, Broken> {
    match words.get(keys) {
        None => Ok(None),
        Some((_, Value::One(text))) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
        Some((key, Value::Many(_))) => Err(Broken(format!("`{key}` must be one value, not a list"))),
        Some((key, Value::Odd(line))) => {
            Err(Broken(format!("`{key}` (line {line}) must be one plain value")))
        }
    }
}

fn action(words: &Words) -> Result<Option<String>, Broken> {
    let mut found = one(words, &ACTION)?;
    if found.is_none() {
        // Many vaults say `type: email` and mean what is to be done; these two words say what kind of note it is.
        found = one(words, &["type"])?.filter(|text| !matches!(text.as_str(), "task" | "approval_request"));
    }
    match found {
        Some(text) if text.len() > 128 || text.chars().any(char::is_control) => {
            Err(Broken("`action` must be a word of at most 128 bytes".to_owned()))
        }
        found => Ok(found),
    }
}

fn due(text: &str) -> Option<Timestamp> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time);
    }
    let is_day = text.len() == "2026-11-20".len();
    // A bare day is due when it ends.
    let day = || text.parse::<civil::Date>().map(|day| day.at(23, 59, 59, 0));
    let time: civil::DateTime = if is_day { day().ok()? } else { text.parse().ok()? };
    time.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
}

fn after(words: &Words) -> Result<Vec<TaskName>, Broken> {
    let names = match words.get(&["after", "dependson", "dependencies", "blockedby", "depends"]) {
        None => return Ok(Vec::new()),
        Some((_, Value::One(text))) => text.split(',').map(str::to_owned).collect(),
        Some((_, Value::Many(items))) => items.clone(),
        Some((key, Value::Odd(line))) => {
            return Err(Broken(format!("`{key}` (line {line}) must be a list of tasks")));
        }
    };
    let plain = names.iter().map(|name| link_target(name)).filter(|name| !name.is_empty());
    plain.map(|name| name.parse().map_err(|error| Broken(format!("it waits for no task: {error}")))).collect()
}

/// `[[folder/x|the x]]` is the note `x`.
fn link_target(text: &str) -> &str {
    let text = text.trim();
    match text.strip_prefix("[[").and_then(|rest| rest.strip_suffix("]]")) {
        None => text,
        Some(inner) => {
            let target = inner.split(['|', '#']).next().unwrap_or(inner);
            target.rsplit('/').next().unwrap_or(target).trim()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brief(text: &str) -> Brief {
        Brief::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn aliases() {
        for (line, action) in [
            ("action: pay", Some("pay")),
            ("action_type: pay", Some("pay")),
            ("actionType: pay", Some("pay")),
            ("type: email", Some("email")),
            ("type: task", None),
            ("type: approval_request", None),
            ("type: email\naction: pay", Some("pay")),
            ("action:", None),
        ] {
            assert_eq!(brief(&format!("---\n{line}\n---\n")).action.as_deref(), action, "{line}");
        }
        for (text, level) in [
            ("P0", 0),
            ("urgent", 0),
            ("High", 1),
            ("1", 1),
            ("medium", 2),
            ("banana", 2),
            ("low", 3),
            ("p4", 4),
        ] {
            assert_eq!(brief(&format!("**Priority**: {text}")).priority, Priority(level), "{text}");
        }
        for line in ["due: 2026-11-20", "due_date: 2026-11-20T23:59:59Z", "deadline: \"2026-11-20 23:59:59\""]
        {
            let due = brief(&format!("---\n{line}\n---")).due.unwrap();
            assert_eq!(due.to_string(), "2026-11-20T23:59:59Z", "{line}");
        }
        for line in ["after: a, b.md", "depends_on: [a, b]", "blockedBy:\n  - \"[[x/a|the a]]\"\n  - '[[b]]'"]
        {
            let names: Vec<_> =
                brief(&format!("---\n{line}\n---")).after.iter().map(ToString::to_string).collect();
            assert_eq!(names, ["a.md", "b.md"], "{line}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_broken() {
        for line in ["action: [a, b]", "action: {a: b}", "after: ../x", "after: {a: b}", "action: \"a\\nb\""]
        {
            assert!(Brief::read(format!("---\n{line}\n---").as_bytes()).is_err(), "{line}");
        }
    }

    #[test]
    fn notes_of_agents_are_not_read() {
        let text = "# T\n<!-- tollgate c-0123456789abcdef -->\n**Action**: pay\n**Priority**: critical\n";
        assert_eq!(brief(text), Brief::default());
        let bytes = b"\xff\xfe not text\n**Action**: pay\n";
        assert_eq!(Brief::read(bytes).unwrap().action.as_deref(), Some("pay"));
    }

    #[test]
    fn the_line_is_ordered() {
        let at = |s| Timestamp::from_second(s).unwrap();
        let b = |priority, due: Option<i64>| Brief {
            priority: Priority(priority),
            due: due.map(at),
            ..Brief::default()
        };
        let line = [
            b(0, None).rank(at(9)),
            b(1, Some(5)).rank(at(8)),
            b(1, Some(6)).rank(at(1)),
            b(1, None).rank(at(2)),
            b(1, None).rank(at(3)),
        ];
        assert!(line.is_sorted());
    }
}
