//! What a task asks for: title, action, priority, due time, what must be done before. Pure.
//!
//! Invariant: only what the author wrote counts, that is, what stands before the first `<!-- tollgate` line. So nothing
//! that an agent writes into its progress notes changes what the task is.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::civil;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::block::author_len;
use crate::frontmatter::{ACTION, FoundValue, Value, Words};
use tollgate_base::task::TaskName;

pub use crate::frontmatter::UnreadableTask;

/// The longest text of an author, in bytes: as much as a person can be shown before a decision. An action could stand at
/// the end of it, so a task whose text is longer is broken.
const LONGEST: usize = 1 << 20;

/// How much of a file is read for the author's words: the longest text, and the line after it that opens a block.
pub const HEAD: usize = LONGEST + 4096;

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
    /// What people call it: `title` in the frontmatter, else the first heading. No rule depends on it.
    pub title: Option<Arc<str>>,
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
    pub fn read(head: &[u8]) -> Result<Self, UnreadableTask> {
        let author = &head[..author_len(head)];
        if author.len() > LONGEST {
            let what = "its text has more than 1 MiB, and an action at the end of it would not be seen";
            return Err(UnreadableTask(what.to_owned()));
        }
        let text = String::from_utf8_lossy(author);
        let words = Words::read(&text)?;
        Ok(Self {
            title: title(&words, &text),
            action: action(&words)?.map(Arc::from),
            priority: agreed(&words, &["priority", "prio"], "a priority", Priority::read)?
                .unwrap_or_default(),
            due: agreed(&words, &DUE, "a day or a time, such as `2026-11-20`", read_due)?,
            after: after(&words)?,
        })
    }

    /// Where it stands in the queue without its age, as a text that sorts like [`Rank`]: for the index of a store.
    pub fn urgency(&self) -> String {
        let due = self.due.map_or_else(|| "1".to_owned(), |due| format!("0{}", sortable(due)));
        format!("{}{due}", self.priority.0)
    }

    /// Where it stands in the line, if it has been there since `since`.
    pub fn rank(&self, since: Timestamp) -> Rank {
        (self.priority, Reverse(self.due.is_some()), self.due, since)
    }
}

/// In place of a [`Brief::urgency`], for what cannot be read. It comes first, so that people hear of it.
pub const UNREADABLE: &str = "!";

/// The [`Brief::urgency`] of a task with this text.
pub fn urgency_of(text: &[u8]) -> String {
    Brief::read(text).map_or_else(|_| UNREADABLE.to_owned(), |brief| brief.urgency())
}

/// A time as a text that sorts like it. Stores keep such texts, so it never changes.
pub fn sortable(time: Timestamp) -> String {
    // Nanoseconds from a moment before every time there is, so that none is negative and all have 22 digits.
    format!("{:022}", time.as_nanosecond() + 1_000_000_000_000_000_000_000)
}

/// What an author wrote in frontmatter or in bold under this key, which has no `_`, `-` or capitals here. For readers of files
/// that are not tasks of a vault.
pub fn values(text: &str, key: &str) -> Result<Vec<String>, UnreadableTask> {
    let mut values = Vec::new();
    for FoundValue { line, value, .. } in Words::read(text)?.get(&[key]) {
        match value {
            Value::One(text) => values.push(text.clone()),
            Value::Many(items) => values.extend_from_slice(items),
            Value::Odd(_) => {
                return Err(UnreadableTask::at(*line, &format!("has a `{key}` that cannot be read")));
            }
        }
    }
    values.retain(|value| !value.is_empty());
    Ok(values)
}

const DUE: [&str; 4] = ["due", "duedate", "dueat", "deadline"];

