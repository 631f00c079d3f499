//! The tool that merges a refused write with what is on disk.

use serde::Deserialize;
use serde_json::{Value, json};

use super::call::{ToolCall, done};
use crate::mcp::answer::ToolAnswer;

pub(super) fn properties() -> Value {
    json!({
        "path": {"type": "string"},
        "write": {
            "type": "boolean",
            "default": false,
            "description": "Write the merge if it is clean",
        },
    })
}

#[derive(Deserialize)]
struct MergeArguments {
    path: String,
    #[serde(default)]
    write: Option<bool>,
}

pub(super) fn merge(call: &ToolCall<'_>, value: Value) -> Result<ToolAnswer, ToolAnswer> {
    let given: MergeArguments = call.arguments(value)?;
    let target = call.readable(&given.path)?;
    let key = call.canonical(&target)?;
    let running = call.turn()?;
    let _lanes = running.writing([&key]);
    let agent = call.connection.server().agent();
    let merge = match call.gate.merge(running.turn(), &target, Some(agent))? {
        Ok(merge) => merge,
        Err(why) => {
            return Err(ToolAnswer::failure(format!(
                "`{}` cannot be merged: {why}\nhint: read the file again, redo your change on what you find, then write",
                given.path
            )));
        }
    };
    let write = merge.clean && given.write.unwrap_or(false);
    let answer = json!({
        "clean": merge.clean,
        "content": merge.content,
        "diff": merge.diff,
        "written": write,
    });
    if !write {
        let sha256 = Some(merge.disk);
        return Ok(ToolAnswer::value(answer).with_sha256(sha256));
    }
    let applied = done(call.gate.write_merge(running.turn(), merge))?;
    call.changed();
    Ok(ToolAnswer::value(answer).with_sha256(applied.after.digest()))
}
