//! Tools that change files. All of them go through the gate, and a refusal becomes the answer.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tollgate::commit::AppliedChange;
use tollgate::digest::Digest;
use tollgate::edit::Edit;
use tollgate::error::Fault;
use tollgate::guard::{Action, Change, Outcome};
use tollgate::path::FilePath;

use super::call::{ToolCall, done};
use super::schema::{Input, Output, with_expected_hash};
use super::tool::{Hints, Tool};
use crate::mcp::answer::ToolAnswer;
use crate::mcp::{flexible, patch};

pub(super) static WRITE_FILE: Tool = Tool {
    name: "write_file",
    title: "Write File",
    description: "Create a file, or replace its whole content. Creates missing parent directories. If the \
        file is not what you last read in this turn, the write is refused with STALE_FILE and nothing changes: \
        read the file again, redo your change on the new content, then write. Never repeat a refused write \
        unchanged. Only inside the allowed directories.",
    hints: Hints::OVERWRITES,
    input: Input(file_properties, &["path", "content"]),
    output: Output::TEXT,
    run: file,
};

fn file_properties() -> Value {
    with_expected_hash(json!({"path": {"type": "string"}, "content": {"type": "string"}}))
}

#[derive(Deserialize)]
struct FileArguments {
    path: String,
    content: String,
    expected_hash: Option<Digest>,
}

fn file(call: &ToolCall<'_>, value: Value) -> Result<ToolAnswer, ToolAnswer> {
    let given: FileArguments = call.arguments(value)?;
    let target = call.path(&given.path)?;
    let key = call.canonical(&target)?;
    let expected = call.expected_or_new(given.expected_hash, &key)?;
    let running = call.turn()?;
    let _lanes = running.writing([&key]);
    keeps_bytes(call, &key, &given.content)?;
    let applied = done(call.gate.write(running.turn(), target, given.content, expected))?;
    call.changed();
    Ok(written(format!("Successfully wrote to {}", given.path), &applied))
}

/// Refuses to destroy bytes that are not UTF-8. A read shows them as U+FFFD, so writing that character back would
/// replace them.
fn keeps_bytes(call: &ToolCall<'_>, path: &FilePath, content: &str) -> Result<(), ToolAnswer> {
    if !content.contains('\u{fffd}') {
        return Ok(());
    }
    match call.gate.peek(path) {
        Ok(Outcome::Done(read)) if str::from_utf8(&read.bytes).is_err() => Err(ToolAnswer::failure(format!(
            "`{path}` contains bytes that are not UTF-8, and your content has U+FFFD in their place: writing it would \
             destroy them\nhint: use edit_file, which changes only the text that you name"
        ))),
        Err(Fault::Invalid { .. }) => Err(ToolAnswer::failure(format!(
            "`{path}` is too large to be checked for bytes that are not UTF-8, and your content has U+FFFD, which stands \
             for such bytes\nhint: write content without U+FFFD"
        ))),
        // The gate reports every other problem with the file.
        _ => Ok(()),
    }
}

fn written(text: String, applied: &AppliedChange) -> ToolAnswer {
    ToolAnswer::text(text).with_sha256(applied.after.digest())
}

pub(super) static EDIT_FILE: Tool = Tool {
    name: "edit_file",
    title: "Edit File",
    description: "Replace parts of a text file. Each `oldText` must occur in the file exactly once and is \
        replaced with `newText`; everything else, including line ends, stays unchanged. Returns a diff; with \
        `dryRun` it only shows the diff and writes nothing. Refused with STALE_FILE if somebody else has changed \
        the file since you read it: read it again, then redo the edit. Only inside the allowed directories.",
    hints: Hints::CHANGES,
    input: Input(edit_properties, &["path", "edits"]),
    output: Output::TEXT,
    run: edit,
};

fn edit_properties() -> Value {
    with_expected_hash(json!({
        "path": {"type": "string"},
        "edits": edits_schema(),
        "dryRun": {"type": "boolean", "default": false, "description": "Only show the changes as a diff, without writing"},
    }))
}

fn edits_schema() -> Value {
    json!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "oldText": {"type": "string", "description": "The text to replace, exactly as it is in the file; it must occur only once"},
                "newText": {"type": "string", "description": "The new text"},
            },
            "required": ["oldText", "newText"],
        },
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EditArgument {
    old_text: String,
    new_text: String,
}

#[derive(Deserialize)]
struct EditArguments {
    path: String,
    edits: Vec<EditArgument>,
    #[serde(default, rename = "dryRun")]
    dry_run: bool,
    expected_hash: Option<Digest>,
}

