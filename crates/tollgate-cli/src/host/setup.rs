//! Installing hooks: adds our entries to a program's configuration, and removes them again.
//!
//! Entries of people and other tools in a shared file stay, in their order. Installing twice is the same as installing once.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use tollgate::error::Fault;

use crate::replace::{Access, replace_file};

/// The text that marks our entries.
const OURS: &str = "tollgate hook ";

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
    },
    /// Separate files: path, text and permissions.
    Own(Vec<(&'static str, String, Access)>),
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
    /// A setting disables the hooks. This is where.
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
pub(crate) enum Became {
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
            Self::Shared { file, entries, .. } => {
                let Some(there) = read_json(&root.join(file))? else { return Ok(false) };
                entries.iter().all(|(event, entry)| {
                    there["hooks"][event].as_array().is_some_and(|list| list.contains(entry))
                })
            }
            Self::Own(files) => files
                .iter()
                .all(|(file, text, _)| fs::read(root.join(file)).is_ok_and(|there| there == text.as_bytes())),
        })
    }

    /// Whether any entry of ours is there, also of another version.
    pub(crate) fn is_there(&self, root: &Path) -> bool {
        self.files()
            .iter()
            .any(|file| fs::read_to_string(root.join(file)).is_ok_and(|text| text.contains(OURS)))
    }

    /// The command for the hook before a tool, from the configuration.
    pub(crate) fn command_before_a_tool(&self, root: &Path) -> Option<String> {
        self.files().iter().find_map(|file| {
            let path = root.join(file);
            let text = fs::read_to_string(&path).ok()?;
            match serde_json::from_str::<Value>(&text) {
                Ok(config) => before_a_tool(&config),
                Err(_) if text.contains(" || ") && text.starts_with("#!") => {
                    Some(format!("'{}'", path.display()))
                }
                Err(_) if text.starts_with("#!") => None,
                // A plugin, whose first line names the command.
                Err(_) => {
                    text.lines().next()?.split('`').find(|word| word.starts_with(OURS)).map(str::to_owned)
                }
            }
        })
    }

    /// Adds our entries.
    pub(crate) fn install(&self, root: &Path) -> Result<Became, Fault> {
        if self.is_in_place(root)? {
            return Ok(Became::Kept);
        }
        match self {
            Self::Shared { file, base, entries } => {
                let path = root.join(file);
                let mut config = match read_json(&path)? {
                    Some(config) => config,
                    None => base.clone(),
                };
                remove_ours(&mut config);
                let unusable = || damaged(&path, "`hooks` should be an object of lists");
                let top = config.as_object_mut().ok_or_else(|| damaged(&path, "it should be an object"))?;
                let hooks = top.entry("hooks").or_insert_with(|| json!({}));
                for (event, entry) in entries {
                    let list = hooks
                        .as_object_mut()
                        .ok_or_else(unusable)?
                        .entry(*event)
                        .or_insert_with(|| json!([]));
                    list.as_array_mut().ok_or_else(unusable)?.push(entry.clone());
                }
                write(&path, &pretty(&config), Access::Normal)?;
            }
            Self::Own(files) => {
                for (file, text, access) in files {
                    let path = root.join(file);
                    match fs::read_to_string(&path) {
                        Ok(there) if !there.contains(OURS) => {
                            return Err(damaged(
                                &path,
                                "it already has another hook; call `tollgate hook` from that hook",
                            ));
                        }
                        _ => write(&path, text, *access)?,
                    }
                }
            }
        }
        Ok(Became::Written)
    }

    /// Removes our entries. All other entries stay.
    pub(crate) fn uninstall(&self, root: &Path) -> Result<Became, Fault> {
        if !self.is_there(root) {
            return Ok(Became::NothingToRemove);
        }
        match self {
            Self::Shared { file, base, .. } => {
                let path = root.join(file);
                let Some(mut config) = read_json(&path)? else { return Ok(Became::NothingToRemove) };
                remove_ours(&mut config);
                if config == *base || config == json!({}) {
                    remove(root, &path)?;
                } else {
                    write(&path, &pretty(&config), Access::Normal)?;
                }
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
        Ok(Became::Removed)
    }
}

/// Removes all our entries, and the groups and lists that are empty afterwards.
fn remove_ours(config: &mut Value) {
    let Some(hooks) = config.get_mut("hooks").and_then(Value::as_object_mut) else { return };
    let before = hooks.len();
    // A group or a list that was empty before is not ours, and stays.
    hooks.retain(|_, list| {
        let Some(list) = list.as_array_mut() else { return true };
        let count = list.len();
        list.retain_mut(|entry| match entry.get_mut("hooks").and_then(Value::as_array_mut) {
            Some(inner) => {
                let count = inner.len();
                inner.retain(|hook| !is_ours(hook));
                inner.len() == count || !inner.is_empty()
            }
            None => !is_ours(entry),
        });
        list.len() == count || !list.is_empty()
    });
    if before > 0
        && hooks.is_empty()
        && let Some(top) = config.as_object_mut()
    {
        top.remove("hooks");
    }
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

pub(super) fn pretty(config: &Value) -> String {
    serde_json::to_string_pretty(config).unwrap_or_default() + "\n"
}

/// The JSON in a file; `None` if the file is missing or empty.
pub(super) fn read_json(path: &Path) -> Result<Option<Value>, Fault> {
    match fs::read_to_string(path) {
        Ok(text) if text.trim().is_empty() => Ok(None),
        // Some programs allow comments in their JSON. Writing the file would delete them, so it is an error.
        Ok(text) => {
            serde_json::from_str(&text).map(Some).map_err(|error| damaged(path, &not_json(&text, &error)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Fault::Io { doing: "read", path: path.to_owned(), source }),
    }
}

/// Why a text is not JSON, and in which line.
fn not_json(text: &str, error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    let there =
        text.lines().nth(line.saturating_sub(1)).and_then(|text| text.get(column.saturating_sub(1)..));
    let reason = error.to_string();
    let reason = match there {
        Some(there) if there.starts_with("//") || there.starts_with("/*") => "comment",
        _ => reason.split(" at line ").next().unwrap_or_default(),
    };
    format!("not JSON (line {line}: {reason})")
}

/// Writes a file whole, because the program that reads it may be running. Follows a symbolic link.
pub(super) fn write(path: &Path, text: &str, access: Access) -> Result<(), Fault> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    replace_file(&path, text.as_bytes(), access)
}

/// Removes a file, and the folders above it that are then empty, up to the workspace.
pub(super) fn remove(root: &Path, path: &Path) -> Result<(), Fault> {
    fs::remove_file(path).map_err(|source| Fault::Io { doing: "remove", path: path.to_owned(), source })?;
    for folder in path.ancestors().skip(1).take_while(|folder| *folder != root) {
        if fs::remove_dir(folder).is_err() {
            break;
        }
    }
    Ok(())
}

pub(super) fn damaged(path: &Path, what: &str) -> Fault {
    Fault::Config { path: path.to_owned(), what: what.to_owned() }
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
            assert_eq!(setup.uninstall(root.path()).unwrap(), Became::NothingToRemove);
            assert_eq!(setup.install(root.path()).unwrap(), Became::Written);
            assert!(
                setup.is_in_place(root.path()).unwrap() && setup.is_there(root.path()),
                "{}",
                host.name()
            );
            assert_eq!(setup.install(root.path()).unwrap(), Became::Kept);
            assert_eq!(setup.uninstall(root.path()).unwrap(), Became::Removed);
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
    fn a_file_that_is_not_plain_json_stays_unchanged() {
        let root = tempfile::tempdir().unwrap();
        for host in host::ALL {
            let Setup::Shared { file, .. } = host.setup() else { continue };
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            for text in [
                "{ // a comment\n}",
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
