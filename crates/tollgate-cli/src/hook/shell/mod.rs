//! The effects of a shell command on files, as far as its text tells.
//!
//! The text is parsed with the grammar of Bash. Nothing is run. A word whose value is not known (an environment variable, the
//! output of another command) names no file. `${x:-default}` counts as its default unless the command sets `x`; `$(pwd)`, the
//! root of the git repository and a simple `find` are evaluated here. A command that changes a file of such a name may
//! change every file that its text names; see [`Effects::gave_up`]. Changes that are missed here are found afterwards, because
//! after each command the hook looks at the turn's files again.
//!
//! Every command and process substitution that a shell would run is followed, wherever it is in the text.
//!
//! Both lists err on the safe side. A write that may happen (in a branch, in a loop) is listed. A listed read counts only as
//! far as the output shows the file; see [`shown_in`].

mod after_program;
mod arguments;
mod effects;
mod environment;
mod expansion;
mod find;
mod git;
mod glob;
mod launch;
mod list;
mod our_calls;
mod people;
mod programs;
mod reader;
mod redirect;
mod scripts;
mod shown;
mod state;
mod statement;
mod substitution;
#[cfg(test)]
mod tests;
mod transfer;
mod tree;
mod word;

pub(crate) use effects::{ActsAs, Effects};
pub(crate) use reader::effects;
pub(crate) use shown::shown_in;