/// What the author says under any of these keys. Every value must make sense, and all must say the same.
fn agreed<T: PartialEq>(
    words: &Words,
    keys: &[&str],
    what: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, UnreadableTask> {
    let mut agreed: Option<(usize, T)> = None;
    for FoundValue { line, key, value } in words.get(keys) {
        let text = match value {
            Value::One(text) if text.is_empty() => continue,
            Value::One(text) => text,
            Value::Many(_) => {
                return Err(UnreadableTask::at(*line, &format!("has a list, but `{key}` must be one value")));
            }
            Value::Odd(line) => {
                return Err(UnreadableTask::at(*line, &format!("must have one plain value for `{key}`")));
            }
        };
        let Some(value) = read(text) else {
            let text: String = text.chars().take(40).collect();
            return Err(UnreadableTask::at(*line, &format!("has `{key}: {text}`, which is not {what}")));
        };
        match &agreed {
            Some((first, other)) if *other != value => {
                return Err(UnreadableTask::at(*line, &format!("has another `{key}` than line {first}")));
            }
            Some(_) => {}
            None => agreed = Some((*line, value)),
        }
    }
    Ok(agreed.map(|(_, value)| value))
}

/// The number of characters of a title. Lists show no more, and every task's title is kept in memory.
const TITLE: usize = 120;

fn title(words: &Words, text: &str) -> Option<Arc<str>> {
    let named = words.get(&["title"]).find_map(|found| match &found.value {
        Value::One(text) => Some(text.as_str()),
        Value::Many(_) | Value::Odd(_) => None,
    });
    let is_empty = |title: &&str| title.trim().is_empty();
    let title =
        named.filter(|title| !is_empty(title)).or_else(|| heading(text).filter(|title| !is_empty(title)))?;
    let mut chars = title.trim().chars().map(|c| if c.is_whitespace() { ' ' } else { c });
    let mut short: String = chars.by_ref().take(TITLE).collect();
    if chars.next().is_some() {
        short.push('…');
    }
    Some(short.into())
}

/// The first heading of level 1, if it comes before any other text.
fn heading(text: &str) -> Option<&str> {
    let text = text.trim_start_matches('\u{feff}');
    let mut lines = text.lines().map(str::trim_end).peekable();
    if lines.next_if_eq(&"---").is_some() {
        lines.by_ref().find(|line| matches!(*line, "---" | "..."));
    }
    let is_field = |line: &str| line.starts_with("**") && line.contains("**:");
    let first = lines.find(|line| !line.trim().is_empty() && !is_field(line))?;
    Some(first.strip_prefix("# ")?.trim_end_matches('#'))
}

fn action(words: &Words) -> Result<Option<String>, UnreadableTask> {
    let read = |text: &str| {
        let is_word = text.len() <= 128 && !text.chars().any(char::is_control);
        is_word.then(|| text.to_owned())
    };
    let what = "a word of at most 128 bytes";
    match agreed(words, &ACTION, what, read)? {
        // Many vaults say `type: email` and mean what is to be done; these two words say what kind of note it is.
        None => Ok(agreed(words, &["type"], what, read)?
            .filter(|text| !matches!(text.as_str(), "task" | "approval_request"))),
        found => Ok(found),
    }
}

/// When something is due, as people write it; `None` if it is not a time.
pub fn read_due(text: &str) -> Option<Timestamp> {
    let text = link_target(text);
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time);
    }
    let is_day = text.len() == "2026-11-20".len();
    // A bare day is due when it ends.
    let day = || text.parse::<civil::Date>().map(|day| day.at(23, 59, 59, 0));
    let time: civil::DateTime = if is_day { day().ok()? } else { text.parse().ok()? };
    time.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
}

/// The most tasks that one task waits for. Every claim and every list looks each of them up, for everybody.
const MOST_AFTER: usize = 256;

