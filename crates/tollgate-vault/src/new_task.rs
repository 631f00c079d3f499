//! A new task, from what a person types: its text, its name, and adding it.
//!
//! Invariant: an agent reads exactly the values that were given, or there is no text.

use jiff::Timestamp;

use crate::brief::{Brief, Priority, read_due};
use crate::denial::Circle;
use crate::store::TaskAfterStep;
use crate::vault::Vault;
use tollgate_base::error::{Fault, Result};
use tollgate_base::task::TaskName;

/// The longest name that is made from a title, so that lists stay readable.
const LONGEST_NAME: usize = 60;

/// The largest number of tasks with the same title. More are a mistake in some script.
const NUMBERS: u32 = 10_000;

/// What a person asks for.
#[derive(Debug, Clone, Copy, Default)]
pub struct NewTask<'a> {
    /// What to do, in one line.
    pub title: &'a str,
    /// The action. Without one, every agent may claim the task.
    pub action: Option<&'a str>,
    /// How urgent.
    pub priority: Option<Priority>,
    /// When it should be done, as people write it.
    pub due: Option<&'a str>,
    /// What must be done before.
    pub after: &'a [TaskName],
    /// More text, in Markdown.
    pub body: &'a [u8],
}

/// Why there is no such task.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadNewTask {
    /// The title is empty, or has control characters.
    #[error("the title must be one line of text")]
    Title,
    /// An agent could not read it.
    #[error("the task could not be read: {0}")]
    Unreadable(String),
    /// An agent would not read this value.
    #[error("`{value}` cannot be the {option} of this task")]
    Value {
        /// Which.
        option: &'static str,
        /// The value.
        value: String,
    },
}

impl Vault {
    /// Adds a task, unless it would wait for itself: then the circle that it would close.
    pub fn add_outside_circles(
        &self,
        name: &TaskName,
        after: &[TaskName],
        text: &[u8],
        now: Timestamp,
    ) -> Result<Result<TaskAfterStep, Circle>> {
        match self.circle(name, after, now)? {
            Some(circle) => Ok(Err(circle)),
            None => self.add(name, text, now).map(Ok),
        }
    }

    /// Adds a task under a name that is made from its title, with a number if that name is taken.
    pub fn add_titled(
        &self,
        title: &str,
        after: &[TaskName],
        text: &[u8],
        now: Timestamp,
    ) -> Result<Result<TaskAfterStep, Circle>> {
        let stem = name_of(title);
        for number in 1..=NUMBERS {
            let name: TaskName =
                if number == 1 { stem.parse()? } else { format!("{stem}-{number}").parse()? };
            if self.get(&name, now).is_ok() {
                continue;
            }
            if let Some(circle) = self.circle(&name, after, now)? {
                return Ok(Err(circle));
            }
            // If not, another process has just added a task with that name. A fault is returned: it would come again.
            if let Some(landed) = self.try_add(&name, text, now)? {
                return Ok(Ok(landed));
            }
        }
        Err(Fault::invalid(format!("no name is free for `{stem}`")))
    }
}

/// A file name, made from the title, that a person can read and type.
pub fn name_of(title: &str) -> String {
    let mut name = String::new();
    for c in title.chars().flat_map(char::to_lowercase) {
        if name.len() + c.len_utf8() > LONGEST_NAME {
            break;
        }
        if c.is_alphanumeric() {
            name.push(c);
        } else if !name.ends_with('-') && !name.is_empty() {
            name.push('-');
        }
    }
    let name = name.trim_end_matches('-');
    if name.is_empty() { "task".to_owned() } else { name.to_owned() }
}

