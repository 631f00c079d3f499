//! `tollgate write`: writes the bytes on stdin to a file.

use std::path::PathBuf;

use clap::Args;
use tollgate::guard::Expected;

use super::bytes::stdin;
use super::change::change_one;
use crate::answer::Answer;
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::report::change::ChangeVerb;

/// Write stdin to a file; refused if the file has changed since it was read
///
/// In a turn, the file must be as the turn last read or wrote it. With --expect, it must have exactly that hash, and the turn
/// does not matter. With neither, `unread` and `unfinished` in the configuration decide: with the values that `init` writes, the file must be as
/// this agent last knew it, and unfinished work that it has not seen stays. A missing file is created, with its folders.
///
/// A refusal changes nothing and has exit code 1. Recovery keeps the replaced bytes for a while.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate write src/a.rs < draft
  hash=$(tollgate read src/a.rs --json | jq -r .sha256)
  tollgate write src/a.rs --expect $hash < draft
  tollgate write new.md --expect absent < draft")]
pub(crate) struct WriteArgs {
    /// The file
    #[arg(value_hint = clap::ValueHint::FilePath)]
    path: PathBuf,
    /// The SHA-256 that the file must have, or `absent`
    #[arg(long, value_name = "HASH")]
    expect: Option<Expected>,
}

pub(crate) fn run(invocation: &Invocation, args: &WriteArgs) -> Result<Answer, CliError> {
    let path = invocation.path(&args.path)?;
    // First, because the process that feeds stdin may be reading the file.
    let bytes = stdin()?;
    change_one(invocation, ChangeVerb::Write, |gate, turn| {
        gate.write(turn, path, bytes, args.expect.unwrap_or_default())
    })
}
