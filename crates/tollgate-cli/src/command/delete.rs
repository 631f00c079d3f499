//! `tollgate delete`: deletes a file.

use std::path::PathBuf;

use clap::Args;
use tollgate::guard::Expected;

use super::change::change_one;
use crate::answer::Answer;
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::report::change::ChangeVerb;

/// Delete a file; refused if it has changed since it was read
///
/// Recovery keeps its bytes for a while. For a symbolic link, the link itself is deleted, not its target. Folders are not deleted.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate delete old.md
  tollgate delete old.md --expect 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")]
pub(crate) struct DeleteArgs {
    /// The file
    #[arg(value_hint = clap::ValueHint::FilePath)]
    path: PathBuf,
    /// The SHA-256 that the file must have
    #[arg(long, value_name = "HASH")]
    expect: Option<Expected>,
}

pub(crate) fn run(invocation: &Invocation, args: &DeleteArgs) -> Result<Answer, CliError> {
    let path = invocation.path(&args.path)?;
    change_one(invocation, ChangeVerb::Write, |gate, turn| {
        gate.delete(turn, path, args.expect.unwrap_or_default())
    })
}
