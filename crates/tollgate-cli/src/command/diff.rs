//! `tollgate diff`: what has changed since a time, in the files that agents have changed.

use std::ops::ControlFlow;

use clap::Args;
use tollgate::history::content::Contents;
use tollgate::history::listing::FileDiff;
use tollgate::history::step::{Back, Steps, found};

use super::past::recorded;
use super::restore::{At, at};
use crate::answer::{Answer, Reply};
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::words;

/// Show what has changed since some time, or since a change, in the files that agents have changed
///
/// For each file that a guarded change has touched since then: the diff from what it held before the first of them to what is on disk
/// now, whoever wrote it. With --agent, only files that this agent has changed. Files that only programs without tollgate have
/// changed are not listed; `git diff` has those.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate diff --since yesterday
  tollgate diff --since 12 --agent blue")]
pub(crate) struct DiffArgs {
    /// A time, such as `yesterday`, `2h` or `2026-11-18`, or the number of a change, which counts
    #[arg(long, value_name = "TIME|N", value_parser = at)]
    since: At,
}

pub(crate) fn run(invocation: &Invocation, args: &DiffArgs) -> Result<Answer, CliError> {
    let mut files: Vec<FileDiff> = Vec::new();
    if let Some(workspace) = recorded(invocation)? {
        let back = match args.since {
            At::Time(time) => Back::To(time),
            At::Line(line) => Back::ToLine(line),
        };
        let steps = Steps::read(workspace.ledger(), back, |step| {
            let is_of_agent = invocation.named_agent().is_none_or(|agent| step.agent.as_ref() == Some(agent));
            ControlFlow::Continue(is_of_agent)
        })?
        .steps;
        let contents = Contents::of(&workspace).left_by(&steps);
        for (path, before) in found(&steps) {
            let now = contents.on_disk(path)?.map(|disk| disk.digest);
            if before != now {
                files.push(FileDiff::of(&contents, path, [before, now])?);
            }
        }
    }
    let notes = if files.is_empty() { words::NO_CHANGE_MATCHES } else { "" };
    let json = files.iter().map(FileDiff::json).collect();
    Ok(Answer::Long(Reply { words: words::file_diffs(&files), notes: notes.to_owned(), json }))
}
