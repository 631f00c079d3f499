//! Tools for the turn itself.

use serde::Deserialize;
use serde_json::{Value, json};

use super::call::Call;
use crate::mcp::answer::Answer;

pub(super) fn begin(call: &Call<'_>, _: Value) -> Result<Answer, Answer> {
    let begun = call.connection.begin()?;
    Ok(Answer::value(json!({"turn_id": begun.id()})))
}

pub(super) fn end(call: &Call<'_>, _: Value) -> Result<Answer, Answer> {
    match call.connection.end(call.named.as_ref()) {
        Some(id) => Ok(Answer::value(json!({"turn_id": id}))),
        None => Err(Answer::failure("there is no running turn to end")),
    }
}

pub(super) fn initial_hash_properties() -> Value {
    json!({"file_path": {"type": "string"}})
}

#[derive(Deserialize)]
struct InitialHashArguments {
    file_path: String,
}

pub(super) fn initial_hash(call: &Call<'_>, value: Value) -> Result<Answer, Answer> {
    let given: InitialHashArguments = call.arguments(value)?;
    let given = call.path(&given.file_path)?;
    let path = call.canonical(&given)?;
    let hash = call.gate.get_initial_hash(call.turn()?.turn(), given)?;
    Ok(Answer::value(json!({"file_path": path.to_string(), "initial_hash": hash})))
}
