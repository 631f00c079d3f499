//! `tollgate task add`: a new task, complete at once.

use clap::Args;
use tollgate::error::{Fault, Result};
use tollgate::vault::task::{Brief, Priority};
use tollgate::vault::{TaskName, Vault};

use crate::answer::{Answer, Said, Stop};
use crate::command::stdin;
use crate::door::Door;
use crate::words;

/// Longest name made of a title: it is read in lists.
const LONGEST_NAME: usize = 60;

/// So many tasks of one title get names by number before something must be wrong.
const NUMBERS: u32 = 10_000;

/// Add a task to `Needs_Action`
///
/// The file is put there whole, so nobody can claim half of it. Its name is made of the title unless --name says
/// otherwise; that of a task which is there already gets a number.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate task add 'Pay the rent' --action payment --priority high --due 2026-12-01
  tollgate task add 'Send the report' --after write-report --body 'To the board, by mail.'
  git log -1 | tollgate task add 'Review the last commit' --body -")]
pub(crate) struct Wish {
    /// What is to be done, in a line
    title: String,
    /// The name of its file [default: made of the title]
    #[arg(long, value_name = "FILE.md")]
    name: Option<TaskName>,
    /// The action, as the roles of agents name it; without one every agent may do it
    #[arg(long, value_name = "A")]
    action: Option<String>,
    /// critical, high, normal, low or lowest; or p0 to p4
    #[arg(long, value_name = "P", value_parser = priority)]
    priority: Option<Priority>,
    /// When it should be done: a day or a time
    #[arg(long, value_name = "WHEN")]
    due: Option<String>,
    /// A task that must be done before; may be given several times
    #[arg(long, value_name = "TASK")]
    after: Vec<TaskName>,
    /// More text, in markdown; `-` reads it from stdin
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,
}

fn priority(text: &str) -> Result<Priority, String> {
    Priority::read(text).ok_or_else(|| words::bad_priority(text))
}

pub(crate) fn run(door: &Door, wish: &Wish) -> Result<Answer, Stop> {
    let tasks = door.fresh_tasks()?;
    let body = match wish.body.as_deref() {
        Some("-") => stdin()?,
        Some(text) => text.as_bytes().to_vec(),
        None => Vec::new(),
    };
    let bytes = new_task(
        &wish.title,
        wish.action.as_deref(),
        wish.priority,
        wish.due.as_deref(),
        &wish.after,
        &body,
    )?;
    let landed = match &wish.name {
        Some(name) => {
            if let Ok(there) = tasks.vault.get(name, door.now()) {
                return Ok(words::task_is_there(name, &there.slot));
            }
            tasks.vault.add(name, &bytes)?
        }
        None => add_under_a_free_name(door, &tasks.vault, &wish.title, &bytes)?,
    };
    Ok(Answer::Done(Said { words: words::task_added(&landed), json: landed.json(), ..Said::default() }))
}

fn add_under_a_free_name(
    door: &Door,
    vault: &Vault,
    title: &str,
    bytes: &[u8],
) -> Result<tollgate::vault::store::Landed> {
    let stem = name_of(title);
    let mut taken = Fault::Invalid { what: format!("no name is free for `{stem}`") };
    for number in 1..=NUMBERS {
        let name: TaskName = if number == 1 { stem.parse()? } else { format!("{stem}-{number}").parse()? };
        if vault.get(&name, door.now()).is_ok() {
            continue;
        }
        match vault.add(&name, bytes) {
            // Another was quicker with that name.
            Err(fault @ Fault::Invalid { .. }) => taken = fault,
            answer => return answer,
        }
    }
    Err(taken)
}

/// A file name that a person can read and type.
fn name_of(title: &str) -> String {
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

/// The text of a new task: frontmatter if there is something to say in it, a heading, the body.
fn new_task(
    title: &str,
    action: Option<&str>,
    priority: Option<Priority>,
    due: Option<&str>,
    after: &[TaskName],
    body: &[u8],
) -> Result<Vec<u8>, Stop> {
    let title = title.trim();
    if title.is_empty() || title.chars().any(char::is_control) {
        return Err(words::bad_title());
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
    // What was asked for must be what an agent will read.
    let brief = Brief::read(&text).map_err(|broken| words::bad_task(&broken.to_string()))?;
    let odd = |action: &str| {
        action.is_empty() || action.trim() != action || brief.action.as_deref() != Some(action)
    };
    let wrong = if action.is_some_and(odd) {
        Some("action")
    } else if !after.is_empty() && brief.after != after {
        Some("after")
    } else if due.is_some() && brief.due.is_none() {
        Some("due")
    } else if priority.is_some_and(|priority| brief.priority != priority) {
        Some("priority")
    } else {
        None
    };
    wrong.map_or(Ok(text), |what| Err(words::bad_task_option(what)))
}

/// As frontmatter has it: plain if that is safe, else in quotes.
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
    fn titles_make_names() {
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
    fn what_is_written_is_what_is_read() {
        let after: Vec<TaskName> = vec!["a".parse().unwrap(), "b: c".parse().unwrap()];
        let text =
            new_task("T", Some("send \"it\": #1"), Priority::read("p0"), Some("2026-12-01"), &after, b"x")
                .unwrap();
        let brief = Brief::read(&text).unwrap();
        assert_eq!(brief.action.as_deref(), Some("send \"it\": #1"));
        assert_eq!((brief.priority, brief.after), (Priority(0), after));
        assert!(text.ends_with(b"# T\n\nx\n"));
        assert!(new_task("T", None, None, None, &[], b"").unwrap() == b"# T\n");
        // What the options say counts more than what the body says.
        let text = new_task("T", Some("read"), None, None, &[], b"**Action**: pay").unwrap();
        assert_eq!(Brief::read(&text).unwrap().action.as_deref(), Some("read"));
        assert!(new_task("T", Some(" "), None, None, &[], b"").is_err());
        assert!(new_task("a\nb", None, None, None, &[], b"").is_err());
        assert!(new_task("T", None, None, Some("soon"), &[], b"").is_err());
    }
}
