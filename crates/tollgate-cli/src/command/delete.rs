//! `tollgate delete`: takes a file away.

use std::path::PathBuf;

use clap::Args;
use tollgate::guard::Expected;

use crate::answer::{Answer, Stop};
use crate::door::Door;

/// Take a file away, unless it has changed since it was read
///
/// Its bytes stay in recovery for a while. Folders are not deleted.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate delete old.md
  tollgate delete old.md --expect 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")]
pub(crate) struct Wish {
    /// The file
    #[arg(value_hint = clap::ValueHint::FilePath)]
    path: PathBuf,
    /// The SHA-256 that the file must have
    #[arg(long, value_name = "HASH", value_parser = super::expected)]
    expect: Option<Expected>,
}

pub(crate) fn run(door: &Door, wish: &Wish) -> Result<Answer, Stop> {
    let path = door.path(&wish.path)?;
    super::change_one(door, super::Deed::Write, |gate, turn| {
        gate.delete(turn, path, wish.expect.unwrap_or_default())
    })
}
