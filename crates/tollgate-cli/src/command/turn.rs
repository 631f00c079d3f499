//! `tollgate turn`: a turn that several commands share.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tollgate::ledger::ActionType;
use tollgate::name::TurnId;
use tollgate::settings::Unread;
use tollgate::shared_turn::Leaves;
use tollgate::turn::{Extent, Sightings};

use crate::answer::{Answer, Said, Stop};
use crate::door::Door;
use crate::words;

/// Begin, end and look at a turn: what an agent has read, and may therefore overwrite
///
/// A turn remembers the hash of every file that was read in it. A write in the turn goes through only if the file is
/// still what the turn last knew. Between commands the turn is kept in a private folder in memory; nothing runs in the
/// background. A turn that nobody has used for a day is forgotten.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  export TOLLGATE_TURN=$(tollgate turn begin --agent blue)
  tollgate read notes.md
  tollgate turn show
  tollgate turn end")]
pub(crate) struct Wish {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Begin a turn and print its id, for --turn or TOLLGATE_TURN
    #[command(after_help = "Example\n  export TOLLGATE_TURN=$(tollgate turn begin --agent blue)")]
    Begin,
    /// End the turn: what it knew is gone
    ///
    /// With `unread = "known"` in the configuration, what the agent last knew of each file stays for its later turns.
    #[command(after_help = "Example\n  tollgate turn end --turn t-0123456789abcdef")]
    End,
    /// Show the files the turn knows, each with its first and its last known hash
    #[command(after_help = "Example\n  tollgate turn show --json")]
    Show,
    /// List the turns of this workspace that have not ended
    #[command(after_help = "Example\n  tollgate turn list")]
    List,
    /// Print the hash that a file had when the turn first saw it
    ///
    /// The file itself is not read. Of a file that the turn does not know, or that was not there, the hash is `none` (in
    /// JSON: null).
    #[command(after_help = "Example\n  tollgate turn hash src/a.rs")]
    Hash {
        /// The file, however it is spelled
        #[arg(value_hint = clap::ValueHint::FilePath)]
        path: PathBuf,
    },
}

pub(crate) fn run(door: &Door, wish: &Wish) -> Result<Answer, Stop> {
    match &wish.what {
        What::Begin => begin(door),
        What::End => end(door),
        What::Show => show(door),
        What::List => list(door),
        What::Hash { path } => hash(door, path),
    }
}

fn begin(door: &Door) -> Result<Answer, Stop> {
    let agent = door.agent()?;
    let gate = door.gate()?;
    let turn = door.new_turns()?.begin(TurnId::new()?, agent, door.now())?;
    gate.record_turn(&turn, ActionType::TurnStarted)?;
    Ok(Answer::Done(Said {
        words: turn.id().to_string(),
        json: json!({"turn_id": turn.id()}),
        ..Said::default()
    }))
}

fn end(door: &Door) -> Result<Answer, Stop> {
    let gate = door.gate()?;
    let (turns, turn) = door.shared_turn()?;
    let leaves = match gate.workspace().settings().guard.unread {
        Unread::Known => Leaves::Known,
        Unread::Allow | Unread::Refuse => Leaves::Nothing,
    };
    gate.record_turn(&turn, ActionType::TurnEnded)?;
    let (id, files) = (turn.id().clone(), turn.files()?.len());
    turns.end(turn, leaves)?;
    let _ = gate.workspace().sweep();
    Ok(Answer::Done(Said {
        words: words::turn_ended(&id, files, leaves),
        json: json!({"turn_id": id, "ended": true, "files": files}),
        ..Said::default()
    }))
}

fn show(door: &Door) -> Result<Answer, Stop> {
    let (_, turn) = door.shared_turn()?;
    let files = turn.files()?;
    let json: Vec<Value> = files
        .iter()
        .map(|(path, sighting)| {
            json!({
                "path": path.to_string(),
                "initial_hash": sighting.initial().digest(),
                "baseline_hash": sighting.baseline(Extent::Whole).digest(),
            })
        })
        .collect();
    Ok(Answer::Done(Said {
        words: words::turn_shown(door, &turn, &files),
        json: json!({"turn_id": turn.id(), "agent": turn.agent(), "files": json}),
        ..Said::default()
    }))
}

fn list(door: &Door) -> Result<Answer, Stop> {
    let mut turns = Vec::new();
    for place in door.existing_turns()? {
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
    Ok(Answer::Done(Said { words: words::turns(door, &turns), json: json.into(), ..Said::default() }))
}

fn hash(door: &Door, path: &std::path::Path) -> Result<Answer, Stop> {
    let (_, turn) = door.shared_turn()?;
    let gate = door.gate()?;
    let path = gate.workspace().canonical(door.path(path)?)?;
    let hash = gate.get_initial_hash(&turn, &path)?;
    Ok(Answer::Done(Said {
        words: hash.map_or_else(|| "none".into(), |hash| hash.to_string()),
        json: json!({"file_path": path.to_string(), "initial_hash": hash}),
        ..Said::default()
    }))
}