fn edit(call: &ToolCall<'_>, value: Value) -> Result<ToolAnswer, ToolAnswer> {
    let given: EditArguments = call.arguments(value)?;
    let target = call.path(&given.path)?;
    let key = call.canonical(&target)?;
    let running = call.turn()?;
    if given.dry_run {
        call.shows(&target)?;
        let _lane = running.reading(&key);
        let edits = exact(call, &key, given.edits)?;
        let preview = done(call.gate.preview(&target, &edits))?;
        let diff = patch::fenced(preview.path.as_path(), &preview.before, &preview.after);
        return Ok(ToolAnswer::text(diff).with_sha256(Some(preview.sha256)));
    }
    let expected = call.expected(given.expected_hash)?;
    let _lanes = running.writing([&key]);
    let edits = exact(call, &key, given.edits)?;
    // Only for the diff. If the preview is refused, the edit is refused, too, and the answer is that refusal.
    let preview = call.gate.preview(&target, &edits);
    let applied = done(call.gate.edit(running.turn(), target, edits, expected))?;
    call.changed();
    let diff = match preview {
        Ok(Outcome::Done(preview)) if Some(preview.sha256) == applied.before.digest() => {
            let diff = patch::fenced(preview.path.as_path(), &preview.before, &preview.after);
            Some(written(diff, &applied))
        }
        _ => None,
    };
    // The file was changed, so an answer without the diff is better than none.
    Ok(diff
        .filter(|answer| answer.encoded().is_some())
        .unwrap_or_else(|| written(format!("Successfully edited {}", given.path), &applied)))
}

/// The edits, with the old text exactly as it is in the file.
fn exact(call: &ToolCall<'_>, path: &FilePath, edits: Vec<EditArgument>) -> Result<Vec<Edit>, ToolAnswer> {
    let edits: Vec<Edit> = edits.into_iter().map(|edit| Edit::once(edit.old_text, edit.new_text)).collect();
    match call.gate.peek(path) {
        Ok(Outcome::Done(read)) => {
            // Every edit searches what the edits before it have made.
            let largest = read.bytes.len() + edits.iter().map(|edit| edit.new.len()).sum::<usize>();
            if edits.len().saturating_mul(largest) > MOST_SEARCHED {
                return Err(ToolAnswer::failure(format!(
                    "{} edits are too many for one call on a file of this size\nhint: make fewer edits in one call, or \
                     write the whole file with write_file",
                    edits.len()
                )));
            }
            Ok(flexible::exact(&read.bytes, edits))
        }
        Err(fault @ Fault::Invalid { .. }) => {
            Err(ToolAnswer::failure(format!("{fault}\nhint: write the whole file with write_file")))
        }
        // The gate reports a file that cannot be read.
        _ => Ok(edits),
    }
}

/// The bytes that the edits of one call search: every edit searches the whole file.
const MOST_SEARCHED: usize = 1 << 30;

pub(super) static MOVE_FILE: Tool = Tool {
    name: "move_file",
    title: "Move File",
    description: "Move or rename a file or a directory. The destination must not exist. A file that somebody \
        else has changed since you read it is not moved: read it again first. Source and destination must both \
        be inside the allowed directories.",
    hints: Hints::CHANGES,
    input: Input(move_properties, &["source", "destination"]),
    output: Output::TEXT,
    run: move_to,
};

fn move_properties() -> Value {
    with_expected_hash(json!({"source": {"type": "string"}, "destination": {"type": "string"}}))
}

#[derive(Deserialize)]
struct MoveArguments {
    source: String,
    destination: String,
    expected_hash: Option<Digest>,
}

fn move_to(call: &ToolCall<'_>, value: Value) -> Result<ToolAnswer, ToolAnswer> {
    let given: MoveArguments = call.arguments(value)?;
    let (source, destination) = (call.path(&given.source)?, call.path(&given.destination)?);
    let text = format!("Successfully moved {} to {}", given.source, given.destination);
    let keys = [call.canonical(&source)?, call.canonical(&destination)?];
    let running = call.turn()?;
    // A link is moved itself, even if it leads to a folder.
    if keys[0].as_path().is_dir() && !call.gate.workspace().path().join(&source).is_symlink() {
        let _lanes = running.alone();
        done(call.gate.move_folder(running.turn(), source, destination))?;
        return Ok(ToolAnswer::text(text));
    }
    let expected = call.expected(given.expected_hash)?;
    let _lanes = running.writing(&keys);
    let applied = done(call.gate.move_file(running.turn(), source, destination, expected))?;
    call.changed();
    Ok(written(text, &applied))
}