impl NewTask<'_> {
    /// Its text: frontmatter if a value needs it, a heading, the body.
    pub fn text(&self) -> Result<Vec<u8>, BadNewTask> {
        let Self { title, action, priority, due, after, body } = *self;
        let title = title.trim();
        if title.is_empty() || title.chars().any(char::is_control) {
            return Err(BadNewTask::Title);
        }
        if let Some(due) = due.filter(|due| read_due(due).is_none()) {
            return Err(BadNewTask::Value { option: "due", value: due.to_owned() });
        }
        let mut front = String::new();
        if let Some(action) = action {
            front += &format!("action: {}\n", quoted(action));
        }
        if let Some(priority) = priority {
            front += &format!("priority: {}\n", priority.as_str());
        }
        if let Some(due) = due {
            front += &format!("due: {}\n", quoted(due));
        }
        if !after.is_empty() {
            front += "after:\n";
            for task in after {
                front += &format!("  - {}\n", quoted(task.as_str()));
            }
        }
        let mut text = if front.is_empty() { Vec::new() } else { format!("---\n{front}---\n").into_bytes() };
        text.extend_from_slice(format!("# {title}\n").as_bytes());
        if !body.is_empty() {
            text.push(b'\n');
            text.extend_from_slice(body);
            if !body.ends_with(b"\n") {
                text.push(b'\n');
            }
        }
        // An agent must read exactly the values that were given.
        let brief = Brief::read(&text).map_err(|broken| BadNewTask::Unreadable(broken.to_string()))?;
        let odd = |action: &str| {
            action.is_empty() || action.trim() != action || brief.action.as_deref() != Some(action)
        };
        let (option, value) = if let Some(action) = action.filter(|action| odd(action)) {
            ("action", action.to_owned())
        } else if !after.is_empty() && brief.after != after {
            ("after", after.iter().map(TaskName::as_str).collect::<Vec<_>>().join(", "))
        } else if let Some(priority) = priority.filter(|priority| brief.priority != *priority) {
            ("priority", priority.as_str().to_owned())
        } else {
            return Ok(text);
        };
        Err(BadNewTask::Value { option, value })
    }
}

/// A value for frontmatter: plain if that is safe, otherwise in quotes.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-./+".contains(c);
    let number = text.parse::<f64>().is_ok();
    if !text.is_empty() && text.chars().all(plain) && !text.starts_with(['-', '.']) && !number {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(
        title: &str,
        action: Option<&str>,
        priority: Option<Priority>,
        due: Option<&str>,
        after: &[TaskName],
        body: &[u8],
    ) -> Result<Vec<u8>, BadNewTask> {
        NewTask { title, action, priority, due, after, body }.text()
    }

    #[test]
    fn titles_become_names() {
        for (title, name) in [
            ("Pay the rent!", "pay-the-rent"),
            ("  ../../etc/passwd ", "etc-passwd"),
            ("Größe: 尺寸", "größe-尺寸"),
            ("?!", "task"),
            (&"word ".repeat(40), "word-".repeat(12).trim_end_matches('-')),
        ] {
            assert_eq!(name_of(title), *name, "{title}");
            assert!(name_of(title).parse::<TaskName>().is_ok());
        }
    }

    #[test]
    fn a_new_task_reads_back_as_given() {
        let after: Vec<TaskName> = vec!["a".parse().unwrap(), "b: c".parse().unwrap()];
        let text = made("T", Some("send \"it\": #1"), Priority::read("p0"), Some("2026-12-01"), &after, b"x")
            .unwrap();
        let brief = Brief::read(&text).unwrap();
        assert_eq!(brief.action.as_deref(), Some("send \"it\": #1"));
        assert_eq!((brief.priority, brief.after), (Priority(0), after));
        assert!(text.ends_with(b"# T\n\nx\n"));
        assert!(made("T", None, None, None, &[], b"").unwrap() == b"# T\n");
        assert!(made("T", Some("read"), None, None, &[], b"**Action**: pay").is_err());
        assert!(made("T", Some(" "), None, None, &[], b"").is_err());
        assert!(made("a\nb", None, None, None, &[], b"").is_err());
        assert!(made("T", None, None, Some("soon"), &[], b"").is_err());
    }
}
