//! `tollgate task add`: adds a task. Its file appears complete.

use clap::Args;
use tollgate::error::{Fault, Result};
use tollgate::vault::brief::{Brief, Priority, read_due};
use tollgate::vault::{Circle, Landed, TaskName, Vault};

use crate::answer::{Answer, Said};
use crate::command::bytes::stdin;
use crate::error::{CliError, UsageError};
use crate::invocation::Invocation;
use crate::words;

/// The longest name that is made from a title, so that lists stay readable.
const LONGEST_NAME: usize = 60;

/// The largest number of tasks with the same title. More are a mistake in some script.
const NUMBERS: u32 = 10_000;

/// Add a task to `Needs_Action`
///
/// The file appears complete, so nobody can claim half of it. Without --name, its name is made from the title, with a number
/// if that name is taken.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate task add 'Pay the rent' --action payment --priority high --due 2026-12-01
  tollgate task add 'Send the report' --after write-report --body 'To the board, by mail.'
  git log -1 | tollgate task add 'Review the last commit' --body -")]
pub(crate) struct TaskAddArgs {
    /// What to do, in one line
    title: String,
    /// Name of the file [default: made from the title]
    #[arg(long, value_name = "FILE.md")]
    name: Option<TaskName>,
    /// Action, as in the roles of agents; without one, every agent may claim the task
    #[arg(long, value_name = "A")]
    action: Option<String>,
    /// Priority: critical, high, normal, low or lowest; or p0 to p4
    #[arg(long, value_name = "P", value_parser = priority)]
    priority: Option<Priority>,
    /// Due date: a day or a time
    #[arg(long, value_name = "WHEN")]
    due: Option<String>,
    /// A task that must be done first; may be given several times
    #[arg(long, value_name = "TASK")]
    after: Vec<TaskName>,
    /// More text, in Markdown; `-` reads it from stdin
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,
}

fn priority(text: &str) -> Result<Priority, String> {
    Priority::read(text).ok_or_else(|| words::bad_priority(text))
}

pub(crate) fn run(invocation: &Invocation, args: &TaskAddArgs) -> Result<Answer, CliError> {
    let tasks = invocation.fresh_tasks()?;
    let body = match args.body.as_deref() {
        Some("-") => stdin()?,
        Some(text) => text.as_bytes().to_vec(),
        None => Vec::new(),
    };
    let bytes = new_task(
        &args.title,
        args.action.as_deref(),
        args.priority,
        args.due.as_deref(),
        &args.after,
        &body,
    )?;
    let landed = match &args.name {
        Some(name) => {
            if let Ok(there) = tasks.vault.get(name, invocation.now()) {
                return Ok(words::task_is_there(name, &there.slot));
            }
            add(invocation, &tasks.vault, name, &args.after, &bytes)?
        }
        None => add_under_a_free_name(invocation, &tasks.vault, args, &bytes)?,
    };
    Ok(match landed {
        Ok(landed) => {
            Answer::Done(Said { words: words::task_added(&landed), json: landed.json(), ..Said::default() })
        }
        Err(circle) => words::closes_a_circle(&circle),
    })
}

/// Adds a task, unless it would wait for itself: then the circle that it would close.
pub(super) fn add(
    invocation: &Invocation,
    vault: &Vault,
    name: &TaskName,
    after: &[TaskName],
    bytes: &[u8],
) -> Result<Result<Landed, Circle>> {
    match vault.circle(name, after, invocation.now())? {
        Some(circle) => Ok(Err(circle)),
        None => vault.add(name, bytes, invocation.now()).map(Ok),
    }
}

fn add_under_a_free_name(
    invocation: &Invocation,
    vault: &Vault,
    args: &TaskAddArgs,
    bytes: &[u8],
) -> Result<Result<Landed, Circle>> {
    let stem = name_of(&args.title);
    let mut taken = Fault::Invalid { what: format!("no name is free for `{stem}`") };
    for number in 1..=NUMBERS {
        let name: TaskName = if number == 1 { stem.parse()? } else { format!("{stem}-{number}").parse()? };
        if vault.get(&name, invocation.now()).is_ok() {
            continue;
        }
        match add(invocation, vault, &name, &args.after, bytes) {
            // Another process has just added a task with that name.
            Err(fault @ Fault::Invalid { .. }) => taken = fault,
            answer => return answer,
        }
    }
    Err(taken)
}

/// A file name, made from the title, that a person can read and type.
pub(super) fn name_of(title: &str) -> String {
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

/// The text of a new task: frontmatter if an option needs it, a heading, the body.
pub(super) fn new_task(
    title: &str,
    action: Option<&str>,
    priority: Option<Priority>,
    due: Option<&str>,
    after: &[TaskName],
    body: &[u8],
) -> Result<Vec<u8>, CliError> {
    let title = title.trim();
    if title.is_empty() || title.chars().any(char::is_control) {
        return Err(UsageError::BadTitle.into());
    }
    if let Some(due) = due.filter(|due| read_due(due).is_none()) {
        return Err(UsageError::BadTaskOption { option: "due", value: due.to_owned() }.into());
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
    let brief = Brief::read(&text).map_err(|broken| UsageError::BadTask(broken.to_string()))?;
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
    Err(UsageError::BadTaskOption { option, value }.into())
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
        let text =
            new_task("T", Some("send \"it\": #1"), Priority::read("p0"), Some("2026-12-01"), &after, b"x")
                .unwrap();
        let brief = Brief::read(&text).unwrap();
        assert_eq!(brief.action.as_deref(), Some("send \"it\": #1"));
        assert_eq!((brief.priority, brief.after), (Priority(0), after));
        assert!(text.ends_with(b"# T\n\nx\n"));
        assert!(new_task("T", None, None, None, &[], b"").unwrap() == b"# T\n");
        assert!(new_task("T", Some("read"), None, None, &[], b"**Action**: pay").is_err());
        assert!(new_task("T", Some(" "), None, None, &[], b"").is_err());
        assert!(new_task("a\nb", None, None, None, &[], b"").is_err());
        assert!(new_task("T", None, None, Some("soon"), &[], b"").is_err());
    }
}
