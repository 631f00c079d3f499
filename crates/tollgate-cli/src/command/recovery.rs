//! `tollgate recovery`: the bytes that guarded writes replaced.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::Value;
use tollgate::error::Fault;
use tollgate::recovery::RecoveryEntry;

use super::bytes::put_content;
use super::change::change_one;
use crate::answer::{Answer, Form, Reply};
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::report::change::ChangeVerb;
use crate::words;

/// List, show and restore the bytes that guarded writes replaced
///
/// tollgate keeps the bytes that a guarded write replaces or deletes for a while, and also late writes: bytes that another
/// program wrote to the old file after it was replaced. `[history]` in `.tollgate/config.toml` sets how long and how much.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate recovery list
  tollgate recovery show 0643c1d2e8a1f07b3a9c5d
  tollgate recovery restore 0643c1d2e8a1f07b3a9c5d")]
pub(crate) struct RecoveryArgs {
    #[command(subcommand)]
    command: RecoveryCommand,
}

#[derive(Debug, Subcommand)]
enum RecoveryCommand {
    /// List all entries, newest first
    #[command(after_help = "Example\n  tollgate recovery list src/a.rs")]
    List {
        /// Only entries of this file
        #[arg(value_hint = clap::ValueHint::FilePath)]
        path: Option<PathBuf>,
    },
    /// Print the kept bytes
    #[command(after_help = "Example\n  tollgate recovery show 0643c1d2e8a1f07b3a9c5d | diff - src/a.rs")]
    Show {
        /// The ID of an entry, from `recovery list`
        id: String,
    },
    /// Restore the kept bytes; recovery then keeps the bytes that they replace
    #[command(after_help = "Example\n  tollgate recovery restore 0643c1d2e8a1f07b3a9c5d")]
    Restore {
        /// The ID of an entry, from `recovery list`
        id: String,
    },
}

pub(crate) fn run(invocation: &Invocation, args: &RecoveryArgs) -> Result<Answer, CliError> {
    match &args.command {
        RecoveryCommand::List { path } => list(invocation, path.as_deref()),
        RecoveryCommand::Show { id } => show(invocation, id),
        RecoveryCommand::Restore { id } => {
            change_one(invocation, ChangeVerb::Restore, |gate, turn| gate.restore(turn, id))
        }
    }
}

fn list(invocation: &Invocation, path: Option<&std::path::Path>) -> Result<Answer, CliError> {
    let mut kept = Vec::new();
    if invocation.has_state()? {
        let workspace = invocation.workspace()?;
        kept = workspace.recovery()?;
        if let Some(path) = path {
            let path = workspace.canonical(invocation.path(path)?)?;
            kept.retain(|kept| kept.path == path);
        }
    }
    let json = kept.iter().map(kept_json).collect();
    let words = words::kept(&invocation.viewpoint(), &kept);
    Ok(Answer::Table(Reply::new(words, json)))
}

fn show(invocation: &Invocation, id: &str) -> Result<Answer, CliError> {
    if !invocation.has_state()? {
        return Err(Fault::no_recovery_entry(id).into());
    }
    let (kept, bytes) = invocation.workspace()?.recovered(id)?;
    match invocation.form() {
        Form::Words => {
            let mut stdout = io::stdout().lock();
            stdout.write_all(&bytes)?;
            stdout.flush()?;
            Ok(Answer::Streamed)
        }
        Form::Json => {
            let mut json = kept_json(&kept);
            put_content(&mut json, bytes);
            Ok(Answer::Done(Reply { json, ..Reply::default() }))
        }
    }
}

fn kept_json(kept: &RecoveryEntry) -> Value {
    // Serialising fails only for maps whose keys are not text, and this has none.
    serde_json::to_value(kept).unwrap_or_default()
}
