//! `tollgate edit`: replaces old text with new text.

use std::path::PathBuf;

use clap::Args;
use tollgate::edit::Edit;
use tollgate::guard::Expected;

use super::change::change_one;
use crate::answer::Answer;
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::report::change::ChangeVerb;
use crate::words;

/// Replace old text with new text in a file
///
/// The old text must occur exactly once in the file, or with --all at least once. For several edits in one change, give --old
/// and --new several times; each edit works on the result of the previous one. All other bytes stay the same, line endings
/// included. Files of up to 16 MiB can be edited; write a larger one whole.
///
/// An edit is refused as stale by the same rules as `write`. After a refusal it is enough to read the lines around the edit
/// again.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate edit src/a.rs --old 'let x = 1;' --new 'let x = 2;'
  tollgate edit src/a.rs --all --old colour --new color
  tollgate edit src/a.rs --old one --new 1 --old two --new 2")]
pub(crate) struct EditArgs {
    /// The file
    #[arg(value_hint = clap::ValueHint::FilePath)]
    path: PathBuf,
    /// The old text
    #[arg(long, value_name = "TEXT", required = true, allow_hyphen_values = true)]
    old: Vec<String>,
    /// The new text; may be empty
    #[arg(long, value_name = "TEXT", required = true, allow_hyphen_values = true)]
    new: Vec<String>,
    /// Replace all occurrences of the old text
    #[arg(long)]
    all: bool,
    /// The SHA-256 that the file must have
    #[arg(long, value_name = "HASH")]
    expect: Option<Expected>,
}

pub(crate) fn run(invocation: &Invocation, args: &EditArgs) -> Result<Answer, CliError> {
    let path = invocation.path(&args.path)?;
    if args.old.len() != args.new.len() {
        return Err(CliError::usage(
            format!(
                "{} but {}",
                words::count(args.old.len(), "old text"),
                words::count(args.new.len(), "new text")
            ),
            "give one `--new` for each `--old`, in the same order; `--new ''` deletes the old text",
        ));
    }
    let edit = if args.all { Edit::all } else { Edit::once };
    let edits = args.old.iter().zip(&args.new).map(|(old, new)| edit(old, new)).collect();
    change_one(invocation, ChangeVerb::Edit, |gate, turn| {
        gate.edit(turn, path, edits, args.expect.unwrap_or_default())
    })
}
