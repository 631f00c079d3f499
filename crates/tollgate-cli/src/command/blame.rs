//! `tollgate blame`: who wrote each line of a file.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use tollgate::error::{At, Fault};
use tollgate::history::blame::{BlamedLine, blame};

use super::past::{ledger_name, recorded};
use crate::answer::{Answer, Reply};
use crate::error::CliError;
use crate::invocation::Invocation;
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
    let mut lines = match recorded(invocation)? {
        Some(workspace) => {
            let name = ledger_name(invocation, &workspace, &file)?;
            blame(&workspace, &name, &file, bytes.as_bytes())?
        }
        None => BlamedLine::older(&file, bytes.as_bytes())?,
    };
    if let Some(only) = only {
        lines.retain(|line| line.number == only);
        if lines.is_empty() {
            return Err(CliError::usage(
                format!("the file has no line {only}"),
                "give the number of one of its lines, from 1",
            ));
        }
    }
    let texts: Vec<&str> =
        bytes.split_inclusive('\n').map(|line| line.strip_suffix('\n').unwrap_or(line)).collect();
    let text = |line: &BlamedLine| texts.get(line.number - 1).copied().unwrap_or_default();
    let json = lines.iter().map(|line| line_json(line, text(line))).collect();
    Ok(Answer::Long(Reply::new(words::blamed(&lines, text), json)))
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

fn line_json(line: &BlamedLine, text: &str) -> Value {
    let mut json = json!({"line": line.number, "text": text});
    if let (Value::Object(json), Value::Object(who)) = (&mut json, line.json()) {
        json.extend(who);
    }
    json
}
