//! Setting a program up: what goes into its configuration, merged with what is there, and how to take it out.
//!
//! Whatever a person or another tool has put into a shared file stays, in its order. Setting up twice is setting up once.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use tollgate::error::Fault;

/// By this our entries are known among others.
const OURS: &str = "tollgate hook ";

/// How a program is set up in a workspace.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Setup {
    /// Entries in a JSON file that others use, too.
    Shared {
        /// The file, relative to the workspace.
        file: &'static str,
        /// What a new file begins with.
        base: Value,
        /// Under `hooks`: the event, and what to add to its list.
        entries: Vec<(&'static str, Value)>,
    },
    /// Files of our own, with their text.
    Own(Vec<(&'static str, String, Place)>),
}

/// Whether a file of our own is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// It is read.
    Plain,
    /// It is run.
    Executable,
}

/// Whether a program would call a hook that is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trust {
    /// It asks nobody.
    NotNeeded,
    /// A person has agreed.
    Given,
    /// A person has to agree first: how.
    Missing(&'static str),
    /// The program's hooks are switched off: where.
    SwitchedOff(String),
}

impl Trust {
    /// What a person has to do before the hooks are called.
    pub(crate) fn what_to_do(&self) -> Option<&'static str> {
        match self {
            Self::NotNeeded | Self::Given => None,
            Self::Missing(how) => Some(how),
            Self::SwitchedOff(_) => Some("its hooks are switched off; `tollgate doctor` says where"),
        }
    }
}

/// What became of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Became {
    /// It was put in.
    Written,
    /// It was as it should be.
    Kept,
    /// It was taken out.
    Removed,
    /// There was nothing of ours.
    NothingToRemove,
    /// Only a person can do it.
    ByHand,
}

/// The line that a program gives to a shell: by name, silent where tollgate is not installed.
pub(super) fn command(host: &str) -> String {
    format!("command -v tollgate >/dev/null 2>&1 || exit 0; {OURS}{host}")
}

/// The same before a tool. If the hook itself dies, `otherwise` makes the program block.
pub(super) fn command_or(host: &str, otherwise: &str) -> String {
    format!("{} || {otherwise}", command(host))
}

/// What `command_or` says where an exit code of 2 blocks.
pub(super) const EXIT_2: &str =
    "{ echo 'the tollgate hook died, so nothing may be written; see: tollgate doctor' >&2; exit 2; }";

