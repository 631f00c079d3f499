//! The person at this terminal: reads a text, then types the answer.
//!
//! What only people may decide is decided here or on the dashboard. A [`Person`] exists only if standard input and standard
//! error are terminals and neither an agent nor a command of a run has started this process, so a pipe, an option or an
//! environment variable cannot decide. In a run the kernel says so, whatever the command does to its environment.

use std::io::{self, BufRead, IsTerminal};

use rustix::termios::{QueueSelector, tcflush};

use crate::error::{CliError, NoPerson};
use crate::invocation::Invocation;
use crate::output;

/// Proof that somebody can read and type here.
pub(crate) struct Person(());

impl Person {
    /// The person at this terminal, or why there is none.
    pub(crate) fn here(invocation: &Invocation) -> Result<Self, NoPerson> {
        if invocation.is_for_a_run() {
            return Err(NoPerson::InRun);
        }
        let named = invocation.named_agent().map(|agent| agent.as_str().to_owned());
        if let Some(agent) = named.or_else(|| invocation.inside_an_agent()) {
            return Err(NoPerson::Agent(agent));
        }
        if io::stdin().is_terminal() && io::stderr().is_terminal() {
            Ok(Self(()))
        } else {
            Err(NoPerson::NoTerminal)
        }
    }

    /// Shows a text and a question on stderr. Whether the person then typed `yes`.
    pub(crate) fn agrees(&self, text: &str, question: &str) -> Result<bool, CliError> {
        output::tell(text);
        // What was typed before the text was shown is not an answer to it.
        tcflush(io::stdin(), QueueSelector::IFlush).map_err(io::Error::from)?;
        output::tell(question);
        let mut answer = String::new();
        match io::stdin().lock().read_line(&mut answer) {
            Ok(_) => Ok(answer.trim() == "yes"),
            // Not text, so not a yes.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
