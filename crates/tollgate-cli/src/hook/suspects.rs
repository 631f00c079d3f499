//! The files that an unknown tool may change.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::plan::ToolPlan;
use super::shell;
use crate::host::patch;

/// The largest number of files of an unknown tool.
const SUSPECTS: usize = 200;

/// The largest number of texts of an unknown tool that are read as commands. Each may look at a hundred thousand names, and a tool
/// that runs commands has one or two of them.
const COMMANDS: usize = 10;

/// The longest text of an unknown tool that may be a command or a patch. Longer texts are the content of files.
const LONGEST_COMMAND: usize = 64 << 10;

/// The files that the input of an unknown tool names: as a text of its own, in a patch, or as the target of a shell command.
pub(super) fn suspects(input: &Value, folder: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let (mut suspects, mut commands) = (Vec::new(), 0);
    for text in texts_in(input) {
        if suspects.len() >= SUSPECTS {
            break;
        }
        if !text.contains(['\n', '\0']) {
            suspects.push(folder.join(text.strip_prefix("file://").unwrap_or(text)));
        }
        if text.len() > LONGEST_COMMAND {
            continue;
        }
        let mut plan = ToolPlan::default();
        patch::effects(text).iter().for_each(|effect| plan.add(effect, folder));
        if commands < COMMANDS && text.contains(|c: char| c.is_whitespace() || c == '>') {
            commands += 1;
            plan.follow(shell::read(text, folder, home));
        }
        suspects.extend(plan.changes.into_iter().map(|planned| planned.path));
    }
    suspects.truncate(SUSPECTS);
    suspects
}

/// The texts in an input that are not empty, in their order.
fn texts_in(input: &Value) -> Vec<&str> {
    match input {
        Value::Array(list) => list.iter().flat_map(texts_in).collect(),
        Value::Object(map) => map.values().flat_map(texts_in).collect(),
        Value::String(text) if !text.is_empty() => vec![text],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_some_texts_of_an_unknown_tool_are_read_as_commands() {
        let suspects = |texts: Vec<&str>| suspects(&texts.into(), Path::new("/w"), None);
        let (harmless, writes) = ("true\ntrue", "true\necho > a.txt");
        assert_eq!(suspects(vec![harmless, writes]), [Path::new("/w/a.txt")]);
        assert_eq!(suspects([vec![harmless; COMMANDS], vec![writes]].concat()), [] as [&Path; 0]);
        // One text may name many files.
        let many: String = (0..2 * SUSPECTS).map(|number| format!("echo > {number}\n")).collect();
        assert_eq!(suspects(vec![&many]).len(), SUSPECTS);
    }
}
