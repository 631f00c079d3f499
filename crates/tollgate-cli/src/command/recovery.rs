//! `tollgate recovery`: bytes that guarded writes replaced.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::Value;
use tollgate::error::Fault;
use tollgate::recovery::Kept;

use crate::answer::{Answer, Form, Said, Stop};
use crate::door::Door;
use crate::{command, words};

/// List, show and restore what guarded writes replaced
///
/// Whatever a guarded write replaces or deletes is kept for a while, and so are writes of other programs that came too
/// late to reach the file. How long and how much is set under `[recovery]` in `.tollgate/config.toml`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate recovery list
  tollgate recovery show 0643c1d2e8a1f07b3a9c5d
  tollgate recovery restore 0643c1d2e8a1f07b3a9c5d")]
pub(crate) struct Wish {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List what is kept, newest first
    #[command(after_help = "Example\n  tollgate recovery list src/a.rs")]
    List {
        /// Only of this file
        #[arg(value_hint = clap::ValueHint::FilePath)]
        path: Option<PathBuf>,
    },
    /// Print the kept bytes
    #[command(after_help = "Example\n  tollgate recovery show 0643c1d2e8a1f07b3a9c5d | diff - src/a.rs")]
    Show {
        /// As `recovery list` names it
        id: String,
    },
    /// Put the kept bytes back where they were; what is there now is kept in its turn
    #[command(after_help = "Example\n  tollgate recovery restore 0643c1d2e8a1f07b3a9c5d")]
    Restore {
        /// As `recovery list` names it
        id: String,
    },
}

pub(crate) fn run(door: &Door, wish: &Wish) -> Result<Answer, Stop> {
    match &wish.what {
        What::List { path } => list(door, path.as_deref()),
        What::Show { id } => show(door, id),
        What::Restore { id } => {
            command::change_one(door, command::Deed::Restore, |gate, turn| gate.restore(turn, id))
        }
    }
}

fn list(door: &Door, path: Option<&std::path::Path>) -> Result<Answer, Stop> {
    let mut kept = Vec::new();
    if door.has_state()? {
        let workspace = door.workspace()?;
        kept = workspace.recovery()?;
        if let Some(path) = path {
            let path = workspace.canonical(door.path(path)?)?;
            kept.retain(|kept| kept.path == path);
        }
    }
    let json = kept.iter().map(kept_json).collect();
    Ok(Answer::Done(Said { words: words::kept(door, &kept), json, ..Said::default() }))
}

fn show(door: &Door, id: &str) -> Result<Answer, Stop> {
    if !door.has_state()? {
        return Err(Fault::Missing { what: format!("the recovery entry `{}`", id.escape_debug()) }.into());
    }
    let (kept, bytes) = door.workspace()?.recovered(id)?;
    match door.form() {
        Form::Words => {
            let mut stdout = io::stdout().lock();
            stdout.write_all(&bytes)?;
            stdout.flush()?;
            Ok(Answer::Streamed)
        }
        Form::Json => {
            let mut json = kept_json(&kept);
            command::put_content(&mut json, bytes);
            Ok(Answer::Done(Said { json, ..Said::default() }))
        }
    }
}

fn kept_json(kept: &Kept) -> Value {
    // Only maps with strange keys fail, and this has none.
    serde_json::to_value(kept).unwrap_or_default()
}