pub(super) static DELETE_FILE: Tool = Tool {
    name: "delete_file",
    title: "Delete File",
    description: "Delete a file. Refused with STALE_FILE if somebody else has changed it since you read it: \
        read it again, then decide whether you still want to delete it. Only inside the allowed directories.",
    hints: Hints::OVERWRITES,
    input: Input(delete_properties, &["path"]),
    output: Output::TEXT,
    run: delete,
};

fn delete_properties() -> Value {
    with_expected_hash(json!({"path": {"type": "string"}}))
}

#[derive(Deserialize)]
struct DeleteArguments {
    path: String,
    expected_hash: Option<Digest>,
}

fn delete(call: &ToolCall<'_>, value: Value) -> Result<ToolAnswer, ToolAnswer> {
    let given: DeleteArguments = call.arguments(value)?;
    let target = call.path(&given.path)?;
    let key = call.canonical(&target)?;
    let expected = call.expected(given.expected_hash)?;
    let running = call.turn()?;
    let _lanes = running.writing([&key]);
    done(call.gate.delete(running.turn(), target, expected))?;
    call.changed();
    Ok(ToolAnswer::text(format!("Successfully deleted {}", given.path)))
}

pub(super) static WRITE_FILES: Tool = Tool {
    name: "write_files",
    title: "Write Files Together",
    description: "Change several files atomically: all changes are made, or none. Each change has a `path` \
        and one of `content` (replace the whole file), `edits` (replace parts) or `delete: true`. If any file is \
        not what you last read, the whole call is refused and the answer names every such file: read those \
        again, redo the changes, then call again with all of them.",
    hints: Hints::CHANGES,
    input: Input(several_properties, &["changes"]),
    output: Output::TEXT,
    run: several,
};

fn several_properties() -> Value {
    let change = with_expected_hash(json!({
        "path": {"type": "string"},
        "content": {"type": "string", "description": "The whole new content"},
        "edits": edits_schema(),
        "delete": {"type": "boolean", "description": "true: delete the file"},
    }));
    json!({"changes": {
        "type": "array",
        "minItems": 1,
        "items": {"type": "object", "properties": change, "required": ["path"]},
        "description": "The changes, each with a path and one of content, edits and delete",
    }})
}

/// The most files that one call changes. A model writes each of these paths, and all of them are locked until the last one
/// is written.
const MOST_CHANGES: usize = 1024;

#[derive(Deserialize)]
struct WriteSeveralArguments {
    changes: Vec<ChangeArgument>,
}

#[derive(Deserialize)]
struct ChangeArgument {
    path: String,
    content: Option<String>,
    edits: Option<Vec<EditArgument>>,
    #[serde(default)]
    delete: Option<bool>,
    expected_hash: Option<Digest>,
}

fn several(call: &ToolCall<'_>, value: Value) -> Result<ToolAnswer, ToolAnswer> {
    let given: WriteSeveralArguments = call.arguments(value)?;
    call.few("changes", given.changes.len(), MOST_CHANGES)?;
    let mut targets = Vec::with_capacity(given.changes.len());
    for change in &given.changes {
        let target = call.path(&change.path)?;
        targets.push((call.canonical(&target)?, target));
    }
    let running = call.turn()?;
    let _lanes = running.writing(targets.iter().map(|(key, _)| key));
    let mut names = Vec::with_capacity(targets.len());
    let mut changes = Vec::with_capacity(targets.len());
    for (change, (key, target)) in given.changes.into_iter().zip(targets) {
        let (action, expected) = match (change.content, change.edits, change.delete.unwrap_or(false)) {
            (Some(content), None, false) => {
                keeps_bytes(call, &key, &content)?;
                let expected = call.expected_or_new(change.expected_hash, &key)?;
                (Action::Write(content.into_bytes()), expected)
            }
            (None, Some(edits), false) => {
                (Action::Edit(exact(call, &key, edits)?), call.expected(change.expected_hash)?)
            }
            (None, None, true) => (Action::Delete, call.expected(change.expected_hash)?),
            _ => {
                return Err(ToolAnswer::failure(format!(
                    "the change to `{}` needs exactly one of `content`, `edits` and `delete: true`",
                    change.path
                )));
            }
        };
        changes.push(Change::new(target, action).expecting(expected));
        names.push(change.path);
    }
    let applied = done(call.gate.apply(running.turn(), changes))?;
    call.changed();
    let hashes: Map<String, Value> = names
        .into_iter()
        .zip(&applied)
        .map(|(name, applied)| (name, json!(applied.after.digest())))
        .collect();
    let files = if applied.len() == 1 { "file" } else { "files" };
    Ok(ToolAnswer::text(format!("Successfully changed {} {files}", applied.len()))
        .with_meta("sha256", Value::Object(hashes)))
}
