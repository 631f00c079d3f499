//! `tollgate hook`: what an agent program calls before and after its tools.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::answer::{Answer, Stop};
use crate::arguments::Everywhere;
use crate::door::Door;
use crate::host::Host;
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
    say(host, door.everywhere())?;
    Ok(Answer::Streamed)
}

/// The program, if this is `tollgate hook HOST` and nothing else, as the configuration has it.
pub(crate) fn called_plainly(words: impl Iterator<Item = OsString>) -> Option<&'static dyn Host> {
    let mut words = words.skip(1);
    let (command, host, end) = (words.next()?, words.next()?, words.next());
    if command == "hook" && end.is_none() { host::named(host.to_str()?) } else { None }
}

/// The same as [`run`], for a call without any options.
pub(crate) fn run_at_once(host: &'static dyn Host) -> ExitCode {
    match say(host, &Everywhere::default()) {
        Ok(()) => ExitCode::SUCCESS,
        // Nobody hears the answer. Whoever stands behind us in the configuration blocks.
        Err(_) => ExitCode::FAILURE,
    }
}

fn say(host: &'static dyn Host, everywhere: &Everywhere) -> io::Result<()> {
    match hook::answer(host, everywhere) {
        // Whatever a program's hooks print is read as one JSON object.
        Some(answer) => writeln!(io::stdout().lock(), "{answer}"),
        None => Ok(()),
    }
}
