//! `tollgate hook`: what an agent program calls before and after its tools.

use std::io;

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::answer::{Answer, Stop};
use crate::door::Door;
use crate::{hook, host, words};

/// Answer an agent program that is about to use a tool, or has used it
///
/// Called by the agent program, as `tollgate init --host HOST` sets it up. Reads that program's JSON on standard input and
/// answers as it understands. Says nothing when all is well, and never answers "allow".
#[derive(Debug, Args)]
#[command(after_help = "Example\n  tollgate init --host all\n  tollgate hook HOST < event.json")]
pub(crate) struct Wish {
    /// The agent program
    #[arg(value_name = "HOST", value_parser = PossibleValuesParser::new(host::names()))]
    host: String,
}

pub(crate) fn run(door: &Door, wish: &Wish) -> Result<Answer, Stop> {
    let Some(host) = host::named(&wish.host) else { return Err(words::no_such_host(&wish.host)) };
    if let Some(answer) = hook::answer(host, door.everywhere(), io::stdin()) {
        use io::Write;
        // Whatever a program's hooks print is read as one JSON object.
        writeln!(io::stdout().lock(), "{answer}")?;
    }
    Ok(Answer::Streamed)
}
