//! One file per command: its arguments, which clap shows as its help, and what it does.

pub(crate) mod apply;
pub(crate) mod completions;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod doctor;
pub(crate) mod edit;
pub(crate) mod hook;
pub(crate) mod init;
pub(crate) mod ledger;
pub(crate) mod mcp;
pub(crate) mod move_file;
pub(crate) mod read;
pub(crate) mod recovery;
pub(crate) mod serve;
pub(crate) mod sync;
pub(crate) mod task;
pub(crate) mod turn;
pub(crate) mod work;
pub(crate) mod write;

use std::io::{self, IsTerminal, Read};

use serde_json::{Value, json};
use tollgate::commit::Applied;
use tollgate::digest::Digest;
use tollgate::error::{Fault, Result};
use tollgate::gate::Gate;
use tollgate::guard::{Expected, Outcome};
use tollgate::turn::Sightings;

use crate::answer::{Answer, Said, Stop};
use crate::door::Door;
use crate::{base64, words};

/// What was asked for, where the change itself only tells that a file has other bytes now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    /// To write it.
    Write,
    /// To edit it.
    Edit,
    /// To bring back what it was.
    Restore,
}

/// Makes changes through the gate, in the turn that was named or in one of their own, and tells about them.
fn change(
    door: &Door,
    deed: Deed,
    make: impl FnOnce(&Gate, &dyn Sightings) -> Result<Outcome<Vec<Applied>>>,
    json: impl FnOnce(&[Applied]) -> Value,
) -> Result<Answer, Stop> {
    let gate = door.gate()?;
    let turn = door.turn()?;
    match make(&gate, turn.as_ref())? {
        Outcome::Done(applied) => {
            // The change stands. What a sweep cannot do now, the next one does.
            let _ = gate.workspace().sweep();
            Ok(Answer::Done(Said {
                words: words::applied(door, deed, &applied),
                notes: words::weaker_guarantees(door, &applied),
                json: json(&applied),
            }))
        }
        Outcome::Refused(refused) => Ok(Answer::Refused(refused)),
    }
}

fn change_one(
    door: &Door,
    deed: Deed,
    make: impl FnOnce(&Gate, &dyn Sightings) -> Result<Outcome<Applied>>,
) -> Result<Answer, Stop> {
    let make = |gate: &Gate, turn: &dyn Sightings| Ok(make(gate, turn)?.map(|applied| vec![applied]));
    change(door, deed, make, |applied| applied.first().map_or(Value::Null, applied_json))
}

fn applied_json(applied: &Applied) -> Value {
    let mut json = json!({
        "file_path": applied.path.to_string(),
        "hash_before": applied.before.digest(),
        "hash_after": applied.after.digest(),
        "change_id": applied.id,
        "guarantee": applied.guarantee,
    });
    if let Some(to) = &applied.moved_to {
        json["moved_to"] = to.to_string().into();
    }
    json
}

/// Everything on stdin.
fn stdin() -> Result<Vec<u8>, Stop> {
    let mut stdin = io::stdin().lock();
    if stdin.is_terminal() {
        words::tell_that_stdin_is_read();
    }
    let mut bytes = Vec::new();
    match stdin.read_to_end(&mut bytes) {
        Ok(_) => Ok(bytes),
        Err(source) => Err(Stop::Fault(Fault::Io { doing: "read", path: "standard input".into(), source })),
    }
}

/// `--expect`: a hash, or `absent`.
fn expected(text: &str) -> Result<Expected, String> {
    match text {
        "absent" => Ok(Expected::Absent),
        text => text.parse::<Digest>().map(Expected::Hash).map_err(|error| words::bad_expectation(&error)),
    }
}

/// Bytes in JSON: as text if they are text; else there is none, and they follow in base64.
fn put_content(json: &mut Value, bytes: Vec<u8>) {
    match String::from_utf8(bytes) {
        Ok(text) => json["content"] = text.into(),
        Err(error) => {
            json["content"] = Value::Null;
            json["content_base64"] = base64::encode(error.as_bytes()).into();
        }
    }
}
