//! `tollgate write`: a file gets the bytes on stdin.

use std::path::PathBuf;

use clap::Args;
use tollgate::guard::Expected;

use crate::answer::{Answer, Stop};
use crate::door::Door;

/// Replace a file by what is on stdin, unless it has changed since it was read
///
/// In a turn the file must be what the turn last read or wrote. With --expect it must have exactly this hash, whatever the
/// turn knows. Without either, what is on disk is replaced. A file that is not there is made, with its folders.
///
/// A refusal changes nothing, and its exit code is 1. What was replaced stays in recovery for a while.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate write src/a.rs < draft
  hash=$(tollgate read src/a.rs --json | jq -r .sha256)
  tollgate write src/a.rs --expect $hash < draft
  tollgate write new.md --expect absent < draft")]
pub(crate) struct Wish {
    /// The file
    #[arg(value_hint = clap::ValueHint::FilePath)]
    path: PathBuf,
    /// The SHA-256 that the file must have, or `absent`
    #[arg(long, value_name = "HASH", value_parser = super::expected)]
    expect: Option<Expected>,
}

pub(crate) fn run(door: &Door, wish: &Wish) -> Result<Answer, Stop> {
    let path = door.path(&wish.path)?;
    // Before anything else: what feeds stdin may itself be reading the file.
    let bytes = super::stdin()?;
    super::change_one(door, super::Deed::Write, |gate, turn| {
        gate.write(turn, path, bytes, wish.expect.unwrap_or_default())
    })
}
