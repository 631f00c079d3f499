//! `tollgate create`: writes the bytes on stdin to a new file.

use std::path::PathBuf;

use clap::Args;

use super::bytes::stdin;
use super::change::change_one;
use crate::answer::Answer;
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::report::change::ChangeVerb;

/// Create a file from stdin; refused if the file already exists
///
/// Missing folders are created. The file appears whole or not at all.
#[derive(Debug, Args)]
#[command(after_help = "Example\n  echo '# plan' | tollgate create docs/plan.md")]
pub(crate) struct CreateArgs {
    /// The file
    #[arg(value_hint = clap::ValueHint::FilePath)]
    path: PathBuf,
}

pub(crate) fn run(invocation: &Invocation, args: &CreateArgs) -> Result<Answer, CliError> {
    let path = invocation.path(&args.path)?;
    let bytes = stdin()?;
    change_one(invocation, ChangeVerb::Write, |gate, turn| gate.create(turn, path, bytes))
}
