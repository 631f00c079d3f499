//! `tollgate move`: moves or renames a file.

use std::path::PathBuf;

use clap::Args;
use tollgate::error::Fault;
use tollgate::guard::Expected;

use super::change::change_one;
use crate::answer::Answer;
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::report::change::ChangeVerb;

/// Move or rename a file; refused if it has changed since it was read, or if the new path exists
///
/// Missing folders are created. TO is the new path of the file, not a folder to move it into. For a symbolic link,
/// the link itself is moved, not its target.
#[derive(Debug, Args)]
#[command(after_help = "Example\n  tollgate move draft.md docs/final.md")]
pub(crate) struct MoveArgs {
    /// The file
    #[arg(value_name = "FROM", value_hint = clap::ValueHint::FilePath)]
    path: PathBuf,
    /// The new path
    #[arg(value_hint = clap::ValueHint::FilePath)]
    to: PathBuf,
    /// The SHA-256 that the file must have
    #[arg(long, value_name = "HASH")]
    expect: Option<Expected>,
}

pub(crate) fn run(invocation: &Invocation, args: &MoveArgs) -> Result<Answer, CliError> {
    let (path, to) = (invocation.path(&args.path)?, invocation.path(&args.to)?);
    if path == to {
        let what = format!("`{}` cannot be moved onto itself", args.path.display());
        return Err(Fault::invalid_with_hint(what, "give another path as the target").into());
    }
    change_one(invocation, ChangeVerb::Write, |gate, turn| {
        gate.move_file(turn, path, to, args.expect.unwrap_or_default())
    })
}
