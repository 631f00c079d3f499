//! Reading JSON from agent programs. Every field may be missing or have another type.

use std::path::PathBuf;

use serde_json::Value;
use tollgate::edit::Edit;
use tollgate::turn::Extent;

use super::event::{Call, Deed, Deeds, Heard, HookEvent};

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
pub(super) fn read(input: &Value, paths: &[&str], limits: &[&str]) -> Vec<Deed> {
    let extent = if has(input, limits) { Extent::Part } else { Extent::Whole };
    path(input, paths).map(|path| Deed::Read(path, extent)).into_iter().collect()
}

/// An overwrite.
pub(super) fn write(input: &Value, paths: &[&str], texts: &[&str]) -> Vec<Deed> {
    path(input, paths).map(|path| Deed::Write(path, text(input, texts))).into_iter().collect()
}

/// One replacement of old text with new text.
pub(super) fn replacement(input: &Value, old: &[&str], new: &[&str], all: &[&str]) -> Option<Edit> {
    let (old, new) = (text(input, old)?, text(input, new)?);
    Some(if is(input, all) { Edit::all(old, new) } else { Edit::once(old, new) })
}

/// The fields that nearly all programs have in common. The caller adds the rest.
pub(super) fn heard(payload: &Value, session: &[&str], event: HookEvent) -> Result<Heard, String> {
    Ok(Heard {
        session: text(payload, session).ok_or_else(|| format!("it has no `{}`", session[0]))?,
        subagent: None,
        turn: None,
        folder: path(payload, &["cwd"]).unwrap_or_else(|| PathBuf::from(".")),
        event,
    })
}

/// A call whose id, tool and arguments are in these fields.
pub(super) fn call(
    payload: &Value,
    [id, tool, input]: [&str; 3],
    deeds: impl FnOnce(&str, &Value) -> Deeds,
) -> Result<Call, String> {
    let name = text(payload, &[tool]).ok_or_else(|| format!("it has no `{tool}`"))?;
    let input = match payload.get(input) {
        // Some programs send the arguments as JSON inside a string.
        Some(Value::String(text)) => serde_json::from_str(text).unwrap_or(Value::String(text.clone())),
        Some(value) => value.clone(),
        None => Value::Null,
    };
    Ok(Call { id: text(payload, &[id]), deeds: deeds(&name, &input), tool: name, input })
}

/// Shell commands.
pub(super) fn shell(input: &Value, commands: &[&str], folders: &[&str]) -> Deeds {
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
        Some(commands) => Deeds::Shell { commands, folder: path(input, folders) },
        None => Deeds::none(),
    }
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
