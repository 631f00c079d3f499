//! Reading JSON from agent programs. Every field may be missing or have another type.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tollgate::edit::Edit;
use tollgate::turn::Extent;

use super::event::{Call, FileEffect, HookCall, HookEvent, ToolEffects};
use super::patch;

/// The text of the first of these fields that is text.
pub(super) fn text(value: &Value, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| value.get(name)?.as_str().map(str::to_owned))
}

/// The path in the first of these fields that is text.
pub(super) fn path(value: &Value, names: &[&str]) -> Option<PathBuf> {
    text(value, names).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Whether one of these fields is true.
pub(super) fn is(value: &Value, names: &[&str]) -> bool {
    names.iter().any(|name| value.get(name) == Some(&Value::Bool(true)))
}

/// Whether one of these fields exists and is not null.
pub(super) fn has(value: &Value, names: &[&str]) -> bool {
    names.iter().any(|name| value.get(name).is_some_and(|value| !value.is_null()))
}

/// A read: of a part if one of these fields limits it, otherwise of the whole file.
pub(super) fn read(input: &Value, paths: &[&str], limits: &[&str]) -> Vec<FileEffect> {
    let extent = if has(input, limits) { Extent::Part } else { Extent::Whole };
    path(input, paths).map(|path| FileEffect::Read(path, extent)).into_iter().collect()
}

/// An overwrite.
pub(super) fn write(input: &Value, paths: &[&str], texts: &[&str]) -> Vec<FileEffect> {
    changed(input, paths, |path| FileEffect::Write(path, text(input, texts)))
}

/// A change of the file in the first of these fields.
pub(super) fn changed(
    input: &Value,
    paths: &[&str],
    effect: impl FnOnce(PathBuf) -> FileEffect,
) -> Vec<FileEffect> {
    vec![path(input, paths).map_or(FileEffect::Unreadable, effect)]
}

/// The effects of the patch in the first of these fields.
pub(super) fn patched(input: &Value, names: &[&str]) -> Vec<FileEffect> {
    let effects = text(input, names).map(|text| patch::effects(&text)).unwrap_or_default();
    if effects.is_empty() { vec![FileEffect::Unreadable] } else { effects }
}

/// The effects of a tool that the program's file does not list: none, if it is one of these.
pub(super) fn other(tool: &str, harmless: &[&str]) -> ToolEffects {
    // The tools of our own MCP server are guarded by themselves.
    let ours = tool.split(|c: char| !c.is_alphanumeric()).any(|part| part == "tollgate");
    if ours || harmless.contains(&tool) { ToolEffects::none() } else { ToolEffects::Unknown }
}

/// Whether a text that may not be valid JSON has this field, and not inside another text.
pub(super) fn mentions(text: &str, field: &str) -> bool {
    let field = format!("\"{field}\"");
    text.match_indices(&field).any(|(at, _)| text[at + field.len()..].trim_start().starts_with(':'))
}

/// Whether a text that may not be valid JSON has this field with one of these values, and not inside another text.
pub(super) fn says(text: &str, field: &str, values: &[&str]) -> bool {
    let field = format!("\"{field}\"");
    text.match_indices(&field).any(|(at, _)| {
        let value = text[at + field.len()..].trim_start().strip_prefix(':').map(str::trim_start);
        let value = value.and_then(|rest| rest.strip_prefix('"')).and_then(|rest| rest.split('"').next());
        value.is_some_and(|value| values.contains(&value))
    })
}

/// One replacement of old text with new text.
pub(super) fn replacement(input: &Value, old: &[&str], new: &[&str], all: &[&str]) -> Option<Edit> {
    let (old, new) = (text(input, old)?, text(input, new)?);
    Some(if is(input, all) { Edit::all(old, new) } else { Edit::once(old, new) })
}

/// The fields that nearly all programs have in common. The caller adds the rest.
pub(super) fn heard(payload: &Value, session: &[&str], event: HookEvent) -> Result<HookCall, String> {
    Ok(HookCall {
        session: text(payload, session).ok_or_else(|| format!("it has no `{}`", session[0]))?,
        subagent: None,
        turn: None,
        model: text(payload, &["model"]),
        prompt: text(payload, &["prompt"]).filter(|_| event == HookEvent::Prompt),
        folder: path(payload, &["cwd"]).unwrap_or_else(|| PathBuf::from(".")),
        event,
    })
}

/// A call whose id, tool and arguments are in these fields.
pub(super) fn call(
    payload: &Value,
    [id, tool, input]: [&str; 3],
    effects: impl FnOnce(&str, &Value) -> ToolEffects,
) -> Result<Call, String> {
    let name = text(payload, &[tool]).ok_or_else(|| format!("it has no `{tool}`"))?;
    let input = match payload.get(input) {
        // Some programs send the arguments as JSON inside a string.
        Some(Value::String(text)) => serde_json::from_str(text).unwrap_or(Value::String(text.clone())),
        Some(value) => value.clone(),
        None => Value::Null,
    };
    Ok(Call { id: text(payload, &[id]), effects: effects(&name, &input), tool: name, input })
}

/// The tool call in the payload of an unknown event, or else the whole payload as the input of an unknown tool.
pub(super) fn unknown(payload: &Value, call: Result<Call, String>) -> HookEvent {
    let whole =
        || Call { id: None, tool: String::new(), input: payload.clone(), effects: ToolEffects::Unknown };
    HookEvent::Unknown(call.unwrap_or_else(|_| whole()))
}

/// Shell commands.
pub(super) fn shell(input: &Value, commands: &[&str], folders: &[&str]) -> ToolEffects {
    let command = commands.iter().find_map(|name| match input.get(name)? {
        Value::String(text) => Some(vec![text.clone()]),
        // A list of arguments that is run without a shell. The script after `-c` is one argument.
        Value::Array(words) => {
            let words: Option<Vec<&str>> = words.iter().map(Value::as_str).collect();
            Some(vec![words?.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")])
        }
        _ => None,
    });
    match command {
        Some(commands) => {
            ToolEffects::Shell { commands, folder: path(input, folders), keep_running: keeps_running(input) }
        }
        None => ToolEffects::Files(vec![FileEffect::Unreadable]),
    }
}

/// Whether a command keeps running while the agent goes on: Claude Code and Gemini CLI say so in a field of their own, Copilot
/// in a mode.
fn keeps_running(input: &Value) -> bool {
    is(input, &["run_in_background", "is_background", "detach"])
        || text(input, &["mode"]).is_some_and(|mode| mode == "async" || mode == "detached")
}

/// The command that prints a file.
pub(super) fn print(file: &Path) -> String {
    format!("cat {}", quoted(&file.display().to_string()))
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
