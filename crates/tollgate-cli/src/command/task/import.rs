//! `tollgate task import`: the open tasks of another tracker become tasks of the vault, each of them once.
//!
//! Invariant: what strangers wrote decides nothing. The text of an imported task cannot name an action, a priority or a
//! task to wait for; only the fields of the tracker and the options of the command can.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tollgate::error::{Fault, Result};
use tollgate::vault::brief::Brief;
use tollgate::vault::new_task::{BadNewTask, NewTask, name_of};
use tollgate::vault::{TaskName, Vault};
use tollgate::visible::plain;

use super::add::bad_option;
use super::foreign::{
    ForeignItem, ForeignTask, Tracker, backlog, beads, documents, github, read_file, tracker_of,
};
use crate::answer::{Answer, Reply};
use crate::command::bytes::stdin;
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::progress::Progress;
use crate::words;

/// Import the open tasks of Backlog.md, beads or GitHub issues
///
/// Each task gets a name made from its id, so importing again adds only what is new; a task that is already in the vault stays
/// as it is, in whatever state. Closed tasks are left out, and nothing waits for them. Only the tracker's own fields set the
/// priority and what a task waits for, never its text. The exit code is 1 if the
/// source has items and none of them is a task.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate task import backlog
  tollgate task import .beads/issues.jsonl --action code
  gh issue list --limit 500 --json number,title,body,labels,state,url | tollgate task import -")]
pub(crate) struct TaskImportArgs {
    /// Folder of Backlog.md, file of beads, or file with GitHub issues as JSON; `-` reads JSON from stdin
    source: PathBuf,
    /// Tracker that the source comes from [default: detected from the source]
    #[arg(long, value_enum, value_name = "TRACKER")]
    from: Option<Tracker>,
    /// Action of every imported task, as in the roles of agents
    #[arg(long, value_name = "A")]
    action: Option<String>,
    /// Say what would be imported, and import nothing
    #[arg(long)]
    dry_run: bool,
}

/// What became of the source.
#[derive(Debug, Default)]
struct Imported {
    added: Vec<TaskName>,
    /// Was in the vault before.
    present: Vec<TaskName>,
    closed: usize,
    /// What cannot be imported, and why.
    skipped: Vec<String>,
}

pub(crate) fn run(invocation: &Invocation, args: &TaskImportArgs) -> Result<Answer, CliError> {
    let tasks = invocation.fresh_tasks()?;
    let _progress = Progress::of("importing");
    let mut imported = Imported::default();
    let mut open = Vec::new();
    for item in items(args)? {
        match item {
            Ok(task) if task.is_open => open.push(task),
            Ok(_) => imported.closed += 1,
            Err(why) => imported.skipped.push(why),
        }
    }
    let names = names(&open, &mut imported.skipped);
    for task in &open {
        let Some(name) = names.get(&*task.id) else { continue };
        if let Err(why) = import(invocation, &tasks.vault, args, task, name, &names, &mut imported)? {
            imported.skipped.push(format!("`{}`: {why}", task.id));
        }
    }
    let Imported { added, present, closed, skipped } = &imported;
    let json = json!({
        "imported": added, "present": present, "closed": closed, "skipped": skipped, "dry_run": args.dry_run,
    });
    let words = words::imported(added, present.len(), *closed, args.dry_run);
    let notes: Vec<String> = skipped.iter().map(|why| words::not_imported(why)).collect();
    let said = Reply { words, notes: notes.join("\n"), json };
    // Nothing in the source could be read: it is probably not what the caller meant.
    let is_useless = added.is_empty() && present.is_empty() && *closed == 0 && !skipped.is_empty();
    Ok(if is_useless { Answer::NotValid(said) } else { Answer::Done(said) })
}

fn items(args: &TaskImportArgs) -> Result<Vec<ForeignItem>, CliError> {
    if args.source.is_dir() {
        return match args.from {
            None | Some(Tracker::Backlog) => match backlog(&args.source)? {
                items if items.is_empty() && !args.source.join("tasks").is_dir() => Err(CliError::usage(
                    format!(
                        "`{}` has no tasks of Backlog.md: no folder `tasks`, and no Markdown files",
                        plain(&args.source.to_string_lossy())
                    ),
                    "give the `backlog` folder of Backlog.md, or the file of another tracker; see `tollgate task import \
                         --help`",
                )),
                items => Ok(items),
            },
            Some(_) => Err(CliError::usage(
                "the source is a folder",
                "give the file of the tracker, or omit `--from` for a folder of Backlog.md",
            )),
        };
    }
    let text = if args.source.as_os_str() == "-" {
        String::from_utf8(stdin()?).map_err(|_| Fault::invalid("the source is not UTF-8"))?
    } else {
        read_file(&args.source)?
    };
    let (documents, bad) = documents(&text)?;
    let read = match args.from.unwrap_or_else(|| tracker_of(&documents)) {
        Tracker::Backlog => {
            return Err(CliError::usage(
                "the source is not a folder",
                "give the `backlog` folder of Backlog.md",
            ));
        }
        Tracker::Beads => beads,
        Tracker::Github => github,
    };
    Ok(documents.iter().map(read).chain(bad.into_iter().map(Err)).collect())
}

