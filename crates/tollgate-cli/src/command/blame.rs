//! `tollgate blame`: who wrote each line of a file.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};
use tollgate::error::{At, Fault};
use tollgate::history::blame::{Writer, blame};
use tollgate::history::step::Step;
use tollgate_base::working_tree::{BlamedCommit, WorkingTree};

use super::past::{ledger_name, recorded};
use crate::answer::{Answer, Reply};
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::report::history::BlamedLine;
use crate::words;

/// Show who wrote each line of a file: which agent, in which change, or which commit
///
/// Lines that a guarded change brought have its number, for `tollgate show`. What a program that does not use tollgate saved
/// between two guarded changes is seen by the hashes, and is `somebody else`'s. Lines that are older than the first guarded change of
/// the file are left to `git blame`, which tollgate calls.
///
/// The comparison needs the bytes of each version. Where some are no longer kept (`[history]` in the settings), a line has all
/// changes with which it may have come.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate blame src/a.rs
  tollgate blame src/a.rs:42
  tollgate blame src/a.rs --json | jq '.[] | select(.agent == \"blue\") | .line'")]
pub(crate) struct BlameArgs {
    /// The file, and the number of a line if only one is asked for
    #[arg(value_name = "FILE[:LINE]", value_hint = clap::ValueHint::FilePath)]
    path: PathBuf,
}

pub(crate) fn run(invocation: &Invocation, args: &BlameArgs) -> Result<Answer, CliError> {
    let (path, only) = file_and_line(invocation, &args.path)?;
    let on_disk = invocation.path(&path)?;
    let Ok(bytes) = String::from_utf8(fs::read(&on_disk).at("read", &on_disk)?) else {
        return Err(Fault::invalid_with_hint(
            "only texts in UTF-8 have lines that somebody wrote",
            "run `tollgate history FILE` to see who changed it",
        )
        .into());
    };
    // Of a symbolic link, the lines of the file to which it leads.
    let file = on_disk.canonicalize().at("find", &on_disk)?;
    let writers = match recorded(invocation)? {
        Some(workspace) => {
            let name = ledger_name(invocation, &workspace, &file)?;
            blame(&workspace, &name, bytes.as_bytes())?
        }
        None => vec![Writer::Older; bytes.split_inclusive('\n').count()],
    };
    let commits = commits(&file, bytes.as_bytes())?;
    let line = |(index, (text, writer)): (usize, (&str, Writer))| BlamedLine {
        number: index + 1,
        text: text.strip_suffix('\n').unwrap_or(text).to_owned(),
        commit: commits.get(index).cloned().flatten().filter(|_| writer == Writer::Older),
        writer,
    };
    let mut lines: Vec<BlamedLine> = bytes.split_inclusive('\n').zip(writers).enumerate().map(line).collect();
    if let Some(only) = only {
        lines.retain(|line| line.number == only);
        if lines.is_empty() {
            return Err(CliError::usage(
                format!("the file has no line {only}"),
                "give the number of one of its lines, from 1",
            ));
        }
    }
    let json = lines.iter().map(line_json).collect();
    Ok(Answer::Long(Reply::new(words::blamed(&lines), json)))
}

/// `FILE:LINE`, unless there is a file with that name.
fn file_and_line(invocation: &Invocation, given: &Path) -> Result<(PathBuf, Option<usize>), CliError> {
    let split = given.to_str().and_then(|text| text.rsplit_once(':'));
    match split.and_then(|(file, line)| Some((file, line.parse().ok()?))) {
        Some((file, line)) if invocation.path(given)?.symlink_metadata().is_err() => {
            Ok((file.into(), Some(line)))
        }
        _ => Ok((given.to_owned(), None)),
    }
}

/// What git says of each line.
fn commits(path: &Path, bytes: &[u8]) -> Result<Vec<Option<BlamedCommit>>, Fault> {
    match WorkingTree::around(path) {
        Some(tree) => match path.strip_prefix(&tree.top) {
            Ok(below) => tree.blame(below, bytes),
            Err(_) => Ok(Vec::new()),
        },
        None => Ok(Vec::new()),
    }
}

fn line_json(line: &BlamedLine) -> Value {
    let mut json = json!({"line": line.number, "text": line.text, "agent": null, "seq": null, "turn": null});
    match &line.writer {
        Writer::Step(step) => {
            json["by"] = "agent".into();
            put_step(&mut json, step);
        }
        Writer::SomebodyElse { after, before } => {
            json["by"] = "somebody_else".into();
            json["between"] = json!([after, before]);
        }
        Writer::OneOf { steps, others } => {
            json["by"] = "not_kept".into();
            if let Some(first) = steps.first()
                && !others
                && steps.iter().all(|step| step.agent == first.agent)
            {
                json["agent"] = json!(first.agent);
            }
            json["seqs"] = steps.iter().map(|step| step.seq).collect();
        }
        Writer::Older => match &line.commit {
            Some(BlamedCommit { commit, author, time }) => {
                json["by"] = "commit".into();
                json["commit"] = commit.as_str().into();
                json["author"] = author.as_str().into();
                json["time"] = json!(Timestamp::from_second(*time).ok());
            }
            None => json["by"] = "before".into(),
        },
    }
    json
}

fn put_step(json: &mut Value, step: &Step) {
    json["agent"] = json!(step.agent);
    json["seq"] = step.seq.into();
    json["turn"] = json!(step.turn);
    json["time"] = json!(step.time);
    if let Some(task) = &step.task {
        json["task"] = task.as_str().into();
    }
}
