//! Why a command failed. A usage error has its sentences from the place where it was found; `words` finds those for a fault.
//!
//! A refused change is not an error: it is an [`Answer`](crate::answer::Answer).

use std::io;

use tollgate::error::Fault;

/// Why a command has no answer.
#[derive(Debug)]
pub(crate) enum CliError {
    /// The arguments, the environment or the input are not valid.
    Usage { message: String, hint: String },
    /// The library reported a fault.
    Fault(Fault),
    /// The library reported a fault in `tollgate run`, whose exit codes are those of its command.
    RunFailed(Fault),
    /// An error whose hint goes on with this text.
    WithHint(Box<CliError>, String),
    /// The reader of stdout has closed it.
    Hangup,
    /// Stdout cannot be written, for example because its disk is full.
    Stdout(io::Error),
}

/// Why nobody can decide here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoPerson {
    /// This agent runs the command, or is named in it.
    Agent(String),
    /// A command of `tollgate run` runs the command.
    InRun,
    /// Standard input or standard error is not a terminal.
    NoTerminal,
}

impl NoPerson {
    /// The word in JSON.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Agent(_) => "agent",
            Self::InRun => "in_run",
            Self::NoTerminal => "no_terminal",
        }
    }
}

impl From<Fault> for CliError {
    fn from(fault: Fault) -> Self {
        match fault {
            // The gate's name for copying a file to stdout.
            Fault::Io { doing: "hand out", source, .. } => source.into(),
            fault => Self::Fault(fault),
        }
    }
}

/// An error of stdout itself.
impl From<io::Error> for CliError {
    fn from(source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::BrokenPipe { Self::Hangup } else { Self::Stdout(source) }
    }
}

impl CliError {
    /// What is wrong with the arguments, the environment or the input, and what to give instead.
    pub(crate) fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Usage { message: message.into(), hint: hint.into() }
    }

    /// The exit code of the process.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            // `head` closes its input when it has enough lines. That is not a failure.
            Self::Hangup => 0,
            Self::Usage { .. } | Self::Fault(Fault::Invalid { .. } | Fault::Untrusted { .. }) => 2,
            Self::Fault(_) | Self::Stdout(_) => 3,
            Self::RunFailed(_) => 125,
            Self::WithHint(error, _) => error.exit_code(),
        }
    }
}
