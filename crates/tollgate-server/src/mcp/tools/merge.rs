//! The tool that merges a refused write with what is on disk.

use serde::Deserialize;
use serde_json::{Value, json};

use super::call::{ToolCall, done};
use super::schema::{Input, Output, Shape, text};
use super::tool::{Hints, Tool};
use crate::mcp::answer::ToolAnswer;

const MERGE: Output = Output(
    || {
        let flag = || json!({"type": "boolean"});
        Shape::all(json!({"clean": flag(), "content": text(), "diff": text(), "written": flag()}))
    },
    Some(Shape::refusal),
);

pub(super) static MERGE_FILE: Tool = Tool {
    name: "merge_file",
    title: "Merge File",
    description: "After a write or an edit was refused with STALE_FILE: merge what you wanted to write with what \
        is on disk. Returns the merged `content`, its `diff` from the disk, and whether it is `clean`. With \
        `write`, a clean merge is also written, so this one call replaces reading, redoing and writing. A merge \
        with conflicts has markers around them and is never written: resolve them, then write the whole file. \
        The merge counts as a read of the file.",
    hints: Hints::CHANGES,
    input: Input(properties, &["path"]),
    output: MERGE,
    run: merge,
};

fn properties() -> Value {
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

fn merge(call: &ToolCall<'_>, value: Value) -> Result<ToolAnswer, ToolAnswer> {
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
