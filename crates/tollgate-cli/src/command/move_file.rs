//! `tollgate move`: gives a file another path.

use std::path::PathBuf;

use clap::Args;
use tollgate::guard::Expected;

use crate::answer::{Answer, Stop};
use crate::door::Door;

/// Give a file another path; refused if it has changed since it was read, or if the new path is taken
///
/// Folders on the way are made. The new path is that of the file itself, not of a folder to put it in.
#[derive(Debug, Args)]
#[command(after_help = "Example\n  tollgate move draft.md docs/final.md")]
pub(crate) struct Wish {
    /// The file
    #[arg(value_name = "FROM", value_hint = clap::ValueHint::FilePath)]
    path: PathBuf,
    /// Its new path
    #[arg(value_hint = clap::ValueHint::FilePath)]
    to: PathBuf,
    /// The SHA-256 that the file must have
    #[arg(long, value_name = "HASH", value_parser = super::expected)]
    expect: Option<Expected>,
}

pub(crate) fn run(door: &Door, wish: &Wish) -> Result<Answer, Stop> {
    let (path, to) = (door.path(&wish.path)?, door.path(&wish.to)?);
    super::change_one(door, super::Deed::Write, |gate, turn| {
        gate.move_file(turn, path, to, wish.expect.unwrap_or_default())
    })
}
