//! What the text of a shell command says about files, before the command runs.
//!
//! Nothing is run, and little is evaluated: the text is split into simple commands, and the words of about fifty usual
//! programs are read. A word with a variable or the output of another command names no file. A command that changes a file of such
//! a name may change every file that its text names; see [`ToolPlan::vague`]. What this misses is not lost where commands run as
//! transactions, because the run judges what was changed. Elsewhere the hook after the command finds the change, too late.
//!
//! A write that may happen (in a branch, in a loop) is listed. A listed read counts only as far as the output shows the file.

mod arguments;
mod git;
mod glob;
mod launch;
mod people;
mod programs;
mod reader;
mod state;
mod syntax;
#[cfg(test)]
mod tests;
mod transfer;
mod word;

use std::path::Path;

use super::plan::ToolPlan;
use reader::Reader;

/// The longest text that is parsed, in bytes. Longer ones are the contents of files.
const LONGEST: usize = 4 << 20;

/// What a command does that runs in this folder.
pub(super) fn read(command: &str, folder: &Path, home: Option<&Path>) -> ToolPlan {
    let mut reader = Reader::new(folder, home);
    match (command.len() <= LONGEST).then(|| syntax::parse(command, home)) {
        Some(Ok(list)) => reader.list(&list, true),
        Some(Err(syntax::Unclear)) | None => reader.shell.unclear = true,
    }
    reader.finish(command)
}