/// Entries of the most common form: a list of groups, each with a matcher and its hooks.
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
    /// The files that it is in, relative to the workspace.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        match self {
            Self::Shared { file, .. } => vec![file.into()],
            Self::Own(files) => files.iter().map(|(file, ..)| file.into()).collect(),
        }
    }

    /// Whether it is in place, as this program would write it.
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

    /// Whether anything of ours is there, also of an earlier version.
    pub(crate) fn is_there(&self, root: &Path) -> bool {
        self.files()
            .iter()
            .any(|file| fs::read_to_string(root.join(file)).is_ok_and(|text| text.contains(OURS)))
    }

    /// The command that is called before a tool, as it stands in the configuration.
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
                // A plugin, which calls it by words.
                Err(_) => {
                    text.lines().next()?.split('`').find(|word| word.starts_with(OURS)).map(str::to_owned)
                }
            }
        })
    }

    /// Puts it in.
    pub(crate) fn put(&self, root: &Path) -> Result<Became, Fault> {
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
                take_out(&mut config);
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
                write(&path, &pretty(&config), Place::Plain)?;
            }
            Self::Own(files) => {
                for (file, text, place) in files {
                    let path = root.join(file);
                    match fs::read_to_string(&path) {
                        Ok(there) if !there.contains(OURS) => {
                            return Err(damaged(
                                &path,
                                "it is somebody else's hook; call `tollgate hook` from it",
                            ));
                        }
                        _ => write(&path, text, *place)?,
                    }
                }
            }
        }
        Ok(Became::Written)
    }

    /// Takes it out. What others put beside it stays.
    pub(crate) fn take(&self, root: &Path) -> Result<Became, Fault> {
        if !self.is_there(root) {
            return Ok(Became::NothingToRemove);
        }
        match self {
            Self::Shared { file, base, .. } => {
                let path = root.join(file);
                let Some(mut config) = read_json(&path)? else { return Ok(Became::NothingToRemove) };
                take_out(&mut config);
                if config == *base || config == json!({}) {
                    remove(root, &path)?;
                } else {
                    write(&path, &pretty(&config), Place::Plain)?;
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

/// Takes out everything of ours, and what is empty then.
fn take_out(config: &mut Value) {
    let Some(hooks) = config.get_mut("hooks").and_then(Value::as_object_mut) else { return };
    let before = hooks.len();
    // A group or a list that was empty before is not ours to judge.
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

/// Only the command before a tool says what happens otherwise.
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

/// The JSON in a file; none if there is no file or nothing in it.
pub(super) fn read_json(path: &Path) -> Result<Option<Value>, Fault> {
    match fs::read_to_string(path) {
        Ok(text) if text.trim().is_empty() => Ok(None),
        // Some programs allow comments in their JSON. Writing the file would lose them, so it is left to the person.
        Ok(text) => serde_json::from_str(&text).map(Some).map_err(|error| damaged(path, &error.to_string())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Fault::Io { doing: "read", path: path.to_owned(), source }),
    }
}

/// Writes a file whole: the program that reads it may be running.
pub(super) fn write(path: &Path, text: &str, place: Place) -> Result<(), Fault> {
    // Through a link, so that the file is changed where it really is.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let fault = |doing| move |source| Fault::Io { doing, path: path.clone(), source };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(fault("make the folder of"))?;
    }
    let unfinished = path.with_extension("tollgate-tmp");
    fs::write(&unfinished, text).map_err(fault("write"))?;
    let mode = match (place, fs::metadata(path)) {
        (Place::Executable, _) => Some(0o755),
        (Place::Plain, Ok(there)) => Some(there.permissions().mode() & 0o7777),
        (Place::Plain, Err(_)) => None,
    };
    if let Some(mode) = mode {
        fs::set_permissions(&unfinished, fs::Permissions::from_mode(mode)).map_err(fault("write"))?;
    }
    fs::rename(&unfinished, path).map_err(fault("write"))
}

/// Removes a file, and the folders above that are empty then, up to the workspace.
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
    fn putting_in_twice_is_once_and_taking_out_leaves_nothing() {
        for host in host::ALL {
            let root = tempfile::tempdir().unwrap();
            let setup = host.setup();
            assert_eq!(setup.take(root.path()).unwrap(), Became::NothingToRemove);
            assert_eq!(setup.put(root.path()).unwrap(), Became::Written);
            assert!(
                setup.is_in_place(root.path()).unwrap() && setup.is_there(root.path()),
                "{}",
                host.name()
            );
            assert_eq!(setup.put(root.path()).unwrap(), Became::Kept);
            assert_eq!(setup.take(root.path()).unwrap(), Became::Removed);
            assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0, "{}", host.name());
        }
    }

    #[test]
    fn what_others_put_there_stays_as_it_is() {
        for host in host::ALL {
            let root = tempfile::tempdir().unwrap();
            let Setup::Shared { file, entries, .. } = host.setup() else { continue };
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let event = entries[0].0;
            let foreign = json!({"z": 1, "hooks": {event: [{"command": "lint"}, {"hooks": [{"command": "format"}]}], "A": []}, "a": 2});
            let text = pretty(&foreign);
            fs::write(&path, &text).unwrap();
            host.setup().put(root.path()).unwrap();
            let merged: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
            assert_eq!(merged["hooks"][event].as_array().unwrap().len(), 3);
            // Somebody adds a hook of their own to our group.
            let mut shared = merged.clone();
            if let Some(inner) = shared["hooks"][event][2].get_mut("hooks").and_then(Value::as_array_mut) {
                inner.push(json!({"command": "theirs"}));
                fs::write(&path, pretty(&shared)).unwrap();
                host.setup().take(root.path()).unwrap();
                let left: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
                assert_eq!(left["hooks"][event][2]["hooks"], json!([{"command": "theirs"}]));
                fs::write(&path, pretty(&merged)).unwrap();
            }
            host.setup().take(root.path()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text, "{}", host.name());
        }
    }

    #[test]
    fn a_file_that_is_not_plain_json_is_left_alone() {
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
                assert!(host.setup().put(root.path()).is_err(), "{text}");
                assert_eq!(fs::read_to_string(&path).unwrap(), text);
            }
        }
    }
}