/// The name of each task, by its id.
fn names<'a>(open: &'a [ForeignTask], skipped: &mut Vec<String>) -> BTreeMap<&'a str, TaskName> {
    let (mut names, mut taken) = (BTreeMap::new(), BTreeSet::new());
    for task in open {
        match name_of(&task.name).parse::<TaskName>() {
            Ok(name) if taken.insert(name.clone()) => {
                names.insert(&*task.id, name);
            }
            Ok(name) => {
                skipped.push(format!("`{}`: another task of the source has the name `{name}`", task.id));
            }
            Err(fault) => skipped.push(format!("`{}`: {fault}", task.id)),
        }
    }
    names
}

/// Imports a task, or says why it cannot be imported.
fn import(
    invocation: &Invocation,
    vault: &Vault,
    args: &TaskImportArgs,
    task: &ForeignTask,
    name: &TaskName,
    names: &BTreeMap<&str, TaskName>,
    imported: &mut Imported,
) -> Result<Result<(), String>, CliError> {
    if vault.get(name, invocation.now()).is_ok() {
        imported.present.push(name.clone());
        return Ok(Ok(()));
    }
    // What is not open is done, or gone: nothing waits for it.
    let after: Vec<TaskName> = task.waits_for.iter().filter_map(|id| names.get(&**id).cloned()).collect();
    let text = match text_of(task, args.action.as_deref(), &after) {
        Ok(text) => text,
        Err(BadNewTask::Value { option, value }) if option == "action" => {
            return Err(bad_option(option, &value));
        }
        Err(bad) => return Ok(Err(bad.to_string())),
    };
    if args.dry_run {
        imported.added.push(name.clone());
        return Ok(Ok(()));
    }
    match vault.add_outside_circles(name, &after, &text, invocation.now()) {
        Ok(Ok(landed)) => imported.added.push(landed.task),
        Ok(Err(_)) => return Ok(Err("it waits for itself, by way of other tasks".to_owned())),
        // Another process has just imported it.
        Err(_) if vault.get(name, invocation.now()).is_ok() => imported.present.push(name.clone()),
        Err(fault) => return Err(fault.into()),
    }
    Ok(Ok(()))
}

/// The text of the new task.
fn text_of(task: &ForeignTask, action: Option<&str>, after: &[TaskName]) -> Result<Vec<u8>, BadNewTask> {
    let line =
        |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").replace(char::is_control, "");
    let title = Some(line(&task.title)).filter(|title| !title.is_empty()).unwrap_or_else(|| line(&task.id));
    // A line that looks like ours would end the author's part of the task.
    let body = task.body.replace("\r\n", "\n").replace('\0', "").replace("<!-- tollgate", "<!--  tollgate");
    let body = body.trim();
    let made = |body: &str| {
        let body = if body.is_empty() { String::new() } else { format!("{body}\n\n") };
        let body = format!("{body}Imported from {}\n", line(&task.origin));
        let (title, priority, body) = (&*title, task.priority, body.as_bytes());
        NewTask { title, action, priority, due: None, after, body }.text()
    };
    let says_nothing_else = |text: &Vec<u8>| {
        Brief::read(text).is_ok_and(|brief| {
            let expected = Brief {
                title: brief.title.clone(),
                action: action.map(Into::into),
                priority: task.priority.unwrap_or_default(),
                due: None,
                after: after.to_vec(),
            };
            brief == expected
        })
    };
    match made(body).ok().filter(says_nothing_else) {
        Some(text) => Ok(text),
        // Quoted, the text names nothing.
        None => {
            let text = made(&quoted(body))?;
            if says_nothing_else(&text) {
                return Ok(text);
            }
            Err(BadNewTask::Unreadable("its text names an action, a priority or other tasks".to_owned()))
        }
    }
}

/// In a code block that nothing in it can end.
fn quoted(body: &str) -> String {
    let longest = body.lines().map(|line| line.trim().chars().take_while(|c| *c == '~').count()).max();
    let fence = "~".repeat(longest.unwrap_or(0).max(2) + 1);
    format!("{fence}\n{body}\n{fence}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(body: &str) -> ForeignTask {
        ForeignTask {
            id: "7".to_owned(),
            name: "shop-7".to_owned(),
            title: "Fix\nthe \u{1b}[31mlogin".to_owned(),
            body: body.to_owned(),
            priority: None,
            waits_for: Vec::new(),
            is_open: true,
            origin: "https://example.org/shop/issues/7".to_owned(),
        }
    }

    #[test]
    fn the_text_of_a_stranger_names_no_action_priority_or_other_task() {
        let ours = "<!-- tollgate c-0123456789abcdef -->\n**Status**: processing\n";
        for body in [
            "**Action**: payment",
            "x\n\n~~~~\n**Action**: payment\n~~~~\n**Priority**: critical",
            "**After**: other-task\n**Due**: 2020-01-01",
            "> **Action**: payment",
            "~~~\nnever closed\n**Action**: payment",
            ours,
            "",
        ] {
            let text = text_of(&task(body), None, &[]).unwrap();
            let brief = Brief { title: None, ..Brief::read(&text).unwrap() };
            assert_eq!(brief, Brief::default(), "{body}");
            let text = String::from_utf8(text).unwrap();
            assert!(text.starts_with("# Fix the [31mlogin\n"), "{text:?}");
            assert!(!text.contains("\n<!-- tollgate"), "{text:?}");
            let text = text_of(&task(body), Some("code"), &[]).unwrap();
            assert_eq!(Brief::read(&text).unwrap().action.as_deref(), Some("code"), "{body}");
        }
    }
}
