//! `tollgate turn`: a turn shared by several commands.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tollgate::name::TurnId;
use tollgate::turn::{Extent, TurnState};

use crate::answer::{Answer, Reply};
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::words;

/// Start, end and show a turn: the files that an agent has read, and may therefore overwrite
///
/// A turn records the hash of every file that was read in it. A write in the turn is made only if the file still has that
/// hash. Between commands a private folder in memory holds the turn; no background process runs. A turn that is not used for
/// a day is deleted.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  export TOLLGATE_TURN=$(tollgate turn begin --agent blue)
  tollgate read notes.md
  tollgate turn show
  tollgate turn end")]
pub(crate) struct TurnArgs {
    #[command(subcommand)]
    command: TurnCommand,
}

#[derive(Debug, Subcommand)]
enum TurnCommand {
    /// Start a turn and print its ID, for --turn or TOLLGATE_TURN
    #[command(after_help = "Example\n  export TOLLGATE_TURN=$(tollgate turn begin --agent blue)")]
    Begin,
    /// End a turn
    ///
    /// The recorded hashes are deleted. With `unread = "known"` in the configuration, the last hash of each file is kept for
    /// the agent's later turns.
    #[command(after_help = "Example\n  tollgate turn end --turn t-0123456789abcdef")]
    End,
    /// Show the files of a turn, each with its first and its last hash
    #[command(after_help = "Example\n  tollgate turn show --json")]
    Show,
    /// List the running turns of this workspace
    #[command(after_help = "Example\n  tollgate turn list")]
    List,
    /// Print the hash that a file had when it was first read in the turn
    ///
    /// Does not read the file. If the turn has not read the file, or if no read succeeded, the hash is `none` (in JSON:
    /// null).
    #[command(after_help = "Example\n  tollgate turn hash src/a.rs")]
    Hash {
        /// The file, in any spelling of its path
        #[arg(value_hint = clap::ValueHint::FilePath)]
        path: PathBuf,
    },
}

pub(crate) fn run(invocation: &Invocation, args: &TurnArgs) -> Result<Answer, CliError> {
    match &args.command {
        TurnCommand::Begin => begin(invocation),
        TurnCommand::End => end(invocation),
        TurnCommand::Show => show(invocation),
        TurnCommand::List => list(invocation),
        TurnCommand::Hash { path } => hash(invocation, path),
    }
}

fn begin(invocation: &Invocation) -> Result<Answer, CliError> {
    let agent = invocation.agent()?;
    let gate = invocation.gate()?;
    let leaves = gate.workspace().settings().into();
    let turns = invocation.new_turns()?;
    gate.workspace().record_forgotten_turns(&turns)?;
    let turn = turns.begin(TurnId::new()?, agent, invocation.now(), leaves)?;
    gate.record_turn_start(&turn)?;
    Ok(Answer::Done(Reply::new(turn.id().to_string(), json!({"turn_id": turn.id()}))))
}

fn end(invocation: &Invocation) -> Result<Answer, CliError> {
    let gate = invocation.gate()?;
    let (turns, turn) = invocation.shared_turn()?;
    gate.record_turn_end(&turn)?;
    let (id, files) = (turn.id().clone(), turn.files()?.len());
    turns.end(turn)?;
    let _ = gate.workspace().sweep();
    Ok(Answer::Done(Reply::new(
        words::turn_ended(&id, files),
        json!({"turn_id": id, "ended": true, "files": files}),
    )))
}

fn show(invocation: &Invocation) -> Result<Answer, CliError> {
    let (_, turn) = invocation.shared_turn()?;
    let files = turn.files()?;
    let json: Vec<Value> = files
        .iter()
        .map(|(path, sighting)| {
            json!({
                "path": path.to_string(),
                "initial_hash": sighting.initial(),
                "baseline_hash": sighting.baseline(Extent::Whole).digest(),
            })
        })
        .collect();
    Ok(Answer::Done(Reply::new(
        words::turn_shown(&invocation.viewpoint(), &turn, &files),
        json!({"turn_id": turn.id(), "agent": turn.agent(), "files": json}),
    )))
}

fn list(invocation: &Invocation) -> Result<Answer, CliError> {
    let mut turns = Vec::new();
    for place in invocation.existing_turns()? {
        for turn in place.list()? {
            let files = turn.files()?.len();
            turns.push((turn, files));
        }
    }
    turns.sort_by_key(|(turn, _)| turn.started());
    let json: Vec<Value> = turns
        .iter()
        .map(|(turn, files)| {
            let (id, agent, started) = (turn.id(), turn.agent(), turn.started());
            json!({"turn_id": id, "agent": agent, "started": started, "files": files})
        })
        .collect();
    Ok(Answer::Done(Reply::new(words::turns(&invocation.viewpoint(), &turns), json.into())))
}

fn hash(invocation: &Invocation, path: &std::path::Path) -> Result<Answer, CliError> {
    let (_, turn) = invocation.shared_turn()?;
    let gate = invocation.gate()?;
    let given = invocation.path(path)?;
    let path = gate.workspace().canonical(&given)?;
    let hash = gate.get_initial_hash(&turn, given)?;
    Ok(Answer::Done(Reply::new(
        hash.map_or_else(|| "none".into(), |hash| hash.to_string()),
        json!({"file_path": path.to_string(), "initial_hash": hash}),
    )))
}