fn after(words: &Words) -> Result<Vec<TaskName>, UnreadableTask> {
    let (mut after, mut seen) = (Vec::new(), HashSet::new());
    for FoundValue { line, key, value } in
        words.get(&["after", "dependson", "dependencies", "blockedby", "depends"])
    {
        let names: Vec<&str> = match value {
            Value::One(text) => text.split(',').collect(),
            Value::Many(items) => items.iter().map(String::as_str).collect(),
            Value::Odd(line) => {
                return Err(UnreadableTask::at(*line, &format!("must have a list of tasks for `{key}`")));
            }
        };
        for name in names.into_iter().map(link_target).filter(|name| !name.is_empty()) {
            let wrong = |error| {
                UnreadableTask::at(*line, &format!("waits for something that is not a task: {error}"))
            };
            let task: TaskName = name.parse().map_err(wrong)?;
            if !seen.insert(task.clone()) {
                continue;
            }
            if after.len() == MOST_AFTER {
                let what = format!(
                    "waits for more than {MOST_AFTER} tasks: let it wait for one that waits for the others"
                );
                return Err(UnreadableTask::at(*line, &what));
            }
            after.push(task);
        }
    }
    Ok(after)
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
            ("action:\naction_type: pay", Some("pay")),
            ("action: pay\nactionType: pay", Some("pay")),
        ] {
            assert_eq!(brief(&format!("---\n{line}\n---\n")).action.as_deref(), action, "{line}");
        }
        for (text, level) in
            [("P0", 0), ("urgent", 0), ("High", 1), ("1", 1), ("medium", 2), ("low", 3), ("p4", 4)]
        {
            assert_eq!(brief(&format!("**Priority**: {text}")).priority, Priority(level), "{text}");
        }
        for line in [
            "due: 2026-11-20",
            "due_date: 2026-11-20T23:59:59Z",
            "deadline: \"2026-11-20 23:59:59\"",
            "due: '[[2026-11-20]]'",
        ] {
            let due = brief(&format!("---\n{line}\n---")).due.unwrap();
            assert_eq!(due.to_string(), "2026-11-20T23:59:59Z", "{line}");
        }
        for line in [
            "after: a, b.md",
            "depends_on: [a, b]",
            "blockedBy:\n  - \"[[x/a|the a]]\"\n  - '[[b]]'",
            "after: a\ndepends_on: [a, b]",
        ] {
            let names: Vec<_> =
                brief(&format!("---\n{line}\n---")).after.iter().map(ToString::to_string).collect();
            assert_eq!(names, ["a.md", "b.md"], "{line}");
        }
    }

    #[test]
    fn the_title_is_what_the_author_calls_the_task() {
        for (text, title) in [
            ("# Pay the rent\n\nten coins", Some("Pay the rent")),
            ("---\npriority: high\n---\n\n# Pay  the\trent #\r\n", Some("Pay  the rent")),
            ("---\ntitle: 'Rent: November'\n---\n# Pay", Some("Rent: November")),
            ("---\ntitle:\n---\n# Pay", Some("Pay")),
            ("---\ntitle: [a, b]\n---\nx", None),
            ("**Action**: pay\n# Pay", Some("Pay")),
            ("\u{feff}# Pay", Some("Pay")),
            ("please\n# Pay", None),
            ("## Notes\n# Pay", None),
            ("#Pay", None),
            ("# ", None),
            ("---\nx: y\n---\n", None),
            ("x\n<!-- tollgate c-0123456789abcdef -->\n# Claimed Task: x", None),
        ] {
            assert_eq!(brief(text).title.as_deref(), title, "{text:?}");
        }
        let long = brief(&format!("# {}", "é".repeat(500))).title.unwrap();
        assert_eq!((long.chars().count(), long.ends_with('…')), (TITLE + 1, true));
    }

    #[test]
    fn what_cannot_be_meant_is_broken() {
        for (line, word) in [
            ("action: [a, b]", "line 2"),
            ("action: {a: b}", "line 2"),
            ("after: ../x", "line 2"),
            ("after: {a: b}", "line 2"),
            ("action: \"a\\nb\"", "line 2"),
            ("action: ok\naction_type: pay", "line 3 has another `actiontype` than line 2"),
            ("action: ok\n---\n**Action**: pay", "line 4 has another `action` than line 2"),
            ("x: y\n---\n**Action**: ok\n**Action**: pay", "line 5"),
            ("priority: banana", "line 2 has `priority: banana`, which is not a priority"),
            ("priority: high\nprio: low", "line 3"),
            ("due: tomorrow", "line 2 has `due: tomorrow`, which is not a day"),
            ("due: 2026-11-31", "line 2"),
        ] {
            let UnreadableTask(why) = Brief::read(format!("---\n{line}\n---").as_bytes()).unwrap_err();
            assert!(why.contains(word), "{line}: {why}");
        }
    }

    #[test]
    fn a_task_waits_for_a_limited_number_of_others() {
        let waiting =
            |names: &[String]| Brief::read(format!("---\nafter: [{}]\n---", names.join(",")).as_bytes());
        let names = |count: usize| (0..count).map(|name| format!("t{name}")).collect::<Vec<_>>();
        assert_eq!(waiting(&names(MOST_AFTER)).unwrap().after.len(), MOST_AFTER);
        let UnreadableTask(why) = waiting(&names(MOST_AFTER + 1)).unwrap_err();
        assert_eq!(
            why,
            "line 2 waits for more than 256 tasks: let it wait for one that waits for the others"
        );
        // In two lists, and with names that occur again.
        let (first, second) = (names(MOST_AFTER).join(","), names(MOST_AFTER + 1).join(","));
        let both = |second: &str| {
            Brief::read(format!("---\nafter: [{first}]\nblockedby: [{second}]\n---").as_bytes())
        };
        assert_eq!(both(&first).unwrap().after.len(), MOST_AFTER);
        assert!(both(&second).unwrap_err().to_string().contains("line 3"));
        let began = std::time::Instant::now();
        assert!(waiting(&names(100_000)).is_err());
        assert_eq!(waiting(&vec!["same".to_owned(); 200_000]).unwrap().after.len(), 1);
        assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    }

    #[test]
    fn an_action_is_seen_wherever_it_stands() {
        let filled = |len: usize| [vec![b'x'; len], b"\n**Action**: pay\n".to_vec()].concat();
        let most = (1 << 20) - filled(0).len();
        for len in [0, 1 << 16, most] {
            assert_eq!(Brief::read(&filled(len)).unwrap().action.as_deref(), Some("pay"), "{len}");
        }
        let long = filled(most + 1);
        let block = b"\n<!-- tollgate c-0123456789abcdef -->\n";
        for text in [&long[..], &long[..HEAD.min(long.len())], &[&long, &block[..]].concat()] {
            assert!(Brief::read(text).unwrap_err().to_string().contains("1 MiB"));
        }
        // What an agent adds to a long text does not make it longer.
        let longest = [vec![b'x'; LONGEST - 1], block.to_vec(), long].concat();
        assert!(Brief::read(&longest[..HEAD]).is_ok());
    }

    #[test]
    fn notes_of_agents_are_not_read() {
        let text = "# T\n<!-- tollgate c-0123456789abcdef -->\n**Action**: pay\n**Priority**: critical\n";
        assert_eq!(brief(text), Brief { title: Some("T".into()), ..Brief::default() });
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

    #[test]
    fn an_urgency_sorts_like_a_rank() {
        let times = [
            Timestamp::MIN,
            Timestamp::UNIX_EPOCH,
            "2026-11-20T00:00:00.1Z".parse().unwrap(),
            Timestamp::MAX,
        ];
        assert!(times.map(sortable).is_sorted() && times.map(sortable).iter().all(|text| text.len() == 22));
        assert_eq!(sortable(Timestamp::UNIX_EPOCH), "1000000000000000000000", "as it is in stores");
        let dues = times.into_iter().map(Some).chain([None]);
        let briefs: Vec<Brief> = (0..5)
            .flat_map(|level| {
                dues.clone().map(move |due| Brief { priority: Priority(level), due, ..Brief::default() })
            })
            .collect();
        for (one, other) in briefs.iter().flat_map(|one| briefs.iter().map(move |other| (one, other))) {
            let (ranks, texts) =
                (one.rank(times[0]).cmp(&other.rank(times[0])), one.urgency().cmp(&other.urgency()));
            assert_eq!(ranks, texts, "{one:?} {other:?}");
        }
        assert!(
            urgency_of(b"---\npriority: banana\n---")
                < urgency_of(b"---\npriority: p0\ndue: 2026-11-20\n---")
        );
        assert_eq!(urgency_of(b"text"), "21");
    }
}
