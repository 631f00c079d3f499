//! `tollgate history`: what was changed, by whom.

use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;
use tollgate::TaskName;
use tollgate::history::listing::{PastChange, PastChanges, Selection};

use super::past::{ledger_name, recorded};
use crate::answer::{Answer, Reply};
use crate::command::moment::moment;
use crate::command::number::number;
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::words;

/// Show what agents have changed, newest first
///
/// One line for each change: its number, when, who, which files, how many lines were added and removed, and the turn. `tollgate show`
/// shows the diff of one of them. With FILE, only changes of that file, also those under its earlier names. With --agent, only
/// changes of that agent.
///
/// Lines are counted as long as the bytes are kept (`[history]` in the settings). A program that does not use tollgate leaves no line
/// here; `tollgate blame` sees its changes between two guarded ones.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate history --since yesterday
  tollgate history src/a.rs --agent blue
  tollgate history --task fix-the-tests --json")]
pub(crate) struct HistoryArgs {
    /// Only changes of this file
    #[arg(value_hint = clap::ValueHint::FilePath)]
    path: Option<PathBuf>,
    /// Only changes since this time, such as `yesterday`, `2h` or `2026-11-18`
    #[arg(long, value_name = "TIME", value_parser = |text: &str| moment(text, Timestamp::now()))]
    since: Option<Timestamp>,
    /// Only changes that an agent made while it had claimed this task, and no other
    #[arg(long)]
    task: Option<TaskName>,
    /// Number of changes [default: 50; with --since, all]
    #[arg(short = 'n', long = "lines", value_name = "N", value_parser = |text: &str| number(text, 0..=1_000_000_000_usize))]
    lines: Option<usize>,
}

pub(crate) fn run(invocation: &Invocation, args: &HistoryArgs) -> Result<Answer, CliError> {
    let mut listed = PastChanges::default();
    if let Some(workspace) = recorded(invocation)? {
        let file = args.path.as_ref().map(|path| ledger_name(invocation, &workspace, path)).transpose()?;
        listed = PastChanges::list(
            &workspace,
            &Selection {
                file: file.as_deref(),
                agent: invocation.named_agent(),
                task: args.task.as_ref(),
                since: args.since,
                most: args.lines.or(if args.since.is_some() { None } else { Some(50) }),
            },
        )?;
    }
    let notes = match (listed.damaged, listed.changes.is_empty()) {
        (0, true) => words::NO_CHANGE_MATCHES.to_owned(),
        (damaged, _) => words::damaged_lines(damaged),
    };
    let json = listed.changes.iter().map(PastChange::json).collect();
    Ok(Answer::Long(Reply { words: words::history(&listed.changes), notes, json }))
}
