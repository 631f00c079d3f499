//! Tools for the turn itself.

use serde::Deserialize;
use serde_json::{Value, json};

use super::call::ToolCall;
use crate::mcp::answer::ToolAnswer;

pub(super) fn begin(call: &ToolCall<'_>, _: Value) -> Result<ToolAnswer, ToolAnswer> {
    let begun = call.connection.begin()?;
    Ok(ToolAnswer::value(json!({"turn_id": begun.id()})))
}

pub(super) fn end(call: &ToolCall<'_>, _: Value) -> Result<ToolAnswer, ToolAnswer> {
    match call.connection.end(call.named.as_ref()) {
        Some(id) => Ok(ToolAnswer::value(json!({"turn_id": id}))),
        None => Err(ToolAnswer::failure("there is no running turn to end")),
    }
}

pub(super) fn initial_hash_properties() -> Value {
    json!({"file_path": {"type": "string"}})
}

#[derive(Deserialize)]
struct InitialHashArguments {
    file_path: String,
}

pub(super) fn initial_hash(call: &ToolCall<'_>, value: Value) -> Result<ToolAnswer, ToolAnswer> {
    let given: InitialHashArguments = call.arguments(value)?;
    let given = call.path(&given.file_path)?;
    let path = call.canonical(&given)?;
    let hash = call.gate.get_initial_hash(call.turn()?.turn(), given)?;
    Ok(ToolAnswer::value(json!({"file_path": path.to_string(), "initial_hash": hash})))
}
