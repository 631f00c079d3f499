//! Installing hooks: adds our entries to a program's configuration, and removes them again.
//!
//! Everything else in a shared file stays as it is, and removing our entries restores the bytes that the file had before.
//! Installing twice is the same as installing once.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use tollgate::error::Fault;

use super::jsonc::{self, JsonStep};
use super::program_file::{damaged, parse, pretty, read, read_json, remove, restore, write};
use crate::replace::FileAccess;

/// The text that marks our entries.
const OURS: &str = "tollgate hook ";

/// The text that marks the prefix of a shell command, see [`crate::prefixed`].
pub(crate) const PREFIXED: &str = "tollgate run \"--prefixed\"";

/// The hooks in a program's configuration.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Setup {
    /// Entries in a JSON file that has other entries, too.
    Shared {
        /// The file, relative to the workspace.
        file: &'static str,
        /// The content of a new file.
        base: Value,
        /// Under `hooks`: the event, and the entry in its list.
        entries: Vec<(&'static str, Value)>,
        /// Under `env`: a variable of the program, and its value.
        variable: Option<(&'static str, &'static str)>,
    },
    /// Separate files: path, text and permissions.
    Own(Vec<(&'static str, String, FileAccess)>),
}

/// Whether a program would call the installed hooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The program needs no approval.
    NotNeeded,
    /// A person has approved the hooks.
    Given,
    /// A person must approve the hooks first. This is how.
    Missing(&'static str),
    /// A setting disables or changes the hooks: by which, and where.
    SwitchedOff(String),
}

impl Trust {
    /// What a person has to do before the hooks are called.
    pub(crate) fn what_to_do(&self) -> Option<&'static str> {
        match self {
            Self::NotNeeded | Self::Given => None,
            Self::Missing(how) => Some(how),
            Self::SwitchedOff(_) => Some("its hooks are disabled; run `tollgate doctor` to see where"),
        }
    }
}

/// What happened to the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SetupChange {
    /// Our entries were added.
    Written,
    /// Our entries were there already.
    Kept,
    /// Our entries were removed.
    Removed,
    /// There were no entries of ours.
    NothingToRemove,
    /// Only a person can change it.
    ByHand,
}

/// The shell command of a hook. It finds tollgate by name, and does nothing on a machine without tollgate.
pub(super) fn command(host: &str) -> String {
    format!("command -v tollgate >/dev/null 2>&1 || exit 0; {OURS}{host}")
}

/// The shell command of the hook before a tool. If the hook crashes, `otherwise` makes the program block the tool.
pub(super) fn command_or(host: &str, otherwise: &str) -> String {
    format!("{} || {otherwise}", command(host))
}

/// The `otherwise` for programs that an exit code of 2 blocks.
pub(super) const EXIT_2: &str =
    "{ echo 'the tollgate hook crashed; this write was blocked; see: tollgate doctor' >&2; exit 2; }";

