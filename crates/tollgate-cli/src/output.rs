//! Printing: which stream gets what, and which exit code the process ends with.
//!
//! Invariant: with `--json`, stdout gets one JSON document and nothing else.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use serde::Serialize;
use tollgate::guard::Refused;
use tollgate::refusal::{ErrorType, Payload, Report};

use crate::answer::{Answer, Form, json_line};
use crate::error::CliError;
use crate::pager;
use crate::paint::Canvas;
use crate::words::{self, Viewpoint};

/// The payload of the first refusal, and those of all.
#[derive(Serialize)]
struct AllRefused {
    #[serde(flatten)]
    first: Payload,
    all: Vec<Payload>,
}

/// Prints an answer or an error, and returns the exit code.
pub(crate) fn print(view: &Viewpoint, form: Form, answer: &Result<Answer, CliError>) -> ExitCode {
    let (stdout, stderr, code) = match answer {
        Ok(Answer::Streamed) | Err(CliError::Hangup) => (String::new(), String::new(), 0),
        Ok(Answer::Done(said) | Answer::Table(said) | Answer::Long(said)) => {
            (said.stdout(form), said.stderr(form), 0)
        }
        Ok(Answer::Exit(code, said)) => (said.stdout(form), said.stderr(Form::Words), *code),
        Ok(Answer::NotValid(said)) => (said.refusal(form), said.stderr(form), 1),
        Ok(Answer::Refused(refused) | Answer::ReadRefused(refused)) if form == Form::Json => {
            (json_line(&refused.payload()), String::new(), 1)
        }
        Ok(Answer::AllRefused(refused)) if form == Form::Json => {
            (json_line(&AllRefused { first: refused.payload(), all: refused.payloads() }), String::new(), 1)
        }
        Ok(Answer::ReadRefused(refused)) => (String::new(), words::refused(view, refused), 1),
        // The reports are for programs, and a terminal has none behind it.
        Ok(Answer::Refused(refused) | Answer::AllRefused(refused)) if io::stdout().is_terminal() => {
            (String::new(), words::refused(view, refused), 1)
        }
        Ok(Answer::Refused(refused) | Answer::AllRefused(refused)) => {
            (reports_to_read_again(refused), words::refused(view, refused), 1)
        }
        Err(error @ CliError::Stdout(_)) => (String::new(), words::error(view, error), error.exit_code()),
        Err(error) if form == Form::Json => {
            (json_line(&words::error_json(error)), String::new(), error.exit_code())
        }
        Err(error) => (String::new(), words::error(view, error), error.exit_code()),
    };
    let (stdout, stderr) = match form {
        Form::Json => (stdout, stderr),
        Form::Words => {
            let canvas = Canvas::of(io::stdout());
            let is_table = matches!(answer, Ok(Answer::Table(_)));
            let stdout = if is_table { canvas.fit(&stdout) } else { stdout };
            (canvas.paint(&stdout), Canvas::of(io::stderr()).paint(&stderr))
        }
    };
    // If stderr cannot be written, there is no other place to report that.
    let _ = write(&mut io::stderr().lock(), &stderr);
    let is_long = matches!(answer, Ok(Answer::Long(_))) && form == Form::Words;
    if is_long && pager::show(&stdout) {
        return ExitCode::from(code);
    }
    match write(&mut io::stdout().lock(), &stdout).map_err(CliError::from) {
        Ok(()) | Err(CliError::Hangup) => ExitCode::from(code),
        Err(error) => {
            let _ = write(&mut io::stderr().lock(), &words::error(view, &error));
            ExitCode::from(error.exit_code())
        }
    }
}

/// Prints help, or why the command line is not valid, and returns the exit code. With `--json`, a usage error is a JSON
/// document on stdout like every other error.
pub(crate) fn print_parse_error(
    mut error: clap::Error,
    all: &clap::Command,
    words: impl Iterator<Item = OsString>,
) -> ExitCode {
    let given: Vec<OsString> = words.skip(1).take_while(|word| word != "--").collect();
    let command =
        given.iter().find(|word| all.find_subcommand(word).is_some()).and_then(|word| word.to_str());
    let tip = match (error.get(ContextKind::InvalidSubcommand), error.get(ContextKind::InvalidArg)) {
        (Some(ContextValue::String(unknown)), _) => {
            words::other_command(command.filter(|command| command != unknown), unknown)
        }
        (_, Some(ContextValue::String(first))) if error.kind() == ErrorKind::UnknownArgument => command
            .filter(|verb| ["run", "work"].contains(verb) && !first.starts_with('-'))
            .map(|verb| words::needs_dashes(verb, first)),
        _ => None,
    };
    if let Some(tip) = tip {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
        error.remove(ContextKind::SuggestedSubcommand);
    }
    let wants_json = given.iter().any(|word| word == "--json");
    // If neither stream can be written, there is no other place to report that.
    let _ = match wants_json && error.use_stderr() {
        true => write(&mut io::stdout().lock(), &json_line(&words::parse_error_json(&error.to_string()))),
        false => error.print(),
    };
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Prints a line on stdout at once, for a command that keeps running.
pub(crate) fn say(text: &str) -> Result<(), CliError> {
    Ok(write(&mut io::stdout().lock(), text)?)
}

/// A stream of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// Passes on what another program printed. If that cannot be written, there is no other place for it.
pub(crate) fn pass_on(stream: Stream, bytes: &[u8]) {
    let _ = match stream {
        Stream::Stdout => {
            let mut stdout = io::stdout().lock();
            stdout.write_all(bytes).and_then(|()| stdout.flush())
        }
        Stream::Stderr => io::stderr().lock().write_all(bytes),
    };
}

/// Prints a line on stderr at once, for a command that keeps running.
pub(crate) fn tell(text: &str) {
    let _ = write(&mut io::stderr().lock(), text);
}

fn write(stream: &mut impl Write, text: &str) -> io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    writeln!(stream, "{text}")?;
    stream.flush()
}

/// The reports about files that the agent must read again, in its own words.
fn reports_to_read_again(refused: &Refused) -> String {
    let reports = refused.reports();
    let is_meant = |kind| matches!(kind, ErrorType::StaleFile | ErrorType::PremiseChanged);
    let stale = reports.iter().filter(|report| is_meant(report.error_type));
    stale.map(|report: &Report| json_line(report)).collect::<Vec<_>>().join("\n")
}
