//! `tollgate edit`: old text to new text.

use std::path::PathBuf;

use clap::Args;
use tollgate::edit::Edit;
use tollgate::guard::Expected;

use crate::answer::{Answer, Stop};
use crate::door::Door;
use crate::words;

/// Replace old text by new text in a file
///
/// The old text must be in the file exactly once, or with --all at least once. Several edits are made as one: give --old
/// and --new several times; each works on what the one before left. Everything else in the file stays byte for byte,
/// also its line endings.
///
/// The same rules as for `write` decide whether the file is stale. After a refusal, reading the lines around the edit is
/// enough to try again.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate edit src/a.rs --old 'let x = 1;' --new 'let x = 2;'
  tollgate edit src/a.rs --all --old colour --new color
  tollgate edit src/a.rs --old one --new 1 --old two --new 2")]
pub(crate) struct Wish {
    /// The file
    #[arg(value_hint = clap::ValueHint::FilePath)]
    path: PathBuf,
    /// The text that is there
    #[arg(long, value_name = "TEXT", required = true, allow_hyphen_values = true)]
    old: Vec<String>,
    /// The text that is to be there instead; may be empty
    #[arg(long, value_name = "TEXT", required = true, allow_hyphen_values = true)]
    new: Vec<String>,
    /// Replace the old text wherever it is
    #[arg(long)]
    all: bool,
    /// The SHA-256 that the file must have
    #[arg(long, value_name = "HASH", value_parser = super::expected)]
    expect: Option<Expected>,
}

pub(crate) fn run(door: &Door, wish: Wish) -> Result<Answer, Stop> {
    let path = door.path(&wish.path)?;
    if wish.old.len() != wish.new.len() {
        return Err(words::unpaired_edits(wish.old.len(), wish.new.len()));
    }
    let edit = if wish.all { Edit::all } else { Edit::once };
    let edits = wish.old.into_iter().zip(wish.new).map(|(old, new)| edit(old, new)).collect();
    super::change_one(door, super::Deed::Edit, |gate, turn| {
        gate.edit(turn, path, edits, wish.expect.unwrap_or_default())
    })
}
