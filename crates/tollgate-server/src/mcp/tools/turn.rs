//! Tools for the turn itself.

use serde::Deserialize;
use serde_json::{Value, json};

use super::call::ToolCall;
use super::schema::{Input, Output, Shape, hash_or_null, nothing, text};
use super::tool::{Hints, Tool};
use crate::mcp::answer::ToolAnswer;

const TURN_ID: Output = Output(|| Shape::all(json!({"turn_id": text()})), None);

pub(super) static BEGIN_TURN: Tool = Tool {
    name: "begin_turn",
    title: "Begin Turn",
    description: "Begin a new turn. What you read before it no longer counts. Returns its `turn_id`. Call it \
        when you start on a new request. If you share this connection with other agents, pass the turn_id to all \
        other tools.",
    hints: Hints::Reads,
    input: Input(nothing, &[]),
    output: TURN_ID,
    run: begin,
};

fn begin(call: &ToolCall<'_>, _: Value) -> Result<ToolAnswer, ToolAnswer> {
    let begun = call.connection.begin()?;
    Ok(ToolAnswer::value(json!({"turn_id": begun.id()})))
}

pub(super) static END_TURN: Tool = Tool {
    name: "end_turn",
    title: "End Turn",
    description: "End the running turn, or the turn given by `turn_id`. What was read in it no longer \
        counts.",
    hints: Hints::Reads,
    input: Input(nothing, &[]),
    output: TURN_ID,
    run: end,
};

fn end(call: &ToolCall<'_>, _: Value) -> Result<ToolAnswer, ToolAnswer> {
    match call.connection.end(call.named.as_ref()) {
        Some(id) => Ok(ToolAnswer::value(json!({"turn_id": id}))),
        None => Err(ToolAnswer::failure("there is no running turn to end")),
    }
}

const INITIAL_HASH: Output =
    Output(|| Shape::all(json!({"file_path": text(), "initial_hash": hash_or_null()})), Some(Shape::refusal));

pub(super) static GET_INITIAL_HASH: Tool = Tool {
    name: "get_initial_hash",
    title: "Get Initial Hash",
    description: "Get the SHA-256 that a file had when this turn first saw it, or null. Does not read the \
        file.",
    hints: Hints::Reads,
    input: Input(initial_hash_properties, &["file_path"]),
    output: INITIAL_HASH,
    run: initial_hash,
};

fn initial_hash_properties() -> Value {
    json!({"file_path": {"type": "string"}})
}

#[derive(Deserialize)]
struct InitialHashArguments {
    file_path: String,
}

fn initial_hash(call: &ToolCall<'_>, value: Value) -> Result<ToolAnswer, ToolAnswer> {
    let given: InitialHashArguments = call.arguments(value)?;
    let given = call.path(&given.file_path)?;
    let path = call.canonical(&given)?;
    let hash = call.gate.get_initial_hash(call.turn()?.turn(), given)?;
    Ok(ToolAnswer::value(json!({"file_path": path.to_string(), "initial_hash": hash})))
}