/// Entries in the most common form: a list of groups, each with a matcher and its hooks.
pub(super) fn grouped(
    events: &[(&'static str, Option<&str>, String)],
    timeout: u64,
) -> Vec<(&'static str, Value)> {
    let group = |matcher: Option<&str>, command: &str| {
        let hooks = json!([{"type": "command", "command": command, "timeout": timeout}]);
        match matcher {
            Some(matcher) => json!({"matcher": matcher, "hooks": hooks}),
            None => json!({"hooks": hooks}),
        }
    };
    events.iter().map(|(event, matcher, command)| (*event, group(*matcher, command))).collect()
}

impl Setup {
    /// The configuration files, relative to the workspace.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        match self {
            Self::Shared { file, .. } => vec![file.into()],
            Self::Own(files) => files.iter().map(|(file, ..)| file.into()).collect(),
        }
    }

    /// Whether our entries are there, exactly as this version writes them.
    pub(crate) fn is_in_place(&self, root: &Path) -> Result<bool, Fault> {
        Ok(match self {
            Self::Shared { file, entries, variable, .. } => {
                let Some(there) = read_json(&root.join(file))? else { return Ok(false) };
                // A value that the user has chosen stays.
                let is_set = |(name, value)| {
                    let found = &there["env"][name];
                    *found == json!(value) || found.is_string() && !is_our_variable(found)
                };
                variable.is_none_or(is_set)
                    && entries.iter().all(|(event, entry)| {
                        there["hooks"][event].as_array().is_some_and(|list| list.contains(entry))
                    })
            }
            Self::Own(files) => files
                .iter()
                .all(|(file, text, _)| fs::read(root.join(file)).is_ok_and(|there| there == text.as_bytes())),
        })
    }

    /// The variable of the program, if it has the value that this version gives it.
    pub(crate) fn variable(&self, root: &Path) -> Result<Option<(&'static str, &'static str)>, Fault> {
        let Self::Shared { file, variable: Some((name, value)), .. } = self else { return Ok(None) };
        let there = read_json(&root.join(file))?.unwrap_or_default();
        Ok((there["env"][*name] == json!(value)).then_some((*name, *value)))
    }

    /// Whether any entry of ours is there, also of another version.
    pub(crate) fn is_there(&self, root: &Path) -> bool {
        self.files()
            .iter()
            .any(|file| fs::read_to_string(root.join(file)).is_ok_and(|text| text.contains(OURS)))
    }

    /// The command for the hook before a tool, as this version installs it. The configuration may have other commands, which
    /// came with the repository.
    pub(crate) fn command_before_a_tool(&self, root: &Path) -> Option<String> {
        match self {
            Self::Shared { entries, .. } => entries.iter().find_map(|(_, entry)| before_a_tool(entry)),
            Self::Own(files) => files.iter().find_map(|(file, text, _)| match jsonc::parse(text) {
                Ok(config) => before_a_tool(&config),
                Err(_) if text.starts_with("#!") => {
                    let script = root.join(file).display().to_string().replace('\'', "'\\''");
                    text.contains(" || ").then(|| format!("'{script}'"))
                }
                // A plugin, whose first line names the command.
                Err(_) => {
                    text.lines().next()?.split('`').find(|word| word.starts_with(OURS)).map(str::to_owned)
                }
            }),
        }
    }

    /// The files with our entries, as [`install`](Self::install) writes them. Empty if our entries are there.
    fn with_ours(&self, root: &Path) -> Result<Vec<(PathBuf, String, FileAccess)>, Fault> {
        if self.is_in_place(root)? {
            return Ok(Vec::new());
        }
        match self {
            Self::Shared { file, base, entries, variable } => {
                let path = root.join(file);
                let mut text = match read(&path)? {
                    Some(text) => without_ours(&path, text)?,
                    None => String::new(),
                };
                if text.is_empty() {
                    text = pretty(&with_hooks(base.clone(), entries));
                } else {
                    for (event, entry) in entries {
                        text = with_entry(&path, &text, event, entry)?;
                    }
                }
                if let Some((name, value)) = variable {
                    text = with_variable(&path, text, name, value)?;
                }
                Ok(vec![(path, text, FileAccess::Normal)])
            }
            Self::Own(files) => files
                .iter()
                .map(|(file, text, access)| {
                    let path = root.join(file);
                    match fs::read_to_string(&path) {
                        Ok(there) if !there.contains(OURS) => Err(damaged(
                            &path,
                            "it already has another hook; call `tollgate hook` from that hook",
                        )),
                        _ => Ok((path, text.clone(), *access)),
                    }
                })
                .collect(),
        }
    }

    /// A fault if our entries cannot be added. Changes nothing.
    pub(crate) fn can_install(&self, root: &Path) -> Result<(), Fault> {
        self.with_ours(root).map(drop)
    }

    /// Adds our entries.
    pub(crate) fn install(&self, root: &Path) -> Result<SetupChange, Fault> {
        let files = self.with_ours(root)?;
        for (path, text, access) in &files {
            write(path, text, *access)?;
        }
        Ok(if files.is_empty() { SetupChange::Kept } else { SetupChange::Written })
    }

    /// A fault if our entries cannot be removed. Changes nothing.
    pub(crate) fn can_uninstall(&self, root: &Path) -> Result<(), Fault> {
        match self {
            Self::Shared { file, .. } if self.is_there(root) => {
                let path = root.join(file);
                without_ours(&path, read(&path)?.unwrap_or_default()).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Removes our entries. All other entries stay.
    pub(crate) fn uninstall(&self, root: &Path) -> Result<SetupChange, Fault> {
        if !self.is_there(root) {
            return Ok(SetupChange::NothingToRemove);
        }
        match self {
            Self::Shared { file, base, .. } => {
                let path = root.join(file);
                let text = without_ours(&path, read(&path)?.unwrap_or_default())?;
                restore(root, &path, &text, base)?;
            }
            Self::Own(files) => {
                for (file, ..) in files {
                    let path = root.join(file);
                    if fs::read_to_string(&path).is_ok_and(|text| text.contains(OURS)) {
                        remove(root, &path)?;
                    }
                }
            }
        }
        Ok(SetupChange::Removed)
    }
}

/// A configuration with our entries.
fn with_hooks(mut base: Value, entries: &[(&'static str, Value)]) -> Value {
    for (event, entry) in entries {
        let list = &mut base["hooks"][*event];
        match list.as_array_mut() {
            Some(list) => list.push(entry.clone()),
            None => *list = json!([entry]),
        }
    }
    base
}

/// The text with one more entry.
fn with_entry(path: &Path, text: &str, event: &'static str, entry: &Value) -> Result<String, Fault> {
    let config = parse(path, text)?;
    config.as_object().ok_or_else(|| damaged(path, "it should be an object"))?;
    let hooks = JsonStep::Key("hooks");
    let with = match (config.get("hooks"), config.get("hooks").and_then(|hooks| hooks.get(event))) {
        (None, _) => jsonc::with(text, &[], Some("hooks"), &json!({event: [entry]})),
        (Some(_), None) => jsonc::with(text, &[hooks], Some(event), &json!([entry])),
        (Some(_), Some(_)) => jsonc::with(text, &[hooks, JsonStep::Key(event)], None, entry),
    };
    with.ok_or_else(|| damaged(path, "`hooks` should be an object of lists"))
}

/// The text with a variable, unless the user has chosen a value for it.
fn with_variable(path: &Path, text: String, name: &str, value: &str) -> Result<String, Fault> {
    let config = parse(path, &text)?;
    let with = match (config.get("env"), config.get("env").and_then(|env| env.get(name))) {
        (None, _) => jsonc::with(&text, &[], Some("env"), &json!({name: value})),
        (Some(_), None) => jsonc::with(&text, &[JsonStep::Key("env")], Some(name), &json!(value)),
        (Some(_), Some(_)) => Some(text),
    };
    with.ok_or_else(|| damaged(path, "`env` should be an object"))
}

/// Whether the value of a variable is one of ours, of whatever version.
fn is_our_variable(value: &Value) -> bool {
    value.as_str().is_some_and(|value| value.contains(PREFIXED))
}

/// The text without our entries, and without the groups, lists and objects that were added with them.
fn without_ours(path: &Path, mut text: String) -> Result<String, Fault> {
    while let Some(config) = Some(parse(path, &text)?)
        && let Some(last) = last_of_ours(&config)
    {
        let unusual = || damaged(path, "our entries cannot be removed from it; remove them yourself");
        text = jsonc::without(&text, &last).ok_or_else(unusual)?;
    }
    Ok(text)
}

/// The last entry of ours: a variable, a hook, or a group in which all hooks are ours.
fn last_of_ours(config: &Value) -> Option<Vec<JsonStep<'_>>> {
    let mut variables = config.get("env").and_then(Value::as_object).into_iter().flatten();
    if let Some((name, _)) = variables.find(|(_, value)| is_our_variable(value)) {
        return Some(vec![JsonStep::Key("env"), JsonStep::Key(name)]);
    }
    let events = config.get("hooks")?.as_object()?;
    let entries = events.iter().flat_map(|(event, list)| {
        let list = list.as_array().into_iter().flatten().enumerate();
        list.map(move |(at, entry)| ([JsonStep::Key("hooks"), JsonStep::Key(event), JsonStep::At(at)], entry))
    });
    let ours = entries.filter_map(|(path, entry)| match entry.get("hooks").and_then(Value::as_array) {
        Some(inner) if inner.iter().all(is_ours) => (!inner.is_empty()).then(|| path.to_vec()),
        Some(inner) => {
            let at = inner.iter().rposition(is_ours)?;
            Some(path.into_iter().chain([JsonStep::Key("hooks"), JsonStep::At(at)]).collect())
        }
        None => is_ours(entry).then(|| path.to_vec()),
    });
    ours.last()
}

/// The command for the hook before a tool: the only one of our commands with an `||` after it.
fn before_a_tool(config: &Value) -> Option<String> {
    match config {
        Value::String(text) if text.contains(OURS) && text.split(OURS).nth(1)?.contains(" || ") => {
            Some(text.clone())
        }
        Value::Array(list) => list.iter().find_map(before_a_tool),
        Value::Object(map) => map.values().find_map(before_a_tool),
        _ => None,
    }
}

pub(super) fn is_ours(hook: &Value) -> bool {
    let texts = hook.as_object().into_iter().flat_map(Map::values).filter_map(Value::as_str);
    texts.into_iter().any(|text| text.contains(OURS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host;

    #[test]
    fn installing_twice_is_the_same_as_once_and_uninstalling_leaves_nothing() {
        for host in host::ALL {
            let root = tempfile::tempdir().unwrap();
            let setup = host.setup();
            assert_eq!(setup.uninstall(root.path()).unwrap(), SetupChange::NothingToRemove);
            assert_eq!(setup.install(root.path()).unwrap(), SetupChange::Written);
            assert!(
                setup.is_in_place(root.path()).unwrap() && setup.is_there(root.path()),
                "{}",
                host.name()
            );
            assert_eq!(setup.install(root.path()).unwrap(), SetupChange::Kept);
            assert_eq!(setup.uninstall(root.path()).unwrap(), SetupChange::Removed);
            assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0, "{}", host.name());
        }
    }

    #[test]
    fn other_entries_stay_unchanged() {
        for host in host::ALL {
            let root = tempfile::tempdir().unwrap();
            let Setup::Shared { file, entries, .. } = host.setup() else { continue };
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let event = entries[0].0;
            let foreign = json!({"z": 1, "hooks": {event: [{"command": "lint"}, {"hooks": [{"command": "format"}]}], "A": []}, "a": 2});
            let text = pretty(&foreign);
            fs::write(&path, &text).unwrap();
            host.setup().install(root.path()).unwrap();
            let merged: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
            assert_eq!(merged["hooks"][event].as_array().unwrap().len(), 3);
            // Somebody adds another hook to our group.
            let mut shared = merged.clone();
            if let Some(inner) = shared["hooks"][event][2].get_mut("hooks").and_then(Value::as_array_mut) {
                inner.push(json!({"command": "theirs"}));
                fs::write(&path, pretty(&shared)).unwrap();
                host.setup().uninstall(root.path()).unwrap();
                let left: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
                assert_eq!(left["hooks"][event][2]["hooks"], json!([{"command": "theirs"}]));
                fs::write(&path, pretty(&merged)).unwrap();
            }
            host.setup().uninstall(root.path()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text, "{}", host.name());
        }
    }

    #[test]
    fn every_layout_is_edited_in_place_and_restored() {
        for host in host::ALL {
            let Setup::Shared { file, entries, .. } = host.setup() else { continue };
            let event = entries[0].0;
            for text in [
                "{}".to_owned(),
                "{\n}\n".into(),
                "{ // mine\n}".into(),
                "{\r\n\t// mine\r\n\t\"a\": [1,2], // here\r\n}\r\n".into(),
                "{\"a\":{}, \"hooks\": {}}".into(),
                "{\n  \"env\": {\n    \"A\": \"b\" // mine\n  }\n}\n".into(),
                "{\"env\": {}, \"b\": 1}".into(),
                format!("{{\n    \"hooks\": {{ /* none */ \"{event}\": [], \"Other\": [{{}}] }}\n}}"),
                format!("{{\"hooks\":{{\"{event}\":[{{\"command\":\"lint\"}},]}}}}"),
                format!("{{\n  \"hooks\": {{\n    \"{event}\": [\n      {{}} // mine\n    ],\n  }},\n}}\n"),
            ] {
                let root = tempfile::tempdir().unwrap();
                let path = root.path().join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(&path, &text).unwrap();
                assert_eq!(host.setup().install(root.path()).unwrap(), SetupChange::Written);
                assert!(host.setup().is_in_place(root.path()).unwrap());
                let with = fs::read_to_string(&path).unwrap();
                let comments = text
                    .lines()
                    .filter(|line| line.contains("// "))
                    .map(|line| line.split_once("// ").unwrap().1);
                assert!(comments.into_iter().all(|comment| with.contains(comment)), "{with}");
                assert_eq!(host.setup().install(root.path()).unwrap(), SetupChange::Kept);
                assert_eq!(host.setup().uninstall(root.path()).unwrap(), SetupChange::Removed);
                assert_eq!(fs::read_to_string(&path).unwrap(), text, "{with}");
            }
        }
    }

    #[test]
    fn a_file_without_a_place_for_hooks_stays_unchanged() {
        let root = tempfile::tempdir().unwrap();
        for host in host::ALL {
            let Setup::Shared { file, .. } = host.setup() else { continue };
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            for text in [
                "{ not json }",
                "// a comment\n",
                "[]",
                "{\"hooks\": []}",
                "{\"hooks\": {\"PreToolUse\": {}, \"BeforeTool\": 1, \"preToolUse\": 1}}",
            ] {
                fs::write(&path, text).unwrap();
                assert!(host.setup().install(root.path()).is_err(), "{text}");
                assert_eq!(fs::read_to_string(&path).unwrap(), text);
            }
        }
    }
}
