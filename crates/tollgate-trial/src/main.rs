//! The actors of the trials, each in its own process: agents that use the gate, outsiders that are unaware of it, a naive
//! writer that checks and then writes, and single commits that are killed half-way.
//!
//! The answer is one JSON object on standard output. The exit status says what it is: 0 done, 1 refused, 2 a fault.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for tests, which read what it prints"
)]

mod agent;
mod change;
mod naive;
mod outsider;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tollgate::error::{Fault, Result};
use tollgate::workspace::{Options, Workspace};

use change::ChangeArg;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    actor: Actor,
}

#[derive(Subcommand)]
enum Actor {
    /// Adds numbered lines to a file through the gate: read, write, on refusal read again
    Agent(agent::Agent),
    /// Adds lines by check, temporary file and rename: the control, which loses updates
    Naive(naive::Naive),
    /// Writes a file like a program unaware of tollgate
    Outsider(outsider::Outsider),
    /// Reads the files, then makes all of these changes together
    Commit {
        #[arg(long)]
        root: PathBuf,
        /// `write:PATH:TEXT`, `create:PATH:TEXT`, `edit:PATH:OLD=NEW`, `delete:PATH`, `move:PATH:TO`; `folder:PATH:TO` or `undo:LINE` alone
        #[arg(required = true)]
        changes: Vec<ChangeArg>,
    },
    /// Opens the workspace, which heals what a crash left
    Heal {
        #[arg(long)]
        root: PathBuf,
    },
    /// Makes every late-write check, as if the grace time were over
    Sweep {
        #[arg(long)]
        root: PathBuf,
    },
}

/// The answer of an actor.
enum Answer {
    Done(Value),
    Refused(Value),
}

fn main() -> ExitCode {
    let answer = match Cli::parse().actor {
        Actor::Agent(agent) => agent.run(),
        Actor::Naive(naive) => naive.run(),
        Actor::Outsider(outsider) => outsider.run(),
        Actor::Commit { root, changes } => change::commit(&root, changes),
        Actor::Sweep { root } => sweep(&root),
        Actor::Heal { root } => Workspace::open(root, Options::default()).map(|_| Answer::Done(Value::Null)),
    };
    let (words, status) = match answer {
        Ok(Answer::Done(value)) => (value.to_string(), 0),
        Ok(Answer::Refused(value)) => (value.to_string(), 1),
        Err(fault) => {
            // Where the trial makes writing fail, the status must be enough.
            let _ = writeln!(std::io::stderr(), "{}: {fault}", fault.code());
            return ExitCode::from(2);
        }
    };
    let _ = writeln!(std::io::stdout(), "{words}");
    ExitCode::from(status)
}

fn sweep(root: &Path) -> Result<Answer> {
    let later = || Timestamp::now() + SignedDuration::from_hours(1);
    Workspace::open(root, Options { clock: Arc::new(later), ..Options::default() })?.sweep()?;
    Ok(Answer::Done(Value::Null))
}

/// Turns an error of the standard library into a fault.
fn at(doing: &'static str, path: &Path) -> impl Fn(std::io::Error) -> Fault {
    move |source| Fault::Io { doing, path: path.to_owned(), source }
}
