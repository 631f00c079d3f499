//! What a command answers, and how it is printed: on which stream, in which form, with which exit code.
//!
//! Invariant: with `--json`, stdout gets one JSON document and nothing else, whatever happens.

use std::io::{self, Write};
use std::process::ExitCode;

use serde_json::{Value, json};
use tollgate::error::Fault;
use tollgate::guard::Refused;
use tollgate::refusal::{ErrorType, Report};

use crate::door::Door;
use crate::terminal::plain_json;
use crate::words;

/// In which form the answer is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Sentences.
    Words,
    /// One JSON document.
    Json,
}

/// What came of a command.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It was done.
    Done(Said),
    /// It was done, and what it looked at is not as it should be.
    NotValid(Said),
    /// It was done, and what it gave is on stdout already.
    Streamed,
    /// A change was refused, and nothing was changed.
    Refused(Refused),
    /// A read was refused. Its stdout belongs to the bytes of the file, so nothing else is said there.
    ReadRefused(Refused),
}

/// The same answer in both forms.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// For people, on stdout; lines without the last newline. Empty: nothing is said.
    pub(crate) words: String,
    /// What else people should know, on stderr.
    pub(crate) notes: String,
    /// For programs.
    pub(crate) json: Value,
}

/// Why a command gave no answer.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It was called in a way that makes no sense.
    Usage {
        /// What is wrong.
        message: String,
        /// What to do.
        hint: String,
    },
    /// Something went wrong.
    Fault(Fault),
    /// Whoever read our stdout has enough.
    Hangup,
    /// Our stdout takes nothing: its disk is full, say.
    Mute(io::Error),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        match fault {
            // So the gate calls what it does with our stdout.
            Fault::Io { doing: "hand out", source, .. } => source.into(),
            fault => Self::Fault(fault),
        }
    }
}

/// An error of stdout itself.
impl From<io::Error> for Stop {
    fn from(source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::BrokenPipe { Self::Hangup } else { Self::Mute(source) }
    }
}

impl Stop {
    pub(crate) fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Usage { message: message.into(), hint: hint.into() }
    }

    fn exit_code(&self) -> u8 {
        match self {
            // As `head` intends it when it has seen enough.
            Self::Hangup => 0,
            Self::Usage { .. } | Self::Fault(Fault::Invalid { .. }) => 2,
            Self::Fault(_) | Self::Mute(_) => 3,
        }
    }
}

/// One line of JSON, safe to show.
pub(crate) fn json_line(value: &impl serde::Serialize) -> String {
    // Nothing that is printed has keys that are not text, which is all that can fail here.
    plain_json(&serde_json::to_string(value).unwrap_or_default())
}

/// Prints it and says how the process should end.
pub(crate) fn print(door: &Door, answer: &Result<Answer, Stop>) -> ExitCode {
    let form = door.form();
    let (stdout, stderr, code) = match answer {
        Ok(Answer::Streamed) | Err(Stop::Hangup) => (String::new(), String::new(), 0),
        Ok(Answer::Done(said)) => (said.stdout(form), said.stderr(form), 0),
        Ok(Answer::NotValid(said)) => (said.stdout(form), said.stderr(form), 1),
        Ok(Answer::Refused(refused) | Answer::ReadRefused(refused)) if form == Form::Json => {
            (json_line(&refused.payload()), String::new(), 1)
        }
        Ok(Answer::ReadRefused(refused)) => (String::new(), words::refused(door, refused), 1),
        Ok(Answer::Refused(refused)) => (stale_reports(refused), words::refused(door, refused), 1),
        Err(stop @ Stop::Mute(_)) => (String::new(), words::stop(door, stop), stop.exit_code()),
        Err(stop) if form == Form::Json => (json_line(&stop_json(stop)), String::new(), stop.exit_code()),
        Err(stop) => (String::new(), words::stop(door, stop), stop.exit_code()),
    };
    // If nobody reads stderr there is nobody to tell.
    let _ = say(&mut io::stderr().lock(), &stderr);
    match say(&mut io::stdout().lock(), &stdout).map_err(Stop::from) {
        Ok(()) | Err(Stop::Hangup) => ExitCode::from(code),
        Err(stop) => {
            let _ = say(&mut io::stderr().lock(), &words::stop(door, &stop));
            ExitCode::from(stop.exit_code())
        }
    }
}

impl Said {
    fn stdout(&self, form: Form) -> String {
        match form {
            Form::Words => self.words.clone(),
            Form::Json => json_line(&self.json),
        }
    }

    fn stderr(&self, form: Form) -> String {
        match form {
            Form::Words => self.notes.clone(),
            Form::Json => String::new(),
        }
    }
}

fn say(stream: &mut impl Write, text: &str) -> io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    writeln!(stream, "{text}")?;
    stream.flush()
}

fn stale_reports(refused: &Refused) -> String {
    let reports = refused.reports();
    let stale = reports.iter().filter(|report| report.error_type == ErrorType::StaleFile);
    stale.map(|report: &Report| json_line(report)).collect::<Vec<_>>().join("\n")
}

pub(crate) fn stop_json(stop: &Stop) -> Value {
    match stop {
        Stop::Usage { message, hint } => json!({"error": "USAGE", "message": message, "hint": hint}),
        Stop::Fault(fault) => {
            json!({"error": fault.code(), "message": fault.to_string(), "hint": words::hint(fault)})
        }
        Stop::Hangup | Stop::Mute(_) => Value::Null,
    }
}
