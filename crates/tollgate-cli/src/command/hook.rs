//! `tollgate hook`: called by an agent program before and after each of its tools.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;
use tollgate::visible::plain;

use crate::answer::Answer;
use crate::error::CliError;
use crate::global_args::GlobalArgs;
use crate::host::Host;
use crate::invocation::Invocation;
use crate::{hook, host};

/// Check an agent program's tool call, before and after it runs
///
/// The agent program calls this command, as configured by `tollgate init --host HOST`. It reads that program's JSON on
/// standard input and answers in that program's format. If the call may proceed, it prints nothing; it never answers "allow".
#[derive(Debug, Args)]
#[command(after_help = "Example\n  tollgate init --host all\n  tollgate hook HOST < event.json")]
pub(crate) struct HookArgs {
    /// The agent program
    #[arg(value_name = "HOST", value_parser = PossibleValuesParser::new(host::names()))]
    host: String,
}

pub(crate) fn run(invocation: &Invocation, args: &HookArgs) -> Result<Answer, CliError> {
    let Some(host) = host::named(&args.host) else {
        return Err(CliError::usage(
            format!("unknown agent program `{}`", plain(&args.host)),
            "run `tollgate hook --help` to see all agent programs",
        ));
    };
    say(host, invocation.global())?;
    Ok(Answer::Streamed)
}

/// The agent program, if the call is exactly `tollgate hook HOST`, as in the configuration that `init` writes.
pub(crate) fn called_plainly(words: impl Iterator<Item = OsString>) -> Option<&'static dyn Host> {
    let mut words = words.skip(1);
    let (command, host, end) = (words.next()?, words.next()?, words.next());
    if command == "hook" && end.is_none() { host::named(host.to_str()?) } else { None }
}

/// Answers a call without options, which does not go through clap.
pub(crate) fn run_at_once(host: &'static dyn Host) -> ExitCode {
    match say(host, &GlobalArgs::default()) {
        Ok(()) => ExitCode::SUCCESS,
        // The answer cannot be printed. With this exit code, the command after `||` in the configuration blocks.
        Err(_) => ExitCode::FAILURE,
    }
}

fn say(host: &'static dyn Host, global: &GlobalArgs) -> io::Result<()> {
    // The whole program runs in a run, which guards what its tools do.
    if tollgate_run::level_here().is_some() {
        return Ok(());
    }
    match hook::answer(host, global) {
        // Agent programs read the output of a hook as one JSON object.
        Some(answer) => writeln!(io::stdout().lock(), "{answer}"),
        None => Ok(()),
    }
}
