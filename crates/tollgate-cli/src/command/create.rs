//! `tollgate create`: a new file gets the bytes on stdin.

use std::path::PathBuf;

use clap::Args;

use crate::answer::{Answer, Stop};
use crate::door::Door;

/// Make a new file from what is on stdin; refused if there is one already
///
/// Folders on the way are made. The file appears whole or not at all.
#[derive(Debug, Args)]
#[command(after_help = "Example\n  echo '# plan' | tollgate create docs/plan.md")]
pub(crate) struct Wish {
    /// The file
    #[arg(value_hint = clap::ValueHint::FilePath)]
    path: PathBuf,
}

pub(crate) fn run(door: &Door, wish: &Wish) -> Result<Answer, Stop> {
    let path = door.path(&wish.path)?;
    let bytes = super::stdin()?;
    super::change_one(door, super::Deed::Write, |gate, turn| gate.create(turn, path, bytes))
}
